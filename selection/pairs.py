"""What the compiled selectors share: cosines within a recalled set, and the best with its ties."""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.objective import TIE_TOLERANCE
from selection.shortlist import dot


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def cosine_of(gram: Float64, vectors: Float32, left: int, right: int) -> float:
    """Return the cosine of two records in float64, kept in `Pool.gram` or computed; O(1) or O(d).

    Args:
        gram: (n, n) float64, or (0, 0).
        vectors: (n, d) float32.
        left: Place in the pool.
        right: Place in the pool.
    """
    if gram.shape[0] > 0:
        return gram[left, right]
    return dot(vectors[left], vectors[right])


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def best_open(values: Float64, open_: Bool, items: Int64, tie_rank: Int64) -> int:
    """Return the open position with the largest value, of those tied the smallest rank; O(r).

    Args:
        values: (r,) float64.
        open_: (r,) bool; at least one is True.
        items: (r,) int64 places in the pool, at least 0 where open.
        tie_rank: (n,) int64.
    """
    best = -np.inf
    for j in range(values.shape[0]):
        if open_[j] and values[j] > best:
            best = values[j]
    least = best
    if best > -np.inf:
        least = best - TIE_TOLERANCE * (1 + abs(best))
    pick = -1
    for j in range(values.shape[0]):
        if open_[j] and values[j] >= least:
            better = pick < 0 or tie_rank[items[j]] < tie_rank[items[pick]]
            pick = j if better else pick
    return pick


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def condition_on(
    pick: int,
    position: int,
    items: Int64,
    open_: Bool,
    keep: float,
    gram: Float64,
    vectors: Float32,
    factor: Float64,
    residual: Float64,
) -> None:
    """Take a pick into the Cholesky factor of M = keep * W + (1 - keep) * I, incrementally.

    After Chen et al. 2018: row `position` of the factor is what the pick tells of each open
    candidate, and its square leaves their residuals; O(r position) time.

    Args:
        pick: Position of the pick among the items.
        position: How many picks were made before.
        items: (r,) int64 places in the pool.
        open_: (r,) bool, what is still to be had.
        keep: 1 less the ridge.
        gram: As in `cosine_of`.
        vectors: (n, d) float32.
        factor: (k, r) float64, row `position` written.
        residual: (r,) float64 Schur complements, changed in place; above 0 at the pick.
    """
    root = np.sqrt(residual[pick])
    row = factor[position]
    for j in range(items.shape[0]):
        if not open_[j]:
            continue
        rest = keep * cosine_of(gram, vectors, items[pick], items[j])
        for t in range(position):
            rest -= factor[t, pick] * factor[t, j]
        row[j] = rest / root
        residual[j] -= row[j] ** 2
