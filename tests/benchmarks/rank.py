"""Queries per second of every Stage 2 method, beside LangChain and plain numpy loops.

    python -m tests.benchmarks.rank --contenders VENV/bin/python [--quick] [--results FILE]

d = 384, unit vectors around 64 random directions (cosine .5 within), k = 8, the 50 nearest
recalled, lambda of MMR .5, 10,000 queries for ours; fewer for the slow ones, as the table says.
The ground sample of V has 4,096 points. Everything runs in a process of its own, ours with two
threads, the others with both cores for BLAS. LangChain's function is given the 50 nearest, which
one numpy product recalls for all queries: its loop is what is compared. Its example selectors ask
InMemoryVectorStore, query by query. On a machine that others use too, rates
from different minutes do not compare: mmr and LangChain's function are therefore asked in turns
for their bar, five times, ours for all queries and LangChain for 200; and knn with the bare product
and np.argpartition in one process, in turns, one thread each.

Predictions, for two AVX2 cores of about 60 GFLOP/s each, written before measuring:

- knn over the bare product and argpartition: below 1.5 at 100 and about 1 at 1,000 and 10,000: the
  shortlist costs less than argpartition.
- mmr 150,000 queries/s at pool 100 and 70,000 at 1,000, LangChain's function about 1,000: 150
  and 70 times. The in-memory selector 200 at pool 100 and 50 at 1,000: over 700 times.
- dual-div at pool 1,000: 4.1 million pairs a query at .06 ns on two threads, .13 ms; numpy 8 ms:
  60 times. At pool 100 the product with the ground counts as much: 20 to 30 times.
- Peak memory beyond the queries themselves the same within 10%: outputs are 13 MB more.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.processes import Worker, alone
from tests.benchmarks.report import Bar, Results, bars, head, mib, table

DIM, K, RECALL, M = 384, 8, 50, 4096
TURNS = 5
CALLS = "tests.benchmarks.rank_contenders"
HERE = "tests.benchmarks.rank"
FUNCTION, IN_MEMORY = "LangChain, maximal_marginal_relevance", "LangChain, MMR selector, in memory"
SIMILAR, LOOP = "LangChain, similarity selector, in memory", "numpy loop"


def main() -> None:
    """Measure, and print the tables."""
    asked = _arguments()
    results = Results(asked.results)
    print(head("Stage 2 beside LangChain and plain numpy"))
    found: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in asked.sizes:
            files = _files(Path(folder), n, asked.queries)
            found[n] = {}
            for name, (call, arguments, python) in _calls(n, files, asked).items():
                key = {"rank": name, "n": n, "arguments": _plain(arguments)}
                found[n][name] = results.get(
                    key, lambda c=call, a=arguments, p=python: alone(c, a, python=p)
                )
            found[n]["turns"] = results.get(
                {"turns": n, "queries": asked.queries}, lambda f=files: in_turns(f, asked)
            )
            print(f"\npool {n:,}\n\n{_table(found[n])}")
            sys.stdout.flush()
        memory = {
            q: results.get({"memory": q}, lambda q=q: alone(f"{HERE}:peak", {"n_queries": q}))
            for q in (asked.queries, 10 * asked.queries)
        }
    print("\n" + bars(_judged(found, memory)))


def ours(
    pool: str, queries: str, ground: str, n_queries: int, *, method: str, threads: int = 2
) -> dict[str, Any]:
    """Median of three runs after one that compiles."""
    from selection.stage2 import PER_QUERY, RankOptions

    asked, records = _inputs(np.load(pool), np.load(queries)[:n_queries], np.load(ground))
    options = RankOptions(k=K, recall=RECALL, threads=threads)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        ranking = PER_QUERY[method](asked, records, options=options)
        seconds.append(time.perf_counter() - start)
    return {
        "picks": ranking.indices[:200].tolist(),
        "seconds": median(seconds[1:]),
        "queries": n_queries,
    }


def in_turns(files: dict[str, str], asked: argparse.Namespace) -> dict[str, Any]:
    """Rates of mmr and of LangChain's function, taking turns in processes of their own."""
    both = {"pool": files["pool"], "queries": files["queries"]}
    size = min(200, asked.queries)
    mmr = {"k": K, "recall": RECALL, "mmr_lambda": 0.5}
    calls = (
        (sys.executable, f"{HERE}:ours", {**both, "ground": files["ground"], "method": "mmr"}),
        (asked.contenders, f"{CALLS}:langchain_function", {**both, **mmr}),
    )
    turns = []
    with Worker(python=calls[0][0]) as mine, Worker(python=calls[1][0]) as theirs:
        for _ in range(TURNS + 1):
            rates = []
            for worker, (_, call, more), n in zip(
                (mine, theirs), calls, (asked.queries, size), strict=True
            ):
                answer = worker.ask(call, {**more, "n_queries": n}, timeout_s=600)
                rates.append(_rate(answer["result"]))
            turns.append(rates)
    mine_rate, their_rate = np.median(turns[1:], axis=0).tolist()
    ratio = median(left / right for left, right in turns[1:])
    return {"mmr": mine_rate, FUNCTION: their_rate, "ratio": ratio}


