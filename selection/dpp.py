"""Determinantal point process: the likeliest set of relevant and mutually different candidates."""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.diversity import RANK_TOLERANCE
from selection.pairs import best_open, condition_on, cosine_of
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions
from selection.recall import candidates_of, empty_ranking

_LOWEST = float(np.log(RANK_TOLERANCE))


def dpp(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick greedily the likeliest set of a determinantal point process among the recalled.

    The kernel is L = diag(r) W diag(r) with the quality r = exp(theta * relevance), so that
    log det L_S = 2 theta * sum of relevance + log det W_S. Each pick adds the most to it, by an
    incremental Cholesky factor (Chen et al. 2018): O(recall k^2) time a query, beside recall and
    cosines as in `mmr`. A candidate in the span of the picks adds -inf and is never taken by the
    determinant; when only such are left, the most relevant of them follow.

    Args:
        queries: What is ranked for.
        pool: What may be shown.
        options: Reads k, theta, threads, and recall where nothing is given.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the `recall` nearest.

    Returns:
        What each pick added, in the order of picking; 2 theta * relevance + log of 1e-10 for those
        in the span of the earlier.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    gram = pool.gram

    def rank(part: Part) -> Ranking:
        candidates = candidates_of(part, pool, max(options.recall, options.k))
        result = empty_ranking(candidates, options.k)
        _dpp_rows(
            candidates.indices,
            2 * options.theta * candidates.relevance,
            gram,
            pool.vectors,
            pool.tie_rank,
            result.n_valid,
            result.indices,
            result.scores,
        )
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _dpp_rows(
    candidates: Int64,
    quality: Float64,
    gram: Float64,
    vectors: Float32,
    tie_rank: Int64,
    n_valid: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    r, k = candidates.shape[1], indices.shape[1]
    residual, norm = np.empty(r, dtype=np.float64), np.empty(r, dtype=np.float64)
    value, factor = np.empty(r, dtype=np.float64), np.empty((k, r), dtype=np.float64)
    open_ = np.empty(r, dtype=np.bool_)
    for query in range(candidates.shape[0]):
        items = candidates[query]
        open_[:] = items >= 0
        for j in range(r):
            if open_[j]:
                norm[j] = residual[j] = cosine_of(gram, vectors, items[j], items[j])
        exhausted = False
        for position in range(n_valid[query]):
            if not exhausted:
                exhausted = _weigh(quality[query], residual, norm, open_, value)
            if exhausted:
                value[:] = quality[query] + _LOWEST
            pick = best_open(value, open_, items, tie_rank)
            indices[query, position], scores[query, position] = items[pick], value[pick]
            open_[pick] = False
            if not exhausted:
                condition_on(pick, position, items, open_, 1.0, gram, vectors, factor, residual)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _weigh(quality: Float64, residual: Float64, norm: Float64, open_: Bool, value: Float64) -> bool:
    """Write what each open candidate adds, -inf in the span of the picks; True if all are."""
    exhausted = True
    for j in range(value.shape[0]):
        spanned = residual[j] <= RANK_TOLERANCE * max(norm[j], RANK_TOLERANCE)
        if open_[j] and not spanned:
            value[j] = quality[j] + np.log(residual[j])
            exhausted = False
        else:
            value[j] = -np.inf
    return exhausted
