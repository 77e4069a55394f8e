"""GreeDi: one greedy over what the partitions found, against the best of what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from selection.arrays import Bool, Int64, Vectors
from selection.coverage import CoverageOracle
from selection.lazy_greedy import evaluate
from selection.objective import Objective, tie_margin
from selection.request import Allowance, Request
from selection.screening import Screening
from selection.stage1 import MAXIMISE_F, judged_objective, method_named, n_kept, search
from selection.trace import Selection
from selection.watch import Watch


@dataclass(frozen=True)
class Merged:
    """The better of the merged and the best local solution, both judged on the same points.

    Attributes:
        selection: The solution returned.
        best_local_value: f of the best partition's own solution; nan where nothing is compared.
        best_local_partition: Its position in the local sets; -1 where nothing is compared.
        best_local_picks: How many picks it has: fewer than k where partitions hand on less.
        merged_value: f of greedy over the union.
        mode: Which of the two was returned.
        objective: What both were judged by: with a lambda rule, the last lambda of the merge.
    """

    selection: Selection
    best_local_value: float
    best_local_partition: int
    best_local_picks: int
    merged_value: float
    mode: Literal["merged", "local"]
    objective: Objective


def merge(
    method: str,
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    *,
    local_sets: Sequence[Int64],
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Merged:
    """Select k of the union of the local solutions and return the better of that and each of them.

    RandGreeDi (Barbosa et al. 2015) after GreeDi (Mirzasoleiman et al. 2013). Both solutions are
    judged by the oracle, that is on all of V or on one sample of it, never on the union. Methods
    that do not maximise f go by their own rule over the union and compare nothing: a control must
    not be improved, and what is compared by f should not be chosen by it.

    With a screening the local solutions are compared with each other on its small sample, and only
    the best of them is judged by the oracle.

    Args:
        method: A key of STAGE1.
        oracle: Coverage sums over all of V, or over one uniform sample of it.
        candidates: (n, d) float32 or float16 unit vectors.
        request: What is asked for, with the oracle's `coverage_weight`.
        local_sets: One array of indices into the candidates per partition, in order of picking;
            each is judged by its first k.
        screening: Samples of the same V for screened greedy.
        watch: As `lazy_greedy`.

    Returns:
        The solution and both values.

    Raises:
        ValueError: Unknown method, bad vectors, or an index outside the candidates.
    """
    choose = method_named(method)
    allowed = _union(local_sets, len(candidates))
    if request.limits.required is not None:
        allowed[request.limits.required] = True
    if request.limits.allowed is not None:
        allowed &= request.limits.allowed
    request = replace(request, limits=replace(request.limits, allowed=allowed))
    merged = search(choose, oracle, candidates, request, screening, watch)
    judge = judged_objective(method, replace(request.objective, rule=None))
    if request.objective.rule is not None and method != "coverage":
        judge = replace(judge, lam=merged.lam)
    if method not in MAXIMISE_F:
        return Merged(merged, float("nan"), -1, 0, merged.value, "merged", judge)
    feasible = [_within(request, picks, len(candidates)) for picks in local_sets]
    best = _best_local(oracle, candidates, request, feasible, screening, judge)
    return _better(merged, best, request, judge)


def _union(local_sets: Sequence[Int64], n: int) -> Bool:
    allowed = np.zeros(n, dtype=np.bool_)
    for number, picks in enumerate(local_sets):
        if len(picks) and not 0 <= picks.min() <= picks.max() < n:
            raise ValueError(
                f"merge.local_sets: set {number} has indices from {picks.min()} to {picks.max()}, "
                f"wanted 0 to {n - 1}"
            )
        allowed[picks] = True
    return allowed


def _within(request: Request, picks: Int64, n: int) -> Int64:
    """What of a local solution the limits of the whole allow, those required first."""
    kept: list[int] = []
    allowance = Allowance(request.limits, n)
    required = request.limits.required
    ordered = [] if required is None else required.tolist()
    for index in [*ordered, *picks.tolist()]:
        if len(kept) < request.k and allowance.alive[index]:
            allowance.take(index)
            kept.append(index)
    return np.array(kept, dtype=np.int64)


def _best_local(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    sets: Sequence[Int64],
    screening: Screening | None,
    judge: Objective,
) -> tuple[int, Selection] | None:
    if not sets:
        return None

    def judged(by: CoverageOracle, weight: float, picks: Int64) -> Selection:
        return evaluate(
            by,
            candidates,
            picks,
            objective=judge,
            n_total=request.n_total,
            coverage_weight=weight,
            given=request.given,
            quality=request.quality,
        )

    def whole(picks: Int64) -> Selection:
        found = judged(oracle, request.coverage_weight, picks)
        kept = n_kept(found, request.limits)
        if kept == len(picks):
            return found
        return judged(oracle, request.coverage_weight, picks[:kept])

    small = None if screening is None else screening.smallest
    if small is None:
        all_judged = [whole(picks) for picks in sets]
    else:
        weight = request.n_total / small.total_weight if small.total_weight else 0.0
        all_judged = [judged(small, weight, picks) for picks in sets]
    best = max(range(len(sets)), key=lambda i: _worth(all_judged[i], request, judge))
    if small is None:
        return best, all_judged[best]
    return best, whole(sets[best])


def _worth(solution: Selection, request: Request, judge: Objective) -> tuple[float, int, float]:
    if request.per_cost:  # sets of different size: only g compares them
        return 0.0, 0, solution.value_of_g(judge.ridge, judge.lam)
    if request.limits.stop_at_negative:  # so may these be, and f is what decided
        return 0.0, 0, solution.value
    # Without a ridge a set of higher rank is infinitely better: its log-determinant exists.
    rank = solution.rank_exhausted_at
    return len(solution.picks), request.k if rank is None else rank, solution.value


def _better(
    merged: Selection, found: tuple[int, Selection] | None, request: Request, judge: Objective
) -> Merged:
    if found is None:
        return Merged(merged, float("nan"), -1, 0, merged.value, "merged", judge)
    best, local = found
    size, rank, value = _worth(local, request, judge)
    other_size, other_rank, other = _worth(merged, request, judge)
    # Better by more than rounding: a tie is the merged one's, whose own ties went by rank.
    covered, spread = np.sum(merged.coverage_gains), judge.lam * np.sum(merged.diversity_gains)
    margin = tie_margin(float(covered), float(spread), floor=0.0)
    keep_local = (size, rank, value) > (other_size, other_rank, other + margin)
    return Merged(
        selection=local if keep_local else merged,
        best_local_value=local.value,
        best_local_partition=best,
        best_local_picks=len(local.picks),
        merged_value=merged.value,
        mode="local" if keep_local else "merged",
        objective=judge,
    )
