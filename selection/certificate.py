"""How close an answer is to the best possible one: upper bounds of the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from selection.arrays import (
    MAX_SQUARED_NORM,
    Bool,
    Float64,
    Int64,
    Vectors,
    require_per_row,
    squared_norms,
)
from selection.coverage import CoverageOracle
from selection.objective import Objective
from selection.request import Limits, Request

Claim = Literal["f", "g", "terms"]
# An answer may stand above its own bound by this part of it: float32 sums in another order.
BOUND_ROUNDING = 1e-4
_TERMS = ("coverage", "diversity", "quality", "both")


def claim_of(limits: Limits, objective: Objective) -> Claim:
    """Return what a bound can be claimed of.

    Args:
        limits: Which sets may be chosen.
        objective: What they are judged by.

    Returns:
        `f` where all sets compared have the same size; `g` where sizes differ (a budget, a stop
        at the first negative gain), because only g is monotone; `terms` where lam changes from
        pick to pick: coverage and log-determinant apart.
    """
    if objective.rule is not None:
        return "terms"
    return "g" if limits.budget is not None or limits.stop_at_negative else "f"


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
    kinds = {(part.sizes, *(getattr(part, name) is None for name in _TERMS)) for part in parts}
    if len(kinds) != 1:
        raise ValueError(
            f"joined.parts: found {len(parts)} parts with {len(kinds)} different sizes or terms, "
            f"wanted one or more parts that agree: {sorted(map(str, kinds))}"
        )
    sizes, lists = parts[0].sizes, {}
    for name in _TERMS:
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


@dataclass(frozen=True)
class Worth:
    """What a set is worth in the paper's terms.

    Attributes:
        value: f of it.
        coverage: C of it as it enters f, without the baseline.
        n_picks: Its size.
    """

    value: float
    coverage: float
    n_picks: int


@dataclass(frozen=True)
class Certificate:
    """How good an answer is. None stands for what is not defined.

    Attributes:
        kind: `proved`; `sampled`: proved for the objective on a sample of the ground points;
            `statistical`: from confidence bounds of z standard errors, no proof.
        bound: No allowed set with as many picks has a larger f.
        bound_of_g: The same of the monotone g = f + baseline + lam * picks * log(1 / eps); under a
            budget of any allowed set.
        tightest: Where the bound comes from: `g` (gains of both terms together), `apart` (coverage
            gains, and the largest log-determinant there can be), `gains-apart` (the gains of each).
        ratio: f of the answer over the bound.
        lift: (f - f of a random set) / (bound - f of a random set).
        ratio_of_g: g of the answer over the bound of g.
        coverage_bound: No allowed set has a larger C.
        coverage_ratio: C of the answer over that.
        coverage_lift: The same above a random set.
        diversity_bound: No allowed set has a larger log-determinant; without lam.
        sample: Ground points that were summed over, for `sampled`.
        z: Standard errors, for `statistical`.
    """

    kind: Literal["proved", "sampled", "statistical"]
    bound: float | None
    bound_of_g: float | None
    tightest: Literal["g", "apart", "gains-apart"] | None
    ratio: float | None
    lift: float | None
    ratio_of_g: float | None
    coverage_bound: float | None
    coverage_ratio: float | None
    coverage_lift: float | None
    diversity_bound: float | None
    sample: int | None = None
    z: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values under the names of the attributes."""
        return asdict(self)


