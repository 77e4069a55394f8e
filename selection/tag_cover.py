"""Identifier coverage: every tag that a query names is in one of its demonstrations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from selection.arrays import Bool, Float32, Float64, Int64, require_per_row
from selection.objective import TIE_TOLERANCE
from selection.pool import Pool
from selection.ranking import Ranking

_BLOCK = 65_536


@dataclass(frozen=True)
class Covered:
    """Rankings in which the tags of the queries are covered where they can be.

    Attributes:
        ranking: Demonstrations that stayed in their order, then those that came in for their tags,
            whose score is nan: the method gave them none.
        needed: (q, k) bool, without this demonstration a tag would not be covered; a budget should
            drop others first.
        n_came_in: (q,) int64, demonstrations that were not in the ranking before.
        uncovered: (q, t) bool, tags that allowed records carry and no demonstration does: one of
            k records cannot carry them all.
        absent: (q, t) bool, tags that no allowed record carries.
    """

    ranking: Ranking
    needed: Bool
    n_came_in: Int64
    uncovered: sp.csr_array
    absent: sp.csr_array


def cover_tags(
    ranking: Ranking,
    queries: Float32,
    pool: Pool,
    *,
    query_tags: sp.csr_array,
    pool_tags: sp.csr_array,
    allowed: Bool | None = None,
) -> Covered:
    """Change as few demonstrations as it takes to cover the tags that each query names.

    As long as a tag is uncovered, the record that carries most uncovered tags comes in (ties: the
    larger cosine, then the smaller tie rank) for the last demonstration that is not needed. Where
    all are needed and a tag is left, k records are chosen anew by greedy set cover, those shown
    before others in a tie, and taken if they cover more: never less than 1 - 1/e of the most that
    k records can (Nemhauser et al. 1978). O(carriers of the query's tags * tags) a record.

    Args:
        ranking: Of q queries, k wide; a row with room takes records in before any goes.
        queries: (q, d) float32 unit vectors.
        pool: Its vectors and tie ranks are read.
        query_tags: (q, t) bool, the tags each query names.
        pool_tags: (n, t) bool, the tags each record carries.
        allowed: (q, n) bool, False for a record that a query must not see.

    Raises:
        ValueError: Shapes that do not fit, or a ranking of records that are not allowed.
    """
    _check(ranking, queries, pool, (query_tags.shape, pool_tags.shape), allowed)
    wanted, by_record = _set_entries(query_tags), _set_entries(pool_tags)
    by_tag = sp.csc_array(by_record)
    indices, scores = ranking.indices.copy(), ranking.scores.copy()
    needed = np.zeros(indices.shape, dtype=np.bool_)
    n_came_in = np.zeros(len(indices), dtype=np.int64)
    uncovered: list[list[int]] = [[] for _ in indices]
    absent: list[list[int]] = [[] for _ in indices]
    for row in np.flatnonzero(np.diff(wanted.indptr)):
        tags = _entries(wanted, row)
        shown = indices[row][indices[row] >= 0]
        carried = by_record[shown][:, tags].toarray()
        if not _union(carried).all():
            mask = None if allowed is None else allowed[row]
            carriers = _carriers_of(by_tag, tags, mask, queries[row], pool)
            absent[row] = tags[~_union(carriers.has)].tolist()
            records = _improved(shown.tolist(), carried, carriers, indices.shape[1])
            n_came_in[row] = len(set(records) - set(shown.tolist()))
            _write(indices[row], scores[row], records)
            carried = by_record[np.array(records, np.int64)][:, tags].toarray()
            missing = ~_union(carried) & _union(carriers.has)
            uncovered[row] = tags[missing].tolist()
        first = carried & (np.cumsum(carried, axis=0) == 1)
        needed[row, : len(carried)] = first.any(axis=1)
    n_valid = (indices >= 0).sum(axis=1)
    shape = query_tags.shape
    return Covered(
        Ranking(indices, scores, n_valid),
        needed,
        n_came_in,
        _matrix(uncovered, shape),
        _matrix(absent, shape),
    )


@dataclass(frozen=True)
class _Carriers:
    """The records that one query may see and that carry a tag it names: (c,) and (c, t)."""

    records: Int64
    has: Bool
    query: Float32
    pool: Pool

    def best(self, open_: Bool, taken: list[int]) -> int | None:
        """Position of the carrier of most open tags; None if no open tag has a carrier left."""
        gains = np.where(np.isin(self.records, taken), 0, self.has[:, open_].sum(axis=1))
        most = gains.max(initial=0)
        if most == 0:
            return None
        tied = np.flatnonzero(gains == most)
        if len(tied) > 1:
            cosines = self._cosines(self.records[tied])
            least = cosines.max() - TIE_TOLERANCE * (1 + abs(cosines.max()))
            tied = tied[cosines >= least]
        return int(tied[np.argmin(self.pool.tie_rank[self.records[tied]])])

    def _cosines(self, records: Int64) -> Float64:
        query = self.query.astype(np.float64)
        blocks = range(0, len(records), _BLOCK)
        parts = [self.pool.vectors[records[at : at + _BLOCK]].astype(np.float64) for at in blocks]
        return np.concatenate([part @ query for part in parts])


def _carriers_of(
    by_tag: sp.csc_array, tags: Int64, mask: Bool | None, query: Float32, pool: Pool
) -> _Carriers:
    columns = [_entries(by_tag, tag) for tag in tags]
    records = np.unique(np.concatenate(columns))
    if mask is not None:
        records = records[mask[records]]
    has = np.stack([np.isin(records, column) for column in columns], axis=1)
    return _Carriers(records, has, query, pool)


def _improved(shown: list[int], carried: Bool, carriers: _Carriers, k: int) -> list[int]:
    """Demonstrations that cover more than those shown, at most k."""
    records, covers = _replaced(shown, carried, carriers, k)
    n_covered = int(_union(covers).sum())
    if n_covered == int(_union(carriers.has).sum()):
        return records
    anew = _chosen_anew(shown, carried, carriers, k)
    rows = np.searchsorted(carriers.records, anew)
    if int(_union(carriers.has[rows]).sum()) <= n_covered:
        return records
    fill = [record for record in shown if record not in anew][: k - len(anew)]
    stay = [record for record in shown if record in anew or record in fill]
    return stay + [record for record in anew if record not in shown]


def _replaced(
    shown: list[int], carried: Bool, carriers: _Carriers, k: int
) -> tuple[list[int], Bool]:
    """Let carriers in for demonstrations that are not needed, until nothing is left to gain."""
    records, covers = list(shown), carried
    while True:
        position = carriers.best(~_union(covers), records)
        if position is None:
            return records, covers
        after = np.vstack([covers, carriers.has[position]])
        if len(records) == k:
            spare = np.flatnonzero((~after | (after.sum(axis=0) > 1)).all(axis=1)[:-1])
            if not len(spare):
                return records, covers
            after = np.delete(after, spare[-1], axis=0)
            del records[spare[-1]]
        records.append(int(carriers.records[position]))
        covers = after


def _chosen_anew(shown: list[int], carried: Bool, carriers: _Carriers, k: int) -> list[int]:
    """Greedy set cover by at most k records; in a tie those shown come first."""
    chosen: list[int] = []
    open_ = _union(carriers.has)
    while len(chosen) < k:
        position = carriers.best(open_, chosen)
        if position is None:
            break
        most = int((carriers.has[position] & open_).sum())
        gains = (carried & open_).sum(axis=1)
        same = [i for i in np.flatnonzero(gains == most) if shown[i] not in chosen]
        record = shown[same[0]] if same else int(carriers.records[position])
        open_ = open_ & ~(carried[same[0]] if same else carriers.has[position])
        chosen.append(record)
    return chosen


def _union(covers: Bool) -> Bool:
    """Tags that at least one row covers."""
    return np.logical_or.reduce(covers, axis=0)


def _write(indices: Int64, scores: Float64, records: list[int]) -> None:
    """Put records into one row in place; those that were there keep their scores."""
    old = {int(record): float(score) for record, score in zip(indices, scores, strict=True)}
    indices[:], scores[:] = -1, np.nan
    indices[: len(records)] = records
    scores[: len(records)] = [old.get(record, np.nan) for record in records]


def _set_entries(matrix: sp.csr_array) -> sp.csr_array:
    """A copy of bool without entries that are stored but False."""
    copy = sp.csr_array(matrix, dtype=np.bool_, copy=True)
    copy.sum_duplicates()
    copy.eliminate_zeros()
    return copy


def _entries(matrix: sp.csr_array | sp.csc_array, line: int) -> Int64:
    """Columns of a row of CSR, or rows of a column of CSC."""
    return matrix.indices[matrix.indptr[line] : matrix.indptr[line + 1]].astype(np.int64)


def _matrix(rows: list[list[int]], shape: tuple[int, int]) -> sp.csr_array:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    columns = np.array([column for row in rows for column in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(columns), dtype=np.bool_), columns, starts), shape=shape)


def _check(
    ranking: Ranking,
    queries: Float32,
    pool: Pool,
    shapes: tuple[tuple[int, int], tuple[int, int]],
    allowed: Bool | None,
) -> None:
    (n_queries, n_tags), (n, n_pool_tags) = shapes
    if (n_queries, n) != (len(queries), len(pool.vectors)) or n_tags != n_pool_tags:
        raise ValueError(
            f"tag cover: found tags of shape {shapes[0]} for {len(queries)} queries and "
            f"{shapes[1]} for {len(pool.vectors)} records; wanted a row for each, and the same tags"
        )
    require_per_row("tag cover: ranking", ranking.n_valid, (n_queries,))
    if allowed is None:
        return
    require_per_row("tag cover: allowed", allowed, (n_queries, n))
    valid = ranking.indices >= 0
    seen = np.take_along_axis(allowed, np.maximum(ranking.indices, 0), axis=1) if n else valid
    bad = np.argwhere(valid & ~seen)
    if len(bad):
        row, position = bad[0]
        raise ValueError(
            f"tag cover: {len(bad)} demonstrations are not allowed, the first is record "
            f"{ranking.indices[row, position]} of query {row}; rank with the same mask"
        )
