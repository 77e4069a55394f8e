"""Stage 1 of one machine as N grows to a million: time, memory, and what sampling costs.

    python -m tests.benchmarks.scale --cache FOLDER --results scale.jsonl [--steps grow ...]

Vectors are float16 in a file that is mapped into memory: real ones, and beyond the corpus mixtures
of two real ones with noise. Each selection has a process of its own; its peak is VmHWM, pages of
the map included. The SGEMM rate of both cores is measured before and after it.

| step | what |
|---|---|
| grow | m1 8,192, m2 min(N, 131,072), k 1,000, N from 12,500 to 1,000,000 |
| sampled | k 300: leaders judged on 131,072 points against all of V, both judged on all of V |
| levels | N 200,000, k1 20,000, 64 partitions, two levels of merging: memory against `plan` |

Predictions, for two AVX2 cores of about 115 GFLOP/s, written before measuring:

- grow: the prototype took 251 s at 460 GFLOP/s for a million, 115,000 GFLOP: here 1,000 s, 2.0 GiB
  (0.75 of them mapped vectors). N 100,000: 250 s, because every leader is judged on all of V and
  m2 does not bind: a ratio of 4.
  With each candidate's own cover on both threads, and steps that scan the largest bounds: 900 s.
  With sums brought up to date, and a middle sample: 750 s; N 100,000: 110 s. (With one unseen
  copy: 850 s.)
- sampled: .9965 of g.
- levels: 64 partitions hand on 1,563 each, more than fits one merge of 512 MiB: two levels, 20
  minutes. `plan` counts texts and copies that are not here: merges at .6 of what it says.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.planning.stage1 import predict
from jobs.selecting.room import memory_of, require_room
from jobs.selecting.sizes import Sizes
from tests.benchmarks import levels
from tests.benchmarks.judge import lift, random_picks, worth
from tests.benchmarks.machine import GIB, sgemm_gflops
from tests.benchmarks.processes import alone
from tests.benchmarks.report import Bar, Results, bars, head, mib, table
from tests.benchmarks.vectors import default_corpus, ground

# The prototype's million: seconds, and the SGEMM rate of its two cores in GFLOP/s.
PROTOTYPE_S, PROTOTYPE_GFLOPS = 251.0, 460.0
RIDGE = 1e-2  # for 16-bit vectors
MOST, DIM = 1_000_000, 384


def main() -> None:
    """Measure the steps asked for, and print their tables and bars."""
    asked = _arguments()
    results = Results(asked.results)
    print(head("Stage 1 as N grows"))
    held: list[Bar] = []
    for name in asked.steps:
        text, found = STEPS[name](asked, results)
        print(f"### {name}\n\n{text}\n", flush=True)
        held += found
    print(bars(held))


def grow(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Time and memory against N."""
    found = {}
    for n in asked.sizes:
        found[n] = _selected(results, asked, n, asked.k, m2=min(n, asked.m2))
    lines = []
    for n, run in found.items():
        work = run["seconds"] * run["gflops"] / 1000
        share = run["log_det_s"] / run["seconds"]
        size = mib(run["peak_bytes"])
        looks = f"{run['screened'] / n:.1f}, {run['evaluations'] / n:.2f}"
        planned = _planned(asked, n)
        lines.append(
            (n, run["mode"], run["seconds"], run["gflops"], work, size, share, looks, planned)
        )
    columns = [
        "N", "mode", "seconds", "SGEMM GFLOP/s", "s x TFLOP/s", "peak MiB", "log-det share",
        "looks, judged a row", "plan: s, MiB",
    ]  # fmt: skip
    return table(columns, lines), _grow_bars(found, asked.k)


