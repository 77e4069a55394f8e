"""What stands around a Stage 2 method: what a query may see, what is recalled, tags it names."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from inference.duplicates import near_keys, text_keys
from inference.identifiers import TagMatcher, tags_of
from inference.lexical import Bm25
from jobs.config.stage2 import Stage2Config
from jobs.errors import ConfigError
from jobs.vectors import Matrix
from selection.approximate import GraphOptions, MeasuredRecall, NearestIndex
from selection.epr import mapped
from selection.guards import guarded
from selection.sparse import sparse_top
from selection.stage2 import Pool, Queries, Ranking, Recalled, dense, filled, fused
from selection.tag_cover import Covered, cover_tags

BY_WORDS = ("lexical", "hybrid")
BY_VECTORS = ("dense", "hybrid")
# Queries that a graph's recall is measured on.
MEASURED_QUERIES = 200

Bool = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class QueryTexts:
    """What is known of queries beside their dense vectors.

    Attributes:
        inputs: q texts.
        tags: q lists of tags from a column of their own, None for none.
        groups: q names of what each is a part of, None for none; None where none has one.
        sparse: (q, v) weights of a learned sparse encoder, a row empty where it has none; None
            where no such encoder takes part.
    """

    inputs: list[str]
    tags: list[list[str] | None]
    groups: list[str | None] | None = None
    sparse: sp.csr_array | None = None


class Guards:
    """The records that each query may see.

    Args:
        config: Which guards stand.
        texts: n texts of the pool.
        groups: n names of what each is a part of (a sentence, a document), None for none. Names
            are compared between pool and queries; no group is nobody's own.
    """

    def __init__(
        self,
        config: Stage2Config,
        texts: Sequence[str],
        groups: Sequence[str | None] | None = None,
    ) -> None:
        self._ceiling = config.ceiling
        self._keys = near_keys(texts) if config.exclude_same_text else None
        self._groups: Keys | None = None
        if config.exclude_same_group and groups is not None and any(g is not None for g in groups):
            self._groups = group_keys(groups, none=0)

    def __call__(self, queries: Queries, texts: QueryTexts, pool: Pool) -> Bool | None:
        """Return (q, n) bool; None where all may be seen."""
        same = [] if self._keys is None else [(near_keys(texts.inputs), self._keys)]
        if self._groups is not None and texts.groups is not None:
            same.append((group_keys(texts.groups, none=1), self._groups))
        if not same and self._ceiling is None:
            return None
        return guarded(queries.vectors, pool.vectors, ceiling=self._ceiling, same=same)


def group_keys(groups: Sequence[str | None], *, none: int) -> Keys:
    """A key per group; what has none gets a key that the other side does not use for that.

    Args:
        groups: n groups, None for none.
        none: The key of no group: 0 for one of two sides that are compared, 1 for the other.
    """
    missing = np.array([group is None for group in groups], np.bool_)
    return np.where(missing, np.uint64(none), text_keys(group or "" for group in groups))


class Recall:
    """The candidates a method chooses among, where it does not look for the nearest itself.

    Args:
        config: How.
        pool: What may be shown.
        texts: Its n texts.
        r: Candidates wanted for each query.
        least: Words or a sparse encoder that find fewer are helped out by the nearest.
        threads: Threads to use.
        sparse: (n, v) weights of its texts, as of `QueryTexts.sparse`.
    """

    def __init__(
        self,
        config: Stage2Config,
        pool: Pool,
        texts: Sequence[str],
        *,
        r: int,
        least: int,
        threads: int,
        sparse: sp.csr_array | None = None,
    ) -> None:
        self._config, self._pool, self._sparse = config, pool, sparse
        self._r, self._least, self._threads = r, least, threads
        self._lexical = None
        if config.recall_by in BY_WORDS:
            self._lexical = Bm25(texts, tie_rank=pool.tie_rank)
        self._index: NearestIndex | None = None
        if config.recall_by in BY_VECTORS and len(pool.vectors) > config.exact_up_to:
            options = GraphOptions(exact_up_to=config.exact_up_to)
            try:
                self._index = NearestIndex(pool.vectors, pool.tie_rank, options=options)
            except ImportError as error:
                raise ConfigError(f"stage2.exact_up_to = {config.exact_up_to}: {error}") from None
        self.measured: MeasuredRecall | None = None
        #: Queries for which words, or a sparse encoder, found nothing: they are served without.
        self.n_without = {"words": 0, "sparse": 0}

    def __call__(
        self, queries: Queries, texts: QueryTexts, allowed: Bool | None
    ) -> Recalled | None:
        """Return the candidates of each query; None: the method takes the nearest by itself."""
        by = self._config.recall_by
        if by == "sparse":
            return self._filled(self._by_terms(texts, allowed), queries, allowed)
        if by == "lexical":
            return self._filled(self._by_words(texts, allowed), queries, allowed)
        near = self._nearest(queries, allowed)
        if by == "dense":
            return near
        lists = [self._dense(queries, allowed) if near is None else near]
        lists.append(self._by_words(texts, allowed))
        if self._sparse is not None:
            lists.append(self._by_terms(texts, allowed))
        return fused(lists, k_rrf=self._config.k_rrf, r=self._r, tie_rank=self._pool.tie_rank)

    def _filled(self, found: Recalled, queries: Queries, allowed: Bool | None) -> Recalled:
        """What words found, scaled; the nearest behind where that is too little for the prompt."""
        indices, relevance = found.indices.copy(), found.relevance / found.relevance[:, :1]
        short = np.flatnonzero((indices >= 0).sum(axis=1) < self._least)
        if len(short):
            some = Queries(queries.vectors[short], queries.keys[short])
            near = self._dense(some, None if allowed is None else allowed[short])
            more = filled(Recalled(indices[short], relevance[short]), near, least=self._least)
            indices[short], relevance[short] = more.indices, more.relevance
        return Recalled(indices, relevance)

    def _by_words(self, texts: QueryTexts, allowed: Bool | None) -> Recalled:
        assert self._lexical is not None
        found = Recalled(*self._lexical.top(texts.inputs, self._r, allowed))
        self.n_without["words"] += int((found.indices[:, 0] < 0).sum())
        return found

    def _by_terms(self, texts: QueryTexts, allowed: Bool | None) -> Recalled:
        tie_rank = self._pool.tie_rank
        found = sparse_top(
            texts.sparse, self._sparse, r=self._r, tie_rank=tie_rank, allowed=allowed
        )
        self.n_without["sparse"] += int((found.indices[:, 0] < 0).sum())
        return found

    def _dense(self, queries: Queries, allowed: Bool | None) -> Recalled:
        return dense(queries, self._pool, r=self._r, allowed=allowed, threads=self._threads)

    def _nearest(self, queries: Queries, allowed: Bool | None) -> Recalled | None:
        if self._index is None:
            return None
        if self.measured is None and len(queries.vectors):
            few = queries.vectors[np.argsort(queries.keys)[:MEASURED_QUERIES]]
            self.measured = self._index.measure(few, self._r)
        return self._index.top(queries.vectors, self._r, allowed)

    def facts(self) -> dict[str, Any] | None:
        """How much of the true nearest the graph found; None where all were compared."""
        return None if self.measured is None else asdict(self.measured)


class Learned:
    """Recall, and similarities, by a map that an LLM taught (`jobs.epr.learn`); compares all."""

    def __init__(self, weights: Matrix, pool: Pool, *, r: int, threads: int) -> None:
        self._weights, self._r, self._threads = weights, r, threads
        self._pool = replace(pool, vectors=mapped(pool.vectors, weights))

    def __call__(self, queries: Queries, allowed: Bool | None) -> Recalled:
        """Return the r records whose mapped vectors are nearest to each query's."""
        near = Queries(mapped(queries.vectors, self._weights), queries.keys)
        return dense(near, self._pool, r=self._r, allowed=allowed, threads=self._threads)

    def similarities(self, queries: Queries, ranking: Ranking) -> npt.NDArray[np.float64]:
        """Return the cosines of mapped vectors by which demonstrations are put in order."""
        return similarities_of(mapped(queries.vectors, self._weights), self._pool.vectors, ranking)


