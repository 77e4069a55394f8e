"""Gains given one query: Eq. 12 read literally, and the candidates with the lowest of them."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np

from selection.arrays import (
    Bool,
    Float32,
    Float64,
    Int64,
    require_vectors,
    squared_norms,
)
from selection.diversity import RANK_TOLERANCE
from selection.kernels import excess_per_query
from selection.objective import COSINE_ROUNDING, TIE_TOLERANCE
from selection.pairs import best_open, cosine_of
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions, top_k
from selection.recall import candidates_of, empty_ranking


def dual_div(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Rank by f({x} u {q}) - f({q}), Eq. 12 read literally for one query.

    It prefers demonstrations FAR from the query: those that share the least coverage and direction
    with it. Compare it with `knn` before relying on it.

    Args:
        queries: What is ranked for.
        pool: With ground points.
        options: Reads k, lam, scale, ridge and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the whole pool.

    Returns:
        Gains, best first. Without a ridge a candidate parallel to the query has -inf.
        O(m d (q + n) + q m n) time.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no ground points.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    objective = options.objective()
    points, scale, floor = ground_of(pool, options)

    def rank(part: Part) -> Ranking:
        scores = scale * excess_per_query(points, part.vectors, pool.vectors)
        if objective.lam > 0:
            scores += objective.lam * _pair_log_det(part.vectors, pool.vectors, objective.ridge)
        mask = _choosable(part, len(pool.vectors))
        return top_k(scores, k=options.k, allowed=mask, tie_rank=pool.tie_rank, floor=floor)

    return rank_parts(rank, whole, width=4 * len(pool.vectors), options=options)


def s3(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Rank by the coverage that a candidate adds to the query's own: `dual_div` with lam 0.

    Args:
        queries: What is ranked for.
        pool: With ground points.
        options: Reads k, scale and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the whole pool.

    Returns:
        Coverage gains, best first: like `dual_div`, far from the query.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no ground points.
    """
    options = replace(options, lam=0.0)
    return dual_div(queries, pool, options=options, allowed=allowed, recalled=recalled)


def s3_lowest(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick a diverse subset of what adds least to the query: the ancestor, Div-S3.

    Of the recalled (the paper: 80 by cosine), the half with the lowest coverage gain given the
    query is kept, at least k; greedy facility location picks k of it, with that half as the ground
    points (Kumari et al., NAACL 2024). The most similar is first, so that an order with the most
    similar last shows ascending cosines, as there. O(q recall m + m d (q + n)) time.

    Args:
        queries: What is ranked for.
        pool: With ground points.
        options: Reads k, threads, and recall where nothing is given.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the `recall` nearest.

    Returns:
        The picks by falling relevance, with it.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, or no ground points.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    points, _, _ = ground_of(pool, options)
    gram = pool.gram

    def rank(part: Part) -> Ranking:
        candidates = candidates_of(part, pool, max(options.recall, options.k))
        gains = excess_per_query(points, part.vectors, pool.vectors, indices=candidates.indices)
        result = empty_ranking(candidates, options.k)
        _lowest_rows(
            candidates.indices,
            candidates.relevance,
            gains,
            COSINE_ROUNDING * len(points),
            gram,
            pool.vectors,
            pool.tie_rank,
            result.n_valid,
            result.indices,
            result.scores,
        )
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def ground_of(pool: Pool, options: RankOptions) -> tuple[Float32, float, float]:
    """Return the ground points, the factor of their sum in f, and what rounding moves it by.

    Args:
        pool: With ground points.
        options: Reads scale.

    Raises:
        ValueError: No ground points, or not finite vectors of the pool's dimension.
    """
    if pool.ground is None or len(pool.ground) == 0:
        raise ValueError(
            "stage2.ground: found no ground points, wanted the corpus vectors or a sample of them; "
            "coverage is a sum over the corpus"
        )
    points = require_vectors("stage2.ground", pool.ground, dim=pool.vectors.shape[1])
    # A query among the ground points is covered by itself: it adds to their number only.
    n_points = len(points) + pool.query_in_ground
    weight = 1.0 if pool.n_total is None else pool.n_total / n_points
    scale = options.objective().coverage_scale(n_points, weight=weight, n_total=pool.n_total)
    return points, scale, max(TIE_TOLERANCE, COSINE_ROUNDING * scale * n_points)


def _choosable(part: Part, n: int) -> Bool | None:
    """Return the allowed candidates, of the recalled where there are any; (q, n)."""
    if part.recalled is None:
        return part.allowed
    mask = np.zeros((len(part), n + 1), dtype=np.bool_)
    np.put_along_axis(mask, part.recalled.indices, True, axis=1)  # -1 marks the column too many
    return mask[:, :n] if part.allowed is None else mask[:, :n] & part.allowed


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


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _lowest_rows(
    candidates: Int64,
    relevance: Float64,
    gains: Float64,
    floor: float,
    gram: Float64,
    vectors: Float32,
    tie_rank: Int64,
    n_valid: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    r, k = candidates.shape[1], indices.shape[1]
    kept, open_ = np.empty(r, dtype=np.int64), np.empty(r, dtype=np.bool_)
    for query in range(candidates.shape[0]):
        items, n_items = candidates[query], 0
        for j in range(r):
            open_[j] = items[j] >= 0
            n_items += open_[j]
        n_kept = max(min(k, n_items), (n_items + 1) // 2)
        for number in range(n_kept):
            kept[number] = _lowest(gains[query], open_, items, tie_rank, floor)
            open_[kept[number]] = False
        chosen = kept[:n_kept].copy()
        chosen.sort()  # candidates stand in the order of their relevance
        picked = _cover(items[chosen], n_valid[query], gram, vectors, tie_rank)
        position = 0
        for number in range(n_kept):
            if picked[number]:
                indices[query, position] = items[chosen[number]]
                scores[query, position] = relevance[query, chosen[number]]
                position += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _lowest(gains: Float64, open_: Bool, items: Int64, tie_rank: Int64, floor: float) -> int:
    least = np.inf
    for j in range(gains.shape[0]):
        if open_[j]:
            least = min(least, gains[j])
    most, pick = least + TIE_TOLERANCE * abs(least) + floor, -1
    for j in range(gains.shape[0]):
        if open_[j] and gains[j] <= most:
            better = pick < 0 or tie_rank[items[j]] < tie_rank[items[pick]]
            pick = j if better else pick
    return pick


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _cover(items: Int64, k: int, gram: Float64, vectors: Float32, tie_rank: Int64) -> Bool:
    """Pick k items that cover all of them best, one after another; (n,) bool, O(n^2 k) time."""
    n = items.shape[0]
    cosines, cover = np.empty((n, n), dtype=np.float64), np.full(n, -1.0)
    open_, gain = np.ones(n, dtype=np.bool_), np.empty(n, dtype=np.float64)
    for i in range(n):
        for j in range(i + 1):
            cosines[i, j] = cosines[j, i] = cosine_of(gram, vectors, items[i], items[j])
    for _ in range(k):
        for j in range(n):
            gain[j] = 0.0
            for i in range(n):
                gain[j] += max(cosines[j, i] - cover[i], 0.0)
        pick = best_open(gain, open_, items, tie_rank)
        open_[pick] = False
        for i in range(n):
            cover[i] = max(cover[i], cosines[pick, i])
    return ~open_
