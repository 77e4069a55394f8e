"""Scores by slice of the queries, of tasks whose answer is more than one label."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from inference.tallies import Counts, Estimate, Statistic, difference, estimate
from jobs.reporting.answer_metrics import AnswerYardstick, Measured, shared_ids
from jobs.reporting.metric_tables import ARM_KEY
from jobs.reporting.slices import Slicing, divided


def score_slices(
    measured: Measured,
    slicing: Slicing,
    *,
    arm: Mapping[str, Any],
    yardstick: AnswerYardstick,
) -> list[dict[str, Any]]:
    """The score that decides, of one arm in every slice that has a scored query.

    Args:
        measured: The arm.
        slicing: What the queries are told apart by.
        arm: Its identifying fields.
        yardstick: Of the task.

    Returns:
        Rows of `SLICES_SCHEMA` with `score` and its bootstrap interval over the slice's queries.
    """
    key = {name: arm.get(name) for name in ARM_KEY}
    name = measured.scored.headline
    statistic = measured.scored.statistics[name]
    rows = []
    for value, ids in divided(measured.ids, slicing).items():
        found = _estimate(measured.counts_of(ids), statistic, yardstick)
        interval = {"score_low": found.interval.low, "score_high": found.interval.high}
        slice_ = {"slice": slicing.name, "value": value, "n": len(ids)}
        rows.append({**key, **slice_, "metric": name, "score": found.value, **interval})
    return rows


def score_slice_differences(
    measured: tuple[Measured, Measured],
    slicing: Slicing,
    *,
    arm: Mapping[str, Any],
    against: str,
    yardstick: AnswerYardstick,
) -> list[dict[str, Any]]:
    """How much more an arm scores in each slice than another.

    Args:
        measured: The arm, and the other.
        slicing: Of the arm's queries.
        arm: Identifying fields of the arm.
        against: Name of the other.
        yardstick: Of the task.

    Returns:
        Rows of `SLICE_DIFFERENCES_SCHEMA` over the queries scored for both, with paired bootstrap
        intervals. The intervals are of one slice each, not of all together.
    """
    first, second = measured
    name = first.scored.headline
    key = {**{name: arm.get(name) for name in ARM_KEY}, "against": against, "metric": name}
    statistic = difference(first.scored.statistics[name])
    rows = []
    for value, ids in divided(shared_ids(first, second), slicing).items():
        counts = np.hstack([first.counts_of(ids), second.counts_of(ids)])
        found = _estimate(counts, statistic, yardstick)
        rows.append(
            {
                **key,
                **{"slice": slicing.name, "value": value, "n": len(ids)},
                "score_difference": found.value,
                **{"low": found.interval.low, "high": found.interval.high},
            }
        )
    return rows


def _estimate(counts: Counts, statistic: Statistic, yardstick: AnswerYardstick) -> Estimate:
    resamples, seed = yardstick.n_resamples, yardstick.seed
    return estimate(counts, {"score": statistic}, n_resamples=resamples, seed=seed)["score"]
