"""An output as a run leaves it after `annotate`, written without encoder, Ray or LLM."""

import json

import numpy as np
import pyarrow as pa
import yaml

from jobs import annotate, manifest
from jobs.annotation.finished import finished
from jobs.config.load import load
from jobs.ledger import Ledger, Unit
from jobs.partition import part_stats
from jobs.progress import Progress
from jobs.readers.hashes import partition_of, text_hash
from jobs.readers.row_tables import row_schema
from jobs.vectors import to_lists, vector_schema

COLOURS = {
    "instruction": "Name the colour: {labels}",
    "labels": ["red", "blue", "green"],
    "aliases": {"crimson": "red"},
}
QUIET = Progress(quiet=True)


def unit(*angles):
    """Unit vectors in the plane, one for each angle in degrees, as (n, 2) float32."""
    radians = np.radians(np.array(angles, np.float64))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


class Tree:
    """Corpus, vectors, candidates, manifest; `run` opens it, `annotate` writes its pool."""

    def __init__(
        self, root, rows, *, angles, candidates, task=None, queries=(), out=None, **config
    ):
        """Write it.

        Args:
            root: Folder to work in.
            rows: Dicts with id, input and what else a row has.
            angles: One a row: its vector.
            candidates: Arm name -> ids in the order of picking.
            task: Section of the config.
            queries: (row, angle) each.
            out: Where the output lies; None: in `root`.
            config: Further sections of the config.
        """
        self.root, self.out, self.model = root, out or str(root / "out"), root / "model"
        self.ledger = Ledger(self.out)
        self._config = self._load(list(candidates), task or COLOURS, config)
        tables = {
            "corpus": (list(rows), unit(*angles), 2),
            "queries": ([row for row, _ in queries], unit(*(at for _, at in queries)), 1),
        }
        self.manifest = {"config": self._config.as_dict(), "tables": {}, "selections": {}}
        vectors = self.manifest["embeddings"] = {"tiny": {"encoder_id": "tiny-1"}}
        for name, (some, block, count) in tables.items():
            rows_markers, vector_markers = self._table(name, some, block, count)
            self.manifest["tables"][name] = {
                "parts": rows_markers,
                "partition": {"count": count, "seed": 0},
            }
            vectors["tiny"][name] = {"parts": vector_markers}
        for arm, ids in candidates.items():
            self.add_candidates(arm, ids, {row["id"]: row for row in rows})
        manifest.save(self.ledger.store, self.manifest)

    def run(self):
        """What the last run left."""
        return finished(self.out, progress=Progress(quiet=True))

    def annotate(self):
        """Run the stage as `dualdiv run` does; gives the records by id."""
        # Imported late: most tests need no tokenizer, whose library takes seconds to import.
        from tests.inference.llm_fakes import byte_tokenizer

        byte_tokenizer().save_pretrained(self.model)
        (self.model / "config.json").write_text('{"model_type": "gpt2"}')
        run = self.run()
        annotate.run_stage(run)
        manifest.save(self.ledger.store, run.manifest)
        self.warnings = run.progress.warnings
        return {row["id"]: row for row in self.ledger.read(run.pool).to_pylist()}

    def file(self, name, content):
        """A file that an annotator gives back."""
        path = self.root / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)
        return str(path)

    def _load(self, arms, task, config):
        columns = {"label": "label", "output": "output"}
        by_output = task.get("kind") in ("ner", "sql")
        decoder = {"generate": {"decoder": "generate"}} if task.get("kind") else {}
        plain = {
            "out": self.out,
            "corpus": {
                "path": "c.jsonl",
                "partition": {"count": 2},
                "columns": columns if by_output else {"label": "label"},
            },
            "queries": {"path": "q.jsonl", "partition": {"count": 1}},
            "tasks": {"colour": task},
            "encoders": {"tiny": {"model": "tiny"}},
            "engines": {"bytes": {"model": str(self.model)}},
            "arms": [{"name": name} for name in arms],
        }
        path = self.root / "config.yaml"
        path.write_text(yaml.safe_dump(plain | decoder | config))
        return load(str(path))

    def _table(self, name, rows, block, count):
        where = partition_of([row["id"] for row in rows], count=count, seed=0)
        parts, markers = [], []
        for p in range(count):
            at = [i for i in np.argsort([row["id"] for row in rows]) if where[i] == p]
            table = pa.Table.from_pylist([_row(rows[i]) for i in at], schema=row_schema([]))
            mine = Unit(f"{name}/x", f"part-s0000-p{p:05d}", "x")
            marker = self.ledger.commit(mine, table, stats=part_stats(table))
            parts.append({"segment": 0, "partition": p, "marker": marker.as_dict()})
            markers.append(self._vectors(f"{name}{p}", table, block[at]))
        return parts, markers

    def _vectors(self, name, rows, block):
        n = rows.num_rows
        columns = [
            rows["id"],
            to_lists(block.reshape(n, 2), "float32"),
            pa.array([1] * n, pa.int32()),
            pa.array([False] * n),
            rows["status"],
        ]
        table = pa.table(columns, schema=vector_schema(2, "float32"))
        return self.ledger.commit(Unit(f"embeddings/{name}", "part", "x"), table).as_dict()

    def add_candidates(self, arm, ids, rows):
        """Write a selection; `arm` may be the name of an arm in a fold."""
        table = pa.table(
            {
                "rank": pa.array(range(len(ids)), pa.int64()),
                "id": pa.array(ids, pa.string()),
                "input": pa.array([rows[i]["input"] for i in ids], pa.string()),
                "gain": pa.array([float(len(ids) - at) for at in range(len(ids))]),
            }
        )
        marker = self.ledger.commit(Unit(f"candidates/{arm}", "candidates", arm), table)
        entry = {"candidates": marker.as_dict(), "arms": [arm], "encoder": "tiny"}
        self.manifest["selections"][arm] = entry


def _row(row):
    blank = {"status": "ok", "flags": [], "row_hash": json.dumps(row, sort_keys=True)}
    return blank | {"text_hash": text_hash(row["input"])} | row


ROWS = [
    {"id": "a", "input": "a rose", "label": "red", "group": "g1"},
    {"id": "b", "input": "=SUM(A1) is a sky", "group": "g1"},
    {"id": "c", "input": 'grass, "long"\r\nand\nwet'},
    {"id": "d", "input": "a ruby", "label": "red"},
    {"id": "e", "input": "the sea", "label": "blue"},
    {"id": "f", "input": "'-40 degrees'"},
    {"id": " g ", "input": "plum"},
    {"id": "h", "input": "a cube", "label": "round"},
]
ANGLES = [0, 80, 45, 5, 85, 30, 60, 10]


def colours(root, **options):
    """Eight texts; a has a label, b, c, f, g have none, h has one that is no label."""
    picked = {"main": ["a", "b", "c", "f", " g ", "h"]}
    return Tree(root, ROWS, **{"angles": ANGLES, "candidates": picked} | options)
