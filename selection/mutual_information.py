"""What a set of demonstrations shares with the query, counted once however often it is shown."""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.diversity import RANK_TOLERANCE
from selection.pairs import best_open, condition_on, cosine_of
from selection.pool import Pool, Queries, Recalled
from selection.query_gains import ground_of
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions
from selection.recall import candidates_of, empty_ranking
from selection.shortlist import dot
from selection.tiles import cosines_of

# Cosines of pool and ground points that are kept for the call: 512 MiB.
KEPT_MOST = 1 << 27
_ANY_ORDER = {"reassoc", "contract", "nnan", "nsz"}
_TILE = 256


def mutual_information(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick the set that shares most with the query: I_f(S; q) = f(S) + f(q) - f(S u q), greedily.

    Submodular mutual information (Iyer et al. 2021) of the paper's own f, and `diversity` times
    the log-determinant of the set:

        c * sum_i min(max_{x in S} w_ix, w_iq) + lam * (D(S) + D(q) - D(S u q)) + diversity * D(S)

    For one candidate: c * sum_i min(w_ix, w_iq) - lam * log(1 - (1 - eps)^2 w_xq^2). A later
    candidate counts by what it shares beyond the picks: points covered better up to the query's
    own cosine, and -lam * log(1 - rho^2), rho its correlation with the query given the picks (in a
    Gaussian process with noise eps: the bits it tells of the query). `scale: mean` lets both count.

    Args:
        queries: What is ranked for.
        pool: With ground points, at most 2^27 / n of them where scale and lam let coverage count.
        options: Reads k, lam, scale, ridge, diversity, threads, and recall where nothing is given.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the `recall` nearest.

    Returns:
        What each pick added, in the order of picking; the first counts coverage from -1.
        O(n m d) once, then O(m d + recall m) a query; 4 n m bytes.

    Raises:
        ValueError: Shapes that do not fit, rows that are not finite, no ground points, too many.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    points, scale, _ = ground_of(pool, options)
    n = len(pool.vectors)
    if n * len(points) > KEPT_MOST:
        raise ValueError(
            f"mutual-information: found {n} records and {len(points)} ground points, wanted at "
            f"most {KEPT_MOST // max(1, n)} ground points for this pool; lower stage2.ground"
        )
    kept, gram = pool.vectors @ np.array(points).T, pool.gram
    weights = np.array([scale, options.lam, options.diversity, options.ridge, scale])
    weights[4] *= pool.query_in_ground

    def rank(part: Part) -> Ranking:
        candidates = candidates_of(part, pool, max(options.recall, options.k))
        result = empty_ranking(candidates, options.k)
        _share_rows(
            candidates.indices,
            part.vectors,
            cosines_of(part.vectors, points),
            kept,
            gram,
            pool.vectors,
            pool.tie_rank,
            weights,
            result.indices,
            result.scores,
        )
        return result

    return rank_parts(rank, whole, width=max(n, len(points)), options=options)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _share_rows(
    candidates: Int64,
    queries: Float32,
    ceilings: Float32,
    kept: Float32,
    gram: Float64,
    vectors: Float32,
    tie_rank: Int64,
    weights: Float64,
    indices: Int64,
    scores: Float64,
) -> None:
    r, k, keep, own = candidates.shape[1], indices.shape[1], 1 - weights[3], weights[4]
    coverage, bonus = np.empty(r, dtype=np.float64), np.empty(r, dtype=np.float64)
    to_query, cross = np.zeros(r, dtype=np.float64), np.empty(r, dtype=np.float64)
    residual, norm = np.ones(r, dtype=np.float64), np.ones(r, dtype=np.float64)
    factor, level = np.empty((k, r), dtype=np.float64), np.empty(kept.shape[1], dtype=np.float32)
    open_, fresh = np.empty(r, dtype=np.bool_), np.empty(r, dtype=np.bool_)
    for query in range(candidates.shape[0]):
        items, ceiling, query_level = candidates[query], ceilings[query], -1.0
        open_[:] = items >= 0
        level[:], fresh[:] = np.float32(-1.0), True
        variance = keep * dot(queries[query], queries[query]) + weights[3]
        tiny = RANK_TOLERANCE * max(variance, RANK_TOLERANCE)
        variance = max(variance, tiny)
        for j in np.flatnonzero(open_):
            to_query[j] = dot(queries[query], vectors[items[j]])
            norm[j] = keep * cosine_of(gram, vectors, items[j], items[j]) + weights[3]
            coverage[j] = _shared(kept[items[j]], ceiling, level)
        cross[:], residual[:] = keep * to_query, norm
        for position in range(min(k, open_.sum())):
            _tell(residual, norm, cross, variance, weights, bonus)
            bonus += own * np.maximum(to_query - query_level, 0.0)
            pick = -1
            # An old coverage gain is an upper bound: only a leader's is computed anew.
            while pick < 0 or not fresh[pick]:
                if pick >= 0:
                    coverage[pick] = _shared(kept[items[pick]], ceiling, level)
                    fresh[pick] = True
                pick = best_open(weights[0] * coverage + bonus, open_, items, tie_rank)
            indices[query, position] = items[pick]
            scores[query, position] = weights[0] * coverage[pick] + bonus[pick]
            open_[pick], fresh[:] = False, False
            query_level = max(query_level, to_query[pick])
            _raise(kept[items[pick]], ceiling, level)
            residual[pick] = _left(residual[pick], norm[pick])
            told = cross[pick] / np.sqrt(residual[pick])
            variance = max(variance - told**2, tiny)
            condition_on(pick, position, items, open_, keep, gram, vectors, factor, residual)
            for j in np.flatnonzero(open_):
                cross[j] -= told * factor[position, j]


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _tell(
    residual: Float64,
    norm: Float64,
    cross: Float64,
    variance: float,
    weights: Float64,
    bonus: Float64,
) -> None:
    """Write lam * what each candidate tells of the query + diversity * its log-determinant."""
    for j in range(bonus.shape[0]):
        left = _left(residual[j], norm[j])
        known = min(cross[j] ** 2 / (left * variance), 1 - RANK_TOLERANCE)
        bonus[j] = weights[2] * np.log(left) - weights[1] * np.log(1 - known)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _left(residual: float, norm: float) -> float:
    return max(residual, RANK_TOLERANCE * max(norm, RANK_TOLERANCE))


@numba.njit(nogil=True, cache=True, fastmath=_ANY_ORDER)  # type: ignore[misc]
def _shared(row: Float32, ceiling: Float32, level: Float32) -> float:
    """Return sum_i max(0, min(row_i, ceiling_i) - level_i), by tiles of float32."""
    total = 0.0
    for start in range(0, row.shape[0], _TILE):
        part = np.float32(0.0)
        for i in range(start, min(start + _TILE, row.shape[0])):
            part += max(min(row[i], ceiling[i]) - level[i], np.float32(0.0))
        total += np.float64(part)
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _raise(row: Float32, ceiling: Float32, level: Float32) -> None:
    for i in range(row.shape[0]):
        level[i] = max(level[i], min(row[i], ceiling[i]))
