"""The one hot loop: cosines of a tile of ground points, and the sum of what exceeds the cover."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np

from selection.arrays import Float32, Float64, Int64

# A tile is the largest block of cosines that exists at any time: 2 MiB of float32, which stays
# in a core's cache between the product and the sum. Fixed, because shapes change the rounding.
GROUND_TILE = 2048
CANDIDATE_TILE = 256
# In Stage 2 a tile meets every query's cover in turn: smaller, so that it stays put meanwhile.
QUERY_GROUND_TILE = 256
# Narrower products fall into slower edge code and round differently.
CANDIDATE_STEP = 16


def padded(candidates: Float32) -> Float32:
    """Return a copy with zero rows appended up to the next multiple of CANDIDATE_STEP.

    Args:
        candidates: (c, d) float32.

    Returns:
        (c', d) float32, never the caller's memory: a buffer times its own transpose takes another
        path through BLAS.
    """
    n, dim = candidates.shape
    block = np.zeros((-(-n // CANDIDATE_STEP) * CANDIDATE_STEP, dim), dtype=np.float32)
    block[:n] = candidates
    return block


@numba.njit(nogil=True)  # type: ignore[misc]
def add_excess(cosines: Float32, cover: Float32, total: Float64) -> None:
    """Add sum_i max(0, cosines[i, j] - cover[i]) to total[j], in float64; O(rows * columns).

    Args:
        cosines: (rows, columns) float32.
        cover: (rows,) float32, how well each ground point is covered already.
        total: (columns,) float64, added to in place.
    """
    zero = np.float32(0.0)
    for i in range(cosines.shape[0]):
        level = cover[i]
        for j in range(cosines.shape[1]):
            total[j] += max(cosines[i, j] - level, zero)


@numba.njit(nogil=True)  # type: ignore[misc]
def raise_cover(cosines: Float32, cover: Float32, owner: Int64, total: Float64, first: int) -> None:
    """Let picks cover ground points one after another; O(rows * columns).

    Args:
        cosines: (rows, columns) float32, ground points by picks in their order.
        cover: (rows,) float32, changed in place.
        owner: (rows,) int64, number of the pick that covers the point best, changed in place.
        total: (columns,) float64, the gain of each pick, added to in place.
        first: Number of the first of these picks.
    """
    for i in range(cosines.shape[0]):
        level = cover[i]
        for j in range(cosines.shape[1]):
            cosine = cosines[i, j]
            if cosine > level:
                total[j] += cosine - level
                level = cosine
                owner[i] = first + j
        cover[i] = level


@numba.njit(nogil=True)  # type: ignore[misc]
def add_excess_per_query(cosines: Float32, covers: Float32, total: Float64) -> None:
    """Add the excess over every query's own cover; O(queries * rows * columns).

    Args:
        cosines: (rows, columns) float32, ground points by candidates.
        covers: (queries, rows) float32, each query's cosine to the ground points.
        total: (queries, columns) float64, added to in place.
    """
    for query in range(covers.shape[0]):
        add_excess(cosines, covers[query], total[query])


def excess(ground: Float32, cover: Float32, candidates: Float32) -> Float64:
    """Return sum_i max(0, w_ix - cover_i) for every candidate x.

    Args:
        ground: (m, d) float32.
        cover: (m,) float32.
        candidates: (c, d) float32.

    Returns:
        (c,) float64; O(m d c) time, one tile of memory beyond the result.
    """
    result = np.empty(len(candidates), dtype=np.float64)
    for columns in _blocks(len(candidates), CANDIDATE_TILE):
        block = padded(candidates[columns])
        total = np.zeros(len(block), dtype=np.float64)
        for rows in _blocks(len(ground), GROUND_TILE):
            add_excess(ground[rows] @ block.T, cover[rows], total)
        result[columns] = total[: columns.stop - columns.start]
    return result


def cover_by(
    ground: Float32, picks: Float32, cover: Float32, owner: Int64, *, first: int
) -> Float64:
    """Take picks in their order: raise cover and owner in place, and return each pick's gain.

    Args:
        ground: (m, d) float32.
        picks: (k, d) float32.
        cover: (m,) float32.
        owner: (m,) int64.
        first: Number of the first of these picks.

    Returns:
        (k,) float64; O(m d k) time, one tile of memory beyond the result.
    """
    gains = np.zeros(len(picks), dtype=np.float64)
    for columns in _blocks(len(picks), CANDIDATE_TILE):
        # Shaped as in `excess`, so that a copy of a pick gains 0 afterwards, not rounding.
        block, width = padded(picks[columns]), columns.stop - columns.start
        for rows in _blocks(len(ground), GROUND_TILE):
            cosines = (ground[rows] @ block.T)[:, :width]
            number = first + columns.start
            raise_cover(cosines, cover[rows], owner[rows], gains[columns], number)
    return gains


def excess_per_query(ground: Float32, queries: Float32, candidates: Float32) -> Float64:
    """Return sum_i max(0, w_ix - w_iq) for every query q and candidate x.

    Equal to (sum_i w_ix - sum_i w_iq + ||W_x - W_q||_1) / 2, summed without that subtraction.

    Args:
        ground: (m, d) float32.
        queries: (q, d) float32.
        candidates: (c, d) float32.

    Returns:
        (q, c) float64; O(m d (q + c) + m q c) time, a few tiles of memory beyond the result.
    """
    n_queries = len(queries)
    columns = list(_blocks(len(candidates), CANDIDATE_TILE))
    blocks = [padded(candidates[part]) for part in columns]
    totals = [np.zeros((n_queries, len(block)), dtype=np.float64) for block in blocks]
    query_block = padded(queries)
    for rows in _blocks(len(ground), QUERY_GROUND_TILE):
        covers = (query_block @ ground[rows].T)[:n_queries]
        for block, total in zip(blocks, totals, strict=True):
            add_excess_per_query(ground[rows] @ block.T, covers, total)
    result = np.empty((n_queries, len(candidates)), dtype=np.float64)
    for part, total in zip(columns, totals, strict=True):
        result[:, part] = total[:, : part.stop - part.start]
    return result


def lift_cover(ground: Float32, picks: Float32, cover: Float32) -> None:
    """Raise the cover of every ground point to its largest cosine to one of the picks.

    Args:
        ground: (m, d) float32.
        picks: (c, d) float32.
        cover: (m,) float32, changed in place.
    """
    for columns in _blocks(len(picks), CANDIDATE_TILE):
        block = padded(picks[columns])
        for rows in _blocks(len(ground), GROUND_TILE):
            cosines = (ground[rows] @ block.T)[:, : columns.stop - columns.start]
            np.maximum(cover[rows], cosines.max(axis=1), out=cover[rows])


def _blocks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
