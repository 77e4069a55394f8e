"""The nearest candidates of many queries: a float32 product narrows them, float64 decides.

What the product says of a candidate depends in its last digits on its place in the batch. So it
only picks a shortlist, wide enough for any rounding; order and scores come from cosines that are
computed anew, one pair at a time.
"""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.objective import TIE_TOLERANCE

# How far a float32 cosine may be off: a hundred times what is seen at 384 dimensions.
ROUNDING = 1e-5
_SHORT = 64


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})  # type: ignore[misc]
def dot(left: Float32, right: Float32) -> float:
    """Return the product of two rows, (d,) float32 each, summed in float64."""
    total = 0.0
    for i in range(left.shape[0]):
        total += np.float64(left[i]) * np.float64(right[i])
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def nearest_rows(
    cosines: Float32,
    queries: Float32,
    pool: Float32,
    allowed: Bool | None,
    tie_rank: Int64,
    indices: Int64,
    values: Float64,
) -> None:
    """Write the r nearest allowed candidates of every query, in the order of `top_k`.

    O(n + r log r log(n / r) + r d) time a query.

    Args:
        cosines: (q, n) float32, queries @ pool.T as BLAS rounds it.
        queries: (q, d) float32.
        pool: (n, d) float32.
        allowed: (q, n) bool, or None for all.
        tie_rank: (n,) int64.
        indices: (q, r) int64, written as far as there are candidates.
        values: (q, r) float64, their exact cosines.
    """
    n, r = cosines.shape[1], indices.shape[1]
    heap = np.empty(r, dtype=np.float32)
    listed = np.empty(n, dtype=np.int64)
    exact = np.empty(n, dtype=np.float64)
    for query in range(cosines.shape[0]):
        row = cosines[query]
        mask = None if allowed is None else allowed[query]
        least = _largest(row, mask, heap)
        least -= 2 * ROUNDING + TIE_TOLERANCE * (1 + abs(least))
        n_listed = 0
        for column in range(n):
            if row[column] >= least and (mask is None or mask[column]):
                listed[n_listed] = column
                n_listed += 1
        for i in range(n_listed):
            exact[i] = dot(queries[query], pool[listed[i]])
        _sort_falling(exact, listed, n_listed)
        _take(exact, listed, n_listed, tie_rank, indices[query], values[query])


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _largest(row: Float32, mask: Bool | None, heap: Float32) -> float:
    """Return the r-th largest of a row, r the size of the heap; -inf where there are fewer."""
    r, size = heap.shape[0], 0
    for column in range(row.shape[0]):
        value = row[column]
        if size == r and value <= heap[0]:
            continue
        if mask is not None and not mask[column]:
            continue
        if size < r:
            at = size
            size += 1
            while at > 0 and heap[(at - 1) // 2] > value:
                heap[at] = heap[(at - 1) // 2]
                at = (at - 1) // 2
        else:
            at, child = 0, 1
            while child < r:
                if child + 1 < r and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= value:
                    break
                heap[at] = heap[child]
                at, child = child, 2 * child + 1
        heap[at] = value
    return np.float64(heap[0]) if size == r else -np.inf


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _sort_falling(values: Float64, items: Int64, n: int) -> None:
    if n > _SHORT:
        order = np.argsort(-values[:n], kind="mergesort")
        values[:n] = values[:n][order]
        items[:n] = items[:n][order]
        return
    for i in range(1, n):
        value, item, j = values[i], items[i], i
        while j > 0 and values[j - 1] < value:
            values[j], items[j] = values[j - 1], items[j - 1]
            j -= 1
        values[j], items[j] = value, item


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _take(
    values: Float64, items: Int64, n: int, tie_rank: Int64, indices: Int64, scores: Float64
) -> None:
    """Take falling values from the front, of those tied with the best the smallest rank."""
    head = 0
    for position in range(min(n, indices.shape[0])):
        while items[head] < 0:
            head += 1
        least = values[head] - TIE_TOLERANCE * (1 + abs(values[head]))
        pick, j = head, head + 1
        while j < n and values[j] >= least:
            if items[j] >= 0 and tie_rank[items[j]] < tie_rank[items[pick]]:
                pick = j
            j += 1
        indices[position], scores[position] = items[pick], values[pick]
        items[pick] = -1
