"""The pictures of the report: plain values in, PNG bytes out; no file, no global state."""

import io
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

# Paul Tol's "muted" set and one orange: told apart with every common colour blindness.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#882255", "#44AA99", "#EE7733", "#AA4499", "#999933"),
)
MARKS, DASHES = "osD^vPX", ("-", (0, (5, 2)), (0, (2, 2)))
OTHER, UNLABELLED = "#8A8A8A", "#D5D5D5"
BLUE, DARK, RED = "#4477AA", "#222222", "#B2182B"
MAX_CONFUSION, MAX_COVERAGE = 40, 40


def metric_bars(
    arms: Sequence[str],
    metrics: Mapping[str, Sequence[tuple[float, float, float, float]]],
) -> bytes:
    """Bars with intervals, one panel per metric, one bar per arm.

    Args:
        arms: Names of the arms, drawn from top to bottom.
        metrics: Per metric name, for each arm (value, low, high, majority baseline), in [0, 1];
            NaN where there is no such baseline.

    Returns:
        A PNG.
    """
    figure = Figure(figsize=(4.9 * len(metrics) + 1.4, 1.35 + 0.42 * len(arms)))
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    rows = np.arange(len(arms))
    for axes, (name, values) in zip(panels, metrics.items(), strict=True):
        value, low, high, majority = np.array(values, dtype=float).T
        axes.barh(rows, value, height=0.62, color=BLUE, alpha=0.75)
        whiskers = np.maximum([value - low, high - value], 0)
        axes.errorbar(value, rows, xerr=whiskers, fmt="none", ecolor=DARK, capsize=3, lw=1.3)
        axes.vlines(majority, rows - 0.44, rows + 0.44, colors=RED, linestyles=(0, (3, 2)))
        ends = np.fmax(high, majority)
        for row, x, end in zip(rows, value, ends, strict=True):
            axes.text(end + 0.012, row, f"{x:.3f}", va="center", fontsize=10, color=DARK)
        axes.set_xlim(0, float(ends.max()) * 1.02 + 0.14)
        axes.set_title(name, fontsize=11)
        calm(axes)
    panels[0].set_yticks(rows, [one_line(arm, 34) for arm in arms], fontsize=10)
    panels[0].invert_yaxis()
    handles = [Line2D([], [], color=DARK, lw=1.3, label="95% interval (bootstrap)")]
    if not all(np.isnan(one[3]) for values in metrics.values() for one in values):
        handles += [Line2D([], [], color=RED, lw=1.3, ls=(0, (3, 2)), label="majority baseline")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return to_png(figure)


def sweep_lines(
    title: str,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float, float]]]],
    majority: Mapping[str, float],
) -> bytes:
    """Scores over one number of the settings, one panel per metric, one line per setting.

    Args:
        title: Name of the number.
        panels: Per metric, per line, (number, value, low, high) by rising number; at most as many
            lines as there are colours.
        majority: Per metric, the score of the majority baseline, where it has one.

    Returns:
        A PNG; lines are told apart by colour, mark and dash, and set a little apart. The number
        is on a logarithmic axis where it spans a factor of 20 or more; 0 is put before it.
    """
    figure = Figure(figsize=(4.9 * len(panels) + 0.6, 4.6))
    axes_of = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (metric, lines) in zip(axes_of, panels.items(), strict=True):
        numbers = np.unique([float(point[0]) for line in lines.values() for point in line])
        places = _places(numbers)
        for i, (name, line) in enumerate(lines.items()):
            x, value, low, high = np.array(line, dtype=float).T
            aside = 0.012 * (i - (len(lines) - 1) / 2) * np.ptp(places)
            axes.errorbar(
                *(np.interp(x, numbers, places) + aside, value),
                yerr=np.maximum([value - low, high - value], 0),
                **{"color": COLOURS[i], "marker": MARKS[i % len(MARKS)], "ms": 5, "lw": 1.4},
                **{"ls": DASHES[i % len(DASHES)], "elinewidth": 0.9, "capsize": 2.5},
                label=one_line(name, 44),
            )
        if metric in majority:
            axes.axhline(majority[metric], color=RED, lw=1.2, ls=(0, (3, 2)))
        axes.set_xticks(places, [f"{number:g}" for number in numbers], fontsize=9)
        axes.set_title(metric, fontsize=11)
        axes.set_xlabel(one_line(title, 60), fontsize=10)
        calm(axes)
        axes.grid(axis="y", alpha=0.25)
    named, columns = axes_of[0].get_legend_handles_labels(), min(len(panels), 2)
    figure.legend(*named, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return to_png(figure)


def _places(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where distinct rising numbers stand on the axis: by logarithm if they span 20-fold or more.

    A 0 then stands before the first positive number, as far as the second stands after it.
    """
    positive = numbers[numbers > 0]
    if numbers[0] < 0 or len(positive) < 2 or positive[-1] < 20 * positive[0]:
        return numbers
    logs = np.log10(positive)
    return logs if len(positive) == len(numbers) else np.array([2 * logs[0] - logs[1], *logs])


def confusion_heatmap(confusion: NDArray[np.int64], labels: Sequence[str]) -> bytes:
    """The confusion table, shaded by the share of the gold label's rows.

    Args:
        confusion: Shape (L, L + 1); the last column is "no prediction". Of more than
            `MAX_CONFUSION` labels, the rarest are put together as "other".
        labels: L labels.

    Returns:
        A PNG; columns carry the numbers that stand before the labels of the rows.
    """
    table, names = _lumped(confusion, labels)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    n = len(names)
    figure = Figure(figsize=(4.0 + 0.36 * n, 1.7 + 0.33 * n))
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row, column in zip(*np.nonzero(table), strict=True):
        colour = "white" if shares[row, column] > 0.55 else DARK
        text = str(table[row, column])
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set_yticks(
        range(n), [f"{one_line(x, 38)}  {i}" for i, x in enumerate(names, 1)], fontsize=9
    )
    axes.set_xticks(range(n + 1), [*map(str, range(1, n + 1)), "none"], fontsize=9)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("predicted label (number of the row's label; none: no prediction)", fontsize=10)
    axes.set_ylabel("gold label", fontsize=10)
    axes.axvline(n - 0.5, color=DARK, lw=0.8)
    axes.tick_params(length=0)
    return to_png(figure)


def label_coverage(corpus: Mapping[str, int], candidates: Mapping[str, Mapping[str, int]]) -> bytes:
    """How the candidates of each Stage 1 method spread over the labels of the corpus.

    Args:
        corpus: Labelled corpus rows per label.
        candidates: Per method, its candidates per label.

    Returns:
        A PNG: bars are the candidates' shares, ticks the corpus's; a label without a candidate
        shows a red 0. Of more than `MAX_COVERAGE` labels, the rarest are left out of the bars
        and stay in the count of each title.
    """
    ranked = sorted(corpus, key=lambda label: (-corpus[label], label))
    shown = ranked[:MAX_COVERAGE]
    share = np.array([corpus[label] for label in shown]) / max(sum(corpus.values()), 1)
    rows = np.arange(len(shown))
    figure, panels = _panels(len(candidates), width=3.1, height=1.0 + 0.25 * len(shown), left=2.6)
    for axes, (method, counts) in zip(panels, candidates.items(), strict=False):
        n = [counts.get(label, 0) for label in shown]
        picked = np.array(n) / max(sum(counts.values()), 1)
        axes.barh(rows, picked, height=0.7, color=BLUE, alpha=0.75)
        axes.plot(share, rows, "|", color=DARK, ms=9, mew=1.8)
        for row, count in enumerate(n):
            end = max(picked[row], share[row])
            axes.text(
                end + 0.012,
                row,
                str(count),
                va="center",
                fontsize=8.5,
                color=DARK if count else RED,
            )
        covered = sum(counts.get(label, 0) > 0 for label in ranked)
        axes.set_title(f"{one_line(method, 26)}\n{covered} of {len(ranked)} labels", fontsize=10.5)
        axes.set_xlim(0, max([*share, *picked], default=0) * 1.02 + 0.09)
        axes.set_yticks(rows, [one_line(label, 34) for label in shown], fontsize=9)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f}%")
        calm(axes)
    handles = [
        Line2D([], [], color=BLUE, lw=7, alpha=0.75, label="share of the candidates (number)"),
        Line2D([], [], color=DARK, marker="|", ms=9, mew=1.8, ls="", label="share of the corpus"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return to_png(figure)


def umap_map(
    points: NDArray[np.floating],
    labels: Sequence[str | None],
    candidates: Mapping[str, NDArray[np.int64]],
) -> bytes:
    """One panel per Stage 1 method on one common projection.

    Args:
        points: Shape (n, 2), the projected rows.
        labels: n labels, None where a row has none; the ten most frequent get a colour.
        candidates: Per method, the positions of its candidates in `points`.

    Returns:
        A PNG: rows are dots, candidates are ringed discs in the colour of their label.
    """
    top = [label for label, _ in Counter(x for x in labels if x is not None).most_common(10)]
    palette = dict(zip(top, COLOURS, strict=False))
    colours = np.array([UNLABELLED if x is None else palette.get(x, OTHER) for x in labels])
    figure, panels = _panels(len(candidates), width=4.6, height=4.5)
    size = float(np.clip(12_000 / max(len(points), 1), 1.2, 18))
    for axes, (method, chosen) in zip(panels, candidates.items(), strict=False):
        axes.scatter(points[:, 0], points[:, 1], s=size, c=colours, alpha=0.35, lw=0)
        ringed = points[chosen]
        axes.scatter(
            ringed[:, 0], ringed[:, 1], s=30, c=colours[chosen], edgecolors="black", lw=0.9
        )
        axes.set_title(f"{one_line(method, 40)}: {len(chosen)} candidates", fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
    entries = [(one_line(label, 40), palette[label]) for label in top]
    if set(labels) - set(top) - {None}:
        entries.append(("other labels", OTHER))
    if None in labels:
        entries.append(("no label", UNLABELLED))
    handles = [Line2D([], [], marker="o", ls="", ms=7, color=c, label=name) for name, c in entries]
    columns = min(3, 2 * min(3, len(candidates)), len(entries))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(columns, 1),
        frameon=False,
        fontsize=9,
    )
    return to_png(figure)


def _panels(n: int, *, width: float, height: float, left: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure of n panels in rows of three with common axes; spare panels are hidden."""
    columns = min(n, 3)
    n_rows = -(-n // columns)
    figure = Figure(figsize=(left + width * columns, height * n_rows + 0.9))
    panels = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in islice(panels, n, None):
        axes.set_visible(False)
    return figure, list(panels[:n])


def calm(axes: Axes) -> None:
    """Take away what draws the eye from the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def one_line(text: str, width: int) -> str:
    """One line of at most `width` characters that is never read as a formula."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    cut = line if len(line) <= width else line[: width - 3].rstrip() + "..."
    return cut.replace("$", r"\$")


def _lumped(
    confusion: NDArray[np.int64], labels: Sequence[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Put the labels beyond `MAX_CONFUSION` together, the most frequent ones staying."""
    n = len(labels)
    if n <= MAX_CONFUSION:
        return confusion, list(labels)
    frequent = np.argsort(-confusion.sum(axis=1), kind="stable")[: MAX_CONFUSION - 1]
    kept = sorted(int(i) for i in frequent)
    place = np.full(n + 1, len(kept))
    place[kept] = np.arange(len(kept))
    place[n] = len(kept) + 1
    table = np.zeros((len(kept) + 1, len(kept) + 2), dtype=np.int64)
    np.add.at(table, (place[:n, None], place[None, :]), confusion)
    return table, [*(labels[i] for i in kept), f"other ({n - len(kept)} labels)"]


def to_png(figure: Figure) -> bytes:
    """Equal figures give equal bytes: no date, no version in the file."""
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", h_pad=0.08, w_pad=0.08)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; the tables of the page show them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