def _planned(asked: argparse.Namespace, n: int) -> str:
    """What `dualdiv plan` says of the same choice: seconds of two cores, memory of the worker."""
    stage1 = Stage1Config(k1=asked.k, mode="screened", m1=asked.m1, m2=min(n, asked.m2))
    sizes = Sizes(n, DIM, asked.k, stage1, SelectConfig(), storage="float16", threads=2)
    plan = predict(sizes)
    return f"{plan.core_seconds(plan.work.local) / 2:,.0f}, {mib(plan.memory.worker)}"


def _grow_bars(found: dict[int, dict[str, Any]], k: int) -> list[Bar]:
    most, less = found.get(MOST), found.get(100_000)
    at = f"N {MOST:,}, k {k:,}"
    scaled = most and most["seconds"] * most["gflops"] / (PROTOTYPE_S * PROTOTYPE_GFLOPS)
    ratio = most["seconds"] / less["seconds"] if most and less else None
    peak = most and most["peak_bytes"] / GIB
    return [
        Bar(f"{at}: peak resident memory, GiB", peak, 2.5, False),
        Bar(f"{at}: seconds x SGEMM rate / the prototype's", scaled, 1.2, False),
        Bar(f"{at}: time / that of N 100,000", ratio, 8.0, False),
    ]