@dataclass
class CertificateWatch:
    """Keeps the smallest upper bounds of the optimum while picks are made.

    For any S and any allowed set O of k picks, with the gains given S and g' = g without quality,
    g'(O) <= g'(S) + sum over O of g'(x | S), because g' is monotone and submodular (Nemhauser,
    Wolsey and Fisher 1978); the sum is at most that of the k largest. Quality adds up over O
    whatever S is, so it is bounded beside the gains, for the members of S as well. The same holds
    for coverage and log-determinant apart, and for gains given an annotated pool A.

    The log-determinant has a bound of its own: M_O has k eigenvalues, all but min(k, d) = r of
    them are eps, and its trace is at most k ((1 - eps) s + eps) for squared norms up to s, so
    D(O) <= r log(eps + (1 - eps) k s / r) + (k - r) log eps. Given A, W is replaced by
    X A^-1 X', whose rank and diagonal are no larger, and the bound stays.

    Attributes:
        k: Picks wanted, those required included.
        objective: lam, scale and ridge.
        baseline: What C + baseline counts from 0: scale * total weight; 0 for f(S | A).
        dim: d of the vectors.
        max_squared_norm: Largest squared norm of a candidate.
        n_required: Candidates that every set holds; they are the first picks.
        required_quality: Sum of their quality, without lam.
        claim: What the bound is claimed of, see `claim_of`.
    """

    k: int
    objective: Objective
    baseline: float = field(kw_only=True)
    dim: int = field(kw_only=True)
    max_squared_norm: float = field(default=MAX_SQUARED_NORM, kw_only=True)
    n_required: int = field(default=0, kw_only=True)
    required_quality: float = field(default=0.0, kw_only=True)
    claim: Claim = field(default="f", kw_only=True)
    _coverage: float = field(default=math.inf, init=False, repr=False)
    _diversity: float = field(default=math.inf, init=False, repr=False)
    _quality: float = field(default=math.inf, init=False, repr=False)
    _both: float = field(default=math.inf, init=False, repr=False)

    @classmethod
    def of(
        cls, request: Request, objective: Objective, oracle: CoverageOracle, candidates: Vectors
    ) -> CertificateWatch:
        """Return a watch for what a method is asked; O(n d).

        Args:
            request: k, limits, quality, what is given, the weight of the corpus.
            objective: What the answer is judged by.
            oracle: Knows the weight of the ground points.
            candidates: (n, d) float32 or float16.
        """
        given = request.given is not None and len(request.given) > 0
        weight = oracle.total_weight
        scale = objective.coverage_scale(
            weight, weight=request.coverage_weight, n_total=request.n_total
        )
        required, quality = request.limits.required, request.quality
        known = 0.0 if required is None or quality is None else float(quality[required].sum())
        return cls(
            request.k,
            objective,
            baseline=0.0 if given else scale * weight,
            dim=candidates.shape[1],
            max_squared_norm=float(squared_norms(candidates).max(initial=0.0)),
            n_required=0 if required is None else len(required),
            required_quality=known,
            claim=claim_of(request.limits, objective),
        )

    def look(self, top: TopGains, *, covered: float, diverse: float, n_picks: int) -> None:
        """Take in the first picks S and what the candidates could still add to them; O(k).

        A prefix that does not hold all required picks says nothing about sets that do, and is
        passed over.

        Args:
            top: The largest gains given S, or upper bounds of them: gains given fewer picks do.
            covered: Coverage gains of S added up, as they enter f, from the baseline.
            diverse: Log-determinant gains of S added up, without lam.
            n_picks: Size of S.
        """
        if n_picks < self.n_required:
            return
        self._coverage = min(self._coverage, covered + self._most(top.coverage, top.sizes))
        quality = 0.0
        if top.quality is not None:
            quality = self.required_quality
            self._quality = min(self._quality, quality + self._most(top.quality, top.sizes))
        diverse += n_picks * self._unit
        if top.diversity is not None:
            self._diversity = min(self._diversity, diverse + self._most(top.diversity, top.sizes))
        if top.both is not None:
            seen = covered + (self.objective.lam * (diverse + quality) if self._diverse else 0.0)
            self._both = min(self._both, seen + self._most(top.both, top.sizes))

    @property
    def smallest(self) -> dict[str, float | None]:
        """The smallest bounds so far, as plain JSON values; None where nothing was looked at."""
        found = {
            "coverage": self._coverage,
            "diversity": self._diversity,
            "quality": self._quality,
            "both": self._both,
        }
        return {name: None if value == math.inf else value for name, value in found.items()}

    def take(self, smallest: Mapping[str, float | None]) -> None:
        """Take over what another watch of the same question found, as `smallest` gave it."""
        for name, value in smallest.items():
            if value is not None:
                setattr(self, f"_{name}", min(value, getattr(self, f"_{name}")))

    def close(
        self,
        kind: Literal["proved", "sampled", "statistical"],
        answer: Worth,
        random: Worth | None = None,
        *,
        sample: int | None = None,
        z: float | None = None,
    ) -> Certificate:
        """Return the certificate of an answer; without any `look` all its bounds are None.

        Args:
            kind: What the gains looked at were: of all ground points, of a sample, or confidence
                bounds. The answer is worth what it is on the same points.
            answer: The set that was chosen.
            random: A random set, for the lifts.
            sample: Ground points summed over; `sampled` needs it.
            z: Standard errors; `statistical` needs it.

        Raises:
            ValueError: A kind without its evidence, or an answer above its bound: then what was
                looked at were no upper bounds.
        """
        if (kind == "sampled" and sample is None) or (kind == "statistical" and z is None):
            raise ValueError(f"certificate.kind: found {kind!r} with sample {sample} and z {z}")
        certain = kind != "statistical"
        n = answer.n_picks if self.claim == "f" else self.k
        bounds = self._bounds_of_g(n)
        tightest = min(bounds, key=lambda name: bounds[name])
        to_g = self.baseline + self.objective.lam * self._unit * answer.n_picks
        of_g = _no_less(bounds[tightest], answer.value + to_g, certain) if self._claims_g else None
        bound = None if of_g is None or self.claim != "f" else of_g - to_g
        covered = _no_less(self._coverage, answer.coverage + self.baseline, certain)
        coverage = None if covered is None else covered - self.baseline
        defined = self._diverse or self.objective.lam == 0
        return Certificate(
            kind=kind,
            bound=bound,
            bound_of_g=of_g if defined else None,
            tightest=None if of_g is None else tightest,
            ratio=_ratio(answer.value, bound),
            lift=None if random is None else _ratio(answer.value, bound, above=random.value),
            ratio_of_g=_ratio(answer.value + to_g, of_g) if defined else None,
            coverage_bound=coverage,
            coverage_ratio=_ratio(answer.coverage, coverage),
            coverage_lift=None
            if random is None
            else _ratio(answer.coverage, coverage, above=random.coverage),
            diversity_bound=self._diversity_bound(n),
            sample=sample,
            z=z,
        )

    @property
    def _diverse(self) -> bool:
        """True where the log-determinant has gains in g."""
        return self.objective.lam > 0 and self.objective.ridge > 0

    @property
    def _unit(self) -> float:
        """What one pick adds to g beside f, over lam: log(1 / eps)."""
        return -math.log(self.objective.ridge) if self._diverse else 0.0

    @property
    def _claims_g(self) -> bool:
        # Without a ridge only sets of one size can be compared.
        return self.claim == "f" or (
            self.claim == "g" and (self._diverse or not self.objective.lam)
        )

    def _most(self, largest: Largest, sizes: Sizes) -> float:
        free = self.k - self.n_required
        return largest.most(free, exactly=self.claim == "f", budget=sizes.budget)

    def _bounds_of_g(self, n: int) -> dict[Literal["g", "apart", "gains-apart"], float]:
        lam = self.objective.lam
        if lam == 0:
            return {"g": self._coverage}
        quality = 0.0 if self._quality == math.inf else self._quality
        largest = self._largest_log_det(n) + n * self._unit
        return {
            "g": self._both,
            "apart": self._coverage + lam * (quality + largest),
            "gains-apart": self._coverage + lam * (quality + self._diversity),
        }

    def _largest_log_det(self, n: int) -> float:
        """The largest log-determinant that n picks can have, whatever the candidates."""
        ridge, norm = self.objective.ridge, self.max_squared_norm
        if n == 0 or norm == 0:
            return n * math.log(ridge) if ridge > 0 else 0.0
        if ridge == 0:  # picks without a rank of their own count 0
            return n * max(0.0, math.log(norm))
        rank = min(n, self.dim)
        spread = math.log((1 - ridge) * n * norm / rank + ridge)
        return rank * spread + (n - rank) * math.log(ridge)

    def _diversity_bound(self, n: int) -> float | None:
        if self.objective.lam == 0:
            return None
        if self.claim != "f":  # sets of fewer picks, down to none
            ridge = self.objective.ridge
            return n * math.log(max(1.0, (1 - ridge) * self.max_squared_norm + ridge))
        return min(self._largest_log_det(n), self._diversity - n * self._unit)


def _no_less(bound: float, value: float, certain: bool) -> float | None:
    """The bound, not below the answer itself; None where nothing was looked at."""
    if not math.isfinite(bound):
        return None
    if certain and value - bound > BOUND_ROUNDING * max(abs(value), abs(bound)):
        raise ValueError(
            f"certificate: the answer is worth {value:.9g}, more than the bound {bound:.9g} of any "
            "answer; the gains looked at must be upper bounds, on the answer's own ground points"
        )
    return max(bound, value)


def _ratio(value: float, bound: float | None, *, above: float = 0.0) -> float | None:
    if bound is None or not bound > above or not math.isfinite(value - above):
        return None
    return (value - above) / (bound - above)
