"""This project's Stage 1 as one function that a benchmark runs in a process of its own."""

import functools
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from selection.certificate import Worth
from selection.diversity import LogDet
from selection.lambda_rule import LambdaRule
from selection.modes import Effort
from selection.objective import Objective
from selection.request import Request
from selection.stage1 import Local, select_local


def choose(
    path: str,
    k: int,
    *,
    effort: dict[str, Any] | None = None,
    objective: dict[str, Any] | None = None,
    threads: int = 2,
    warm: bool = False,
) -> dict[str, Any]:
    """Select k rows of a file of vectors, all of them ground points and candidates.

    Args:
        path: A .npy of unit rows, float32 or float16; mapped, not read.
        k: Picks.
        effort: Fields of `Effort`; left out ones have their defaults.
        objective: Fields of `Objective`, with `rule` as a dict; scale is `mean`, lam 0 by default.
        threads: Of the kernels.
        warm: Select from the first 512 rows before, so that nothing is compiled while timed.

    Returns:
        `picks`, `seconds` of the selection, `log_det_s` of them, the resolved `mode`, `m2`, and
        counts of evaluations.
    """
    rows = np.load(path, mmap_mode="r")
    request = request_for(len(rows), k, objective or {})
    asked = Effort(**(effort or {}))
    if warm:
        few = replace(asked, m1=128, m2="all")
        part = rows[:512]
        asked_few = request_for(len(part), 20, objective or {})
        select_local("dual-div", part, asked_few, effort=few, threads=threads)
    with timed(LogDet) as log_det:
        start = time.perf_counter()
        local = select_local("dual-div", rows, request, effort=asked, threads=threads)
        seconds = time.perf_counter() - start
    chosen = local.selection
    return {
        "picks": chosen.picks.tolist(),
        "seconds": seconds,
        "log_det_s": log_det.seconds,
        "mode": local.effort.mode,
        "m2": local.effort.m2,
        "evaluations": chosen.evaluations,
        "screened": chosen.screened,
        "value": chosen.value,
        "lam_end": chosen.lam,
        "bound": proved_bound(local),
    }


def proved_bound(local: Local) -> float | None:
    """The largest f that any k rows can have; None where that is not proved."""
    if local.bounds is None or local.effort.mode == "screened":
        return None
    chosen = local.selection
    coverage = float(chosen.coverage_gains.sum()) - 1.0  # its baseline, in `mean` scale
    answer = Worth(chosen.value, coverage, len(chosen.picks))
    return local.bounds.close("proved", answer).bound


def request_for(
    n: int,
    k: int,
    objective: dict[str, Any],
    *,
    n_total: int | None = None,
    n_ground: int | None = None,
) -> Request:
    """Ask for k of n candidates; ties by row, keys of seed 0.

    Args:
        n: Candidates.
        k: Picks.
        objective: As `choose`.
        n_total: Rows of the corpus; None is n.
        n_ground: Ground points that stand for them; None is n.
    """
    fields = {"lam": 0.0, "scale": "mean"} | objective
    if fields.get("rule"):
        fields["rule"] = LambdaRule(**fields["rule"])
    total = float(n_total or n)
    return Request(
        k=k,
        objective=Objective(**fields),
        tie_rank=np.arange(n, dtype=np.int64),
        keys=np.random.default_rng(0).integers(2**64, size=n, dtype=np.uint64),
        n_total=total,
        coverage_weight=total / max(1, n_ground or n),
    )


class Clock:
    """Seconds spent so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0


@contextmanager
def timed(cls: type) -> Iterator[Clock]:
    """Add up the time spent in a class's methods, one calling another counted once."""
    clock = Clock()

    def wrapped(method: types.FunctionType) -> Any:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            if clock.depth:
                return method(*args, **kwargs)
            clock.depth, start = 1, time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                clock.depth = 0
                clock.seconds += time.perf_counter() - start

        return run

    plain = {name: it for name, it in vars(cls).items() if isinstance(it, types.FunctionType)}
    for name, method in plain.items():
        setattr(cls, name, wrapped(method))
    try:
        yield clock
    finally:
        for name, method in plain.items():
            setattr(cls, name, method)