def sampled(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Leaders judged on m2 points against leaders judged on all of V."""
    lines, held = [], []
    for n in asked.sizes:
        if n <= asked.m2:
            continue
        runs = [_selected(results, asked, n, asked.sampled_k, m2=m2) for m2 in (asked.m2, "all")]
        rows = np.load(ground(n, asked.cache, asked.corpus, dtype="float16"), mmap_mode="r")
        part, whole, control = (
            worth(rows, picks, lam=asked.lam, ridge=RIDGE)
            for picks in (*(run["picks"] for run in runs), random_picks(n, asked.sampled_k))
        )
        ratio = part.g / whole.g
        seconds = f"{runs[0]['seconds']:.0f}, {runs[1]['seconds']:.0f}"
        lines.append((n, part.f / whole.f, ratio, lift(part.f, whole.f, control.f), seconds))
        if n == max(asked.sizes):
            at = f"N {n:,}, k {asked.sampled_k}, m2 {asked.m2:,}"
            held.append(Bar(f"{at}: g / judged on all of V", ratio, 0.995, True))
    return table(["N", "f", "g", "lift", "seconds m2, all"], lines), held


def _selected(
    results: Results, asked: argparse.Namespace, n: int, k: int, *, m2: int | str
) -> dict[str, Any]:
    path = ground(n, asked.cache, asked.corpus, dtype="float16")
    effort = {"mode": "screened", "m1": asked.m1, "m2": m2, "z": asked.z, "unseen": asked.unseen}
    arguments = {
        "path": str(path),
        "k": k,
        "effort": effort,
        "objective": {"lam": asked.lam, "ridge": RIDGE},
        "warm": True,
    }

    def measure() -> dict[str, Any]:
        before = sgemm_gflops()
        found = alone("tests.benchmarks.ours:choose", arguments, timeout_s=4 * 3600)
        return found | {"gflops": (before + sgemm_gflops()) / 2}

    return results.get({"scale": path.name, "k": k, "effort": effort, "lam": asked.lam}, measure)


def merged(asked: argparse.Namespace, results: Results) -> tuple[str, list[Bar]]:
    """Many picks through two levels of merging."""
    n, k1 = asked.levels_n, asked.levels_k
    path = ground(n, asked.cache, asked.corpus, dtype="float16")
    sizes = _levels_sizes(asked)
    plan, memory = require_room(sizes), memory_of(sizes, require_room(sizes))
    arguments = {
        "memory_bytes": sizes.declared,
        "sample": asked.levels_sample,
        "lam": asked.lam,
    }
    with threadpool_limits(2):
        found = results.get(
            {"levels": path.name, "plan": asdict(plan), **arguments},
            lambda: levels.run(str(path), plan, **arguments),
        )
    rows = np.load(path, mmap_mode="r")
    best = worth(rows, found["picks"], lam=asked.lam, ridge=RIDGE)
    control = worth(rows, random_picks(n, k1), lam=asked.lam, ridge=RIDGE)
    says = [memory.process + sum(memory.partition.values()), memory.worker, memory.driver]
    lines = [("local", plan.partitions, "-", plan.local_k, mib(found["peaks"][0]), mib(says[0]))]
    for at, level in enumerate(plan.levels):
        merges = (f"merge {at + 1}", level.nodes, level.candidates, level.k)
        said = says[2 if level is plan.levels[-1] else 1]
        lines.append((*merges, mib(found["peaks"][at + 1]), mib(said)))
    text = table(["level", "nodes", "candidates each", "hands on", "peak MiB", "plan MiB"], lines)
    text += (
        f"\n\nN = {n:,}, k1 = {k1:,} ({len(set(found['picks'])):,} different picks), "
        f"{asked.memory_mib:,} MiB declared, {found['seconds']:,.0f} s; C / N {best.coverage:.4f} "
        f"(random {control.coverage:.4f}), log-det a pick {best.log_det / k1:.3f} (random "
        f"{control.log_det / k1:.3f})"
    )
    said = [says[0], *[says[1]] * (len(plan.levels) - 1), says[2]]
    most = max(peak / most for peak, most in zip(found["peaks"], said, strict=True))
    at = f"N {n:,}, k1 {k1:,}, {len(plan.levels)} levels"
    return text, [
        Bar(f"{at}: levels of merging", float(len(plan.levels)), 2.0, True),
        Bar(f"{at}: picks / k1", len(set(found["picks"])) / k1, 1.0, True),
        Bar(f"{at}: memory / what plan says", most, 1.0, False),
    ]


def _levels_sizes(asked: argparse.Namespace) -> Sizes:
    stage1 = Stage1Config.model_validate(
        {"k1": asked.levels_k, "lambda": asked.lam, "lambda_scale": "mean"}
    )
    select = SelectConfig(memory_per_worker=f"{asked.memory_mib}MiB", sample=asked.levels_sample)
    return Sizes(
        asked.levels_n,
        DIM,
        asked.levels_k,
        stage1,
        select,
        storage="float16",
        threads=2,
        n_partitions=asked.partitions,
    )


STEPS: dict[str, Callable[[argparse.Namespace, Results], tuple[str, list[Bar]]]] = {
    "grow": grow,
    "sampled": sampled,
    "levels": merged,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--corpus", help="rct, icd, banking or ddi")
    parser.add_argument("--results", type=Path, help="JSON lines; what stands there is not redone")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    sizes = [12_500, 25_000, 50_000, 100_000, 200_000, 400_000, MOST]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--k", type=int, default=1_000)
    parser.add_argument("--sampled-k", type=int, default=300)
    parser.add_argument("--m1", type=int, default=8_192)
    parser.add_argument("--m2", type=int, default=131_072)
    parser.add_argument("--z", type=float, default=1.0, help="standard errors added on m1 points")
    parser.add_argument("--unseen", type=float, default=0.0, help="copies the sample may miss")
    parser.add_argument("--lam", type=float, default=1e-4, help="mean scale")
    parser.add_argument("--levels-n", type=int, default=200_000)
    parser.add_argument("--levels-k", type=int, default=20_000)
    parser.add_argument("--levels-sample", type=int, default=32_768)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--memory-mib", type=int, default=512, help="declared for `levels`")
    parser.add_argument("--quick", action="store_true", help="a few thousand rows")
    asked = parser.parse_args()
    asked.corpus = asked.corpus or default_corpus(asked.cache)
    if asked.quick:
        asked.sizes, asked.k, asked.sampled_k, asked.m1, asked.m2 = (
            [2_000, 4_000],
            60,
            40,
            512,
            1024,
        )
        asked.levels_n, asked.levels_k, asked.levels_sample = 4_000, 400, 1_000
        asked.partitions, asked.memory_mib = 8, 16
    return asked


if __name__ == "__main__":
    main()
