"""Stage 1: which few of a partition's rows are worth annotating."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selection.arrays import Bool, Float32, Int64, UInt64, require_per_row, require_vectors
from selection.coverage import CoverageOracle, CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate, lazy_greedy
from selection.objective import Objective
from selection.trace import Selection


@dataclass(frozen=True)
class Request:
    """What a method is asked for, beside the vectors.

    Attributes:
        k: Picks wanted.
        objective: What the picks are chosen by (dual-div) or measured by (random).
        tie_rank: (n,) int64, order in which ties are broken.
        keys: (n,) uint64 random keys; those of the smallest are the random choice.
        n_total: N of the whole corpus.
        coverage_weight: N / m where the ground points stand for N.
        forbidden: (n,) bool, True for candidates that must not be picked.
    """

    k: int
    objective: Objective
    tie_rank: Int64
    keys: UInt64
    n_total: int
    coverage_weight: float = 1.0
    forbidden: Bool | None = None


Method = Callable[[CoverageOracle, Float32, Request], Selection]


def dual_div(oracle: CoverageOracle, candidates: Float32, request: Request) -> Selection:
    """Greedy on coverage plus lam times the log-determinant (Dual-Div)."""
    return lazy_greedy(
        oracle,
        candidates,
        k=request.k,
        objective=request.objective,
        tie_rank=request.tie_rank,
        coverage_weight=request.coverage_weight,
        forbidden=request.forbidden,
        n_total=request.n_total,
    )


def coverage(oracle: CoverageOracle, candidates: Float32, request: Request) -> Selection:
    """Greedy on coverage alone, that is lam 0 (the paper's Div)."""
    return dual_div(oracle, candidates, replace(request, objective=_without_lam(request.objective)))


def random(oracle: CoverageOracle, candidates: Float32, request: Request) -> Selection:
    """The k candidates with the smallest keys, measured by the full objective; the control."""
    n = len(candidates)
    require_per_row("stage1.keys", request.keys, (n,))
    allowed = np.arange(n, dtype=np.int64)
    if request.forbidden is not None:
        allowed = np.flatnonzero(~request.forbidden)
    order = np.lexsort((request.tie_rank[allowed], request.keys[allowed]))
    result = evaluate(
        oracle,
        candidates,
        allowed[order[: request.k]],
        objective=request.objective,
        n_total=request.n_total,
        coverage_weight=request.coverage_weight,
    )
    return replace(result, n_candidates=len(allowed))


STAGE1: dict[str, Method] = {"dual-div": dual_div, "coverage": coverage, "random": random}


def method_named(name: str) -> Method:
    """Return the Stage 1 method of this name.

    Args:
        name: A key of STAGE1.

    Raises:
        ValueError: No such method.
    """
    if name not in STAGE1:
        raise ValueError(f"stage1: found method {name!r}, wanted one of {', '.join(STAGE1)}")
    return STAGE1[name]


def judged_objective(method: str, objective: Objective) -> Objective:
    """Return the objective that a method's solutions are compared by: lam 0 for `coverage`."""
    return _without_lam(objective) if method == "coverage" else objective


def select_local(
    method: str,
    vectors: Float32,
    *,
    k: int,
    objective: Objective,
    tie_rank: Int64,
    keys: UInt64,
    n_total: int,
) -> Selection:
    """Select inside one partition, whose m points stand for all N through the factor N / m.

    Args:
        method: A key of STAGE1.
        vectors: (m, d) float32 unit vectors, ground points and candidates alike; m may be 0.
        k: Picks wanted; clipped to m.
        objective: lam, scale and ridge of f.
        tie_rank: (m,) int64, the same order in every partition.
        keys: (m,) uint64 random keys.
        n_total: N of the whole corpus.

    Returns:
        The picks as indices into `vectors`.

    Raises:
        ValueError: Unknown method, bad vectors, or a companion array of another length.
    """
    choose = method_named(method)
    oracle = LocalCoverage([CoverageShard(vectors)], require_vectors("select_local", vectors))
    request = Request(
        k=k,
        objective=objective,
        tie_rank=tie_rank,
        keys=keys,
        n_total=n_total,
        coverage_weight=n_total / max(1, len(vectors)),
    )
    return choose(oracle, vectors, request)


def _without_lam(objective: Objective) -> Objective:
    return replace(objective, lam=0.0)
