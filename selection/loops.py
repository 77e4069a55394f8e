"""The compiled loops over a block of cosines; all sums are float64.

Without weights a branch on None is dropped when the loop is compiled: they cost nothing then.
"""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Float32, Float64, Int32, Int64


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})  # type: ignore[misc]
def few_cosines(tile: Float32, block: Float32, out: Float32) -> None:
    """Write tile @ block.T for a few columns: BLAS would pack the tile first, which takes longer.

    Args:
        tile: (rows, d) float32.
        block: (columns, d) float32.
        out: (rows, columns) float32, written.
    """
    for i in range(tile.shape[0]):
        row = tile[i]
        for j in range(block.shape[0]):
            other, cosine = block[j], np.float32(0.0)
            for dim in range(row.shape[0]):
                cosine += row[dim] * other[dim]
            out[i, j] = cosine


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_excess(cosines: Float32, cover: Float32, weights: Float64 | None, total: Float64) -> None:
    """Add sum_i u_i max(0, cosines[i, j] - cover[i]) to total[j]; O(rows * columns).

    Args:
        cosines: (rows, columns) float32.
        cover: (rows,) float32, how well each ground point is covered already.
        weights: (rows,) float64 u, or None for 1.
        total: (columns,) float64, added to in place.
    """
    zero = np.float32(0.0)
    for i in range(cosines.shape[0]):
        level, row = cover[i], cosines[i]
        weight = 1.0 if weights is None else weights[i]
        for j in range(row.shape[0]):
            total[j] += weight * max(row[j] - level, zero)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_moments(
    cosines: Float32, cover: Float32, weights: Float64 | None, total: Float64, squares: Float64
) -> None:
    """As `add_excess`, and add the squares of the same terms to squares[j].

    Args:
        cosines: (rows, columns) float32.
        cover: (rows,) float32.
        weights: (rows,) float64, or None for 1.
        total: (columns,) float64, added to in place.
        squares: (columns,) float64, added to in place.
    """
    zero = np.float32(0.0)
    for i in range(cosines.shape[0]):
        level, row = cover[i], cosines[i]
        weight = 1.0 if weights is None else weights[i]
        for j in range(row.shape[0]):
            term = weight * max(row[j] - level, zero)
            total[j] += term
            squares[j] += term * term


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})  # type: ignore[misc]
def add_moments_since(
    cosines: Float32,
    before: Float32,
    when: Int64,
    now: Float32,
    weights: Float64 | None,
    total: Float64,
    squares: Float64,
) -> None:
    """Add what the terms of `add_moments` have changed by since; O(candidates * points).

    Args:
        cosines: (candidates or more, points) float32.
        before: (times, points) float32, the cover at some earlier times.
        when: (candidates,) int64, which of those each candidate's sums are from.
        now: (points,) float32, the cover now.
        weights: (points,) float64, or None for 1.
        total: (candidates,) float64, added to in place.
        squares: (candidates,) float64, added to in place.
    """
    zero = np.float32(0.0)
    for j in range(total.shape[0]):
        row, earlier = cosines[j], before[when[j]]
        gained, squared = 0.0, 0.0
        for i in range(now.shape[0]):
            weight = 1.0 if weights is None else weights[i]
            term = weight * max(row[i] - now[i], zero)
            old = weight * max(row[i] - earlier[i], zero)
            gained += term - old
            squared += term * term - old * old
        total[j] += gained
        squares[j] += squared


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def covers_at(
    points: Int32,
    before: Float32,
    ends: Int64,
    times: Int64,
    place: Int32,
    first: int,
    now: Float32,
) -> Float32:
    """Return what the cover was at some times, by undoing its rises; O(rises + times * rows).

    Args:
        points: (r,) int32, the points that rose, in the order of time.
        before: (r,) float32, what each one's cover was before.
        ends: (t + 1,) int64, where the rises from time to time + 1 start.
        times: (q,) int64, ascending; the first rise comes after time 0.
        place: (m,) int32, each point's place.
        first: The first place that is asked for.
        now: (rows,) float32, the cover after the last rise of the points from that place on.

    Returns:
        (q, rows) float32.
    """
    covers = np.empty((len(times), len(now)), dtype=np.float32)
    then, stop = now.copy(), ends[-1]
    for at in range(len(times) - 1, -1, -1):
        start = ends[times[at]]
        for rise in range(stop - 1, start - 1, -1):
            row = place[points[rise]] - first
            if 0 <= row < len(now):
                then[row] = before[rise]
        covers[at] = then
        stop = start
    return covers


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def raise_cover(
    cosines: Float32,
    cover: Float32,
    owner: Int64,
    weights: Float64 | None,
    first: int,
    total: Float64,
) -> None:
    """Let picks cover ground points one after another; O(rows * columns).

    Args:
        cosines: (rows, columns or more) float32, ground points by picks in their order.
        cover: (rows,) float32, changed in place.
        owner: (rows,) int64, number of the pick that covers the point best, changed in place.
        weights: (rows,) float64, or None for 1.
        first: Number of the first of these picks.
        total: (columns,) float64, the gain of each pick, added to in place.
    """
    for i in range(cosines.shape[0]):
        level = cover[i]
        weight = 1.0 if weights is None else weights[i]
        for j in range(total.shape[0]):
            cosine = cosines[i, j]
            if cosine > level:
                total[j] += weight * (cosine - level)
                level = cosine
                owner[i] = first + j
        cover[i] = level


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_rows(tile: Float32, weights: Float64 | None, total: Float64) -> None:
    """Add sum_i u_i tile[i] to total, (d,) float64."""
    for i in range(tile.shape[0]):
        row = tile[i]
        weight = 1.0 if weights is None else weights[i]
        for j in range(row.shape[0]):
            total[j] += weight * row[j]


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_excess_per_query(cosines: Float32, covers: Float32, total: Float64) -> None:
    """Add the excess over every query's own cover; O(queries * rows * columns).

    Args:
        cosines: (rows, columns) float32, ground points by candidates.
        covers: (queries, rows) float32, each query's cosine to the ground points.
        total: (queries, columns) float64, added to in place.
    """
    for query in range(covers.shape[0]):
        add_excess(cosines, covers[query], None, total[query])
