"""How much of a prompt each layout lets the engine keep, and what the answers are worth.

    python -m tests.benchmarks.layouts FOLDER [--queries 40] [--rows 2000]

ICD-10 descriptions, all-MiniLM-L6-v2, SmolLM2-135M, k = 4; the whole pipeline, one arm a layout, so
the figures are those of manifest, metrics and report. Prediction, written before measuring: an
instruction of 12 tokens is under one block of 32, so `dynamic` and `by-id` share next to nothing
(under .1); `anchor` with two of four fixed shares about .4, `clustered` about .6.

`--calibrated` adds an arm whose orders are calibrated, which takes minutes on a CPU.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from jobs.config.load import load
from jobs.ledger import Ledger, Marker
from jobs.pipeline import execute
from jobs.prepare.icd10 import prepare
from jobs.progress import Progress
from tests.benchmarks.report import Bar, bars, head, table

ROOT = Path(__file__).parents[2]
ARMS: dict[str, dict[str, Any]] = {
    "zero-shot": {"stage2": "zero-shot"},
    "dynamic": {"prompt": {"layout": "dynamic"}},
    "by-id": {"prompt": {"layout": "by-id"}},
    "anchor": {"prompt": {"layout": "anchor", "anchors": 2}},
    "clustered": {"prompt": {"layout": "clustered", "clusters": 6}},
}
CALIBRATED = {"prompt": {"layout": "clustered", "clusters": 6, "order": "calibrated"}}
COLUMNS = ("prompt_tokens_mean", "cached_token_share", "rows_per_s", "accuracy", "macro_f1")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--queries", type=int, default=40)
    asked.add_argument("--rows", type=int, default=2000)
    asked.add_argument("--calibrated", action="store_true")
    options = asked.parse_args()
    arms = ARMS | ({"clustered+calibrated": CALIBRATED} if options.calibrated else {})
    config = write_config(options.folder, arms, n_queries=options.queries, n_rows=options.rows)
    execute(load(str(config)), until="report", progress=Progress())
    manifest = json.loads((options.folder / "run" / "manifest.json").read_text())
    ledger = Ledger(str(options.folder / "run"))
    found = ledger.read(Marker(**manifest["metrics"]["summary"])).to_pylist()
    print(head(f"layouts, {options.queries} queries, k = 4, one engine, block size 32"))
    rows = [
        [row["arm"], *(row[name] for name in COLUMNS), _kept(manifest, row["arm"])] for row in found
    ]
    print(table(["arm", *COLUMNS, "relevance kept"], rows))
    share = {row["arm"]: row["cached_token_share"] for row in found}
    print(
        bars(
            Bar(f"{name}: share of cached prompt tokens above dynamic's", gained, 0.05, True)
            for name in ("anchor", "clustered")
            for gained in [share[name] - share["dynamic"]]
        )
    )


def write_config(
    folder: Path, arms: dict[str, dict[str, Any]], *, n_queries: int, n_rows: int
) -> Path:
    """The quickstart's config on fewer rows, with one arm a layout."""
    data = prepare(str(folder / "data"), rows=n_rows)
    queries = pq.read_table(data["queries"])
    step = max(1, queries.num_rows // n_queries)
    few = folder / "queries.parquet"
    pq.write_table(queries.take(list(range(0, queries.num_rows, step))[:n_queries]), few)
    plain = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    plain["out"] = str(folder / "run")
    plain["corpus"]["path"], plain["queries"]["path"] = data["corpus"], str(few)
    plain["queries"]["partition"] = {"count": 1}
    plain["cluster"] = {"generate": {"actors": 1}}
    plain["report"] = {"map_rows": 0, "bootstrap": 100}
    plain["arms"] = [{"name": name, "stage1": "coverage", **arm} for name, arm in arms.items()]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return path


def _kept(manifest: dict[str, Any], arm: str) -> float | None:
    kept: float | None = manifest["layouts"][arm].get("relevance_kept")
    return kept


if __name__ == "__main__":
    main()
