"""Stage 2 on one part of the queries: the Ray-free functions and the table they write."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inference.status import Status
from jobs.config_schema import Stage2Config
from jobs.ledger import Ledger, Marker, Unit
from jobs.vectors import Matrix, random_keys, sample, to_lists, to_matrix, usable
from selection.stage2 import (
    FOR_ALL,
    PER_QUERY,
    Pool,
    Queries,
    QuerySummary,
    Ranking,
    RankOptions,
    cluster_codes,
    top_k_for_all,
)

# Method -> what it can be conditioned on.
METHODS: dict[str, list[str]] = {
    name: [kind for kind, table in (("query", PER_QUERY), ("all", FOR_ALL)) if name in table]
    for name in sorted({*PER_QUERY, *FOR_ALL})
}
GROUNDED = ("dual-div", "s3", "s3-lowest", "mutual-information")
SEEDED = ("random", "kmeans")
GROUND_SEED = 0
QUERIES_AT_A_TIME = 4096
DEMONSTRATION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("similarities", pa.list_(pa.float64())),
        ("status", pa.string()),
    ]
)


def needs_ground(config: Stage2Config) -> bool:
    """Whether a method sums over corpus points."""
    return config.method in GROUNDED


def draws_ground(config: Stage2Config) -> bool:
    """Whether those corpus points are read from the corpus, not from the pool."""
    return needs_ground(config) and config.ground != "pool"


def options_of(config: Stage2Config, *, seed: int = 0, threads: int = 1) -> RankOptions:
    """The config's Stage 2 in the words of `selection`."""
    return RankOptions(
        k=config.k,
        lam=config.lam,
        scale=config.lambda_scale,
        ridge=config.ridge,
        mmr_lambda=config.mmr_lambda,
        recall=config.recall,
        theta=config.theta,
        labels=config.labels,
        diversity=config.diversity,
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
                `stage2`, `n_total`, `pool`, `ground` and `scores` (markers, or null).

        Returns:
            Marker of the demonstrations, one row a query in the order of the part.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        rows = ledger.read(Marker(**payload["rows"]), ["id", "text_hash", "status"])
        if payload["pool"] is None:
            return ledger.commit(unit, _empty(rows))
        vectors = ledger.read(Marker(**payload["vectors"]), ["vector", "status"])
        rank = _Ranker(ledger, payload)
        with ledger.writing(unit, DEMONSTRATION_SCHEMA, {}) as writer:
            for start in range(0, rows.num_rows, QUERIES_AT_A_TIME):
                chunk = slice(start, start + QUERIES_AT_A_TIME)
                writer.write(rank(rows[chunk], vectors[chunk]))
        marker = ledger.find(unit)
        assert marker is not None
        return marker


class _Ranker:
    """Ranks chunks of queries, which bounds the masks and scores that are held."""

    def __init__(self, ledger: Ledger, payload: dict[str, Any]) -> None:
        self.config = Stage2Config.model_validate(payload["stage2"])
        self.records = load_pool(ledger, payload["pool"])
        seed = payload["seed"]
        self.options = options_of(self.config, seed=seed, threads=payload["threads"])
        self.pool = ranked_pool(ledger, payload, self.records)
        self.scores: npt.NDArray[np.float64] | None = None
        if payload["scores"] is not None:
            table = ledger.read(Marker(**payload["scores"]))
            self.scores = table.column("score").to_numpy()

    def __call__(self, rows: pa.Table, vectors: pa.Table) -> pa.Table:
        status = vectors.column("status").to_pylist()
        ok = np.flatnonzero(np.array(status, object) == Status.OK)
        queries = to_matrix(vectors.column("vector"))[ok]
        keys = random_keys(rows.column("id").take(pa.array(ok)).to_pylist(), 0)
        hashes = hash_numbers(rows.column("text_hash"))[ok]
        ranking = self._rank(Queries(queries, keys), hashes)
        # One set for all queries keeps one order, so that its prompts share their prefix.
        near = ranking.scores
        if self.scores is None:
            near = similarities_of(queries, self.pool.vectors, ranking)
        return demonstration_table(rows, status, ok, ranking, near, self.records.ids)

    def _rank(self, queries: Queries, hashes: npt.NDArray[np.uint64]) -> Ranking:
        config, pool = self.config, self.pool
        allowed = None
        if config.exclude_same_text:
            allowed = hashes[:, None] != self.records.hashes[None, :]
        if self.scores is not None:
            n_queries = len(queries.vectors)
            return top_k_for_all(
                self.scores, k=config.k, allowed=allowed, q=n_queries, tie_rank=pool.tie_rank
            )
        return PER_QUERY[config.method](queries, pool, options=self.options, allowed=allowed)


def hash_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Text hashes as numbers, (n,) uint64; a row without text has 0."""
    return np.array([int(value, 16) if value else 0 for value in column.to_pylist()], np.uint64)


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


@dataclass(frozen=True)
class Records:
    """The records that may be shown, in the order they were picked.

    Attributes:
        ids: n ids.
        vectors: (n, d) float32.
        hashes: (n,) uint64 text hashes.
        labels: n labels of the task.
    """

    ids: list[str]
    vectors: Matrix
    hashes: npt.NDArray[np.uint64]
    labels: list[str]


def load_pool(ledger: Ledger, pool: dict[str, Any]) -> Records:
    """Read the records that may be shown, with their vectors."""
    table = ledger.read(Marker(**pool), ["id", "text_hash", "vector", "label"])
    return Records(
        ids=table.column("id").to_pylist(),
        vectors=to_matrix(table.column("vector")),
        hashes=hash_numbers(table.column("text_hash")),
        labels=table.column("label").to_pylist(),
    )


def ranked_pool(ledger: Ledger, payload: dict[str, Any], records: Records) -> Pool:
    """The same as `selection` takes it: ranks of ids, codes of labels, clusters, ground points.

    With `ground: pool` the ground points are the pool and the query itself, and stand for no more.
    """
    config = Stage2Config.model_validate(payload["stage2"])
    tie_rank = np.empty(len(records.ids), np.int64)
    tie_rank[np.argsort(np.array(records.ids, object), kind="stable")] = np.arange(len(tie_rank))
    codes = {label: code for code, label in enumerate(sorted(set(records.labels)))}
    clusters = None
    if config.method == "kmeans":
        n_clusters = config.clusters or config.k
        clusters = cluster_codes(
            records.vectors, tie_rank, n_clusters=n_clusters, seed=payload["seed"]
        )
    own = config.ground == "pool" and needs_ground(config)
    return Pool(
        vectors=records.vectors,
        tie_rank=tie_rank,
        labels=np.array([codes[label] for label in records.labels], np.int64),
        ground=records.vectors if own else load_ground(ledger, payload["ground"]),
        n_total=None if own else payload["n_total"],
        query_in_ground=own,
        clusters=clusters,
    )


def load_ground(ledger: Ledger, ground: dict[str, Any] | None) -> Matrix | None:
    """Read the ground sample, where there is one."""
    if ground is None:
        return None
    return to_matrix(ledger.read(Marker(**ground), ["vector"]).column("vector"))


def demonstration_table(
    rows: pa.Table,
    status: list[str],
    ok: npt.NDArray[np.int64],
    ranking: Ranking,
    similarities: npt.NDArray[np.float64],
    ids: list[str],
) -> pa.Table:
    """One row a query: its demonstrations, most relevant first; none where status is not ok."""
    chosen: list[list[str]] = [[] for _ in status]
    scores: list[list[float]] = [[] for _ in status]
    near: list[list[float]] = [[] for _ in status]
    for at, place in enumerate(ok):
        n = ranking.n_valid[at]
        chosen[place] = [ids[i] for i in ranking.indices[at, :n]]
        scores[place] = ranking.scores[at, :n].tolist()
        near[place] = similarities[at, :n].tolist()
    columns = [rows.column("id"), chosen, scores, near, status]
    return pa.table(columns, schema=DEMONSTRATION_SCHEMA)


def similarities_of(queries: Matrix, pool: Matrix, ranking: Ranking) -> npt.NDArray[np.float64]:
    """Cosine of each query to each of its demonstrations, (q, k) float64."""
    near = pool[np.maximum(ranking.indices, 0)]
    return np.einsum("qd,qkd->qk", queries, near, dtype=np.float64)


def _empty(rows: pa.Table) -> pa.Table:
    nothing: list[list[Any]] = [[] for _ in range(rows.num_rows)]
    columns = [rows.column("id"), nothing, nothing, nothing, rows.column("status")]
    return pa.table(columns, schema=DEMONSTRATION_SCHEMA)
