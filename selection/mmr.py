"""Maximal marginal relevance, alone and after the best candidate of each of the nearest labels."""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.objective import TIE_TOLERANCE
from selection.pairs import best_open, cosine_of
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions
from selection.recall import candidates_of, empty_ranking


def mmr(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick the most relevant, then again and again the best balance of relevance and novelty.

    Maximal marginal relevance (Carbonell and Goldstein 1998) with the picks of LangChain's
    `maximal_marginal_relevance`: mmr_lambda * relevance - (1 - mmr_lambda) * largest cosine to a
    pick, among the recalled. O(q (n d + recall k)) time, and n^2 d once, up to 2,048 records;
    O(q (n + recall k) d) beyond.

    Args:
        queries: What is ranked for.
        pool: What may be shown.
        options: Reads k, mmr_lambda, threads, and recall where nothing is given.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the `recall` nearest.

    Returns:
        The value at which each was picked, in the order of picking; it need not fall.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    gram = pool.gram

    def rank(part: Part) -> Ranking:
        candidates = candidates_of(part, pool, max(options.recall, options.k))
        result = empty_ranking(candidates, options.k)
        none = np.zeros(len(part), dtype=np.int64)
        _fill(candidates, pool, gram, options.mmr_lambda, none, result)
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def stratified(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick the best candidate of each of the nearest labels, the rest by `mmr`.

    A label weighs the sum of the positive relevance of its recalled candidates; of equal ones that
    with the most relevant candidate goes first. Labels without a recalled candidate have no place:
    raise `recall` to reach them. Candidates without a label come in by `mmr` alone.

    Args:
        queries: What is ranked for.
        pool: With labels.
        options: Reads k, labels, mmr_lambda, threads, and recall where nothing is given.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the `recall` nearest.

    Returns:
        First the labels' candidates, heaviest label first, with their relevance; then those of
        `mmr`, with its values.

    Raises:
        ValueError: No labels, shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    if pool.labels is None:
        raise ValueError(
            "stratified: found no labels, wanted a code for each of the records of the pool"
        )
    gram, labels = pool.gram, np.ascontiguousarray(pool.labels, dtype=np.int64)
    most = options.k if options.labels is None else min(options.labels, options.k)

    def rank(part: Part) -> Ranking:
        candidates = candidates_of(part, pool, max(options.recall, options.k))
        result = empty_ranking(candidates, options.k)
        started = np.zeros(len(part), dtype=np.int64)
        _label_rows(
            candidates.indices,
            candidates.relevance,
            labels,
            most,
            started,
            result.indices,
            result.scores,
        )
        _fill(candidates, pool, gram, options.mmr_lambda, started, result)
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def _fill(
    candidates: Recalled,
    pool: Pool,
    gram: Float64,
    weight: float,
    started: Int64,
    result: Ranking,
) -> None:
    _mmr_rows(
        candidates.indices,
        candidates.relevance,
        gram,
        pool.vectors,
        pool.tie_rank,
        float(weight),
        started,
        result.n_valid,
        result.indices,
        result.scores,
    )


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _mmr_rows(
    candidates: Int64,
    relevance: Float64,
    gram: Float64,
    vectors: Float32,
    tie_rank: Int64,
    weight: float,
    started: Int64,
    n_valid: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    """Fill up the picks of each query, the first `started` of which are made already."""
    r = candidates.shape[1]
    redundancy, value = np.empty(r, dtype=np.float64), np.empty(r, dtype=np.float64)
    open_ = np.empty(r, dtype=np.bool_)
    for query in range(candidates.shape[0]):
        items, near = candidates[query], relevance[query]
        for j in range(r):
            open_[j] = items[j] >= 0
            redundancy[j] = -np.inf
        for position in range(n_valid[query]):
            if position >= started[query]:
                for j in range(r):
                    novelty = 0.0 if position == 0 else (1 - weight) * redundancy[j]
                    value[j] = weight * near[j] - novelty
                # The first is the most relevant whatever the weight, as in LangChain.
                pick = best_open(near if position == 0 else value, open_, items, tie_rank)
                indices[query, position], scores[query, position] = items[pick], value[pick]
            picked = indices[query, position]
            for j in range(r):
                if items[j] == picked:
                    open_[j] = False
                elif open_[j]:
                    likeness = cosine_of(gram, vectors, picked, items[j])
                    redundancy[j] = max(redundancy[j], likeness)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _label_rows(
    candidates: Int64,
    relevance: Float64,
    labels: Int64,
    most: int,
    started: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    """Pick the first candidate of each of the heaviest labels; O(r * labels) a query."""
    r = candidates.shape[1]
    first, weight = np.empty(r, dtype=np.int64), np.empty(r, dtype=np.float64)
    for query in range(candidates.shape[0]):
        n_found = 0
        for j in range(r):
            index = candidates[query, j]
            if index < 0 or labels[index] < 0:
                continue
            at = 0
            while at < n_found and labels[candidates[query, first[at]]] != labels[index]:
                at += 1
            if at == n_found:
                first[at], weight[at] = j, 0.0
                n_found += 1
            weight[at] += max(relevance[query, j], 0.0)
        started[query] = min(n_found, most)
        for position in range(started[query]):
            heaviest = weight[:n_found].max()
            # Labels were found in the order of their best candidates: the first wins a tie.
            at = 0
            while weight[at] < heaviest - TIE_TOLERANCE * (1 + heaviest):
                at += 1
            indices[query, position] = candidates[query, first[at]]
            scores[query, position] = relevance[query, first[at]]
            weight[at] = -np.inf
