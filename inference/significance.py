"""Is a difference more than chance: paired t-test, McNemar, Holm, and intervals of shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

EXACT_BELOW = 25
ZERO_SD = 1e-12  # of differences of shares: below it, equal but for rounding


@dataclass(frozen=True)
class PairedT:
    """A paired t-test of the differences of two arms, one a fold.

    Attributes:
        n: Differences, that is folds.
        mean: Their mean; None without any.
        sd: Their standard deviation (n - 1); None below 2.
        t: mean / (sd / sqrt(n)); None where there is no variance.
        p: Two-sided; None below 2 differences.
        low: Lower end of the interval of the mean, from the t-distribution; None below 2.
        high: Its upper end.
        note: Why t or p is not what one expects; empty if it is.
    """

    n: int
    mean: float | None
    sd: float | None
    t: float | None
    p: float | None
    low: float | None
    high: float | None
    note: str = ""


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of the queries that exactly one of two arms answers right.

    Attributes:
        b: Queries that only the first answers right.
        c: Queries that only the second answers right.
        p: Two-sided.
        test: `exact` (binomial) or `chi-square` (with continuity correction).
    """

    b: int
    c: int
    p: float
    test: str


def paired_t(differences: Sequence[float], *, level: float = 0.95) -> PairedT:
    """Test whether the mean of paired differences is 0 (Student 1908; scipy's `ttest_1samp`).

    Where all differences are equal there is no t. If they are 0, the arms are equal (p = 1). If
    not, p is that of the sign-flip test: 2 of the 2^n ways to swap the arms in each fold are as far
    from 0, which is the least p that n folds can bear.

    Args:
        differences: n finite numbers, first arm minus second, one a fold.
        level: Coverage of the interval, in (0, 1).

    Returns:
        The test. O(n) time.
    """
    n, values = len(differences), np.asarray(differences, dtype=np.float64)
    if n < 2:
        mean = float(values[0]) if n else None
        note = f"{n} folds: a t-test needs at least 2"
        return PairedT(n, mean, None, None, None, None, None, note)
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    if sd > ZERO_SD:
        found = stats.ttest_1samp(values, 0.0)
        interval = found.confidence_interval(level)
        ends = (float(interval.low), float(interval.high))
        return PairedT(n, mean, sd, float(found.statistic), float(found.pvalue), *ends)
    if abs(mean) <= ZERO_SD:
        return PairedT(n, 0.0, 0.0, None, 1.0, 0.0, 0.0, "no fold differs")
    note = "every fold differs by the same: p of the sign-flip test"
    return PairedT(n, mean, 0.0, None, 2.0 ** (1 - n), mean, mean, note)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p values for their number by Holm's step-down rule (Holm 1979).

    The i-th smallest of m is multiplied by m - i + 1, is never below one that stood before it, and
    at most 1. What stays below 0.05 holds with a chance of at most 5% that any of them is an error,
    however the tests depend on each other.

    Args:
        p_values: One a test; None for a test that could not be made, which counts as none.

    Returns:
        Corrected values in the same order, None where there was None. O(m log m) time.
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        corrected[i] = largest
    return corrected


def mcnemar(b: int, c: int) -> McNemar:
    """Test whether two arms answer equally many queries right (McNemar 1947).

    Below 25 queries on which they disagree, the exact binomial test; from there on chi-square with
    the continuity correction (Edwards 1948), which is 0 where b and c differ by at most 1.

    Args:
        b: Queries that only the first answers right.
        c: Queries that only the second answers right.

    Returns:
        The test; p = 1 where the two never disagree.
    """
    if b + c < EXACT_BELOW:
        p = float(stats.binomtest(b, b + c).pvalue) if b + c else 1.0
        return McNemar(b, c, p, "exact")
    statistic = max(0, abs(b - c) - 1) ** 2 / (b + c)
    return McNemar(b, c, float(stats.chi2.sf(statistic, 1)), "chi-square")


def wilson(n_right: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Score interval of a share (Wilson 1927), which holds for few rows and shares near 0 or 1.

    Args:
        n_right: Successes, 0 to n; a sum of scores in [0, 1] gives an interval that is too wide.
        n: Trials; 0 gives the interval that says nothing, (0, 1).
        level: Coverage, in (0, 1).

    Returns:
        Both ends, in [0, 1].
    """
    if not n:
        return 0.0, 1.0
    z = float(stats.norm.ppf((1 + level) / 2))
    share = n_right / n
    middle = share + z**2 / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = ((middle + sign * half) / (1 + z**2 / n) for sign in (-1, 1))
    # Rounding must not leave a share of 0 or 1 outside of its own interval.
    return (0.0 if n_right == 0 else low), (1.0 if n_right == n else high)


def paired_shares(
    both: int, first: int, second: int, neither: int, *, level: float = 0.95
) -> tuple[float, float]:
    """Interval of the difference of two shares of the same rows (Newcombe 1998, method 10).

    Built from the two Wilson intervals and their correlation, so that it keeps a width where few
    rows, or none, tell the two apart; a bootstrap of one row has none.

    Args:
        both: Rows that both answer right.
        first: Rows that only the first does.
        second: Rows that only the second does.
        neither: Rows that neither does.
        level: Coverage, in (0, 1).

    Returns:
        Both ends of first minus second, in [-1, 1]; without rows (-1, 1).
    """
    n = both + first + second + neither
    if not n:
        return -1.0, 1.0
    p1, p2 = (both + first) / n, (both + second) / n
    (low1, high1), (low2, high2) = (wilson(both + x, n, level=level) for x in (first, second))
    phi = _correlation(both, first, second, neither)
    down, up = p1 - low1, high2 - p2
    low = p1 - p2 - math.sqrt(max(0.0, down**2 - 2 * phi * down * up + up**2))
    down, up = p2 - low2, high1 - p1
    high = p1 - p2 + math.sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))
    return max(-1.0, low), min(1.0, high)


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Phi of a table of two by two, with Newcombe's continuity correction; 0 on an empty margin."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    cross, n = both * neither - first * second, both + first + second + neither
    return (max(0.0, cross - n / 2) if cross > 0 else cross) / math.sqrt(margins)
