"""Scores that follow from counts summed over rows, with bootstrap intervals over the rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.scoring import Interval, percentiles

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
# Sums of counts, shape (..., m), to scores, shape (...).
Statistic = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Estimate:
    """A score and its interval."""

    value: float
    interval: Interval


def estimate(
    counts: Counts,
    statistics: Mapping[str, Statistic],
    *,
    n_resamples: int,
    seed: int,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """Compute scores of all rows and their percentile bootstrap intervals.

    Rows with equal counts are drawn together, which is one multinomial draw (as in
    `scoring.bootstrap`): O(n_resamples u m) time for u distinct rows.

    Args:
        counts: Shape (n, m), what each of n >= 1 rows adds to the sums.
        statistics: Scores by name.
        n_resamples: Resamples of the rows.
        seed: Of the draws; equal seeds draw equal rows for every score.
        level: Coverage of the intervals, in (0, 1).

    Returns:
        Each score with its interval; a resample where a score does not exist (nan) is left out.

    Raises:
        ValueError: No rows.
    """
    if not len(counts):
        raise ValueError("There are 0 rows with a gold answer: nothing can be scored.")
    rows, times = np.unique(counts, axis=0, return_counts=True)
    n = int(times.sum())
    rng = np.random.default_rng(seed)
    sums = rng.multinomial(n, times / n, size=n_resamples) @ rows
    total = counts.sum(axis=0)
    return {
        name: Estimate(
            float(statistic(total.astype(np.float64))),
            percentiles(statistic(sums.astype(np.float64)), level),
        )
        for name, statistic in statistics.items()
    }


def difference(statistic: Statistic) -> Statistic:
    """Return the paired difference of a score: first half of the counts minus the second."""

    def between(sums: Floats) -> Floats:
        half = sums.shape[-1] // 2
        return statistic(sums[..., :half]) - statistic(sums[..., half:])

    return between


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole, 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def f1(right: Floats, n_gold: Floats, n_predicted: Floats) -> Floats:
    """Return the F1 of counts, 0 where nothing is gold or predicted."""
    return ratio(2 * right, n_gold + n_predicted)


def macro_f1(right: Floats, n_gold: Floats, n_predicted: Floats) -> Floats:
    """Return the mean F1 over the classes (last axis) that occur as gold or as a prediction."""
    occurs = n_gold + n_predicted > 0
    return ratio(f1(right, n_gold, n_predicted).sum(axis=-1), occurs.sum(axis=-1).astype(float))
