"""Dense recall from a pool of any size: exact, or through a graph with its recall measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import checked
from selection.ranking import Ranking, query_chunks, stack, top_k

if TYPE_CHECKING:
    from faiss import IndexHNSWFlat

_POOL_BLOCK = 65_536


@dataclass(frozen=True)
class GraphOptions:
    """When and how a graph (HNSW, Malkov and Yashunin 2018) stands in for comparing all.

    Attributes:
        exact_up_to: Pools of at most so many records are compared whole, always rightly. A graph
            of more pays for its building after some ten thousand queries.
        links: Neighbours of a record in the graph; more cost memory, 8 bytes each.
        build_width: Candidates looked at when a record is put in; more cost time once.
        search_width: Candidates looked at for a query; more cost time, and raise the recall.
    """

    exact_up_to: int = 100_000
    links: int = 32
    build_width: int = 200
    search_width: int = 256

    def __post_init__(self) -> None:
        """Refuse sizes that no graph can have."""
        if self.exact_up_to < 0 or min(self.links, self.build_width, self.search_width) < 2:
            raise ValueError(
                f"recall graph: found {self}; wanted exact_up_to of at least 0 and the others of "
                "at least 2"
            )


@dataclass(frozen=True)
class MeasuredRecall:
    """What a graph finds of what comparing all finds.

    Attributes:
        share: Mean over queries of the share of the true r nearest that were found; a record as
            near as the r-th counts as one of them. 1 for an exact index.
        least: The smallest of these shares.
        r: Records wanted for each.
        n_queries: Queries it was measured on.
    """

    share: float
    least: float
    r: int
    n_queries: int


class NearestIndex:
    """Finds the nearest records of each query.

    The graph is built by one thread, in the order of the tie ranks, with the seeds of faiss: the
    same pool gives the same graph with the same version of faiss, whatever the order of its rows.
    What it finds is compared anew in float64, so cosines are exact and only a neighbour that the
    graph misses is missing. The graph holds a copy of the vectors.

    Args:
        pool: (n, d) float32 unit vectors.
        tie_rank: (n,) int64.
        options: When and how.

    Raises:
        ImportError: A graph is needed and faiss is not there.
        ValueError: Shapes that do not fit, or rows that are not finite.
    """

    def __init__(
        self, pool: Float32, tie_rank: Int64, *, options: GraphOptions | None = None
    ) -> None:
        self._options = options or GraphOptions()
        none = Queries(pool[:0], np.zeros(0, dtype=np.uint64))
        whole = checked(none, Pool(pool, tie_rank), None, None)[1]
        self._pool, self._rank = whole.vectors, whole.tie_rank
        self._order = np.argsort(tie_rank, kind="stable")
        #: Whether all records are compared.
        self.exact = len(pool) <= self._options.exact_up_to
        self._graph = None if self.exact else self._built()

    def top(self, queries: Float32, r: int, allowed: Bool | None = None) -> Recalled:
        """Return the r nearest allowed records of each query.

        A query for which the graph finds fewer than there are, because most of what is near is not
        allowed, is compared with all. O(q n d) time if exact; else O(search_width links d) a query,
        found by experiment to grow with log n.

        Args:
            queries: (q, d) float32 unit vectors.
            r: Wanted for each, at least 1.
            allowed: (q, n) bool, False for a record that a query must not see.

        Returns:
            Cosines, largest first; ties as in `top_k`.
        """
        if r < 1:
            raise ValueError(f"dense recall: found r {r}, wanted at least 1")
        queries = self._checked(queries, allowed)
        if self._graph is None:
            found = self._compared(queries, r, allowed)
        else:
            found = self._walked(self._graph, queries, r, allowed)
        return Recalled(found.indices, found.scores)

    def measure(self, queries: Float32, r: int) -> MeasuredRecall:
        """Compare with exact search on queries of the caller's choice, some hundred say."""
        if self.exact or not len(queries) or not len(self._pool):
            return MeasuredRecall(1.0, 1.0, r, len(queries))
        truth = self._compared(self._checked(queries, None), r, None)
        found = self.top(queries, r).relevance
        last = truth.scores[np.arange(len(queries)), truth.n_valid - 1]
        # As near as the last true one is as good: duplicates are found one for the other.
        n_right = (found >= last[:, None] - 1e-6).sum(axis=1)
        shares = np.minimum(n_right, truth.n_valid) / truth.n_valid
        return MeasuredRecall(float(shares.mean()), float(shares.min()), r, len(queries))

    def _checked(self, queries: Float32, allowed: Bool | None) -> Float32:
        keys = np.zeros(len(queries), dtype=np.uint64)
        pool = Pool(self._pool, self._rank)
        return checked(Queries(queries, keys), pool, allowed, None)[0].vectors

    def _built(self) -> IndexHNSWFlat:
        faiss = _faiss()
        graph = faiss.IndexHNSWFlat(
            self._pool.shape[1], self._options.links, faiss.METRIC_INNER_PRODUCT
        )
        graph.hnsw.efConstruction = self._options.build_width
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            for start in range(0, len(self._order), _POOL_BLOCK):
                graph.add(self._pool[self._order[start : start + _POOL_BLOCK]])
        finally:
            faiss.omp_set_num_threads(before)
        return graph

    def _walked(
        self, graph: IndexHNSWFlat, queries: Float32, r: int, allowed: Bool | None
    ) -> Ranking:
        n = len(self._pool)
        width = min(n, max(2 * r, self._options.search_width))
        parts = []
        for rows in query_chunks(len(queries), width * (queries.shape[1] + 1)):
            mask = None if allowed is None else allowed[rows]
            part = self._near(graph, queries[rows], r, width, mask)
            n_open = np.full(len(part.indices), n) if mask is None else mask.sum(axis=1)
            short = np.flatnonzero(part.n_valid < np.minimum(r, n_open))
            if len(short):
                some = None if mask is None else mask[short]
                whole = self._compared(queries[rows][short], r, some)
                part.indices[short], part.scores[short] = whole.indices, whole.scores
            parts.append(part)
        return stack(parts, r)

    def _near(
        self, graph: IndexHNSWFlat, queries: Float32, r: int, width: int, mask: Bool | None
    ) -> Ranking:
        settings = _faiss().SearchParametersHNSW(efSearch=width)
        _, places = graph.search(queries, width, params=settings)
        records = np.where(places >= 0, self._order[np.maximum(places, 0)], -1)
        if mask is not None:
            records[~np.take_along_axis(mask, np.maximum(records, 0), axis=1)] = -1
        cosines = np.empty(records.shape)
        for row, query in enumerate(queries.astype(np.float64)):
            cosines[row] = self._pool[records[row]].astype(np.float64) @ query
        return _reranked(records, cosines, r=r, tie_rank=self._rank)

    def _compared(self, queries: Float32, r: int, allowed: Bool | None) -> Ranking:
        """Exact search, some records at a time: memory does not grow with the pool."""
        best = stack([], r)
        for start in range(0, max(1, len(self._pool)), _POOL_BLOCK):
            block = slice(start, start + _POOL_BLOCK)
            wide = self._pool[block].astype(np.float64)
            parts = []
            for rows in query_chunks(len(queries), len(wide)):
                cosines = queries[rows].astype(np.float64) @ wide.T
                mask = None if allowed is None else allowed[rows, block]
                parts.append(top_k(cosines, k=r, allowed=mask, tie_rank=self._rank[block]))
            found = stack(parts, r)
            if start == 0:
                best = found
                continue
            records = np.where(found.indices >= 0, found.indices + start, -1)
            both = np.hstack([best.indices, records]), np.hstack([best.scores, found.scores])
            best = _reranked(*both, r=r, tie_rank=self._rank)
        return best


def _reranked(records: Int64, cosines: Float64, *, r: int, tie_rank: Int64) -> Ranking:
    """Order candidates that differ from row to row; (q, w) each, -1 for none."""
    last = np.iinfo(np.int64).max
    order = np.argsort(np.where(records >= 0, tie_rank[records], last), axis=1, kind="stable")
    records = np.take_along_axis(records, order, axis=1)
    values = np.take_along_axis(cosines, order, axis=1)
    # Now the place in the row is the tie rank.
    places = np.arange(records.shape[1])
    found = top_k(np.nan_to_num(values), k=r, allowed=records >= 0, tie_rank=places)
    picks = np.take_along_axis(records, np.maximum(found.indices, 0), axis=1)
    return Ranking(np.where(found.indices >= 0, picks, -1), found.scores, found.n_valid)


def _faiss() -> Any:  # noqa: ANN401  (a module)
    try:
        import faiss
    except ImportError:
        raise ImportError(
            "a pool above exact_up_to is searched through a graph, which needs faiss: install "
            "dualdiv[ann] (faiss-cpu), or raise exact_up_to to the size of the pool"
        ) from None
    return faiss
