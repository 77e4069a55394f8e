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
            if pick < 0 or tie_rank[items[j]] < tie_rank[items[pick]]:
                pick = j
    return pick
