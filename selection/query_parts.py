"""Queries cut into parts of bounded memory, with what each of them may be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selection.arrays import Bool, Float32, UInt64, require_per_row, require_vectors
from selection.pool import Pool, Queries, Recalled
from selection.ranking import Ranking, RankOptions, query_chunks, stack
from selection.tiles import one_blas_thread, share_out


@dataclass(frozen=True)
class Part:
    """Some of the queries, with their rows of everything.

    Attributes:
        vectors: (q, d) float32.
        keys: (q,) uint64.
        allowed: (q, n) bool, or None for all.
        recalled: Candidates of these queries, or None for the whole pool.
    """

    vectors: Float32
    keys: UInt64
    allowed: Bool | None
    recalled: Recalled | None

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> Part:
        """Return some of the queries."""
        recalled = self.recalled
        if recalled is not None:
            recalled = Recalled(recalled.indices[rows], recalled.relevance[rows])
        allowed = None if self.allowed is None else self.allowed[rows]
        return Part(self.vectors[rows], self.keys[rows], allowed, recalled)


def checked(
    queries: Queries, pool: Pool, allowed: Bool | None, recalled: Recalled | None
) -> tuple[Part, Pool]:
    """Return all queries as one part, and the pool, after checking that they belong together.

    Args:
        queries: What is ranked for.
        pool: What may be shown.
        allowed: (q, n) bool, or None for all.
        recalled: Candidates of each query, or None.

    Raises:
        ValueError: Another dtype, dimension or length than these, rows that are not finite, or
            recalled candidates that are not distinct places in the pool.
    """
    if queries.vectors.ndim == 2 and pool.vectors.ndim == 2:
        require_same_dimension(queries, pool)
    n, n_queries = len(pool.vectors), len(queries.vectors)
    require_per_row("stage2.keys", queries.keys, (n_queries,))
    require_per_row("stage2.tie_rank", pool.tie_rank, (n,))
    for name, codes in (("labels", pool.labels), ("clusters", pool.clusters)):
        if codes is not None:
            require_per_row(f"stage2.{name}", codes, (n,))
    if allowed is not None:
        require_per_row("stage2.allowed", allowed, (n_queries, n))
        allowed = np.ascontiguousarray(allowed, dtype=np.bool_)
    if recalled is not None:
        recalled = _require_recalled(recalled, n_queries, n)
    vectors = require_vectors("stage2.queries", queries.vectors)
    rows = require_vectors("stage2.pool", pool.vectors)
    if np.may_share_memory(vectors, rows):  # times its own transpose takes another path of BLAS
        vectors = vectors.copy()
    if rows is not pool.vectors or pool.tie_rank.dtype != np.int64:
        pool = replace(pool, vectors=rows, tie_rank=pool.tie_rank.astype(np.int64))
    return Part(vectors, queries.keys, allowed, recalled), pool


def require_same_dimension(queries: Queries, pool: Pool) -> None:
    """Refuse queries and a pool of different dimensions.

    Raises:
        ValueError: Both shapes.
    """
    if queries.vectors.shape[1] != pool.vectors.shape[1]:
        raise ValueError(
            f"stage2: the queries have shape {queries.vectors.shape}, the pool has "
            f"{pool.vectors.shape}; both must come from the same encoder"
        )


def rank_parts(
    rank: Callable[[Part], Ranking], whole: Part, *, width: int, options: RankOptions
) -> Ranking:
    """Rank part by part, on several threads, and join the results in the queries' order.

    Args:
        rank: Ranks one part; what it does for a query must not depend on the others.
        whole: All queries.
        width: Widest array row that one query needs.
        options: Reads k and threads.
    """
    parts = [whole[rows] for rows in query_chunks(len(whole), width)]
    with one_blas_thread:
        done = list(share_out(rank, parts, threads=options.threads))
    return stack(done, options.k)


def _require_recalled(recalled: Recalled, n_queries: int, n: int) -> Recalled:
    shape = np.shape(recalled.indices)
    if len(shape) != 2 or shape[0] != n_queries:
        raise ValueError(
            f"stage2.recalled.indices: found shape {shape}, wanted ({n_queries}, r), a row a query"
        )
    require_per_row("stage2.recalled.relevance", recalled.relevance, shape)
    indices = np.ascontiguousarray(recalled.indices, dtype=np.int64)
    relevance = np.ascontiguousarray(recalled.relevance, dtype=np.float64)
    # Checked here: a compiled loop reads whatever memory an index points to.
    if indices.size and not (indices.min() >= -1 and indices.max() < n):
        raise ValueError(
            f"stage2.recalled.indices: found {indices.min()} to {indices.max()}, wanted -1 to "
            f"{n - 1}: places in the pool of {n}"
        )
    ordered = np.sort(indices, axis=1)
    twice = np.flatnonzero(((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any(axis=1))
    if twice.size:
        raise ValueError(
            f"stage2.recalled.indices: {twice.size} of {n_queries} rows name a candidate twice, "
            f"the first is row {twice[0]}; wanted distinct candidates"
        )
    if not np.isfinite(relevance[indices >= 0]).all():
        raise ValueError("stage2.recalled.relevance: found values that are not finite; wanted none")
    return Recalled(indices, relevance)