class Tags:
    """Sees to it that the tags a query names are in its demonstrations."""

    def __init__(self, config: Stage2Config, tag_lists: Sequence[Sequence[str] | None]) -> None:
        found = tags_of(tag_lists) if config.cover_tags else []
        self._matcher = TagMatcher(found) if found else None
        self._carried = None if self._matcher is None else self._matcher.carried(tag_lists)

    @property
    def names(self) -> tuple[str, ...]:
        """The tags of the pool; none where nothing is to be covered."""
        return () if self._matcher is None else self._matcher.tags

    def __call__(
        self, ranking: Ranking, queries: Queries, texts: QueryTexts, *, pool: Pool, allowed: Any
    ) -> Covered | None:
        """Return the ranking with the tags covered; None where no record has a tag."""
        if self._matcher is None or self._carried is None:
            return None
        return cover_tags(
            ranking,
            queries.vectors,
            pool,
            query_tags=self._matcher.named(texts.inputs, texts.tags),
            pool_tags=self._carried,
            allowed=allowed,
        )


def similarities_of(queries: Matrix, pool: Matrix, ranking: Ranking) -> npt.NDArray[np.float64]:
    """Cosine of each query to each of its demonstrations, (q, k) float64."""
    near = pool[np.maximum(ranking.indices, 0)]
    return np.einsum("qd,qkd->qk", queries, near, dtype=np.float64)


