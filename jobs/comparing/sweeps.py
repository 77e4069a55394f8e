"""Which arms differ in one number alone, and so make a line over it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.comparing.baselines import settings_of
from jobs.config.schema import Arm
from jobs.reporting.sweeps import Sweep

Row = Mapping[str, Any]
SWEPT = ("stage2.k", "stage1.k1", "stage1.lambda", "stage2.lambda", "stage2.mmr_lambda")


def sweeps_of(arms: Sequence[Arm], summary: Sequence[Row]) -> list[Sweep]:
    """Find the arms of each task that differ in one number alone.

    Args:
        arms: All arms.
        summary: Their summary rows; an arm without a score is no point of a line.

    Returns:
        A sweep for each task and number of `SWEPT` over which at least one line has two points.
    """
    rows = {row["arm"]: row for row in summary if row["score"] is not None}
    found = []
    for task in dict.fromkeys(arm.task for arm in arms):
        mine = [arm for arm in arms if arm.task == task and arm.name in rows]
        for setting in SWEPT:
            lines: dict[str, list[tuple[float, Row]]] = {}
            for group in _groups(mine, setting):
                name = _name([arm for _, arm in group], setting)
                name = f"{name} ({group[0][1].name} ...)" if name in lines else name
                lines[name] = [(x, rows[arm.name]) for x, arm in group]
            if lines:
                found.append(Sweep(task, setting, lines))
    return found


def _groups(arms: Sequence[Arm], setting: str) -> list[list[tuple[float, Arm]]]:
    """Arms that are equal but for the setting, by its value; only where it takes two values."""
    groups: dict[str, list[tuple[float, Arm]]] = {}
    for arm in arms:
        rest = settings_of(arm)
        x = rest.pop(setting, None)
        if isinstance(x, int | float) and not isinstance(x, bool):
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append((float(x), arm))
    ordered = [sorted(group, key=lambda point: point[0]) for group in groups.values()]
    return [group for group in ordered if group[0][0] < group[-1][0]]


def _name(arms: Sequence[Arm], setting: str) -> str:
    """The arms' common name without what the grid added, else their methods and encoder."""
    added = f"{setting.split('.')[-1]}="
    names = {
        "+".join(part for part in arm.name.split("+") if not part.startswith(added)) for arm in arms
    }
    if len(names) == 1:
        return names.pop()
    first = arms[0]
    return f"{first.stage1.method}+{first.stage2.method}, {first.encoder}"
