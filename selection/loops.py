"""The compiled loops over a block of cosines; all sums are float64.

Without weights a branch on None is dropped when the loop is compiled: they cost nothing then.
"""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Float32, Float64, Int64


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
