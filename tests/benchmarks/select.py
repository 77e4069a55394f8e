"""Facility location of this project beside apricot-select and submodlib.

    python -m tests.benchmarks.select --contenders VENV/bin/python --cache FOLDER

Never put this folder first on sys.path: its `select` would hide the standard one.

Every contender has a process of its own under 12 GiB of address space, is run once cold (from
starting the interpreter to the picks: imports, compilation, reading the vectors) and then in
turns with the others, warm. Ours uses two threads. apricot's distances and submodlib's given
kernel use both cores through BLAS; apricot's lazy greedy and submodlib's run on one core,
apricot's two-stage and stochastic on both. apricot compiles its kernel anew in every fit: what
that takes is told apart, and is part of its time. The time of submodlib's given kernel is not
part of its time.

Predictions, for two AVX2 cores of about 115 GFLOP/s, written before measuring:

- N 10,000, k 100, dense: W is half of 77 GFLOP, .35 s; a full pass over it and the re-evaluations
  of about 3 N rows, .25 s: .6 to .7 s. apricot lazy 3 to 4 s, submodlib about 5 s: ratios near 5
  and 8.
- The same picks as apricot lazy and submodlib; stochastic (epsilon .9) differs, f about .98.
- N 20,000: dense 1.9 GB, exact 12 to 16 s and under 300 MB, apricot 5 GB: 1 / 17.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from selection.modes import Effort, resolve
from tests.benchmarks.judge import agreement, worth
from tests.benchmarks.machine import GIB, has_avx512
from tests.benchmarks.processes import Worker, alone
from tests.benchmarks.report import Bar, Results, bars, head, mib, say, table
from tests.benchmarks.vectors import ground

LIMIT_BYTES = 12 * GIB
FROM_DATA_MOST = 5_000
CALLS = "tests.benchmarks.contenders"
REFERENCE = "ours, dense"
LAZY, GIVEN = "apricot, lazy", "submodlib, kernel given"


def main() -> None:
    """Measure, and print the tables."""
    asked = _arguments()
    results = Results(asked.results)
    print(head("Stage 1 beside apricot-select and submodlib"))
    others = results.get(
        {"versions": asked.contenders},
        lambda: alone(f"{CALLS}:versions", {}, python=asked.contenders),
    )
    print("Contenders: " + ", ".join(f"{k} {v}" for k, v in others.items() if k != "peak_bytes"))
    found = {}
    for n in asked.sizes:
        path = ground(n, asked.cache, asked.corpus)
        for k in asked.k:
            key = {"select": path.name, "k": k, "repeats": asked.repeats}
            found[n, k] = results.get(key, lambda p=path, k=k: measure(p, k, asked))
            rows = np.load(path, mmap_mode="r")
            print(f"\nN = {n:,}, k = {k:,}\n")
            print(contender_table(rows, found[n, k]))
            sys.stdout.flush()
    print("\n" + bars(judged(found)))


def measure(path: Path, k: int, asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Cold and warm times, peak memory and picks of every contender, interleaved."""
    n = len(np.load(path, mmap_mode="r"))
    workers: dict[str, Worker] = {}
    found: dict[str, dict[str, Any]] = {}
    calls = _calls(n)
    for name, (call, arguments, ours) in calls.items():
        say(f"  {name}: cold")
        worker = Worker(
            python=sys.executable if ours else asked.contenders, limit_bytes=LIMIT_BYTES
        )
        found[name] = _ask(worker, call, {"path": str(path), "k": k, **arguments}, asked.timeout)
        if "error" not in found[name]:
            workers[name] = worker
    for turn in range(asked.repeats):
        for name, worker in list(workers.items()):
            say(f"  {name}: warm {turn + 1}")
            call, arguments, _ = calls[name]
            warm = _ask(worker, call, {"path": str(path), "k": k, **arguments}, asked.timeout)
            if "error" in warm:
                found[name]["warm_error"] = warm["error"]
                del workers[name]
                continue
            found[name]["warm_s"].append(warm["seconds"])
            found[name]["peak_bytes"] = max(found[name]["peak_bytes"], warm["peak_bytes"])
    for name, worker in workers.items():
        if name.startswith("apricot"):
            optimizer = calls[name][1]
            again = worker.ask(f"{CALLS}:apricot_compilation", optimizer, timeout_s=asked.timeout)
            found[name]["apart_s"] = again.get("result")
        worker.close()
    return found


