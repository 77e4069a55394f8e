"""Stage 2 for each query by itself: the methods, by name, and the plainest of them.

A ranker is a pure function `ranker(queries, pool, *, options, allowed, recalled)`. Given recalled
candidates it chooses among them only; else it takes the whole pool, or recalls by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from selection.arrays import Bool, Float64, Int64, UInt64
from selection.dpp import dpp
from selection.label_probe import probe
from selection.loops import mixed
from selection.mmr import mmr, stratified
from selection.mutual_information import mutual_information
from selection.pool import Pool, Queries, Recalled
from selection.pool_clusters import kmeans
from selection.query_gains import dual_div, s3, s3_lowest
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions
from selection.recall import candidates_of, empty_ranking, first_k


def knn(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Take the most relevant: the nearest by cosine, or the first recalled; O(q n d) time.

    Args:
        queries: What is ranked for.
        pool: What may be shown.
        options: Reads k and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates in the order in which they are taken; None takes the whole pool.

    Returns:
        Cosines, or the relevance given, best first.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)

    def rank(part: Part) -> Ranking:
        return first_k(candidates_of(part, pool, options.k), options.k)

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def random(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Draw for each query anew, from a hash of seed, query and record; O(q n) time.

    Args:
        queries: Their keys fix their draws.
        pool: Its tie ranks fix them too, not its order.
        options: Reads k, seed and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to draw among; None takes the whole pool.

    Returns:
        The numbers drawn, between 0 and 1, largest first.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    seed = np.uint64(options.seed % 2**64)

    def rank(part: Part) -> Ranking:
        candidates = _unordered(part, pool)
        result = empty_ranking(candidates, options.k)
        keys = part.keys.astype(np.uint64)
        _draw_rows(candidates.indices, keys, seed, pool.tie_rank, result.indices, result.scores)
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def fixed(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Take the first of the pool, in its order: the same for every query that may see them.

    Args:
        queries: Only their number counts.
        pool: In the order in which Stage 1 picked.
        options: Reads k and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the whole pool.

    Returns:
        Minus the place in the pool, from 0 down.

    Raises:
        ValueError: Shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)

    def rank(part: Part) -> Ranking:
        places = np.full((len(part), options.k), -1, dtype=np.int64)
        if part.recalled is None:
            _first_allowed(part.allowed, len(pool.vectors), places)
        else:
            _first_places(np.sort(candidates_of(part, pool, 1).indices, axis=1), places)
        return first_k(Recalled(places, np.where(places < 0, np.nan, -1.0 * places)), options.k)

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def _unordered(part: Part, pool: Pool) -> Recalled:
    """Return every candidate without a relevance."""
    if part.recalled is not None:
        return candidates_of(part, pool, 1)
    places = np.broadcast_to(np.arange(len(pool.vectors)), (len(part), len(pool.vectors)))
    if part.allowed is not None:
        places = np.where(part.allowed, places, -1)
    return Recalled(places, np.broadcast_to(np.float64(0), places.shape))


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _first_allowed(allowed: Bool | None, n: int, places: Int64) -> None:
    for query in range(places.shape[0]):
        position = 0
        for index in range(n):
            if position == places.shape[1]:
                break
            if allowed is None or allowed[query, index]:
                places[query, position] = index
                position += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _first_places(ordered: Int64, places: Int64) -> None:
    for query in range(places.shape[0]):
        position = 0
        for index in ordered[query]:
            if index >= 0 and position < places.shape[1]:
                places[query, position] = index
                position += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _draw_rows(
    candidates: Int64,
    keys: UInt64,
    seed: np.uint64,
    tie_rank: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    """Keep the k largest draws of every row, in falling order."""
    k, step = indices.shape[1], np.uint64(0x9E3779B97F4A7C15)
    for query in range(candidates.shape[0]):
        start, n_held = mixed(keys[query] + mixed(seed + step)), 0
        for column in range(candidates.shape[1]):
            index = candidates[query, column]
            if index < 0:
                continue
            bits = mixed(start + step * np.uint64(tie_rank[index] + 1))
            draw = np.float64(bits >> np.uint64(11)) * 2.0**-53
            if n_held == k and draw <= scores[query, k - 1]:
                continue
            at = min(n_held, k - 1)
            while at > 0 and scores[query, at - 1] < draw:
                scores[query, at] = scores[query, at - 1]
                indices[query, at] = indices[query, at - 1]
                at -= 1
            scores[query, at], indices[query, at] = draw, index
            n_held = min(n_held + 1, k)


PER_QUERY: dict[str, Callable[..., Ranking]] = {
    "knn": knn,
    "probe": probe,
    "mmr": mmr,
    "dpp": dpp,
    "stratified": stratified,
    "kmeans": kmeans,
    "random": random,
    "fixed": fixed,
    "mutual-information": mutual_information,
    "dual-div": dual_div,
    "s3": s3,
    "s3-lowest": s3_lowest,
}
