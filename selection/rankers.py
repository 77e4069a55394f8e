"""Stage 2 for one query at a time, computed for many at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, require_vectors, squared_norms
from selection.diversity import RANK_TOLERANCE
from selection.kernels import excess_per_query
from selection.objective import COSINE_ROUNDING, TIE_TOLERANCE
from selection.ranking import Ranking, RankOptions, check_queries, query_chunks, stack, top_k


def knn(
    queries: Float32,
    pool: Float32,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    tie_rank: Int64,
    ground: Float32 | None = None,
    n_total: int | None = None,
) -> Ranking:
    """Rank the pool by cosine to each query; O(q n d) time.

    Args:
        queries: (q, d) float32 unit vectors.
        pool: (n, d) float32 unit vectors.
        options: Reads k.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        tie_rank: (n,) int64.
        ground: Not read.
        n_total: Not read.

    Returns:
        Cosines, best first.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    queries, pool = check_queries(queries, pool, allowed, tie_rank)
    wide = pool.astype(np.float64)
    parts = []
    for rows in query_chunks(len(queries), len(pool)):
        cosines = queries[rows].astype(np.float64) @ wide.T
        parts.append(top_k(cosines, k=options.k, allowed=_rows(allowed, rows), tie_rank=tie_rank))
    return stack(parts, options.k)


