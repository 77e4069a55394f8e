"""The noise floor: how far apart repeats of one setting are, and what is no farther apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

METRICS = ("accuracy", "macro_f1")
# The score that decides, of a task whose answer is more than one label.
SCORE = "score"
Row = Mapping[str, Any]


def noise_rows(summary: Sequence[Row], groups: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """How the scores of repeats vary, one row a group.

    Args:
        summary: Summary rows of one task.
        groups: Names of arms that differ only in seed and repeat, at least two a group.

    Returns:
        Rows of `NOISE_SCHEMA`; arms that were not scored are left out, and so are groups of
        which fewer than two were.
    """
    by_name = {row["arm"]: row for row in summary if _told(row)}
    rows = []
    for group in groups:
        scored = [by_name[name] for name in group if name in by_name]
        if len(scored) > 1:
            rows.append(_noise(scored))
    return rows


def floor_of(names: Sequence[str], noise: Sequence[Row], metric: str, engine: str) -> float | None:
    """The difference that repeats of one setting show by themselves.

    It is the largest range among the repeats of the arms compared, over seeds or not, and of any
    arm of the same engine that was only answered again, since that engine answered these too.

    Args:
        names: The arms that are compared.
        noise: Rows of `noise_rows` of the task.
        metric: `accuracy`, `macro_f1`, or the score that decides.
        engine: Of the first of the arms.

    Returns:
        The floor; None where nothing was repeated, and for any other score.
    """
    near = repeats_near(names, noise, engine)
    return max(
        (row[f"{name}_range"] for row in near if (name := column_of(row, metric))), default=None
    )


def column_of(row: Row, metric: str) -> str | None:
    """What one of `noise_rows` calls a metric; None where it was not looked at."""
    if metric in METRICS:
        return metric if row.get(f"{metric}_range") is not None else None
    return SCORE if row.get("metric") == metric and row.get(f"{SCORE}_range") is not None else None


def repeats_near(names: Sequence[str], noise: Sequence[Row], engine: str) -> list[Row]:
    """The repeats that make the floor of some arms: their own, and such of their engine alone."""
    return [
        row
        for row in noise
        if set(names) & set(row["arms"]) or (row["varies"] == "repeat" and row["engine"] == engine)
    ]


def with_floors(
    comparisons: Sequence[Row], noise: Sequence[Row], engines: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Comparison rows, each with its floors and whether its differences are below them.

    Args:
        comparisons: Rows of `compare`.
        noise: Rows of `noise_rows` of the same task.
        engines: Engine per arm.

    Returns:
        The rows with `<metric>_floor` and `<metric>_below_floor` for both metrics; the latter is
        None where no floor is known.
    """
    rows = []
    for row in comparisons:
        names = [row["arm"], row["against"]]
        found: dict[str, Any] = {}
        for metric in METRICS:
            floor = floor_of(names, noise, metric, engines[row["arm"]])
            found[f"{metric}_floor"] = floor
            found[f"{metric}_below_floor"] = is_below(row[f"{metric}_difference"], floor)
        rows.append({**row, **found})
    return rows


def is_below(difference: float, floor: float | None) -> bool | None:
    """Whether a difference is no larger than the floor, up to rounding; None without a floor."""
    return None if floor is None else bool(abs(difference) <= floor + 1e-12)


def _noise(scored: Sequence[Row]) -> dict[str, Any]:
    first = scored[0]
    changed = [name for name in ("seed", "repeat") if len({row.get(name) for row in scored}) > 1]
    found: dict[str, Any] = {
        **{name: first[name] for name in ("task", "encoder", "engine")},
        "arms": [row["arm"] for row in scored],
        "varies": " and ".join(changed) or "repeat",
        "n": len(scored),
    }
    found["metric"] = first.get("metric")
    for metric in _told(first):
        values = np.array([row[metric] for row in scored], dtype=np.float64)
        found |= {
            f"{metric}_mean": float(values.mean()),
            f"{metric}_sd": float(values.std(ddof=1)),
            f"{metric}_range": float(np.ptp(values)),
        }
    return found


def _told(row: Row) -> tuple[str, ...]:
    """What an arm was scored in: accuracy and macro-F1, else the score that decides."""
    if row.get("accuracy") is not None:
        return METRICS
    return () if row.get(SCORE) is None else (SCORE,)
