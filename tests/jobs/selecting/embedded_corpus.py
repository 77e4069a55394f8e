"""A corpus as ingest and embed leave it, without an encoder, and Stage 1 on it without Ray."""

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from jobs import select
from jobs.config.load import Config, load
from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Unit, fingerprint
from jobs.partition import part_stats
from jobs.progress import Progress
from jobs.readers.hashes import partition_of
from jobs.readers.row_tables import ROW_SCHEMA
from jobs.run import Part, Run, Table
from jobs.selecting.room import merges_of
from jobs.selecting.sizes import Sizes
from jobs.vectors import to_lists, vector_schema
from tests.jobs.selecting.inline_workers import InlineRay

ENCODER_ID = "mini-0123"
SIDES = ("weight", "group", "cost", "quality")


def clustered(n, *, seed=0, dim=12, centers=8, spread=0.5):
    """Unit vectors around a few centres, (n, d) float32."""
    rng = np.random.default_rng(seed)
    middle = rng.standard_normal((centers, dim)) / dim**0.5
    rows = middle[rng.integers(0, centers, n)] + spread * rng.standard_normal((n, dim)) / dim**0.5
    rows += 0.5 / dim**0.5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def ids_for(n, *, partitions, without=()):
    """n ids in ascending order, none of which lives in the partitions of `without`."""
    found, number = [], 0
    while len(found) < n:
        row_id = f"r{number:05d}"
        where = partition_of([row_id], count=partitions, seed=0)[0]
        found += [] if where in without else [row_id]
        number += 1
    return found


def without_times(facts):
    """Facts that must not depend on the machine."""
    return {k: v for k, v in facts.items() if k not in ("seconds", "peak_memory_bytes")}


def declared(memory, **more):
    """Section `select` with so many bytes of a worker, also where a user could not say so few."""
    config = SelectConfig(**more)
    return SelectConfig.model_construct(**(dict(config) | {"memory_per_worker": memory}))


@dataclass(frozen=True)
class Chosen:
    """What a select stage left behind."""

    facts: dict[str, Any]
    table: pa.Table
    marker: Any
    run: Run
    ray: InlineRay

    @property
    def ids(self):
        return self.table.column("id").to_pylist()

    @property
    def folder(self):
        return self.run.ledger.store.path(self.marker.folder)

    @property
    def answer(self):
        """All that must not depend on how the work was spread."""
        return without_times(self.facts), self.table.to_pydict()


