"""The largest gains that are left: all that a bound of the optimum needs of the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selection.arrays import Bool, Float64, Int64, require_per_row
from selection.objective import Objective

TERMS = ("coverage", "diversity", "quality", "both")


@dataclass(frozen=True)
class Sizes:
    """How large a set may be: at most k members, m of one group, and a total cost."""

    k: int
    max_per_group: int | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Largest:
    """The largest of many numbers, enough of them to bound the sum over any allowed set.

    Attributes:
        values: (m,) float64, descending; at most k, and at most max_per_group of one group.
        groups: (m,) int64, their group codes; None where groups do not matter.
        by_cost: (p, 2) float64, value and cost in falling order of value per cost, as many as
            fill the budget; None without a budget.
    """

    values: Float64
    groups: Int64 | None = None
    by_cost: Float64 | None = None

    def most(self, n: int, *, exactly: bool, budget: float | None) -> float:
        """Return at least the largest sum over an allowed set.

        Args:
            n: Members of the set.
            exactly: n members, even if some of them lower the sum; else at most n.
            budget: What the members may cost; a part of the last one counts in part.
        """
        head = self.values[:n]
        total = float((head if exactly else np.maximum(head, 0.0)).sum())
        if self.by_cost is None or budget is None:
            return total
        values, costs = self.by_cost.T
        left = np.maximum(budget - (np.cumsum(costs) - costs), 0.0)
        return min(total, float((values * np.minimum(1.0, left / costs)).sum()))


@dataclass(frozen=True)
class TopGains:
    """The largest upper bounds of the gains of a set of candidates, given the picks so far.

    The g-gain of the log-determinant is its gain plus log(1 / eps), never below 0.

    Attributes:
        sizes: How large a set may be.
        coverage: Coverage gains as they enter f.
        diversity: g-gains of the log-determinant, without lam; None for lam or ridge 0.
        quality: Quality, without lam; None where there is none, or lam is 0.
        both: Per candidate coverage + lam * (diversity + quality); None for ridge 0 and lam > 0.
    """

    sizes: Sizes
    coverage: Largest
    diversity: Largest | None = None
    quality: Largest | None = None
    both: Largest | None = None


def top_gains(
    coverage: Float64,
    diversity: Float64 | None,
    *,
    k: int,
    objective: Objective,
    quality: Float64 | None = None,
    picked: Int64 | None = None,
    allowed: Bool | None = None,
    groups: Int64 | None = None,
    max_per_group: int | None = None,
    costs: Float64 | None = None,
    budget: float | None = None,
) -> TopGains:
    """Keep the largest gains; O(n), and O(n log n) with groups or costs.

    The bounds need every candidate that an allowed set may hold, whatever the picks so far leave
    room for: also those of a full group, those too dear for what is left and, with a quality, the
    picks themselves (without one they count 0). Only required candidates, which are in every set,
    are left out.

    Args:
        coverage: (n,) coverage gains as they enter f, or upper bounds of them.
        diversity: (n,) log-determinant gains without lam, or upper bounds; not looked at for lam
            or ridge 0.
        k: Picks wanted.
        objective: Gives lam and the ridge.
        quality: (n,) 2 log r.
        picked: (p,) int64, the picks among these candidates; their gains are taken as 0.
        allowed: (n,) bool, False for candidates that no set may hold and for required ones.
        groups: (n,) int64 group codes, negative for none.
        max_per_group: Most members of one group.
        costs: (n,) float64 above 0.
        budget: Most that a set may cost, less what the required candidates cost.

    Raises:
        ValueError: Arrays of other lengths, or a gain that is not finite.
    """
    sizes = Sizes(k, max_per_group, budget)
    columns = _columns(coverage, diversity, objective, picked)
    if objective.lam > 0 and quality is not None:
        columns["quality"] = np.asarray(quality, dtype=np.float64)
    for name, values in columns.items():
        require_per_row(f"top_gains.{name}", values, (len(coverage),))
    if objective.lam == 0 or objective.ridge > 0:
        columns["both"] = columns["coverage"].copy()
        for name in columns.keys() & {"diversity", "quality"}:
            columns["both"] += objective.lam * columns[name]
    if allowed is not None:
        columns = {name: values[allowed] for name, values in columns.items()}
        groups = None if groups is None else groups[allowed]
        costs = None if costs is None else costs[allowed]
    for name, values in columns.items():
        _require_finite(name, values)
    return TopGains(
        sizes, **{name: _largest(v, groups, costs, sizes) for name, v in columns.items()}
    )


def joined(parts: Sequence[TopGains]) -> TopGains:
    """Return what `top_gains` of all candidates would, from disjoint sets of them.

    Args:
        parts: One per set, all for the same question; at least one.

    Raises:
        ValueError: No part, or parts for different questions.
    """
    kinds = {(part.sizes, *(getattr(part, name) is None for name in TERMS)) for part in parts}
    if len(kinds) != 1:
        raise ValueError(
            f"joined.parts: found {len(parts)} parts with {len(kinds)} different sizes or terms, "
            f"wanted one or more parts that agree: {sorted(map(str, kinds))}"
        )
    sizes, lists = parts[0].sizes, {}
    for name in TERMS:
        if getattr(parts[0], name) is not None:
            lists[name] = _largest_of([getattr(part, name) for part in parts], sizes)
    return TopGains(sizes, **lists)


def _columns(
    coverage: Float64, diversity: Float64 | None, objective: Objective, picked: Int64 | None
) -> dict[str, Float64]:
    """Both gains as g has them, where g is defined; np.maximum also copies."""
    columns = {"coverage": np.maximum(coverage, 0.0)}
    if objective.lam > 0 and objective.ridge > 0:
        if diversity is None:
            raise ValueError(f"top_gains.diversity: found None with lam {objective.lam}")
        columns["diversity"] = np.maximum(diversity - math.log(objective.ridge), 0.0)
    if picked is not None:
        for values in columns.values():
            values[picked] = 0.0
    return columns


def _require_finite(name: str, values: Float64) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"top_gains.{name}: {bad.size} of {len(values)} allowed candidates have a gain that is "
            f"not finite, the first {values[bad[0]]}; every allowed candidate needs a bound"
        )


def _largest(values: Float64, groups: Int64 | None, costs: Float64 | None, sizes: Sizes) -> Largest:
    chosen = _top(values, groups, sizes)
    by_cost = None
    if costs is not None and sizes.budget is not None:
        by_cost = _until_full(np.column_stack([values, costs]), sizes.budget)
    kept_groups = None if groups is None or sizes.max_per_group is None else groups[chosen]
    return Largest(values[chosen], kept_groups, by_cost)


def _largest_of(lists: Sequence[Largest], sizes: Sizes) -> Largest:
    values = np.concatenate([one.values for one in lists])
    groups = [one.groups for one in lists if one.groups is not None]
    codes = np.concatenate(groups) if groups else None
    chosen = _top(values, codes, sizes)
    by_cost = None
    if sizes.budget is not None:
        pairs = [one.by_cost for one in lists if one.by_cost is not None]
        by_cost = _until_full(np.concatenate(pairs), sizes.budget) if pairs else None
    return Largest(values[chosen], None if codes is None else codes[chosen], by_cost)


def _top(values: Float64, groups: Int64 | None, sizes: Sizes) -> Int64:
    """Indices of the k largest, descending, at most m of one group: the best set there is."""
    kept = np.arange(len(values))
    if groups is not None and sizes.max_per_group is not None:
        order = np.lexsort((-values, groups))
        codes = groups[order]
        place = kept - np.searchsorted(codes, codes)  # 0 for the largest of its group
        kept = order[(place < sizes.max_per_group) | (codes < 0)]
    if 0 < sizes.k < len(kept):
        kept = kept[np.argpartition(-values[kept], sizes.k - 1)[: sizes.k]]
    return kept[np.argsort(-values[kept], kind="stable")][: sizes.k]


def _until_full(pairs: Float64, budget: float) -> Float64:
    """Positive values by falling value per cost until the budget is reached or passed."""
    pairs = pairs[pairs[:, 0] > 0]
    pairs = pairs[np.argsort(-pairs[:, 0] / pairs[:, 1], kind="stable")]
    return pairs[: int(np.searchsorted(np.cumsum(pairs[:, 1]), budget)) + 1]
