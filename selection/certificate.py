"""How close an answer is to the best possible one: upper bounds of the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from selection.arrays import MAX_SQUARED_NORM, Vectors, squared_norms
from selection.coverage import CoverageOracle
from selection.objective import Objective
from selection.request import Limits, Request
from selection.top_gains import Largest, Sizes, TopGains

Claim = Literal["f", "g", "terms"]
# An answer may stand above its own bound by this part of it: float32 sums in another order.
BOUND_ROUNDING = 1e-4


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
        weight = oracle.total_weight
        scale = objective.coverage_scale(
            weight, weight=request.coverage_weight, n_total=request.n_total
        )
        required, quality = request.limits.required, request.quality
        known = 0.0 if required is None or quality is None else float(quality[required].sum())
        return cls(
            request.k,
            objective,
            baseline=0.0 if request.has_given else scale * weight,
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
