"""Recall by sparse vectors: the largest dot products, in bounded memory."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp

from selection.arrays import Bool, Float64, Int64, require_per_row
from selection.pool import Recalled
from selection.ranking import query_chunks, stack, top_k


def sparse_top(
    queries: sp.sparray | sp.spmatrix,
    pool: sp.sparray | sp.spmatrix,
    *,
    r: int,
    tie_rank: Int64,
    allowed: Bool | None = None,
) -> Recalled:
    """Return the r records with the largest dot product with each query.

    A record whose product is 0 or less shares nothing with the query and is no candidate, so rows
    may be shorter than r; an empty query has none. O(entries of the pool in the query's columns +
    n) time a query; dense scores of some queries at a time, whatever their number.

    Args:
        queries: (q, v) scipy sparse matrix of any float dtype.
        pool: (n, v), of the same encoder.
        r: Wanted for each query, at least 1.
        tie_rank: (n,) int64.
        allowed: (q, n) bool, False for a record that a query must not see.

    Returns:
        Products summed in float64; ties as in `top_k`.

    Raises:
        ValueError: r below 1, shapes that do not fit, or an entry that is not finite.
    """
    if r < 1:
        raise ValueError(f"sparse recall: found r {r}, wanted at least 1")
    rows, columns = _checked(queries, pool)
    n_queries, n = queries.shape[0], pool.shape[0]
    require_per_row("sparse recall: tie_rank", tie_rank, (n,))
    if allowed is not None:
        require_per_row("sparse recall: allowed", allowed, (n_queries, n))
    parts = []
    for part in query_chunks(n_queries, n):
        some = rows[part]
        scores = np.zeros((some.shape[0], n))
        if some.nnz and columns.nnz:
            arrays = (some.indptr, some.indices, some.data)
            _add_products(*arrays, columns.indptr, columns.indices, columns.data, scores)
        shared = scores > 0
        if allowed is not None:
            shared &= allowed[part]
        parts.append(top_k(scores, k=r, allowed=shared, tie_rank=tie_rank))
    found = stack(parts, r)
    return Recalled(found.indices, found.scores)


def _checked(
    queries: sp.sparray | sp.spmatrix, pool: sp.sparray | sp.spmatrix
) -> tuple[sp.csr_array, sp.csc_array]:
    if queries.shape[1] != pool.shape[1]:
        raise ValueError(
            f"sparse recall: the queries have shape {queries.shape}, the pool has {pool.shape}; "
            "both must come from the same encoder"
        )
    rows, columns = sp.csr_array(queries), sp.csc_array(pool)
    for name, matrix in (("queries", rows), ("pool", columns)):
        n_bad = int((~np.isfinite(matrix.data)).sum())
        if n_bad:
            raise ValueError(
                f"sparse recall: {n_bad} of {matrix.nnz} entries of the {name} are not finite; "
                "leave these rows out"
            )
    if not rows.has_sorted_indices:
        rows = rows.sorted_indices()  # a copy: the caller's matrix stays as it is
    return rows, columns


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _add_products(
    row_starts: Int64,
    row_columns: Int64,
    row_values: Float64,
    column_starts: Int64,
    column_rows: Int64,
    column_values: Float64,
    scores: Float64,
) -> None:
    for query in range(len(row_starts) - 1):
        for i in range(row_starts[query], row_starts[query + 1]):
            column, weight = row_columns[i], np.float64(row_values[i])
            for j in range(column_starts[column], column_starts[column + 1]):
                scores[query, column_rows[j]] += weight * column_values[j]