def _calls(n: int) -> dict[str, tuple[str, dict[str, Any], bool]]:
    ours = "tests.benchmarks.ours:choose"
    calls: dict[str, tuple[str, dict[str, Any], bool]] = {
        f"ours, {mode}": (ours, {"effort": {"mode": mode}}, True)
        for mode in ("dense", "exact", "screened")
    }
    for optimizer in ("lazy", "two-stage", "stochastic"):
        calls[f"apricot, {optimizer}"] = (f"{CALLS}:apricot", {"optimizer": optimizer}, False)
    calls[GIVEN] = (f"{CALLS}:submodlib", {"given": True}, False)
    if n <= FROM_DATA_MOST:
        calls["submodlib, from data"] = (f"{CALLS}:submodlib", {"given": False}, False)
    return calls


def _ask(worker: Worker, call: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    answer = worker.ask(call, arguments, timeout_s=timeout_s)
    if "trace" in answer:  # not a limit that was met, but a fault: of this program, or there
        raise RuntimeError(f"{call}{arguments}: {answer['trace']}")
    if "error" in answer:
        return answer
    since_start = time.perf_counter() - worker.started
    return {
        **answer["result"],
        "peak_bytes": answer["peak_bytes"],
        "cold_s": since_start,
        "warm_s": [],
    }


def contender_table(rows: np.ndarray, found: dict[str, dict[str, Any]]) -> str:
    """One line a contender."""
    reference = next((found[n] for n in (REFERENCE, "ours, exact") if "picks" in found[n]), None)
    best = worth(rows, reference["picks"]).f if reference else None
    lines = []
    for name, entry in found.items():
        if "error" in entry:
            lines.append((name, None, entry["error"]))
            continue
        warm = entry["warm_s"]
        spread = f"{min(warm):.3g} to {max(warm):.3g}" if warm else entry.get("warm_error")
        lines.append(
            (
                f"{name} (runs {entry['mode']})" if name == "ours, screened" else name,
                entry["cold_s"],
                _warm_s(entry),
                spread,
                entry.get("apart_s") or None,
                mib(entry["peak_bytes"]),
                agreement(rows, reference["picks"], entry["picks"]) if reference else None,
                worth(rows, entry["picks"]).f / best if best else None,
            )
        )
    columns = [
        "contender", "cold s", "warm s", "from to", "kernel or compilation s", "peak MiB",
        "picks against ours", "f against ours",
    ]  # fmt: skip
    return table(columns, [(*line, *[None] * (len(columns) - len(line))) for line in lines])


def judged(found: dict[tuple[int, int], dict[str, dict[str, Any]]]) -> list[Bar]:
    """The bars, with the numbers of this run."""
    lazy, given = (3.0, 6.0) if has_avx512() else (1.5, 3.0)
    dim = 384
    chosen = resolve(Effort(), n_ground=10_000, n_candidates=10_000, k=100, square=True).mode
    ours, at = f"ours, {chosen}", found.get((10_000, 100), {})
    big = found.get((20_000, 100), {})
    return [
        Bar(f"N 10,000, k 100: time of {LAZY} / {ours}", _ratio(at, LAZY, ours), lazy, True),
        Bar(f"N 10,000, k 100: time of {GIVEN} / {ours}", _ratio(at, GIVEN, ours), given, True),
        Bar(
            f"N 20,000, d {dim}: peak memory of ours, exact / {LAZY}",
            _peaks(big, "ours, exact", LAZY),
            1 / 8,
            False,
        ),
    ]


def _ratio(at: dict[str, dict[str, Any]], slow: str, fast: str) -> float | None:
    if not (at.get(slow, {}).get("warm_s") and at.get(fast, {}).get("warm_s")):
        return None
    return _warm_s(at[slow]) / _warm_s(at[fast])


def _warm_s(entry: dict[str, Any]) -> float | None:
    """Median of the warm runs; a kernel that was given is not part of it."""
    return median(entry["warm_s"]) if entry["warm_s"] else None


def _peaks(at: dict[str, dict[str, Any]], one: str, other: str) -> float | None:
    peaks = [at.get(name, {}).get("peak_bytes") for name in (one, other)]
    return peaks[0] / peaks[1] if all(peaks) else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contenders", required=True, help="python that has both libraries")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--corpus", help="rct, icd, banking or ddi")
    parser.add_argument("--results", type=Path, help="JSON lines; what stands there is not redone")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 5_000, 10_000, 20_000])
    parser.add_argument("--k", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--repeats", type=int, default=5, help="warm runs")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one run")
    parser.add_argument("--quick", action="store_true", help="N 1,000, k 50, one warm run")
    asked = parser.parse_args()
    if asked.quick:
        asked.sizes, asked.k, asked.repeats = [1_000], [50], 1
    return asked


if __name__ == "__main__":
    main()
