"""Recall: the candidates of each query that a selector then chooses among."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from selection.arrays import Bool, Float64, Int64
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked
from selection.ranking import Ranking, query_chunks
from selection.shortlist import nearest_rows
from selection.tiles import cosines_of, one_blas_thread, share_out

# Sums of the same terms in another order differ by less than this part of them.
_ROUNDING = 1e-12


def dense(
    queries: Queries, pool: Pool, *, r: int, allowed: Bool | None = None, threads: int = 1
) -> Recalled:
    """Recall the r nearest by cosine, ties to the smaller rank; O(q n d) time.

    The float32 product only picks a shortlist; order and relevance are cosines in float64, so they
    depend neither on the batch nor on the order of the queries or of the pool.

    Args:
        queries: What is recalled for.
        pool: What may be recalled.
        r: Wanted per query.
        allowed: (q, n) bool, False for a candidate that a query must not see.
        threads: Threads to use.

    Returns:
        min(r, allowed) candidates a query.

    Raises:
        ValueError: r below 1, shapes that do not fit, or rows that are not finite.
    """
    if r < 1:
        raise ValueError(f"dense.r: found {r}, wanted at least 1")
    whole, pool = checked(queries, pool, allowed, None)
    parts = [whole[rows] for rows in query_chunks(len(whole), len(pool.vectors))]
    with one_blas_thread:
        done = list(share_out(lambda part: nearest(part, pool, r), parts, threads=threads))
    if not done:
        return _nothing(0, r)
    return Recalled(
        np.concatenate([part.indices for part in done]),
        np.concatenate([part.relevance for part in done]),
    )


def fused(
    recalled: Sequence[Recalled], *, k_rrf: float = 60.0, r: int, tie_rank: Int64
) -> Recalled:
    """Fuse several recalled lists by their ranks alone: reciprocal rank fusion (Cormack 2009).

    relevance(x) = (k_rrf + 1) / L * sum over the L lists with x of 1 / (k_rrf + rank of x in it),
    ranks from 1: 1 for what is first everywhere. The factor changes no order; it makes relevance
    about as large as a cosine, against which `mmr` and `dpp` weigh it. Where a list is empty for a
    query, L counts the others: a query without a known word is served by the dense list alone.

    Args:
        recalled: At least one, with the same number of queries.
        k_rrf: Above 0; the larger, the less the first places count.
        r: Wanted per query.
        tie_rank: (n,) int64; of equal candidates the smallest goes first.

    Returns:
        min(r, distinct candidates) a query; O(q L r^2) time.

    Raises:
        ValueError: No list, lists of different lengths, k_rrf or r out of range.
    """
    lengths = [len(one.indices) for one in recalled]
    if not recalled or len(set(lengths)) > 1:
        raise ValueError(f"fused: found lists for {lengths} queries, wanted as many in each")
    if not k_rrf > 0 or r < 1:
        raise ValueError(f"fused: found k_rrf {k_rrf} and r {r}, wanted k_rrf > 0 and r >= 1")
    lists = np.concatenate([one.indices for one in recalled], axis=1)
    highest = int(lists.max(initial=-1))
    if highest >= len(tie_rank):
        raise ValueError(
            f"fused.tie_rank: found {len(tie_rank)} ranks, wanted more than {highest}, the "
            "largest place recalled"
        )
    result = _nothing(lengths[0], r)
    ends = np.cumsum([one.indices.shape[1] for one in recalled]).astype(np.int64)
    ranks = np.ascontiguousarray(tie_rank, dtype=np.int64)
    _fuse_rows(lists, ends, float(k_rrf), ranks, result.indices, result.relevance)
    return result


def filled(found: Recalled, near: Recalled, *, least: int) -> Recalled:
    """Scale what was found by the largest of its query, and fill short rows from another list.

    Sums of weights of words have no bound. Divided by the largest of their query they are about as
    large as cosines, against which `mmr` and `dpp` weigh them.

    Args:
        found: Candidates with positive relevance.
        near: Of the same q queries, their nearest records with cosines.
        least: Rows of fewer candidates are filled up to so many, with relevance cosine - 1, which
            is below all that was found; a row of none becomes the row of `near`.

    Returns:
        (q, r), r of `found`; O(q r' least) time and bytes.

    Raises:
        ValueError: Lists of another number of queries.
    """
    q, r = found.indices.shape
    if len(near.indices) != q:
        raise ValueError(f"filled: found lists for {q} and {len(near.indices)} queries")
    indices, relevance = found.indices, found.relevance / found.relevance[:, :1]
    n_found = (indices >= 0).sum(axis=1)
    none = n_found == 0
    wanted = np.where(none, r, np.clip(least - n_found, 0, None))[:, None]
    # A row that is filled has found fewer than `least`.
    again = (near.indices[:, :, None] == indices[:, None, :least]).any(axis=2)
    more = (near.indices >= 0) & ~again
    more &= np.cumsum(more, axis=1) <= wanted
    indices = np.concatenate([indices, np.where(more, near.indices, -1)], axis=1)
    less = np.where(none, 0.0, 1.0)[:, None]
    relevance = np.concatenate([relevance, np.where(more, near.relevance - less, np.nan)], axis=1)
    order = np.argsort(indices < 0, axis=1, kind="stable")[:, :r]
    return Recalled(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(relevance, order, axis=1)
    )


def nearest(part: Part, pool: Pool, r: int) -> Recalled:
    """Recall the r nearest for one part of the queries.

    Args:
        part: Checked; what was recalled for it is not looked at.
        pool: Checked.
        r: Wanted per query, at least 1.
    """
    result = _nothing(len(part), r)
    if len(part) and len(pool.vectors):
        cosines = cosines_of(part.vectors, pool.vectors)
        nearest_rows(
            cosines,
            part.vectors,
            pool.vectors,
            part.allowed,
            pool.tie_rank,
            result.indices,
            result.relevance,
        )
    return result


def candidates_of(part: Part, pool: Pool, r: int) -> Recalled:
    """Return what was recalled and is allowed, in its order, or else the r nearest.

    Args:
        part: Checked.
        pool: Checked.
        r: Wanted per query where nothing was recalled.
    """
    if part.recalled is None:
        return nearest(part, pool, r)
    indices, relevance = part.recalled.indices, part.recalled.relevance
    keep = indices >= 0
    if part.allowed is not None:
        keep &= np.take_along_axis(part.allowed, np.maximum(indices, 0), axis=1)
    order = np.argsort(~keep, axis=1, kind="stable")
    keep = np.take_along_axis(keep, order, axis=1)
    return Recalled(
        np.where(keep, np.take_along_axis(indices, order, axis=1), -1),
        np.where(keep, np.take_along_axis(relevance, order, axis=1), np.nan),
    )


def first_k(candidates: Recalled, k: int) -> Ranking:
    """Return the k most relevant of each query, scored by their relevance."""
    width = min(k, candidates.indices.shape[1])
    ranking = empty_ranking(candidates, k)
    ranking.indices[:, :width] = candidates.indices[:, :width]
    ranking.scores[:, :width] = candidates.relevance[:, :width]
    return ranking


def empty_ranking(candidates: Recalled, k: int) -> Ranking:
    """Return a ranking to fill in, which knows already how many each query gets."""
    n_valid = np.minimum((candidates.indices >= 0).sum(axis=1), k).astype(np.int64)
    nothing = _nothing(len(n_valid), k)
    return Ranking(nothing.indices, nothing.relevance, n_valid)


def _nothing(n_queries: int, r: int) -> Recalled:
    return Recalled(
        np.full((n_queries, r), -1, dtype=np.int64),
        np.full((n_queries, r), np.nan, dtype=np.float64),
    )


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _fuse_rows(
    lists: Int64, ends: Int64, k_rrf: float, tie_rank: Int64, indices: Int64, relevance: Float64
) -> None:
    width = lists.shape[1]
    found = np.empty(width, dtype=np.int64)
    total = np.empty(width, dtype=np.float64)
    for query in range(lists.shape[0]):
        n_found, n_lists, start = 0, 0, 0
        for end in ends:
            rank = 0
            for column in range(start, end):
                index = lists[query, column]
                if index < 0:
                    continue
                rank += 1
                at = 0
                while at < n_found and found[at] != index:
                    at += 1
                if at == n_found:
                    found[at], total[at] = index, 0.0
                    n_found += 1
                total[at] += 1 / (k_rrf + rank)
            n_lists += rank > 0
            start = end
        for position in range(min(n_found, indices.shape[1])):
            highest = total[:n_found].max() * (1 - _ROUNDING)
            best = -1
            for at in range(n_found):
                if total[at] >= highest and (
                    best < 0 or tie_rank[found[at]] < tie_rank[found[best]]
                ):
                    best = at
            indices[query, position] = found[best]
            relevance[query, position] = total[best] * (k_rrf + 1) / n_lists
            n_found -= 1
            found[best], total[best] = found[n_found], total[n_found]
