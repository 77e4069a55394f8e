"""Stage 2 on one part of the queries: the Ray-free functions and the table they write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from inference.status import Status
from jobs.config.stage2 import Stage2Config
from jobs.epr.map import load_weights
from jobs.ledger import Ledger, Marker, Unit
from jobs.ranking.context import (
    Guards,
    Learned,
    QueryTexts,
    Recall,
    Tags,
    counted,
    head_of,
    similarities_of,
    tag_rows,
    with_spares,
)
from jobs.ranking.inputs import load_pool, load_sparse, needs_ground, ranked_pool
from jobs.vectors import random_keys, sample, to_lists, to_matrix, usable
from selection.stage2 import (
    FOR_ALL,
    PER_QUERY,
    Queries,
    QuerySummary,
    Ranking,
    RankOptions,
    top_k_for_all,
)

Mask = npt.NDArray[np.bool_] | None
# Method -> what it can be conditioned on.
METHODS: dict[str, list[str]] = {
    name: [kind for kind, table in (("query", PER_QUERY), ("all", FOR_ALL)) if name in table]
    for name in sorted({*PER_QUERY, *FOR_ALL})
}
LABELLED = ("stratified", "probe")
SEEDED = ("random", "kmeans")
GROUND_SEED = 0
# Queries whose masks are held at a time, fewer for a large pool: 256 MiB.
QUERIES_AT_A_TIME = 4096
MASK_BYTES = 1 << 28
COUNTED = ("n_unserved", "n_short", "n_for_tags", "n_uncovered")
ROW_COLUMNS = ["id", "input", "tags", "group", "text_hash", "status"]
DEMONSTRATION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("similarities", pa.list_(pa.float64())),
        ("excluded_ids", pa.list_(pa.string())),
        ("uncovered_tags", pa.list_(pa.string())),
        ("status", pa.string()),
    ]
)


def draws_ground(config: Stage2Config) -> bool:
    """Whether those corpus points are read from the corpus, not from the pool."""
    return needs_ground(config) and config.ground != "pool"


def options_of(
    config: Stage2Config, *, spare: int = 0, seed: int = 0, threads: int = 1
) -> RankOptions:
    """The config's Stage 2 in the words of `selection`, with records to spare."""
    return RankOptions(
        k=config.k + spare,
        lam=config.lam,
        scale=config.lambda_scale,
        ridge=config.ridge,
        mmr_lambda=config.mmr_lambda,
        recall=config.recall,
        theta=config.theta,
        # Spare records are no reason to show more labels.
        labels=config.k if config.labels is None else config.labels,
        diversity=config.diversity,
        probe_weight=config.probe_weight,
        seed=seed,
        threads=threads,
    )