class EmbeddedCorpus:
    """Rows with vectors and side columns on disk, in hash partitions and segments."""

    def __init__(self, root, vectors, *, ids=None, partitions=3, segments=1, **more):
        """Write it.

        Args:
            root: Folder; several corpora may share one.
            vectors: (n, d) float32.
            ids: n ids; None makes some up.
            partitions: P; a partition may stay empty.
            segments: Rows arrive in so many files, dealt round-robin.
            more: `storage`, `status` (one a row), and side columns.
        """
        n = len(vectors)
        self.root, self.vectors, self.partitions = root, vectors, partitions
        self.ids = ids or ids_for(n, partitions=partitions)
        self.storage = more.pop("storage", "float32")
        self.status = more.pop("status", ["ok"] * n)
        self.columns = more
        self.where = partition_of(self.ids, count=partitions, seed=0)
        self.ledger = Ledger(str(root / "out"))
        arrived = np.arange(n) % segments
        self._made = [
            (p, s, *self._part(p, s, np.flatnonzero((self.where == p) & (arrived == s))))
            for p in range(partitions)
            for s in range(segments)
        ]

    def _part(self, partition, segment, at):
        ids = [self.ids[i] for i in at]
        cells = {name: [column[i] for i in at] for name, column in self.columns.items()}
        cells |= {"id": ids, "input": [f"text of {i}" for i in ids], "text_hash": ids}
        cells |= {"row_hash": ids, "status": ["ok"] * len(at)}
        nothing = [None] * len(at)
        arrays = [pa.array(cells.get(field.name, nothing), field.type) for field in ROW_SCHEMA]
        rows = pa.table(arrays, schema=ROW_SCHEMA)
        status = [self.status[i] for i in at]
        vectors = pa.table(
            [
                pa.array(ids, pa.string()),
                to_lists(self.vectors[at], self.storage),
                pa.array([1] * len(at), pa.int32()),
                pa.array([False] * len(at), pa.bool_()),
                pa.array(status, pa.string()),
            ],
            schema=vector_schema(self.vectors.shape[1], self.storage),
        )
        mark = fingerprint(partition, segment, self.storage, ids, self.vectors[at].tolist())
        return (
            self.ledger.commit(Unit(f"corpus/{mark}", "part", mark), rows, stats=part_stats(rows)),
            self.ledger.commit(
                Unit(f"embeddings/{mark}", "part", mark),
                vectors,
                stats={"status": {s: status.count(s) for s in set(status)}},
            ),
        )

    def config(self, stage1, *, actors=1, memory=None, **select):
        """A resolved config with this Stage 1; `memory` in bytes may be smaller than a user's."""
        plain = {
            "out": str(self.root / "out"),
            "corpus": {
                "path": "corpus.jsonl",
                "columns": {name: name for name in SIDES},
                "partition": {"count": self.partitions},
            },
            "queries": {"path": "queries.jsonl"},
            "tasks": {"t": {"instruction": "?", "labels": ["a", "b"]}},
            "encoders": {"mini": {"model": "nowhere", "storage": self.storage}},
            "engines": {"e": {"model": "nowhere"}},
            "stage1": stage1,
            "select": select,
            "cluster": {"select": {"actors": actors}},
        }
        path = self.root / "config.yaml"
        path.write_text(yaml.safe_dump(plain))
        config = load(str(path))
        if memory is None:
            return config
        small = config.file.model_copy(update={"select": declared(memory, **select)})
        return Config(small, config.arms)

    def sizes(self, *, k1, memory, method="dual-div", **select):
        """What the merge tree for k1 picks depends on, with so much declared `memory`."""
        return Sizes(
            n_rows=len(self.usable),
            dim=self.vectors.shape[1],
            k=k1,
            stage1=Stage1Config(k1=k1, method=method),
            select=declared(memory, **select),
            n_partitions=self.partitions,
            storage=self.storage,
        )

    def memory_for(self, levels, *, k1, **more):
        """The smallest memory of a worker, in bytes, with which a merge tree has so few levels."""

        def has(memory):
            try:
                found = merges_of(self.sizes(k1=k1, memory=memory, **more))
            except ConfigError:
                return False
            return len(found.levels) <= levels

        return bisect.bisect_left(range(2**26), True, lo=2**10, key=has)

    def run(self, config, *, encoder_id=ENCODER_ID):
        """A run that has ingested and embedded this corpus."""
        run = Run(config, self.ledger, Progress(quiet=True))
        parts = tuple(Part(s, p, rows) for p, s, rows, _ in self._made)
        run.tables["corpus"] = Table("corpus", parts, self.partitions)
        run.vectors["mini", "corpus"] = [vectors for _, _, _, vectors in self._made]
        run.encoder_ids["mini"] = encoder_id
        return run

    def select(self, *, resume=False, lose=(), spread=None, encoder_id=ENCODER_ID, **stage1):
        """Run Stage 1.

        Args:
            resume: Keep what earlier runs left.
            lose: As for `InlineRay`.
            spread: `actors`, `memory` and the section `select` of the config.
            encoder_id: Whose vectors these are said to be.
            stage1: Section `stage1` of the config; `lam` stands for `lambda`.
        """
        if "lam" in stage1:
            stage1["lambda"] = stage1.pop("lam")
        if not resume:
            self.ledger.store.remove_tree("candidates")
        run = self.run(self.config(stage1, **(spread or {})), encoder_id=encoder_id)
        with InlineRay(lose=lose) as ray:
            select.run_stage(run)
        (marker,) = run.candidates.values()
        return Chosen(marker.stats, self.ledger.read(marker), marker, run, ray)

    def rows(self, ids):
        """Vectors of these ids as they are stored, (n, d) float32."""
        stored = self.vectors.astype(self.storage).astype(np.float32)
        return stored[[self.ids.index(row_id) for row_id in ids]]

    @property
    def usable(self):
        """Ids of the rows that have a vector."""
        return [i for i, status in zip(self.ids, self.status, strict=True) if status == "ok"]
