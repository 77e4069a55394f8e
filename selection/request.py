"""What Stage 1 is asked for, beside the vectors: size, objective, limits, what is given."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, UInt64, require_per_row
from selection.crowd import Crowd
from selection.objective import Objective

# Sums of costs in another order may differ by rounding.
BUDGET_SLACK = 1 + 1e-12


@dataclass(frozen=True)
class Limits:
    """Which sets may be chosen.

    Attributes:
        allowed: (n,) bool, False for candidates that must not be picked; None allows all.
        groups: (n,) int64 group codes, negative for a candidate without a group.
        max_per_group: Most picks of one group; needs `groups`.
        costs: (n,) float64 above 0; a candidate whose cost is not must not be `allowed`.
        budget: Most that all picks may cost together; needs `costs`.
        required: (r,) int64 candidates that are picked first, in this order; they count.
        stop_at_negative: Stop before the first pick that would lower f.
    """

    allowed: Bool | None = None
    groups: Int64 | None = None
    max_per_group: int | None = None
    costs: Float64 | None = None
    budget: float | None = None
    required: Int64 | None = None
    stop_at_negative: bool = False


@dataclass(frozen=True)
class Request:
    """What a method is asked for, beside the vectors.

    Attributes:
        k: Picks wanted, those required included; clipped to the candidates allowed.
        objective: What the picks are chosen by (dual-div) or measured by (random).
        tie_rank: (n,) int64; of gains that tie the smallest rank is picked.
        keys: (n,) uint64 random keys; those of the smallest are the random choice.
        n_total: Total weight of the whole corpus, N when unweighted.
        coverage_weight: n_total over the weight of the ground points that are summed over.
        limits: Which sets may be chosen.
        quality: (n,) float64, 2 log r of the paper's Eq. 7; enters f as lam * quality.
        given: (a, d) float32 vectors annotated already: f(S | A) is maximised.
        crowd: The points behind the candidates, for methods with a rule of their own.
    """

    k: int
    objective: Objective
    tie_rank: Int64
    keys: UInt64
    n_total: float
    coverage_weight: float = 1.0
    limits: Limits = Limits()
    quality: Float64 | None = None
    given: Float32 | None = None
    crowd: Crowd | None = None

    @property
    def has_given(self) -> bool:
        """True when the picks build on vectors that are there already: then f(S | A) counts."""
        return self.given is not None and len(self.given) > 0

    @property
    def per_cost(self) -> bool:
        """True when a budget limits the picks."""
        return self.limits.budget is not None


def require_request(request: Request, n: int) -> None:
    """Refuse a request that does not fit n candidates, or that no set can meet.

    Args:
        request: The request.
        n: Number of candidates.

    Raises:
        ValueError: Says which part is wrong, what was found and what was wanted.
    """
    if request.k < 0:
        raise ValueError(f"request.k: found {request.k}, wanted at least 0")
    require_per_row("request.tie_rank", request.tie_rank, (n,))
    require_per_row("request.keys", request.keys, (n,))
    if request.quality is not None:
        require_per_row("request.quality", request.quality, (n,))
        if not np.isfinite(request.quality).all():
            raise ValueError("request.quality: found values that are not finite")
    limits = request.limits
    for name in ("allowed", "groups", "costs"):
        values = getattr(limits, name)
        if values is not None:
            require_per_row(f"request.limits.{name}", values, (n,))
    if request.crowd is not None and request.crowd.mass is not None:
        require_per_row("request.crowd.mass", request.crowd.mass, (n,))
    _require_groups(limits)
    _require_budget(request)
    _require_required(limits, n, request.k)


def _require_groups(limits: Limits) -> None:
    if limits.max_per_group is None:
        return
    if limits.groups is None or limits.max_per_group < 1:
        raise ValueError(
            f"request.limits.max_per_group: found {limits.max_per_group} "
            f"{'without groups' if limits.groups is None else ''}, wanted at least 1 with groups"
        )


def _require_budget(request: Request) -> None:
    limits, objective = request.limits, request.objective
    if limits.budget is None:
        return
    if limits.stop_at_negative:
        raise ValueError(
            "request.limits.stop_at_negative: found with a budget; under a budget g decides, whose "
            "gains are never negative"
        )
    if limits.costs is None or not (math.isfinite(limits.budget) and limits.budget > 0):
        raise ValueError(
            f"request.limits.budget: found {limits.budget} with costs "
            f"{'missing' if limits.costs is None else 'given'}, wanted a number above 0 with costs"
        )
    costs = limits.costs if limits.allowed is None else limits.costs[limits.allowed]
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise ValueError(
            "request.limits.costs: found a cost that is not a number above 0; such candidates "
            "must not be allowed"
        )
    if objective.ridge == 0 and (objective.lam > 0 or objective.rule is not None):
        raise ValueError(
            "request.limits.budget: found ridge 0 with a log-determinant; sets of different size "
            "are compared by g, which needs a ridge above 0"
        )


def _require_required(limits: Limits, n: int, k: int) -> None:
    required = limits.required
    if required is None or not len(required):
        return
    if len(np.unique(required)) != len(required) or required.min() < 0 or required.max() >= n:
        raise ValueError(
            f"request.limits.required: found {len(required)} indices, wanted distinct ones below "
            f"{n}"
        )
    if len(required) > k:
        raise ValueError(f"request.limits.required: found {len(required)}, wanted at most k = {k}")
    if limits.allowed is not None and not limits.allowed[required].all():
        raise ValueError("request.limits.required: one of them must not be picked (`allowed`)")
    if limits.budget is not None and limits.costs is not None:
        spent = float(limits.costs[required].sum())
        if spent > limits.budget * BUDGET_SLACK:
            raise ValueError(
                f"request.limits.required: they cost {spent:g}, more than the budget "
                f"{limits.budget:g}"
            )
    if limits.max_per_group is not None and limits.groups is not None:
        codes = limits.groups[required]
        _, counts = np.unique(codes[codes >= 0], return_counts=True)
        if counts.size and counts.max() > limits.max_per_group:
            raise ValueError(
                f"request.limits.required: {counts.max()} of one group, more than max_per_group = "
                f"{limits.max_per_group}"
            )


class Allowance:
    """What may still be picked, given the picks so far."""

    def __init__(self, limits: Limits, n: int) -> None:
        """Start from no picks.

        Args:
            limits: Which sets may be chosen.
            n: Number of candidates.
        """
        self._limits = limits
        self.alive: Bool = np.ones(n, dtype=np.bool_)
        if limits.allowed is not None:
            self.alive = np.asarray(limits.allowed, dtype=np.bool_).copy()
        self.left = math.inf if limits.budget is None else limits.budget
        self._of_group: dict[int, int] = {}
        self._close_budget()

    def take(self, index: int) -> None:
        """Record a pick: it, its group when full, and what costs too much are closed; O(n)."""
        self.alive[index] = False
        limits = self._limits
        if limits.max_per_group is not None and limits.groups is not None:
            code = int(limits.groups[index])
            self._of_group[code] = self._of_group.get(code, 0) + 1
            if code >= 0 and self._of_group[code] >= limits.max_per_group:
                self.alive[limits.groups == code] = False
        if limits.costs is not None and limits.budget is not None:
            self.left -= float(limits.costs[index])
            self._close_budget()

    def _close_budget(self) -> None:
        limits = self._limits
        if limits.costs is not None and limits.budget is not None:
            # What is left over is a difference of sums: a cost equal to it must still fit.
            self.alive &= limits.costs <= self.left + (BUDGET_SLACK - 1) * limits.budget


def begin(request: Request, n: int) -> tuple[Allowance, list[int]]:
    """Check a request and take what it requires.

    Args:
        request: The request.
        n: Number of candidates.

    Returns:
        What may still be picked, and the picks so far.

    Raises:
        ValueError: As `require_request`.
    """
    require_request(request, n)
    allowance, picks = Allowance(request.limits, n), []
    required = request.limits.required
    for index in [] if required is None else required.tolist():
        allowance.take(index)
        picks.append(index)
    return allowance, picks
