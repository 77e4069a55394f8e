"""Stage 2 for all queries at once: one set of demonstrations, conditioned on every query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, require_per_row, require_vectors
from selection.diversity import RANK_TOLERANCE
from selection.kernels import excess, lift_cover
from selection.objective import TIE_TOLERANCE
from selection.ranking import Ranking, RankOptions, full_order, query_chunks


class QuerySummary:
    """All that Eq. 12 needs to know of a set of queries, gathered batch by batch.

    Memory is O(m + d^2) beside the ground points, whatever the number of queries.
    """

    def __init__(self, ground: Float32 | None, dim: int) -> None:
        """Start from no queries.

        Args:
            ground: (m, d) float32 unit vectors, the corpus or a uniform sample of it; None where
                only `similar` is wanted.
            dim: Dimension d of the queries.

        Raises:
            ValueError: Ground points that are not finite float32 vectors of this dimension.
        """
        points = np.empty((0, dim), dtype=np.float32) if ground is None else ground
        self.ground = require_vectors("QuerySummary.ground", points, dim=dim)
        self.cover = np.full(len(self.ground), -1.0, dtype=np.float32)
        self.gram = np.zeros((dim, dim), dtype=np.float64)
        self.total = np.zeros(dim, dtype=np.float64)
        self.count = 0

    def add(self, queries: Float32) -> None:
        """Take in a batch of queries; O(q m d + q d^2) time.

        Args:
            queries: (q, d) float32 unit vectors.

        Raises:
            ValueError: Not finite float32 vectors of this dimension.
        """
        block = require_vectors("QuerySummary.queries", queries, dim=len(self.total))
        lift_cover(self.ground, block, self.cover)
        # Two buffers: a float64 matrix times its own transpose view has crashed OpenBLAS.
        self.gram += np.ascontiguousarray(block.T, dtype=np.float64) @ block.astype(np.float64)
        self.total += block.sum(axis=0, dtype=np.float64)
        self.count += len(block)

    def mean(self) -> Float64:
        """Return the mean query vector, (d,)."""
        self._require_queries()
        return self.total / self.count

    def coverage_gains(self, pool: Float32) -> Float64:
        """Return sum_i max(0, w_ix - max_q w_iq) for every candidate, (n,); O(n m d) time.

        Raises:
            ValueError: No queries yet, or no ground points.
        """
        self._require_queries()
        if not len(self.ground):
            raise ValueError(
                "QuerySummary: found no ground points, wanted the corpus vectors or a sample of "
                "them; coverage is a sum over the corpus"
            )
        return excess(self.ground, self.cover, pool)

    def log_det_gains(self, pool: Float32, ridge: float) -> Float64:
        """Return log(eps + (1 - eps) e_x' A_Q^-1 e_x) for every candidate, (n,).

        From the eigenvectors u_j of sum_q e_q e_q', so that nothing is subtracted:
        e_x' A_Q^-1 e_x = sum_j <e_x, u_j>^2 eps' / (eps' + l_j). Without a ridge only the
        directions outside the span of the queries count, and -inf means none. O(d^3 + n d^2) time.
        """
        self._require_queries()
        values, vectors = np.linalg.eigh(self.gram)
        free = ridge / (1 - ridge)
        if ridge > 0:
            weight = free / (free + np.maximum(values, 0.0))
        else:
            weight = (values <= RANK_TOLERANCE * max(float(values[-1]), 0.0)).astype(np.float64)
        result = np.empty(len(pool), dtype=np.float64)
        for rows in query_chunks(len(pool), pool.shape[1]):
            parts = (pool[rows].astype(np.float64) @ vectors) ** 2
            result[rows] = ridge + (1 - ridge) * (parts @ weight)
        gains = np.full(len(pool), -np.inf)
        return np.log(result, out=gains, where=result > (0.0 if ridge > 0 else RANK_TOLERANCE))

    def _require_queries(self) -> None:
        if self.count == 0:
            raise ValueError("QuerySummary: found 0 queries, wanted at least 1; call add first")


def similar(
    summary: QuerySummary,
    pool: Float32,
    *,
    options: RankOptions,
    tie_rank: Int64,
    n_total: int | None = None,
) -> Float64:
    """Score by the mean cosine to all queries, the paper's Random-Similar; O(n d) time.

    Args:
        summary: Of all queries.
        pool: (n, d) float32 unit vectors.
        options: Not read.
        tie_rank: (n,) int64, checked only.
        n_total: Not read.

    Returns:
        (n,) float64.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no queries.
    """
    block = _check_pool(summary, pool, tie_rank)
    return block.astype(np.float64) @ summary.mean()


def dual_div(
    summary: QuerySummary,
    pool: Float32,
    *,
    options: RankOptions,
    tie_rank: Int64,
    n_total: int | None = None,
) -> Float64:
    """Score by f({x} u Q) - f(Q), Eq. 12 with Q all queries: the paper's own setting.

    Args:
        summary: Of all queries, with ground points.
        pool: (n, d) float32 unit vectors.
        options: Reads lam, scale and ridge.
        tie_rank: (n,) int64, checked only.
        n_total: N of the whole corpus; None means m.

    Returns:
        (n,) float64. Without a ridge, once the queries span the space, no candidate has a
        log-determinant: then the coverage alone decides.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, no queries, no ground points.
    """
    block = _check_pool(summary, pool, tie_rank)
    n_points = len(summary.ground)
    weight = 1.0 if n_total is None else n_total / max(1, n_points)
    scale = options.objective().coverage_scale(n_points, weight=weight, n_total=n_total)
    scores = scale * summary.coverage_gains(block)
    if options.lam > 0:
        gains = summary.log_det_gains(block, options.ridge)
        if np.isfinite(gains).any():
            scores = scores + options.lam * gains
    return scores


def s3(
    summary: QuerySummary,
    pool: Float32,
    *,
    options: RankOptions,
    tie_rank: Int64,
    n_total: int | None = None,
) -> Float64:
    """Score by the coverage a candidate adds to that of all queries: `dual_div` with lam 0.

    Args:
        summary: Of all queries, with ground points.
        pool: (n, d) float32 unit vectors.
        options: Reads scale.
        tie_rank: (n,) int64, checked only.
        n_total: N of the whole corpus; None means m.

    Returns:
        (n,) float64.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, no queries, no ground points.
    """
    only = RankOptions(k=options.k, lam=0.0, scale=options.scale)
    return dual_div(summary, pool, options=only, tie_rank=tie_rank, n_total=n_total)


def top_k_for_all(
    scores: Float64,
    *,
    k: int,
    allowed: Bool | None,
    q: int,
    tie_rank: Int64,
    floor: float = TIE_TOLERANCE,
) -> Ranking:
    """Give every query the same best k; one it must not see is replaced by the next in order.

    Args:
        scores: (n,) float64 of one of FOR_ALL.
        k: Demonstrations per query.
        allowed: (q, n) bool, or None for all.
        q: Number of queries.
        tie_rank: (n,) int64.
        floor: What rounding alone can move a score by.

    Returns:
        min(k, allowed) entries per query.

    Raises:
        ValueError: Shapes that do not fit.
    """
    n = len(scores)
    require_per_row("top_k_for_all.tie_rank", tie_rank, (n,))
    order = full_order(scores, tie_rank, floor=floor)
    if allowed is None:
        allowed = np.broadcast_to(np.True_, (q, n))
    require_per_row("top_k_for_all.allowed", allowed, (q, n))
    ranking = Ranking(
        np.full((q, k), -1, dtype=np.int64),
        np.full((q, k), np.nan, dtype=np.float64),
        np.minimum(k, allowed.sum(axis=1)).astype(np.int64),
    )
    for query in range(q):
        chosen = order[allowed[query, order]][:k]
        ranking.indices[query, : len(chosen)] = chosen
        ranking.scores[query, : len(chosen)] = scores[chosen]
    return ranking


FOR_ALL: dict[str, Callable[..., Float64]] = {"dual-div": dual_div, "s3": s3, "similar": similar}


def _check_pool(summary: QuerySummary, pool: Float32, tie_rank: Int64) -> Float32:
    require_per_row("stage2.tie_rank", tie_rank, (len(pool),))
    return require_vectors("stage2.pool", pool, dim=len(summary.total))
