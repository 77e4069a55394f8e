"""Cosines of tiles of ground points, and sums of what exceeds the cover.

Cosines are float32, every sum is float64. Results do not depend on the number of threads. BLAS may
round one and the same cosine in two ways, depending on its place in the product: sums repeat to
1e-7 per ground point whatever the batch, and bit for bit in the same batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, rows_of
from selection.loops import (
    add_excess,
    add_larger,
    add_larger_of,
    add_moments,
    add_rows,
    raise_cover,
)
from selection.tiles import (
    CANDIDATE_BLOCK,
    CANDIDATE_STEP,
    CANDIDATE_TILE,
    GROUND_TILE,
    blocks,
    cosines_of,
    one_blas_thread,
    padded,
    parts_of,
    share_out,
    tile_of,
)

# In Stage 2 a tile meets every query's cover in turn: smaller, so that it stays put meanwhile.
QUERY_GROUND_TILE = 256
# Pairs of ground point and candidate that one thread has done before others are woken.
LITTLE = 2**17

# Called with cosines (rows, columns), the rows and the columns they are of, and (sums, columns)
# totals to add to; columns beyond those asked for are padding.
Visit = Callable[[Float32, slice, slice, Float64], None]


def part_of(weights: Float64 | None, rows: slice) -> Float64 | None:
    """Return the weights of these rows, None for none."""
    return None if weights is None else weights[rows]


def sums_over_tiles(
    ground: Vectors, candidates: Vectors, visit: Visit, *, n_sums: int, threads: int
) -> Float64:
    """Form all cosines, tile by tile, and return what the visits add up.

    Args:
        ground: (m, d) float32 or float16.
        candidates: (c, d) float32 or float16.
        visit: Called for every tile of cosines; for the same ground points in the order of the
            candidates.
        n_sums: Sums per candidate.
        threads: Threads to use; the parts and the order of adding do not depend on it.

    Returns:
        (n_sums, c) float64; O(m d c) time, a tile per thread and 64 c floats of memory at most.
    """
    result = np.zeros((n_sums, len(candidates)), dtype=np.float64)
    little = len(ground) * max(CANDIDATE_STEP, len(candidates)) <= LITTLE
    for columns in blocks(len(candidates), CANDIDATE_BLOCK):
        work = _part_work(ground, padded(candidates[columns]), visit, n_sums, columns)
        with one_blas_thread:
            for subtotal in share_out(
                work, parts_of(len(ground)), threads=threads, worthwhile=not little
            ):
                result[:, columns] += subtotal[:, : columns.stop - columns.start]
    return result


def _part_work(
    ground: Vectors, block: Float32, visit: Visit, n_sums: int, columns: slice
) -> Callable[[slice], Float64]:
    def work(part: slice) -> Float64:
        total = np.zeros((n_sums, len(block)), dtype=np.float64)
        for start in range(part.start, part.stop, GROUND_TILE):
            rows = slice(start, min(start + GROUND_TILE, part.stop))
            tile = tile_of(ground, rows)
            for narrow in blocks(len(block), CANDIDATE_TILE):
                stop = min(columns.start + narrow.stop, columns.stop)
                wanted = slice(columns.start + narrow.start, stop)
                visit(cosines_of(tile, block[narrow]), rows, wanted, total[:, narrow])
        return total

    return work


def excess(
    ground: Vectors,
    cover: Float32,
    candidates: Vectors,
    *,
    weights: Float64 | None = None,
    threads: int = 1,
) -> Float64:
    """Return sum_i u_i max(0, w_ix - cover_i) for every candidate x.

    Args:
        ground: (m, d) float32 or float16.
        cover: (m,) float32.
        candidates: (c, d) float32 or float16.
        weights: (m,) float64 u, None for 1.
        threads: Threads to use.

    Returns:
        (c,) float64; O(m d c) time, a tile per thread of memory beyond the result.
    """

    def visit(cosines: Float32, rows: slice, _: slice, total: Float64) -> None:
        add_excess(cosines, cover[rows], part_of(weights, rows), total[0])

    return sums_over_tiles(ground, candidates, visit, n_sums=1, threads=threads)[0]


def excess_moments(
    ground: Vectors,
    cover: Float32,
    candidates: Vectors,
    *,
    weights: Float64 | None = None,
    threads: int = 1,
) -> tuple[Float64, Float64]:
    """Return sum and sum of squares over i of u_i max(0, w_ix - cover_i) for every candidate x.

    Args:
        ground: (m, d) float32 or float16.
        cover: (m,) float32.
        candidates: (c, d) float32 or float16.
        weights: (m,) float64 u, None for 1.
        threads: Threads to use.

    Returns:
        Two (c,) float64; the first equals `excess`. O(m d c) time.
    """

    def visit(cosines: Float32, rows: slice, _: slice, total: Float64) -> None:
        add_moments(cosines, cover[rows], part_of(weights, rows), total[0], total[1])

    total, squares = sums_over_tiles(ground, candidates, visit, n_sums=2, threads=threads)
    return total, squares


def cover_by(
    ground: Vectors,
    picks: Vectors,
    cover: Float32,
    owner: Int64,
    *,
    first: int,
    weights: Float64 | None = None,
    threads: int = 1,
) -> Float64:
    """Take picks in their order: raise cover and owner in place, and return each pick's gain.

    Args:
        ground: (m, d) float32 or float16.
        picks: (k, d) float32 or float16.
        cover: (m,) float32.
        owner: (m,) int64.
        first: Number of the first of these picks.
        weights: (m,) float64 u, None for 1.
        threads: Threads to use.

    Returns:
        (k,) float64; O(m d k) time, a tile per thread of memory beyond the result.
    """

    def visit(cosines: Float32, rows: slice, columns: slice, total: Float64) -> None:
        # Padding must cover nothing, so only the picks' own columns are handed on.
        gains = total[0, : columns.stop - columns.start]
        number, weight = first + columns.start, part_of(weights, rows)
        raise_cover(cosines, cover[rows], owner[rows], weight, number, gains)

    return sums_over_tiles(ground, picks, visit, n_sums=1, threads=threads)[0]


def lift_cover(ground: Vectors, picks: Vectors, cover: Float32, *, threads: int = 1) -> None:
    """Raise the cover of every ground point to its largest cosine to one of the picks.

    Args:
        ground: (m, d) float32 or float16.
        picks: (c, d) float32 or float16.
        cover: (m,) float32, changed in place.
        threads: Threads to use.
    """

    def visit(cosines: Float32, rows: slice, columns: slice, _: Float64) -> None:
        own = cosines[:, : columns.stop - columns.start]
        np.maximum(cover[rows], own.max(axis=1), out=cover[rows])

    sums_over_tiles(ground, picks, visit, n_sums=0, threads=threads)


def column_sum(ground: Vectors, *, weights: Float64 | None = None, threads: int = 1) -> Float64:
    """Return sum_i u_i e_i.

    Args:
        ground: (m, d) float32 or float16.
        weights: (m,) float64 u, None for 1.
        threads: Threads to use.

    Returns:
        (d,) float64; O(m d) time, a tile per thread of memory.
    """

    def work(part: slice) -> Float64:
        total = np.zeros(ground.shape[1], dtype=np.float64)
        for start in range(part.start, part.stop, GROUND_TILE):
            rows = slice(start, min(start + GROUND_TILE, part.stop))
            add_rows(tile_of(ground, rows), part_of(weights, rows), total)
        return total

    result = np.zeros(ground.shape[1], dtype=np.float64)
    for subtotal in share_out(work, parts_of(len(ground)), threads=threads):
        result += subtotal
    return result


def excess_per_query(
    ground: Vectors, queries: Vectors, candidates: Vectors, *, indices: Int64 | None = None
) -> Float64:
    """Return sum_i max(0, w_ix - w_iq) for every query q and candidate x.

    As sum_i max(w_ix, w_iq) - sum_i w_iq: one operation less per pair. A tile of 256 ground points
    is summed in float32, the tiles in float64, so the difference keeps 1e-7 per ground point.

    Args:
        ground: (m, d) float32 or float16.
        queries: (q, d) float32 or float16.
        candidates: (c, d) float32 or float16.
        indices: (q, r) int64, the candidates each query asks for, -1 for none; None for all.

    Returns:
        (q, c) float64, or (q, r) with 0 where there is none; O(m d (q + c) + m q c) time, or
        m q r; some tiles of memory beyond the result, with indices of all candidates.
    """
    width = len(candidates) if indices is None else indices.shape[1]
    total = np.zeros((len(queries), width), dtype=np.float64)
    covered = np.zeros(len(queries), dtype=np.float64)
    block, query_block = padded(candidates), padded(queries)
    for rows in blocks(len(ground), QUERY_GROUND_TILE):
        tile = rows_of(ground, rows)
        covers = (query_block @ tile.T)[: len(queries)]
        covered += covers.sum(axis=1, dtype=np.float64)
        if indices is not None:
            add_larger_of(block @ tile.T, covers, indices, total)
            continue
        for columns in blocks(len(candidates), CANDIDATE_TILE):
            start, stop = columns.start, columns.start + CANDIDATE_TILE
            cosines = (block[start:stop] @ tile.T)[: columns.stop - start]
            add_larger(cosines, covers, total[:, columns])
    np.maximum(total - covered[:, None], 0.0, out=total)
    if indices is not None:
        total[indices < 0] = 0.0
    return total


__all__ = [
    "CANDIDATE_BLOCK",
    "CANDIDATE_STEP",
    "CANDIDATE_TILE",
    "GROUND_TILE",
    "column_sum",
    "cover_by",
    "excess",
    "excess_moments",
    "excess_per_query",
    "lift_cover",
    "padded",
]
