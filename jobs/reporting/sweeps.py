"""Sweeps: how the scores of arms move with one number of their settings, in words and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.reporting.scores import NAMES
from jobs.reporting.table1 import figures_of

Row = Mapping[str, Any]
Line = Sequence[tuple[float, float, float, float]]  # x, value, low, high
MAX_LINES = 10


@dataclass(frozen=True)
class Sweep:
    """Arms of one task that differ in one number alone, line by line.

    Attributes:
        task: Name of the task.
        setting: Key of the number, such as `stage2.k`.
        lines: Per line, its (number, summary row) by rising number, at least two; a line is one
            setting of everything else.
    """

    task: str
    setting: str
    lines: Mapping[str, Sequence[tuple[float, Row]]]


def panels_of(sweep: Sweep) -> dict[str, dict[str, Line]]:
    """The figures of a sweep: per metric, per line, what is drawn; at most `MAX_LINES` lines."""
    panels: dict[str, dict[str, Line]] = {}
    for name, points in list(sweep.lines.items())[:MAX_LINES]:
        for x, row in points:
            for metric, found in figures_of(dict(row)).items():
                if found["value"] is None:
                    continue
                line = panels.setdefault(NAMES[metric], {})
                line[name] = [*line.get(name, []), (x, found["value"], found["low"], found["high"])]
    return panels


def majority_of(sweep: Sweep) -> dict[str, float]:
    """What always answering the majority label scores, per metric that has it."""
    found: dict[str, float] = {}
    for points in sweep.lines.values():
        for _, row in points:
            for metric, figures in figures_of(dict(row)).items():
                if figures.get("majority") is not None:
                    found.setdefault(NAMES[metric], figures["majority"])
    return found


def alt_text(sweep: Sweep) -> str:
    """What the picture shows: each line's ends and its highest point, in its last metric."""
    panels = panels_of(sweep)
    metric, lines = list(panels.items())[-1]
    told = [
        f"{name} from {line[0][1]:.3f} at {line[0][0]:g} to {line[-1][1]:.3f} at {line[-1][0]:g}, "
        "highest {1:.3f} at {0:g}".format(*max(line, key=lambda point: point[1])[:2])
        for name, line in lines.items()
    ]
    return f"Lines of {' and '.join(panels)} over {sweep.setting}. {metric}: {'; '.join(told)}."


def caption(sweep: Sweep) -> str:
    """How to read the picture."""
    left_out = len(sweep.lines) - MAX_LINES
    more = f" {left_out} more lines are left out; see the table of metrics." if left_out > 0 else ""
    return (
        f"Scores over {sweep.setting}; arms on a line differ in it alone. Whiskers are 95% "
        "bootstrap intervals over the queries, which are the same for all points: of two points, "
        "the difference is surer than their whiskers look. Lines are set a little apart. Dashed "
        "red: always answering the majority label. The highest of many points is likely to be "
        "somewhat overstated."
        f"{more}"
    )