def with_spares(wide: Ranking, k: int, covered: Covered | None) -> Ranking:
    """The first k of a ranking with their tags covered, those needed first, then its other records.

    A budget takes records from the front, so what a tag needs is there.

    Args:
        wide: (q, k + spare).
        k: Records that are shown.
        covered: Of the first k; None leaves the ranking as it is.
    """
    if covered is None:
        return wide
    head, width = covered.ranking, wide.indices.shape[1]
    indices, scores = np.full_like(wide.indices, -1), np.full_like(wide.scores, np.nan)
    n_valid = np.zeros_like(wide.n_valid)
    for row in range(len(indices)):
        n = int(head.n_valid[row])
        first = np.argsort(~covered.needed[row, :n], kind="stable")
        shown, values = head.indices[row, :n][first], head.scores[row, :n][first]
        rest = slice(0, int(wide.n_valid[row]))
        spare = ~np.isin(wide.indices[row, rest], shown)
        both = np.concatenate([shown, wide.indices[row, rest][spare]])[:width]
        indices[row, : len(both)] = both
        known = np.concatenate([values, wide.scores[row, rest][spare]])[:width]
        scores[row, : len(both)] = known
        n_valid[row] = len(both)
    return Ranking(indices, scores, n_valid)


def head_of(wide: Ranking, k: int) -> Ranking:
    """The first k places of a ranking."""
    return replace(
        wide,
        indices=np.ascontiguousarray(wide.indices[:, :k]),
        scores=np.ascontiguousarray(wide.scores[:, :k]),
        n_valid=np.minimum(wide.n_valid, k),
    )


def tag_rows(matrix: Any, names: Sequence[str]) -> list[list[str]]:
    """The tags of each row of a (q, t) bool CSR array."""
    return [
        [names[column] for column in np.sort(matrix.indices[start:end])]
        for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    ]


def counted(stats: dict[str, Any], found: Mapping[str, int]) -> None:
    """Add counts to those of the unit."""
    for name, value in found.items():
        stats[name] = stats.get(name, 0) + int(value)