@dataclass(frozen=True)
class GroundWork:
    """Draws the common uniform sample of corpus points."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Commit a sample of corpus vectors.

        Args:
            payload: `unit`, `partitions` (markers by partition), `size`.

        Returns:
            Marker of the sample.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        partitions = [[Marker(**plain) for plain in markers] for markers in payload["partitions"]]
        ids, vectors = sample(ledger, partitions, size=payload["size"], seed=GROUND_SEED)
        lists = to_lists(vectors, "float32")
        return ledger.commit(unit, pa.table({"id": pa.array(ids, pa.string()), "vector": lists}))


@dataclass(frozen=True)
class RankWork:
    """Ranks a pool for one part of the queries; without a pool nothing is shown."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Rank for the payload's queries.

        Args:
            payload: `unit`, `rows` (marker of the query part), `vectors` (its embeddings),
                `sparse` (markers of sparse vectors of the same `queries` and of the `pool`, or
                null), `stage2`, `spare`, `n_total`, `only` (absent, or ids of the queries that are
                ranked for: the others get an empty list), and the markers `pool`, `ground`,
                `scores` and `map`, each of which may be null.

        Returns:
            Marker of the demonstrations, one row a query in the order of the part.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        rows = ledger.read(Marker(**payload["rows"]), ROW_COLUMNS)
        if payload["pool"] is None:
            return ledger.commit(unit, _empty(rows))
        vectors = ledger.read(Marker(**payload["vectors"]), ["vector", "status"])
        terms = load_sparse(ledger, payload["sparse"], "queries")
        rank = _Ranker(ledger, payload)
        n_rows = max(1, min(QUERIES_AT_A_TIME, MASK_BYTES // len(rank.records.ids)))
        with ledger.writing(unit, DEMONSTRATION_SCHEMA, rank.stats) as writer:
            for start in range(0, rows.num_rows, n_rows):
                chunk = slice(start, start + n_rows)
                few = None if terms is None else terms[chunk]
                writer.write(rank(rows[chunk], vectors[chunk], few))
            rank.stats["recall"] = rank.recall.facts()
            for what, number in rank.recall.n_without.items():
                rank.stats[f"n_without_{what}"] = number
        marker = ledger.find(unit)
        assert marker is not None
        return marker


class _Ranker:
    """Ranks chunks of queries, which bounds the masks and scores that are held."""

    def __init__(self, ledger: Ledger, payload: dict[str, Any]) -> None:
        self.config = Stage2Config.model_validate(payload["stage2"])
        self.records = load_pool(ledger, payload["pool"])
        seed = payload["seed"]
        options = {"seed": seed, "threads": payload["threads"]}
        self.options = options_of(self.config, spare=payload["spare"], **options)
        self.pool = ranked_pool(ledger, payload, self.records)
        self.scores: npt.NDArray[np.float64] | None = None
        if payload["scores"] is not None:
            table = ledger.read(Marker(**payload["scores"]))
            self.scores = table.column("score").to_numpy()
        self.guards = Guards(self.config, self.records.inputs, self.records.groups)
        wide = {"r": max(self.config.recall, self.options.k), "threads": payload["threads"]}
        self.recall = Recall(
            self.config,
            self.pool,
            self.records.inputs,
            **wide,
            least=self.options.k,
            sparse=load_sparse(ledger, payload["sparse"], "pool"),
        )
        weights = load_weights(ledger, payload["map"])
        self.learned: Learned | None = None
        if weights is not None:
            self.learned = Learned(weights, self.pool, **wide)
        self.tags = Tags(self.config, self.records.tags)
        self.stats: dict[str, Any] = dict.fromkeys(COUNTED, 0)
        self.only = None if payload.get("only") is None else frozenset(payload["only"])

    def __call__(self, rows: pa.Table, vectors: pa.Table, terms: sp.csr_array | None) -> pa.Table:
        status = vectors.column("status").to_pylist()
        wanted = [
            one == Status.OK and (self.only is None or row_id in self.only)
            for one, row_id in zip(status, rows["id"].to_pylist(), strict=True)
        ]
        ok = np.flatnonzero(wanted)
        mine = rows.take(pa.array(ok))
        texts = QueryTexts(
            mine.column("input").to_pylist(),
            mine.column("tags").to_pylist(),
            groups=mine.column("group").to_pylist(),
            sparse=None if terms is None else terms[ok],
        )
        keys = random_keys(mine.column("id").to_pylist(), 0)
        queries = Queries(to_matrix(vectors.column("vector"))[ok], keys)
        allowed = self.guards(queries, texts, self.pool)
        ranking = self._rank(queries, texts, allowed)
        covered = self.tags(
            head_of(ranking, self.config.k), queries, texts, pool=self.pool, allowed=allowed
        )
        ranking = with_spares(ranking, self.config.k, covered)
        uncovered: list[list[str]] = [[] for _ in ok]
        if covered is not None:
            uncovered = tag_rows(covered.uncovered, self.tags.names)
            counted(self.stats, {"n_for_tags": covered.n_came_in.sum()})
        k = min(self.config.k, len(self.records.ids))
        found: dict[str, int] = {
            "n_unserved": (ranking.n_valid == 0).sum(),
            "n_short": (ranking.n_valid < k).sum(),
            "n_uncovered": sum(map(bool, uncovered)),
        }
        counted(self.stats, found)
        columns = {
            "demonstration_ids": _lists(ranking.indices, ranking.n_valid, self.records.ids),
            "scores": _lists(ranking.scores, ranking.n_valid),
            "similarities": _lists(self._similarities(queries, ranking), ranking.n_valid),
            "excluded_ids": self._excluded(allowed, len(ok)),
            "uncovered_tags": uncovered,
        }
        return demonstration_table(rows, status, ok, columns)

    def _rank(self, queries: Queries, texts: QueryTexts, allowed: Mask) -> Ranking:
        if self.scores is not None:
            return top_k_for_all(
                self.scores,
                k=self.options.k,
                allowed=allowed,
                q=len(queries.vectors),
                tie_rank=self.pool.tie_rank,
            )
        recalled = (
            self.recall(queries, texts, allowed)
            if self.learned is None
            else self.learned(queries, allowed)
        )
        return PER_QUERY[self.config.method](
            queries, self.pool, options=self.options, allowed=allowed, recalled=recalled
        )

    def _similarities(self, queries: Queries, ranking: Ranking) -> npt.NDArray[np.float64]:
        """What the orders of prompts go by; the score where one set serves all queries.

        One set keeps one order then, so that its prompts share their prefix. What came in for a
        tag has no score, and counts as the least similar.
        """
        if self.learned is not None:
            return self.learned.similarities(queries, ranking)
        if self.scores is None:
            return similarities_of(queries.vectors, self.pool.vectors, ranking)
        least = float(self.scores.min(initial=0.0)) - 1.0
        return np.where(np.isnan(ranking.scores), least, ranking.scores)

    def _excluded(self, allowed: Mask, n: int) -> list[list[str]]:
        if allowed is None:
            return [[] for _ in range(n)]
        return [[self.records.ids[i] for i in np.flatnonzero(~row)] for row in allowed]


@dataclass(frozen=True)
class ScoreWork:
    """Scores a pool once against all queries together."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Stream over the query vectors, then score every pool record.

        Args:
            payload: As for `RankWork`, with `queries` (markers of all query embeddings).

        Returns:
            Marker of a table of id and score, in the order of the pool.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        config = Stage2Config.model_validate(payload["stage2"])
        records = load_pool(ledger, payload["pool"])
        pool = ranked_pool(ledger, payload, records)
        summary = QuerySummary(pool.ground, pool.vectors.shape[1])
        for plain in payload["queries"]:
            _, vectors = usable(ledger, [Marker(**plain)])
            if len(vectors):
                summary.add(vectors)
        scores = np.zeros(len(records.ids))
        if summary.count:
            scores = FOR_ALL[config.method](
                summary,
                pool.vectors,
                options=options_of(config),
                tie_rank=pool.tie_rank,
                n_total=pool.n_total,
            )
        table = pa.table({"id": pa.array(records.ids, pa.string()), "score": scores})
        tied = len(scores) > 1 and bool(summary.count) and float(np.ptp(scores)) == 0.0
        return ledger.commit(unit, table, stats={"tied": tied})


def demonstration_table(
    rows: pa.Table,
    status: list[str],
    ok: npt.NDArray[np.int64],
    columns: Mapping[str, list[list[Any]]],
) -> pa.Table:
    """One row a query: its demonstrations, most relevant first; none where status is not ok."""
    table: dict[str, Any] = {"id": rows.column("id"), "status": status}
    for name, lists in columns.items():
        table[name] = [[] for _ in status]
        for place, own in zip(ok, lists, strict=True):
            table[name][place] = own
    names = DEMONSTRATION_SCHEMA.names
    return pa.table([table[name] for name in names], schema=DEMONSTRATION_SCHEMA)


def _lists(
    values: npt.NDArray[Any], n_valid: npt.NDArray[np.int64], names: list[str] | None = None
) -> list[list[Any]]:
    """The valid places of each row, as names where these are given."""
    rows = [row[:n].tolist() for row, n in zip(values, n_valid, strict=True)]
    return rows if names is None else [[names[i] for i in row] for row in rows]


def _empty(rows: pa.Table) -> pa.Table:
    nothing = np.empty(0, np.int64)
    columns: dict[str, list[list[Any]]] = {
        name: [] for name in DEMONSTRATION_SCHEMA.names if name not in ("id", "status")
    }
    return demonstration_table(rows, rows.column("status").to_pylist(), nothing, columns)
