"""GreeDi: one greedy over what the partitions found, against the best of what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from selection.arrays import Float32, Int64, UInt64
from selection.coverage import CoverageOracle
from selection.lazy_greedy import evaluate
from selection.objective import Objective
from selection.stage1 import Request, judged_objective, method_named
from selection.trace import Selection


@dataclass(frozen=True)
class Merged:
    """The better of the merged and the best local solution, both judged on all of V.

    Attributes:
        selection: The solution returned.
        best_local_value: f of the best partition's own solution; nan for `random`.
        best_local_partition: Its position in the local sets; -1 for `random` or without any.
        merged_value: f of greedy over the union.
        mode: Which of the two was returned.
    """

    selection: Selection
    best_local_value: float
    best_local_partition: int
    merged_value: float
    mode: Literal["merged", "local"]


def merge(
    method: str,
    oracle: CoverageOracle,
    candidates: Float32,
    *,
    k: int,
    objective: Objective,
    tie_rank: Int64,
    keys: UInt64,
    local_sets: Sequence[Int64],
    n_total: int,
) -> Merged:
    """Select k of the union of the local solutions and return the better of that and each of them.

    RandGreeDi (Barbosa et al. 2015) after GreeDi (Mirzasoleiman et al. 2013). Both solutions are
    judged by the oracle, that is on all of V, never on the union. `random` takes the k smallest
    keys of the union and compares nothing: a control must not be improved.

    Args:
        method: A key of STAGE1.
        oracle: Coverage sums over all of V.
        candidates: (n, d) float32 unit vectors.
        k: Picks wanted.
        objective: lam, scale and ridge of f.
        tie_rank: (n,) int64.
        keys: (n,) uint64 random keys.
        local_sets: One array of indices into the candidates per partition, in order of picking;
            each is judged by its first k.
        n_total: N of the whole corpus.

    Returns:
        The solution and both values.

    Raises:
        ValueError: Unknown method, bad vectors, or an index outside the candidates.
    """
    choose = method_named(method)
    request = Request(
        k=k,
        objective=objective,
        tie_rank=tie_rank,
        keys=keys,
        n_total=n_total,
        forbidden=_outside_union(local_sets, len(candidates)),
    )
    locals_judged: list[Selection] = []
    if method != "random":
        judge = judged_objective(method, objective)
        locals_judged = [
            evaluate(oracle, candidates, picks[:k], objective=judge, n_total=n_total)
            for picks in local_sets
        ]
    merged = choose(oracle, candidates, request)
    return _better(merged, locals_judged, k)


def _outside_union(
    local_sets: Sequence[Int64], n: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    forbidden = np.ones(n, dtype=np.bool_)
    for number, picks in enumerate(local_sets):
        if len(picks) and not 0 <= picks.min() <= picks.max() < n:
            raise ValueError(
                f"merge.local_sets: set {number} has indices from {picks.min()} to {picks.max()}, "
                f"wanted 0 to {n - 1}"
            )
        forbidden[picks] = False
    return forbidden


def _better(merged: Selection, locals_judged: list[Selection], k: int) -> Merged:
    def worth(solution: Selection) -> tuple[int, int, float]:
        # Without a ridge a set of higher rank is infinitely better: its log-determinant exists.
        rank = solution.rank_exhausted_at
        return len(solution.picks), k if rank is None else rank, solution.value

    if not locals_judged:
        return Merged(merged, float("nan"), -1, merged.value, "merged")
    best = max(range(len(locals_judged)), key=lambda i: worth(locals_judged[i]))
    local = locals_judged[best]
    keep_local = worth(local) > worth(merged)
    return Merged(
        selection=local if keep_local else merged,
        best_local_value=local.value,
        best_local_partition=best,
        merged_value=merged.value,
        mode="local" if keep_local else "merged",
    )