def bare(pool: str, queries: str, n_queries: int) -> dict[str, Any]:
    """knn and the bare product with np.argpartition, in turns, one thread each."""
    from selection.stage2 import PER_QUERY, RankOptions
    from selection.tiles import one_blas_thread

    rows, wanted = np.load(pool), np.load(queries)[:n_queries]
    asked, records = _inputs(rows, wanted, rows)
    at_once = min(1024, (1 << 22) // len(rows))

    def product() -> None:
        for start in range(0, n_queries, at_once):
            cosines = wanted[start : start + at_once] @ rows.T
            near = np.argpartition(cosines, len(rows) - K, axis=1)[:, -K:]
            values = np.take_along_axis(cosines, near, axis=1)
            np.take_along_axis(near, np.argsort(-values, axis=1), axis=1)

    def knn() -> None:
        PER_QUERY["knn"](asked, records, options=RankOptions(k=K))

    turns = []
    with one_blas_thread:
        for _ in range(6):
            turns.append([_timed(knn), _timed(product)])
    mine, theirs = np.median(turns[1:], axis=0).tolist()
    return {"seconds": theirs, "knn_s": mine, "queries": n_queries}


def peak(n_queries: int) -> dict[str, Any]:
    """Rank many queries; `beyond_bytes` is the peak less what the queries take."""
    from selection.stage2 import PER_QUERY, RankOptions

    pool, queries = _vectors(1000, 1), _vectors(n_queries, 2)
    asked, records = _inputs(pool, queries, _vectors(M, 3))
    for method in ("knn", "mmr", "dpp", "mutual-information", "dual-div"):
        few = method in ("dual-div", "mutual-information")  # in slices, like any part of a run
        for start in range(0, n_queries, 10_000 if few else n_queries):
            rows = slice(start, start + (200 if few else n_queries))
            part = type(asked)(queries[rows], asked.keys[rows])
            PER_QUERY[method](part, records, options=RankOptions(k=K, threads=2))
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"beyond_bytes": highest - queries.nbytes}


