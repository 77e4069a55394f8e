"""What splitting Stage 1 into partitions costs in quality: GreeDi against one greedy over all.

    python -m tests.benchmarks.distributed --cache FOLDER

In one process, without Ray, which moves the same sums through more hands. Rows get made-up ids,
and the project's own hash puts them into partitions; a local greedy in each; one greedy over the
union of what they found, judged on all of V by adding up the partitions' sums.

| input | what it shows |
|---|---|
| random order | the usual case |
| by topic | rows sorted by the nearest of 64 k-means centres: the hash undoes the order |
| by topic, in runs | partitions are runs of the sorted rows, as without a hash: a warning |

"random candidates" is the control: k random rows of every partition, merged the same way. All
values are computed by `judge`, on all rows, and told as shares of the centralised exact greedy.

Predictions, written before measuring (N 100,000, k 300): .9992, .9986 and .9981 of g for 4, 16
and 64 partitions, lifts .995, .99 and .987; best local .98, .95, .90; random candidates .92, .96,
.98. By topic the same within .0003. In runs: the merge still above .995, the best local below .85.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.readers.hashes import partition_of
from selection.coverage import CoverageShard, LocalCoverage
from selection.merge import merge
from selection.modes import Effort
from selection.stage1 import select_local
from tests.benchmarks.judge import lift, random_picks, worth
from tests.benchmarks.ours import request_for
from tests.benchmarks.processes import alone
from tests.benchmarks.report import Bar, Results, bars, head, table
from tests.benchmarks.vectors import by_topic, default_corpus, ground

RANDOM_ORDER, BY_TOPIC, RUNS = "random order", "by topic", "by topic, in runs"
Parts = list[npt.NDArray[np.int64]]


def main() -> None:
    """Measure every split, and print the table."""
    asked = _arguments()
    results = Results(asked.results)
    print(head("Partitions against one greedy"))
    print(f"N = {asked.n:,}, k = {asked.k:,}, lam {asked.lam:g}\n")
    plain = ground(asked.n, asked.cache, asked.corpus)
    paths = {RANDOM_ORDER: plain, BY_TOPIC: by_topic(plain), RUNS: by_topic(plain)}
    lines, held = [], []
    for count, split in _splits(asked):
        seeds = range(asked.seeds if count == max(asked.partitions) and split != RUNS else 1)
        line = compared(results, paths[split], count=count, split=split, seeds=seeds, asked=asked)
        lines.append((split, count, len(seeds), *line))
        if count == max(asked.partitions) and split != RUNS:
            at = f"{count} partitions, {split}, mean of {len(seeds)}"
            held.append(Bar(f"{at}: g", line[1], 0.998, True))
            held.append(Bar(f"{at}: lift", line[2], 0.98, True))
    columns = [
        "input", "partitions", "seeds", "f", "g", "lift", "best local g", "random candidates g",
        "seconds local, merge",
    ]  # fmt: skip
    print(table(columns, lines) + "\n\n" + bars(held))


def _splits(asked: argparse.Namespace) -> list[tuple[int, str]]:
    most = max(asked.partitions)
    plain = [(count, RANDOM_ORDER) for count in asked.partitions]
    return [*plain, (most, BY_TOPIC), (most, RUNS)]


def compared(
    results: Results,
    path: Path,
    *,
    count: int,
    split: str,
    seeds: range,
    asked: argparse.Namespace,
) -> tuple[Any, ...]:
    """f, g and lift, the mean over the seeds; best local and the control as shares of g."""
    rows = np.load(path, mmap_mode="r")
    common = {"k": asked.k, "lam": asked.lam}

    def run(**arguments: Any) -> dict[str, Any]:
        key = {"distributed": path.name, **common, **arguments}
        call = "tests.benchmarks.distributed:once"
        return results.get(key, lambda: alone(call, {"path": str(path), **common, **arguments}))

    # A greedy over the same rows in another order is the same: one is enough for all splits.
    plain = ground(asked.n, asked.cache, asked.corpus)
    best = _worth(np.load(plain, mmap_mode="r"), _centralised(results, plain, asked), asked.lam)
    control = _worth(rows, random_picks(len(rows), asked.k), asked.lam)
    found = [run(count=count, seed=seed, split=split, control=False) for seed in seeds]
    worths = [_worth(rows, one["picks"], asked.lam) for one in found]
    alike = run(count=count, seed=0, split=split, control=True)
    local = _worth(rows, found[0]["best_local"], asked.lam)
    return (
        fmean(one.f / best.f for one in worths),
        fmean(one.g / best.g for one in worths),
        fmean(lift(one.f, best.f, control.f) for one in worths),
        local.g / best.g,
        _worth(rows, alike["picks"], asked.lam).g / best.g,
        f"{found[0]['local_s']:.1f}, {found[0]['merge_s']:.1f}",
    )


def _centralised(results: Results, path: Path, asked: argparse.Namespace) -> list[int]:
    effort, objective = {"mode": "exact"}, {"lam": asked.lam}
    key = {"choose": path.name, "k": asked.k, "effort": effort, "objective": objective, "turn": 0}
    arguments = {"path": str(path), "k": asked.k, "effort": effort, "objective": objective}
    return results.get(
        key, lambda: alone("tests.benchmarks.ours:choose", arguments | {"warm": True})
    )["picks"]


def _worth(rows: np.ndarray, picks: list[int], lam: float) -> Any:
    return worth(rows, picks, lam=lam)


def once(
    path: str, k: int, *, lam: float, count: int, seed: int, split: str, control: bool
) -> dict[str, Any]:
    """Split, choose in every partition, merge; in the process that asks.

    Args:
        path: A .npy of unit rows.
        k: Picks, of every partition and of the whole.
        lam: In mean scale.
        count: Number of partitions.
        seed: Of the partition hash.
        split: `RUNS` for runs of the rows, anything else for the hash.
        control: Random rows in place of the local greedy's.
    """
    rows = np.asarray(np.load(path), dtype=np.float32)
    n, objective = len(rows), {"lam": lam}
    parts = runs(n, count) if split == RUNS else hashed(n, count, seed)
    few = request_for(min(n, 512), 20, objective)  # nothing is compiled while timed
    select_local("dual-div", rows[:512], few, effort=Effort(mode="exact"), threads=2)
    start = time.perf_counter()
    chosen: Parts = []
    for part in parts:
        if control:
            chosen.append(np.sort(part[random_picks(len(part), k, seed)]))
            continue
        request = request_for(len(part), k, objective, n_total=n)
        local = select_local("dual-div", rows[part], request, effort=Effort(), threads=2)
        chosen.append(part[local.selection.picks])
    local_s = time.perf_counter() - start
    union = np.unique(np.concatenate(chosen))
    candidates = rows[union]
    merged = merge(
        "dual-div",
        LocalCoverage([CoverageShard(rows[part], threads=2) for part in parts], candidates),
        candidates,
        request_for(len(union), k, objective, n_total=n, n_ground=n),
        local_sets=[np.searchsorted(union, picks) for picks in chosen],
    )
    return {
        "picks": union[merged.selection.picks].tolist(),
        "best_local": chosen[merged.best_local_partition][:k].tolist(),
        "mode": merged.mode,
        "local_s": local_s,
        "merge_s": time.perf_counter() - start - local_s,
    }


def hashed(n: int, count: int, seed: int) -> Parts:
    """Partitions of rows 0 to n by the hash of a made-up id."""
    of = partition_of([f"row-{i:08d}" for i in range(n)], count=count, seed=seed)
    return [np.flatnonzero(of == number) for number in range(count)]


def runs(n: int, count: int) -> Parts:
    """Partitions that are runs of neighbouring rows."""
    return [part.astype(np.int64) for part in np.array_split(np.arange(n), count)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--corpus", help="rct, icd, banking or ddi")
    parser.add_argument("--results", type=Path, help="JSON lines; what stands there is not redone")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=300)
    parser.add_argument("--lam", type=float, default=0.0, help="mean scale")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seeds", type=int, default=5, help="for the most partitions")
    parser.add_argument("--quick", action="store_true", help="N 2,000, k 30, 8 partitions")
    asked = parser.parse_args()
    asked.corpus = asked.corpus or default_corpus(asked.cache)
    if asked.quick:
        asked.n, asked.k, asked.partitions, asked.seeds = 2_000, 30, [1, 8], 2
    return asked


if __name__ == "__main__":
    main()
