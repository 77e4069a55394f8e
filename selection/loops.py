"""The compiled loops over a block of cosines; all sums are float64.

Without weights a branch on None is dropped when the loop is compiled: they cost nothing then.
"""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Float32, Float64, Int32, Int64, UInt64


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


# Sums of float32 in any order: what is summed at once is at most a tile, and the tiles are added
# in float64.
_ANY_ORDER = {"reassoc", "contract", "nnan", "nsz"}


@numba.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)  # type: ignore[misc]
def add_larger(cosines: Float32, covers: Float32, total: Float64) -> None:
    """Add sum_i max(cosines[j, i], covers[q, i]) to total[q, j]; O(queries * rows * columns).

    Four candidates at a time, so that each cover is read once for them.

    Args:
        cosines: (candidates, rows) float32, candidates by ground points, at most a tile of them.
        covers: (queries, rows) float32, each query's cosine to the ground points.
        total: (queries, candidates) float64, added to in place.
    """
    n, rows = cosines.shape
    whole = n - n % 4
    for query in range(covers.shape[0]):
        cover, sums = covers[query], total[query]
        for j in range(0, whole, 4):
            a, b, c, d = cosines[j], cosines[j + 1], cosines[j + 2], cosines[j + 3]
            sum_a = sum_b = sum_c = sum_d = np.float32(0.0)
            for i in range(rows):
                level = cover[i]
                sum_a += max(a[i], level)
                sum_b += max(b[i], level)
                sum_c += max(c[i], level)
                sum_d += max(d[i], level)
            sums[j] += sum_a
            sums[j + 1] += sum_b
            sums[j + 2] += sum_c
            sums[j + 3] += sum_d
        for j in range(whole, n):
            sums[j] += _sum_of_larger(cosines[j], cover)


@numba.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)  # type: ignore[misc]
def add_larger_of(cosines: Float32, covers: Float32, indices: Int64, total: Float64) -> None:
    """As `add_larger`, for some candidates of each query.

    Args:
        cosines: (candidates, rows) float32.
        covers: (queries, rows) float32.
        indices: (queries, r) int64 candidates; -1 is left out.
        total: (queries, r) float64, added to in place.
    """
    for query in range(covers.shape[0]):
        for position in range(indices.shape[1]):
            index = indices[query, position]
            if index >= 0:
                total[query, position] += _sum_of_larger(cosines[index], covers[query])


@numba.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)  # type: ignore[misc]
def _sum_of_larger(left: Float32, right: Float32) -> float:
    result = np.float32(0.0)
    for i in range(left.shape[0]):
        result += max(left[i], right[i])
    return np.float64(result)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_to_centres(rows: Float32, mass: Float64, labels: Int64, sums: Float64) -> None:
    """Add every row times its mass to the sum of its cluster; O(rows * d).

    Args:
        rows: (rows, d) float32.
        mass: (rows,) float64.
        labels: (rows,) int64, the cluster of each.
        sums: (clusters, d) float64, added to in place, row after row.
    """
    for i in range(rows.shape[0]):
        weight, total = mass[i], sums[labels[i]]
        for j in range(rows.shape[1]):
            total[j] += weight * rows[i, j]


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def mixed(value: np.uint64 | UInt64) -> np.uint64 | UInt64:
    """The finaliser of splitmix64: every bit of the result hangs on every bit of the value.

    Args:
        value: uint64, one or an array of them.
    """
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
