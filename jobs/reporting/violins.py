"""The picture of scores over orders: plain values in, PNG bytes out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from jobs.reporting.charts import BLUE, DARK, OTHER, RED, calm, one_line, to_png


def violins(panels: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bytes:
    """Violins of the scores of each arm over its orders, one panel per metric.

    Args:
        panels: Per metric, per arm: `values` (one an order), `own` (of the arm's own prompts) and
            `floor` (width of the noise floor); the last two may be None.

    Returns:
        A PNG; arms from top to bottom, scores from left to right.
    """
    arms = list(dict.fromkeys(arm for panel in panels.values() for arm in panel))
    figure = Figure(figsize=(4.9 * len(panels) + 1.4, 1.5 + 0.75 * len(arms)))
    axes_of = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (metric, drawn) in zip(axes_of, panels.items(), strict=True):
        for arm, one in drawn.items():
            _violin(axes, arms.index(arm), np.array(one["values"], float), one)
        axes.set_title(metric, fontsize=11)
        calm(axes)
    axes_of[0].set_yticks(range(len(arms)), [one_line(arm, 34) for arm in arms], fontsize=10)
    axes_of[0].set_ylim(len(arms) - 0.45, -0.55)
    floors = any(one["floor"] for panel in panels.values() for one in panel.values())
    handles = _legend(with_floor=floors)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9
    )
    return to_png(figure)


def _violin(axes: Axes, row: int, values: NDArray[np.float64], one: Mapping[str, Any]) -> None:
    middle = float(np.median(values))
    if one["floor"]:
        band = [middle - one["floor"] / 2, middle + one["floor"] / 2]
        axes.fill_betweenx([row - 0.42, row + 0.42], *band, color=OTHER, alpha=0.28, lw=0)
    if np.ptp(values) > 0:
        drawn: Any = axes.violinplot(
            values, [row], orientation="horizontal", widths=0.72, showextrema=False
        )
        body = drawn["bodies"][0]
        body.set(facecolor=BLUE, edgecolor=BLUE, alpha=0.45)
    axes.scatter(values, row + _aside(values), s=9, color=DARK, alpha=0.45, lw=0, zorder=3)
    axes.vlines(middle, row - 0.36, row + 0.36, color=DARK, lw=2.2, zorder=4)
    if one["own"] is not None:
        axes.plot(one["own"], row, "D", color=RED, ms=7, mec="white", mew=0.9, zorder=5)


def _aside(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set equal values a little apart, so that each order is seen; the same on every run."""
    aside = np.zeros(len(values))
    for value in np.unique(values.round(9)):
        mine = np.flatnonzero(values.round(9) == value)
        step = min(0.08, 0.64 / len(mine))
        aside[mine] = step * (np.arange(len(mine)) - (len(mine) - 1) / 2)
    return aside


def _legend(*, with_floor: bool) -> Sequence[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="o", ls="", ms=4, color=DARK, alpha=0.6, label="an order"),
        Line2D([], [], marker="|", ls="", ms=11, mew=2.2, color=DARK, label="median"),
        Line2D([], [], marker="D", ls="", ms=6, color=RED, label="as run"),
    ]
    if with_floor:
        handles.append(Patch(color=OTHER, alpha=0.28, lw=0, label="noise floor"))
    return handles
