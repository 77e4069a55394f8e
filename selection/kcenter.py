"""k-center: each pick is the candidate farthest from all picks before it."""

from __future__ import annotations

import numpy as np

from selection.arrays import Bool, Float32, Int64, Vectors, rows_of
from selection.crowd import Crowd
from selection.kernels import column_sum, lift_cover
from selection.request import Allowance, Request, begin
from selection.tiles import blocks

# Cosines as close as this are equal: float32 rounds one by up to about 1e-7.
SAME_COSINE = 1e-6
_ROWS = 1024


def kcenter_picks(candidates: Vectors, request: Request) -> Int64:
    """Pick k candidates, farthest first (Gonzalez 1985); O(k n d) time, 12 bytes a candidate.

    The largest distance of an allowed candidate to its nearest pick is at most twice the smallest
    that k picks can have, where nothing is required, given, or limited by groups. The first pick
    is the one with the largest mean cosine to all that are allowed; vectors that are given are
    centres from the start.

    Args:
        candidates: (n, d) float32 or float16 unit vectors.
        request: Size, ranks of ties, limits, and what is there already.

    Returns:
        (k,) int64, in the order of picking, those required first.

    Raises:
        ValueError: A request that does not fit.
    """
    allowance, picks = begin(request, len(candidates))
    return farthest_first(candidates, request, allowance, picks)


def farthest_first(
    candidates: Vectors, request: Request, allowance: Allowance, picks: list[int]
) -> Int64:
    """Go on picking the farthest candidate until there are k, or none is left.

    Args:
        candidates: (n, d) float32 or float16 unit vectors.
        request: As `kcenter_picks`.
        allowance: What may still be picked; updated.
        picks: What is picked already; appended to.

    Returns:
        (k,) int64, all picks.
    """
    threads = (request.crowd or Crowd()).threads
    cover = np.full(len(candidates), -1.0, dtype=np.float32)
    if request.given is not None and len(request.given):
        lift_cover(candidates, request.given, cover, threads=threads)
    new = picks
    while len(picks) < request.k and allowance.alive.any():
        if new:
            there = rows_of(candidates, np.array(new, dtype=np.int64))
            lift_cover(candidates, there, cover, threads=threads)
        if picks or request.has_given:
            near = cover
        else:
            near = -_mean_cosines(candidates, allowance.alive, threads=threads)
        pick = _smallest(near, allowance.alive, request.tie_rank)
        allowance.take(pick)
        picks.append(pick)
        new = [pick]
    return np.array(picks, dtype=np.int64)


def _smallest(values: Float32, alive: Bool, tie_rank: Int64) -> int:
    open_ones = np.flatnonzero(alive)
    own = values[open_ones]
    tied = open_ones[own <= own.min() + np.float32(SAME_COSINE)]
    return int(tied[np.argmin(tie_rank[tied])])


def _mean_cosines(candidates: Vectors, alive: Bool, *, threads: int) -> Float32:
    """Mean cosine of every candidate to those that are alive, (n,); O(n d)."""
    mean = column_sum(candidates, weights=alive.astype(np.float64), threads=threads) / alive.sum()
    result = np.empty(len(candidates), dtype=np.float32)
    for rows in blocks(len(candidates), _ROWS):
        result[rows] = rows_of(candidates, rows).astype(np.float64) @ mean
    return result
