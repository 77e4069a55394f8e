"""What a query must not see: its own copy, duplicates of it, and whatever is too similar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, UInt64, require_vectors, squared_norms
from selection.objective import TIE_TOLERANCE
from selection.ranking import query_chunks

# Records whose cosines are computed at a time.
_POOL_BLOCK = 65_536


def guarded(
    queries: Float32,
    pool: Float32,
    *,
    ceiling: float | None = None,
    same: Sequence[tuple[UInt64, UInt64]] = (),
    allowed: Bool | None = None,
) -> Bool:
    """Return which records each query may see.

    A query's own row has its id, exact duplicates have its text hash, near duplicates the hash of
    its normalised text or a cosine at or above the ceiling. Which of these keys can be compared is
    the caller's to know: ids of two tables may be equal by chance. O(q n d) time with a ceiling,
    without one O((q + n) log n) and the pairs found.

    Args:
        queries: (q, d) float32 unit vectors.
        pool: (n, d) float32 unit vectors.
        ceiling: In (0, 1]; a cosine of at least this less 1e-6 is excluded. None excludes none.
        same: Pairs of (q,) and (n,) uint64 keys; a query never sees a record with the same key.
        allowed: (q, n) bool, what may be seen before; it is left as it is.

    Returns:
        (q, n) bool, a new array: q n bytes, and with a ceiling 8 d bytes a query.

    Raises:
        ValueError: A ceiling outside (0, 1], or shapes that do not fit.
    """
    shape = (len(queries), len(pool))
    if allowed is not None and allowed.shape != shape:
        raise ValueError(f"guards: found a mask of shape {allowed.shape}, wanted {shape}")
    mask = np.ones(shape, dtype=np.bool_) if allowed is None else allowed.copy()
    for query_keys, pool_keys in same:
        if (len(query_keys), len(pool_keys)) != shape:
            raise ValueError(
                f"guards: found keys for {len(query_keys)} queries and {len(pool_keys)} records, "
                f"wanted them for {shape[0]} and {shape[1]}"
            )
        rows, columns = _pairs(query_keys, pool_keys)
        mask[rows, columns] = False
    if ceiling is not None:
        _exclude_above(ceiling, queries, pool, mask)
    return mask


def _pairs(query_keys: UInt64, pool_keys: UInt64) -> tuple[Int64, Int64]:
    """All (query, record) with equal keys."""
    order = np.argsort(pool_keys, kind="stable")
    keys = pool_keys[order]
    first = np.searchsorted(keys, query_keys, side="left")
    n_equal = np.searchsorted(keys, query_keys, side="right") - first
    rows = np.repeat(np.arange(len(query_keys)), n_equal)
    ends = np.cumsum(n_equal)
    within = np.arange(len(rows)) - np.repeat(ends - n_equal, n_equal)
    return rows, order[np.repeat(first, n_equal) + within]


def _exclude_above(ceiling: float, queries: Float32, pool: Float32, mask: Bool) -> None:
    if not 0 < ceiling <= 1:
        raise ValueError(f"guards: found a similarity ceiling of {ceiling}, wanted above 0, to 1")
    pool = require_vectors("guards: pool", pool)
    queries = require_vectors("guards: queries", queries, dim=pool.shape[1])
    least = ceiling - TIE_TOLERANCE
    directions = _directions(queries)
    for start in range(0, len(pool), _POOL_BLOCK):
        columns = slice(start, start + _POOL_BLOCK)
        block = _directions(pool[columns])
        for rows in query_chunks(len(queries), len(block)):
            mask[rows, columns] &= directions[rows] @ block.T < least


def _directions(vectors: Float32) -> Float64:
    """Rows of norm 1: vectors stored in 16 bits are not, and a copy would pass a ceiling of 1."""
    wide = vectors.astype(np.float64)
    norms = np.sqrt(squared_norms(vectors))[:, None]
    return wide / np.where(norms > 0, norms, 1.0)