def mmr(
    queries: Float32,
    pool: Float32,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    tie_rank: Int64,
    ground: Float32 | None = None,
    n_total: int | None = None,
) -> Ranking:
    """Pick the nearest, then again and again the best balance of relevance and novelty.

    Maximal marginal relevance (Carbonell and Goldstein 1998) with the picks of LangChain's
    `maximal_marginal_relevance`: mmr_lambda * cosine to the query - (1 - mmr_lambda) * largest
    cosine to a pick, among the `recall` nearest. O(q n d + q recall k d) time.

    Args:
        queries: (q, d) float32 unit vectors.
        pool: (n, d) float32 unit vectors.
        options: Reads k, mmr_lambda and recall.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        tie_rank: (n,) int64.
        ground: Not read.
        n_total: Not read.

    Returns:
        The value at which each was picked, in the order of picking; it need not fall.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    queries, pool = check_queries(queries, pool, allowed, tie_rank)
    recall = min(max(options.recall, options.k), len(pool))
    wide = pool.astype(np.float64)
    parts = []
    for rows in query_chunks(len(queries), max(len(pool), recall * pool.shape[1])):
        cosines = queries[rows].astype(np.float64) @ wide.T
        near = top_k(cosines, k=recall, allowed=_rows(allowed, rows), tie_rank=tie_rank)
        parts.append(_mmr_chunk(near, wide, tie_rank, options))
    return stack(parts, options.k)


def dual_div(
    queries: Float32,
    pool: Float32,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    tie_rank: Int64,
    ground: Float32 | None = None,
    n_total: int | None = None,
) -> Ranking:
    """Rank by f({x} u {q}) - f({q}), Eq. 12 read literally for one query.

    Args:
        queries: (q, d) float32 unit vectors.
        pool: (n, d) float32 unit vectors.
        options: Reads k, lam, scale and ridge.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        tie_rank: (n,) int64.
        ground: (m, d) float32 unit vectors, the corpus or a uniform sample of it.
        n_total: N of the whole corpus; None means m.

    Returns:
        Gains, best first. Without a ridge a candidate parallel to the query has -inf.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no ground points.
    """
    queries, pool = check_queries(queries, pool, allowed, tie_rank)
    objective = options.objective()
    points, scale, floor = _ground(ground, pool.shape[1], options, n_total)
    parts = []
    for rows in query_chunks(len(queries), 4 * len(pool)):
        scores = scale * excess_per_query(points, queries[rows], pool)
        if objective.lam > 0:
            scores += objective.lam * _pair_log_det(queries[rows], pool, objective.ridge)
        mask = _rows(allowed, rows)
        parts.append(top_k(scores, k=options.k, allowed=mask, tie_rank=tie_rank, floor=floor))
    return stack(parts, options.k)


def s3(
    queries: Float32,
    pool: Float32,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    tie_rank: Int64,
    ground: Float32 | None = None,
    n_total: int | None = None,
) -> Ranking:
    """Rank by the coverage that a candidate adds to the query's own: `dual_div` with lam 0.

    Args:
        queries: (q, d) float32 unit vectors.
        pool: (n, d) float32 unit vectors.
        options: Reads k and scale.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        tie_rank: (n,) int64.
        ground: (m, d) float32 unit vectors, the corpus or a uniform sample of it.
        n_total: N of the whole corpus; None means m.

    Returns:
        Coverage gains, best first.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no ground points.
    """
    coverage_only = RankOptions(k=options.k, lam=0.0, scale=options.scale)
    return dual_div(
        queries,
        pool,
        options=coverage_only,
        allowed=allowed,
        tie_rank=tie_rank,
        ground=ground,
        n_total=n_total,
    )


def _rows(allowed: Bool | None, rows: slice) -> Bool | None:
    return None if allowed is None else allowed[rows]


def _ground(
    ground: Float32 | None, dim: int, options: RankOptions, n_total: int | None
) -> tuple[Float32, float, float]:
    if ground is None or len(ground) == 0:
        raise ValueError(
            "stage2.ground: found no ground points, wanted the corpus vectors or a sample of them; "
            "coverage is a sum over the corpus"
        )
    points = require_vectors("stage2.ground", ground, dim=dim)
    weight = 1.0 if n_total is None else n_total / len(points)
    scale = options.objective().coverage_scale(len(points), weight=weight, n_total=n_total)
    return points, scale, max(TIE_TOLERANCE, COSINE_ROUNDING * scale * len(points))


def _pair_log_det(queries: Float32, pool: Float32, ridge: float) -> Float64:
    """log(M_xx - M_xq^2 / M_qq), the Schur complement of x given q alone; (q, n)."""
    keep = 1 - ridge
    own = keep * squared_norms(pool)[None, :] + ridge
    given = keep * squared_norms(queries)[:, None] + ridge
    cross = keep * (queries.astype(np.float64) @ pool.astype(np.float64).T)
    # A zero query without a ridge has given = 0 and cross = 0: it takes nothing away.
    left = own - cross**2 / np.maximum(given, np.finfo(np.float64).tiny)
    if ridge > 0:
        return np.log(np.maximum(left, ridge))
    gains = np.full(left.shape, -np.inf)
    return np.log(left, out=gains, where=left > RANK_TOLERANCE * np.maximum(own, RANK_TOLERANCE))


def _mmr_chunk(near: Ranking, pool: Float64, tie_rank: Int64, options: RankOptions) -> Ranking:
    q, recall = near.indices.shape
    vectors = pool[near.indices]
    relevance = np.where(near.indices >= 0, near.scores, 0.0)
    open_ = near.indices >= 0
    rank = tie_rank[near.indices]
    redundancy = np.full((q, recall), -np.inf)
    n_valid = np.minimum(near.n_valid, options.k)
    indices = np.full((q, options.k), -1, dtype=np.int64)
    scores = np.full((q, options.k), np.nan)
    every = np.arange(q)
    for position in range(int(n_valid.max(initial=0))):
        novelty = 0.0 if position == 0 else (1 - options.mmr_lambda) * redundancy
        value = options.mmr_lambda * relevance - novelty
        # The first is the nearest whatever the weight, as in LangChain.
        pick = _best(relevance if position == 0 else value, open_, rank)
        live = position < n_valid
        indices[live, position] = near.indices[every, pick][live]
        scores[live, position] = value[every, pick][live]
        open_[every, pick] = False
        likeness = np.matmul(vectors, vectors[every, pick][:, :, None])[:, :, 0]
        redundancy = np.maximum(redundancy, likeness)
    return Ranking(indices, scores, n_valid)


def _best(values: Float64, open_: Bool, rank: Int64) -> Int64:
    """Per row the open column with the largest value, ties to the smallest rank."""
    masked = np.where(open_, values, -np.inf)
    best = masked.max(axis=1, keepdims=True)
    least = np.where(np.isfinite(best), best - TIE_TOLERANCE * (1 + np.abs(best)), -np.inf)
    tied = open_ & (masked >= least)
    return np.argmin(np.where(tied, rank, np.iinfo(np.int64).max), axis=1)


PER_QUERY: dict[str, Callable[..., Ranking]] = {
    "knn": knn,
    "mmr": mmr,
    "dual-div": dual_div,
    "s3": s3,
}