def _inputs(rows: np.ndarray, wanted: np.ndarray, ground: np.ndarray) -> tuple[Any, Any]:
    from selection.stage2 import Pool, Queries

    places = np.arange(len(rows))
    codes = {"labels": places % 6, "clusters": places % K}
    return (
        Queries(wanted, np.arange(len(wanted), dtype=np.uint64)),
        Pool(rows, places, ground=ground, **codes),
    )


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _calls(
    n: int, files: dict[str, str], asked: argparse.Namespace
) -> dict[str, tuple[str, dict[str, Any], str]]:
    from selection.stage2 import PER_QUERY

    both = {"pool": files["pool"], "queries": files["queries"]}
    few = asked.queries if asked.quick else max(20, min(1000, 200_000 // n))
    slow = {"dual-div": 1000, "s3": 1000, "mutual-information": 2000, "s3-lowest": 2000}
    calls: dict[str, tuple[str, dict[str, Any], str]] = {}
    for name in PER_QUERY:
        size = min(asked.queries, slow.get(name, asked.queries) if n > 100 else asked.queries)
        arguments = {**both, "ground": files["ground"], "n_queries": size, "method": name}
        calls[name] = (f"{HERE}:ours", arguments, sys.executable)
    calls["product + argpartition"] = (
        f"{HERE}:bare",
        {**both, "n_queries": asked.queries},
        sys.executable,
    )
    mmr = {"recall": RECALL, "mmr_lambda": 0.5}
    formula = {"ground": files["ground"], "lam": 1.0, "ridge": 1e-3}
    for method, options in (("knn", {}), ("mmr", mmr), ("dual-div", formula)):
        size = few if method == "knn" else max(20, few // 5)
        arguments = {**both, "n_queries": size, "method": method, "k": K, "options": options}
        calls[f"{LOOP}, {method}"] = (f"{CALLS}:numpy_loop", arguments, sys.executable)
    arguments = {**both, "n_queries": min(asked.queries, 1000), "k": K, **mmr}
    calls[FUNCTION] = (f"{CALLS}:langchain_function", arguments, asked.contenders)
    for name, flag in ((IN_MEMORY, True), (SIMILAR, False)):
        arguments = {**both, "n_queries": max(10, few // 5), "k": K, "recall": RECALL, "mmr": flag}
        calls[name] = (f"{CALLS}:langchain_selector", arguments, asked.contenders)
    return calls


def _table(found: dict[str, Any]) -> str:
    rows = []
    for name, one in found.items():
        if name == "turns":
            continue
        method = name.removeprefix(f"{LOOP}, ")
        method = {FUNCTION: "mmr", IN_MEMORY: "mmr", SIMILAR: "knn"}.get(method, method)
        same = _same(one, found[method]) if "picks" in one and method != name else None
        rows.append((name, one["queries"], _rate(one), mib(one["peak_bytes"]), same))
    return table(["method", "queries", "queries/s", "peak MiB", "same picks as ours"], rows)


def _same(theirs: dict[str, Any], mine: dict[str, Any]) -> float:
    pairs = list(zip(theirs["picks"], mine["picks"], strict=False))
    return float(np.mean([left == right for left, right in pairs]))


def _rate(one: dict[str, Any]) -> float:
    return one["queries"] / one["seconds"]


def _judged(found: dict[int, dict[str, Any]], memory: dict[int, dict[str, Any]]) -> list[Bar]:
    judged = []
    for n, one in found.items():
        product = one["product + argpartition"]
        ratio = product["knn_s"] / product["seconds"]
        judged.append(Bar(f"pool {n:,}: knn over product and argpartition, time", ratio, 3, False))
        mmr = _rate(one["mmr"])
        if n <= 1000:
            wanted = 50 if n <= 100 else 30
            times = one["turns"]["ratio"]
            judged.append(Bar(f"pool {n:,}: mmr over LangChain's function", times, wanted, True))
        times = mmr / _rate(one[IN_MEMORY])
        judged.append(Bar(f"pool {n:,}: mmr over the in-memory selector", times, 200, True))
        same = _same(one[FUNCTION], one["mmr"])
        judged.append(Bar(f"pool {n:,}: picks of mmr equal to LangChain's", same, 1, True))
        loop = one[f"{LOOP}, dual-div"]
        times = _rate(one["dual-div"]) / _rate(loop)
        judged.append(Bar(f"pool {n:,}: dual-div over the numpy loop", times, 20, True))
        same = _same(loop, one["dual-div"])
        judged.append(Bar(f"pool {n:,}: picks of dual-div equal to the loop's", same, 1, True))
    few, many = (memory[q]["beyond_bytes"] for q in sorted(memory))
    judged.append(
        Bar("peak memory beyond the queries, ten times the queries", many / few, 1.2, False)
    )
    return judged


def _files(folder: Path, n: int, n_queries: int) -> dict[str, str]:
    made = {}
    for name, size, seed in (("pool", n, 1), ("queries", n_queries, 2), ("ground", M, 3)):
        path = folder / f"{name}-{size}.npy"
        if not path.exists():
            np.save(path, _vectors(size, seed))
        made[name] = str(path)
    return made


def _vectors(n: int, seed: int) -> np.ndarray:
    centres = np.random.default_rng(0).standard_normal((64, DIM), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, DIM), dtype=np.float32)
    rows += centres[rng.integers(64, size=n)]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without the names of files that last as long as the run."""
    kept = {k: v for k, v in arguments.items() if k not in ("pool", "queries", "ground")}
    if "options" in kept:
        kept["options"] = {k: v for k, v in kept["options"].items() if k != "ground"}
    return kept


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contenders", required=True, help="python with langchain-core and numpy")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--quick", action="store_true", help="100 records, 200 queries")
    asked = parser.parse_args()
    if asked.quick:
        asked.sizes, asked.queries = [100], 200
    return asked


if __name__ == "__main__":
    main()
