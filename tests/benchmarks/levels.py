"""k1 far above d through several levels of merging, every local greedy and merge in a process.

What `dualdiv plan` says is carried out without Ray and without texts: a partition's process holds
its rows, a merge's process its candidates and the sample of V that it judges them on.
"""

import time
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.readers.hashes import partition_of
from selection.merge import merge
from selection.modes import Effort, sample_rows
from selection.running import RunningCoverage
from selection.screening import Sample, Screening
from selection.stage1 import select_local
from selection.tree import MergePlan
from tests.benchmarks.ours import request_for
from tests.benchmarks.processes import alone
from tests.benchmarks.report import say
from tests.benchmarks.vectors import rows_at

HERE = "tests.benchmarks.levels"


def run(
    path: str, plan: MergePlan, *, memory_bytes: int, sample: int, lam: float
) -> dict[str, Any]:
    """Choose in every partition, merge level by level.

    Args:
        path: A .npy of unit rows.
        plan: The tree.
        memory_bytes: Declared memory of a worker.
        sample: Ground points that merges are judged on.
        lam: In mean scale.

    Returns:
        `picks`, `plan`, `seconds`, and `peaks` in bytes (largest by level, locals first).
    """
    partitions = plan.partitions
    start = time.perf_counter()
    answers, peaks = [], [0]
    for number in range(partitions):
        say(f"  partition {number + 1} of {partitions}")
        arguments = {"path": path, "k": plan.local_k, "number": number, "partitions": partitions}
        found = alone(f"{HERE}:local", arguments | {"memory_bytes": memory_bytes, "lam": lam})
        answers.append(found["picks"])
        peaks[0] = max(peaks[0], found["peak_bytes"])
    for at, level in enumerate(plan.levels):
        say(f"  level {at + 1} of {len(plan.levels)}: {level.nodes} merges")
        merged = [
            alone(
                f"{HERE}:node",
                {"path": path, "k": level.k, "sample": sample, "lam": lam}
                | {"sets": [answers[i] for i in group]},
            )
            for group in plan.groups(at)
        ]
        answers = [one["picks"] for one in merged]
        peaks.append(max(one["peak_bytes"] for one in merged))
    return {
        "picks": answers[0],
        "plan": asdict(plan),
        "seconds": time.perf_counter() - start,
        "peaks": peaks,
    }


def local(
    path: str, k: int, *, number: int, partitions: int, memory_bytes: int, lam: float
) -> dict[str, Any]:
    """The greedy of one partition; picks as rows of the file."""
    rows = np.load(path, mmap_mode="r")
    ids = [f"row-{i:08d}" for i in range(len(rows))]
    mine = np.flatnonzero(partition_of(ids, count=partitions, seed=0) == number)
    request = request_for(len(mine), k, _objective(rows, lam), n_total=len(rows))
    effort = Effort(memory_bytes=memory_bytes)
    found = select_local("dual-div", rows_at(path, mine), request, effort=effort, threads=2)
    return {"picks": mine[found.selection.picks].tolist()}


def node(path: str, k: int, *, sample: int, lam: float, sets: list[list[int]]) -> dict[str, Any]:
    """One merge, judged on a uniform sample of V that every merge has."""
    rows = np.load(path, mmap_mode="r")
    n = len(rows)
    union = np.unique(np.concatenate([np.array(one, np.int64) for one in sets]))
    points = sample_rows(np.random.default_rng(1).integers(2**64, size=n, dtype=np.uint64), sample)
    candidates = rows_at(path, union)
    oracle = RunningCoverage(rows_at(path, points), candidates, threads=2)
    merged = merge(
        "dual-div",
        oracle,
        candidates,
        request_for(len(union), k, _objective(rows, lam), n_total=n, n_ground=len(points)),
        local_sets=[np.searchsorted(union, one) for one in sets],
        screening=Screening(None, Sample(oracle, np.isin(union, points), n), threads=2),
    )
    return {"picks": union[merged.selection.picks].tolist()}


def _objective(rows: npt.NDArray[np.generic], lam: float) -> dict[str, float]:
    return {"lam": lam, "ridge": 1e-2 if rows.dtype == np.float16 else 1e-3}
