"""A pool cut into clusters once, and the nearest member of each of the nearest clusters."""

from __future__ import annotations

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, require_vectors, squared_norms
from selection.kmeans import seeded
from selection.lloyd import Points, lloyd
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions, top_k
from selection.recall import candidates_of, empty_ranking, nearest


def cluster_codes(vectors: Float32, tie_rank: Int64, *, n_clusters: int, seed: int = 0) -> Int64:
    """Cut records into clusters by the k-means of Stage 1 (`selection.kmeans`, `selection.lloyd`).

    All that is random belongs to a rank, and ties go to the first centre, so the order of the
    records changes nothing.

    Args:
        vectors: (n, d) float32 unit vectors.
        tie_rank: (n,) int64, distinct.
        n_clusters: At least 1; fewer are made of fewer different records.
        seed: Of the draws.

    Returns:
        (n,) int64 from 0, every code up to the largest in use; O(n n_clusters d) time a round.

    Raises:
        ValueError: n_clusters below 1, or rows that are not finite.
    """
    if n_clusters < 1:
        raise ValueError(f"cluster_codes.n_clusters: found {n_clusters}, wanted at least 1")
    rows = require_vectors("cluster_codes.vectors", vectors)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(tie_rank, kind="stable").astype(np.int64)
    keys = np.random.default_rng(seed).integers(2**64, size=len(rows), dtype=np.uint64)
    mass, squared = np.ones(len(rows)), squared_norms(rows)[order]
    points = Points(rows, order, mass, squared, keys, threads=1)
    centres = seeded(points, rows[:0], min(n_clusters, len(rows)))
    codes = np.empty(len(rows), dtype=np.int64)
    codes[order] = np.unique(lloyd(points, centres, n_fixed=0).labels, return_inverse=True)[1]
    return codes


def kmeans(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Pick the nearest member of each of the k clusters whose centres are nearest to the query.

    A cluster without a candidate is passed over. When clusters run out before k, the most relevant
    of the other candidates follow. O(q n d) time.

    Args:
        queries: What is ranked for.
        pool: With clusters; a record of code -1 is in none.
        options: Reads k and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        recalled: Candidates to choose among; None takes the whole pool.

    Returns:
        Relevance, nearest cluster first.

    Raises:
        ValueError: No clusters, shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    if pool.clusters is None:
        raise ValueError(
            "kmeans: found no clusters, wanted a code for each record; cluster_codes makes them"
        )
    present, codes = np.unique(pool.clusters[pool.clusters >= 0], return_inverse=True)
    centres = _means(pool.vectors[pool.clusters >= 0].astype(np.float64), codes, len(present))
    members = [np.flatnonzero(pool.clusters == code) for code in present]
    # Of equally near centres that with the first id goes first, whatever number it has.
    first = np.array([pool.tie_rank[rows].min() for rows in members], dtype=np.int64)

    def rank(part: Part) -> Ranking:
        best = [_best_of(part, pool, rows) for rows in members]
        near = candidates_of(part, pool, 2 * options.k)
        cosines = part.vectors.astype(np.float64) @ centres.T
        by_centre = top_k(cosines, k=len(members), allowed=None, tie_rank=first).indices
        return _join(best, by_centre, near, options.k)

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


def _best_of(part: Part, pool: Pool, members: Int64) -> Recalled:
    """Return the best candidate of one cluster for every query, (q, 1)."""
    if part.recalled is not None:
        own = Recalled(
            np.where(np.isin(part.recalled.indices, members), part.recalled.indices, -1),
            part.recalled.relevance,
        )
        found = candidates_of(Part(part.vectors, part.keys, part.allowed, own), pool, 1)
        return Recalled(found.indices[:, :1], found.relevance[:, :1])
    allowed = None if part.allowed is None else np.ascontiguousarray(part.allowed[:, members])
    inside = Pool(vectors=pool.vectors[members], tie_rank=pool.tie_rank[members])
    found = nearest(Part(part.vectors, part.keys, allowed, None), inside, 1)
    indices = np.where(found.indices >= 0, members[found.indices], -1)
    return Recalled(indices, found.relevance)


def _join(best: list[Recalled], by_centre: Int64, near: Recalled, k: int) -> Ranking:
    """Take clusters' best in the order of their centres, then the nearest others."""
    blocks = [near]
    if best:
        indices = np.concatenate([one.indices for one in best], axis=1)
        relevance = np.concatenate([one.relevance for one in best], axis=1)
        ordered = [np.take_along_axis(part, by_centre, axis=1) for part in (indices, relevance)]
        # Beyond the k-th cluster that has one, a best candidate is one of many.
        late = np.cumsum(ordered[0] >= 0, axis=1) > k
        blocks.insert(0, Recalled(np.where(late, -1, ordered[0]), ordered[1]))
    indices = np.concatenate([block.indices for block in blocks], axis=1)
    relevance = np.concatenate([block.relevance for block in blocks], axis=1)
    width = blocks[0].indices.shape[1] if best else 0
    again = (indices[:, width:, None] == indices[:, None, :width]).any(axis=2)
    indices[:, width:][again] = -1
    order = np.argsort(indices < 0, axis=1, kind="stable")[:, :k]
    joined = Recalled(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(relevance, order, axis=1)
    )
    result = empty_ranking(joined, k)
    held = joined.indices.shape[1]
    result.indices[:, :held] = joined.indices
    result.scores[:, :held] = np.where(joined.indices >= 0, joined.relevance, np.nan)
    return result


def _means(rows: Float64, codes: Int64, n_clusters: int) -> Float64:
    """Return the direction of each cluster's mean; a cluster without members has none, 0."""
    total = np.zeros((n_clusters, rows.shape[1]))
    np.add.at(total, codes, rows)
    norm = np.linalg.norm(total, axis=1, keepdims=True)
    return total / np.maximum(norm, np.finfo(np.float64).tiny)
