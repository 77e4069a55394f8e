"""Pictures of tasks whose answer is more than one label: scores, classes, fates of queries."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from jobs.reporting.charts import (
    COLOURS,
    DARK,
    MARKS,
    MAX_CONFUSION,
    OTHER,
    calm,
    metric_bars,
    one_line,
    to_png,
)
from jobs.reporting.outcomes import OUTCOMES
from jobs.reporting.scores import NAMES
from jobs.reporting.tables import plain

# The scores that are drawn, of each kind of task those that it has.
DRAWN = (
    *("micro_f1", "macro_f1", "strict_micro_f1", "relaxed_micro_f1", "token_accuracy"),
    *("execution_accuracy", "execution_accuracy_unordered"),
)
MAX_ARMS = len(COLOURS)
_COLOURS_OF_OUTCOMES = (
    *("#117733", "#88CCAA", "#4477AA", "#CC6677", "#882255"),
    *("#DDCC77", "#332288", "#AA4499", "#EE7733", OTHER),
)
_FATES = dict(zip(OUTCOMES, _COLOURS_OF_OUTCOMES, strict=True))
_CLASSES = (
    "Marks are the F1 of each class by arm; in brackets, how often it is in the gold answers. "
    "Strict span: same type, begin and end; relaxed span: same type and any overlap."
)

Row = Mapping[str, Any]


class Drawn(NamedTuple):
    """A picture with what it shows in words, and how to read it."""

    png: bytes
    alt: str
    caption: str


def score_picture(scores: Sequence[Row]) -> Drawn | None:
    """Bars of the main scores of every arm; None without any.

    Args:
        scores: Rows of `SCORES_SCHEMA` of one task.
    """
    own = {(row["metric"], row["arm"]): row for row in scores if not row["against"]}
    arms = list(dict.fromkeys(arm for _, arm in own))
    metrics = [name for name in DRAWN if all((name, arm) in own for arm in arms)]
    if not own or not metrics:
        return None
    panels = {
        NAMES[name]: [
            (*(own[name, arm][part] for part in ("value", "low", "high")), np.nan) for arm in arms
        ]
        for name in metrics
    }
    figures = {
        arm: " and ".join(plain(own[name, arm]["value"]) for name in metrics) for arm in arms
    }
    told = "; ".join(f"{arm} {values}" for arm, values in figures.items())
    return Drawn(
        metric_bars(arms, panels),
        f"Bars of {', '.join(panels)} by arm: {told}.",
        "Bars are the scores, whiskers their 95% bootstrap intervals over the queries.",
    )


def class_picture(slices: Sequence[Row]) -> Drawn | None:
    """F1 of each class, or type by way of matching, a mark for each arm; None without any.

    Args:
        slices: Rows of `SLICES_SCHEMA` of one task; of more than `MAX_CONFUSION` classes the most
            frequent are drawn, of more than `MAX_ARMS` arms the first.
    """
    if not slices:
        return None
    support = {row["value"]: row["support"] for row in slices}
    shown = sorted(support, key=lambda name: -support[name])[:MAX_CONFUSION]
    arms = list(dict.fromkeys(row["arm"] for row in slices))[:MAX_ARMS]
    ways = list(dict.fromkeys(row["slice"] for row in slices))
    f1 = {(row["slice"], row["arm"], row["value"]): row["f1"] for row in slices}
    figure = Figure(figsize=(2.2 + 4.4 * len(ways), 1.5 + 0.16 * len(shown) * (len(arms) + 1)))
    panels = figure.subplots(1, len(ways), sharey=True, squeeze=False)[0]
    rows = np.arange(len(shown))
    for axes, way in zip(panels, ways, strict=True):
        for i, arm in enumerate(arms):
            values = [f1[way, arm, name] for name in shown]
            aside = 0.7 * ((i + 0.5) / len(arms) - 0.5)
            mark = {"marker": MARKS[i % len(MARKS)], "color": COLOURS[i], "ms": 6, "ls": ""}
            axes.hlines(rows + aside, 0, values, colors=COLOURS[i], lw=1, alpha=0.5)
            axes.plot(values, rows + aside, **mark, label=one_line(arm, 34))
        axes.set_xlim(-0.02, 1.02)
        axes.set_title(f"F1 by {way}", fontsize=11)
        axes.set_yticks(rows, [f"{one_line(x, 30)} ({support[x]:,})" for x in shown], fontsize=10)
        axes.set_ylim(len(shown) - 0.45, -0.55)
        calm(axes)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=min(len(arms), 4), frameon=False)
    return Drawn(to_png(figure), _classes_told(f1, arms, ways, shown), _CLASSES)


def outcome_picture(counts: Mapping[str, Mapping[str, int]]) -> Drawn | None:
    """Stacked bars of what became of the queries of each arm; None without any.

    Args:
        counts: `outcome_counts`.
    """
    totals = {arm: sum(one.values()) for arm, one in counts.items()}
    if not any(totals.values()):
        return None
    arms = list(counts)
    figure = Figure(figsize=(9.6, 1.9 + 0.42 * len(arms)))
    axes = figure.subplots()
    left = np.zeros(len(arms))
    for name in [name for name in OUTCOMES if any(one.get(name) for one in counts.values())]:
        n = np.array([counts[arm].get(name, 0) for arm in arms])
        share = n / np.maximum(1, list(totals.values()))
        axes.barh(arms, share, left=left, height=0.66, color=_FATES[name], label=name)
        for row, (width, start, number) in enumerate(zip(share, left, n, strict=True)):
            if width > 0.04:
                at: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
                dark = name in ("right but for the order of rows", "syntax error")
                axes.text(start + width / 2, row, f"{number:,}", color=DARK if dark else "w", **at)
        left += share
    axes.set_yticks(range(len(arms)), [one_line(arm, 34) for arm in arms], fontsize=10)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f}%")
    calm(axes)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    told = "; ".join(f"{arm}: {_told(one)}" for arm, one in counts.items())
    return Drawn(
        to_png(figure),
        f"What became of the queries of each arm. {told}.",
        "What became of the queries that the LLM wrote: numbers are queries, widths their share of "
        "the scored ones.",
    )


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts.get(name))


def _classes_told(
    f1: Mapping[tuple[str, str, str], float],
    arms: Sequence[str],
    ways: Sequence[str],
    shown: Sequence[str],
) -> str:
    told = "; ".join(
        f"{arm}, {way}: {', '.join(f'{name} {f1[way, arm, name]:.3f}' for name in shown[:10])}"
        for arm in arms
        for way in ways
    )
    return f"F1 by class. {told}."
