"""Lazy greedy: the picks of naive greedy for a fraction of its gain evaluations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, require_vectors, rows_of
from selection.coverage import CoverageOracle
from selection.gains import ExactGains, Gains, ScreenedGains
from selection.kernels import CANDIDATE_STEP
from selection.objective import COSINE_ROUNDING, Objective, tie_margin
from selection.request import Allowance, Request, require_request
from selection.screening import Screening
from selection.tiles import one_blas_thread
from selection.trace import Selection, Trace
from selection.watch import Watch

# Stale candidates are refreshed in batches of this many times the median need of the last steps.
BATCH_MARGIN = 1.2
# Candidates looked at together: their vectors are gathered, 12 MiB of float32 at 384 dimensions.
MOST_AT_ONCE = 8_192
_HISTORY = 32
# Candidates that the steps scan; all others have smaller bounds until gains have fallen to those.
_SCANNED = 65_536
_FIRST_BATCH = 256
# First gains are products with one vector: small blocks, so that 16-bit rows are widened in cache.
_ROWS = 1024


def lazy_greedy(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    *,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """Pick k candidates, each the one with the largest gain of f given the picks before it.

    The first pick costs one product with the column sum. After that a candidate's old gains, kept
    apart for coverage and diversity, bound its new ones from above (both terms are submodular), so
    only candidates whose bound reaches the best fresh gain are looked at again (Minoux 1978). In
    the worst case n * k evaluations of O(N d), in practice a few passes over the candidates.

    With a screening a stale candidate is first looked at on a small sample of ground points; its
    bound becomes the smaller of its last verified gain and the upper confidence bound there, and
    only leaders are judged on the larger sample or on all points.

    With a budget the next pick has the largest gain of g per cost; without, the largest gain.

    Args:
        oracle: Coverage sums over the ground points; it is reset first and holds the picks after.
            With `screening.verify` it is that sample's oracle.
        candidates: (n, d) float32 or float16 unit vectors, those the oracle's indices name.
        request: Size, objective, limits, and what is there already.
        screening: Samples for screened greedy; None evaluates every gain exactly.
        watch: Told about the bounds at some steps, for the certificate.

    Returns:
        The picks, all distinct, with their gains.

    Raises:
        ValueError: Bad vectors, or a request that does not fit them.
    """
    candidates = require_vectors("lazy_greedy.candidates", candidates)
    require_request(request, len(candidates))
    return _greedy(oracle, candidates, request, screening, watch, per_cost=False)


def knapsack_greedy(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    *,
    screening: Screening | None = None,
) -> Selection:
    """Run both greedies of a budget, by gain and by gain per cost, and return the better by g.

    The better of the two has at least (1 - 1/e) / 2 of the best g (Leskovec et al. 2007); the
    greedy by gain starts with the best single candidate, so that it also has 1 - 1/sqrt(e) (Lin
    and Bilmes 2010) of it. Nothing is promised for f, whose best set may be another.

    Args:
        oracle: As `lazy_greedy`.
        candidates: As `lazy_greedy`.
        request: As `lazy_greedy`, with a budget.
        screening: As `lazy_greedy`.

    Returns:
        The better set; ties go to the greedy by gain per cost. The oracle holds that set.

    Raises:
        ValueError: As `lazy_greedy`.
    """
    candidates = require_vectors("knapsack_greedy.candidates", candidates)
    require_request(request, len(candidates))
    by_gain = _greedy(oracle, candidates, request, screening, None, per_cost=False)
    by_cost = _greedy(oracle, candidates, request, screening, None, per_cost=True)
    # A rule may have ended elsewhere: one lambda judges both.
    ridge, lam = request.objective.ridge, by_cost.lam
    work = by_gain.evaluations + by_cost.evaluations
    screened = by_gain.screened + by_cost.screened
    if by_cost.value_of_g(ridge, lam) >= by_gain.value_of_g(ridge, lam):
        return replace(by_cost, evaluations=work, screened=screened)
    oracle.reset()
    if request.given is not None and len(request.given):
        oracle.cover_with(request.given)
    oracle.add_many(by_gain.picks)
    return replace(by_gain, evaluations=work, screened=screened)


def evaluate(
    oracle: CoverageOracle,
    candidates: Vectors,
    picks: Int64,
    *,
    objective: Objective,
    n_total: float | None = None,
    coverage_weight: float = 1.0,
    given: Float32 | None = None,
    quality: Float64 | None = None,
) -> Selection:
    """Return what an ordered set, chosen by anybody, is worth on this oracle; O(k N d) time.

    Args:
        oracle: Coverage sums over the ground points; it is reset first and holds the picks after.
        candidates: (n, d) float32 or float16 unit vectors.
        picks: (k,) int64 distinct indices into the candidates.
        objective: lam, scale and ridge of f.
        n_total: Weight of the whole corpus, for scale `mean`.
        coverage_weight: N / m where the oracle's m ground points stand for N.
        given: (a, d) float32 vectors that are chosen already.
        quality: (n,) float64, 2 log r.

    Returns:
        The same picks with their gains, as `lazy_greedy` reports them.

    Raises:
        ValueError: A pick twice or outside the candidates.
    """
    picks = np.asarray(picks, dtype=np.int64)
    n = len(candidates)
    if len(np.unique(picks)) != len(picks) or (
        picks.size and not 0 <= picks.min() <= picks.max() < n
    ):
        raise ValueError(
            f"evaluate.picks: found {len(picks)} indices, {len(np.unique(picks))} of them "
            f"distinct, wanted distinct indices below {n}"
        )
    scale = objective.coverage_scale(oracle.total_weight, weight=coverage_weight, n_total=n_total)
    trace = Trace(
        oracle,
        candidates,
        objective=objective,
        scale=scale,
        k=len(picks),
        quality=quality,
        given=given,
    )
    with one_blas_thread:
        trace.add_many(picks)
    return trace.selection(evaluations=len(picks), n_candidates=n)


def _greedy(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None,
    watch: Watch | None,
    *,
    per_cost: bool,
) -> Selection:
    objective = request.objective
    scale = objective.coverage_scale(
        oracle.total_weight, weight=request.coverage_weight, n_total=request.n_total
    )
    trace = Trace(
        oracle,
        candidates,
        objective=objective,
        scale=scale,
        k=request.k,
        quality=request.quality,
        given=request.given,
    )
    gains = (
        ExactGains(trace)
        if screening is None
        else ScreenedGains(trace, candidates, request, screening)
    )
    # Small products of many threads cost more than they save, and the large ones are ours.
    with one_blas_thread:
        search = _Search(trace, gains, candidates, request, per_cost=per_cost)
        n_candidates = int(search.allowance.alive.sum())
        search.run(watch)
    return trace.selection(
        evaluations=gains.evaluations, screened=gains.screened, n_candidates=n_candidates
    )


def _first_gains(oracle: CoverageOracle, candidates: Vectors, scale: float) -> Float64:
    """Coverage gains from the empty set, <x, sum> + weight, for all candidates; O(n d)."""
    total = oracle.column_sum()
    gains = np.empty(len(candidates), dtype=np.float64)
    for start in range(0, len(candidates), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(candidates)), dtype=np.int64)
        gains[rows] = rows_of(candidates, rows).astype(np.float64) @ total
    return scale * (gains + oracle.total_weight)


class _Search:
    """Bounds of all candidates; `run` picks until k, or until nothing more may be picked."""

    def __init__(
        self,
        trace: Trace,
        gains: Gains,
        candidates: Vectors,
        request: Request,
        *,
        per_cost: bool,
    ) -> None:
        n = len(candidates)
        self.allowance = Allowance(request.limits, n)
        self._trace, self._gains, self._request = trace, gains, request
        self._costs = request.limits.costs if per_cost else None
        self._log_inverse = 0.0
        if per_cost and request.objective.ridge > 0 and request.objective.diverse:
            self._log_inverse = -math.log(request.objective.ridge)
        self._diverse = request.objective.diverse
        self._coverage = _first_gains(trace.oracle, candidates, trace.scale)
        self._diversity = trace.diversity_gains(np.arange(n, dtype=np.int64))
        self._bound = np.empty(n, dtype=np.float64)
        # With something given already the first gains are bounds, not gains.
        self._verified_at = np.full(n, -1 if request.has_given else 0, dtype=np.int64)
        self._floor = COSINE_ROUNDING * trace.scale * trace.oracle.total_weight
        self._needs: list[int] = []
        self._all_bounds()
        self._scan_all()

    def run(self, watch: Watch | None) -> None:
        """Pick."""
        k = self._request.k
        required = self._request.limits.required
        for index in () if required is None else required:
            self._take(int(index))
        while len(self._trace.picks) < k and self.allowance.alive.any():
            self._look_on(watch)
            if not self.step():
                break
        self._look_on(watch, last=True)

    def step(self) -> bool:
        """Refresh stale candidates until none can beat or tie the best judged one, then pick."""
        batch = self._batch_size()
        scanned, before = self._scanned, self._bound[self._scanned]
        while True:
            threshold, fresh = self._threshold()
            rivals = self._rivals(threshold)
            if rivals.size:
                self._refresh(self._largest(rivals, batch), threshold)
                batch = min(2 * batch, MOST_AT_ONCE)
            elif threshold <= self._beyond > -np.inf:
                self._scan_all()
                scanned, before = self._scanned, self._bound[self._scanned]
            elif threshold == -np.inf:
                self._stop_diversity()
            else:
                break
        # What had to be looked at, not what was: else one full pass would breed the next.
        self._needs.append(int((self.allowance.alive[scanned] & (before >= threshold)).sum()))
        tied = fresh[self._bound[fresh] >= threshold]
        pick = int(tied[np.argmin(self._request.tie_rank[tied])])
        if self._request.limits.stop_at_negative and self._gain(pick) < 0:
            return False
        self._take(pick)
        return True

    def _take(self, pick: int) -> None:
        self.allowance.take(pick)
        self._trace.add(pick)
        self._gains.add(pick)
        if not self._trace.fixed_lam:
            self._all_bounds()
            self._scan_all()
        elif len(self._scanned) > _SCANNED:
            self._scan_largest()

    def _scan_all(self) -> None:
        """Let the steps look for rivals among all candidates."""
        self._scanned = np.arange(len(self._bound), dtype=np.int64)
        self._beyond = -np.inf

    def _scan_largest(self) -> None:
        """Let them look among the largest bounds only: no bound rises while lambda is fixed."""
        self._scanned = np.flatnonzero(self.allowance.alive)
        if len(self._scanned) > _SCANNED:
            bounds = self._bound[self._scanned]
            place = np.argpartition(-bounds, _SCANNED)
            self._beyond = float(bounds[place[_SCANNED]])
            self._scanned = np.sort(self._scanned[place[:_SCANNED]])

    def _gain(self, index: int) -> float:
        """Gain of f."""
        return float(self._coverage[index] + self._trace.lam * self._diversity[index])

    def _all_bounds(self) -> None:
        self._set_bounds(np.arange(len(self._bound), dtype=np.int64))

    def _set_bounds(self, chosen: Int64) -> None:
        bound = self._coverage[chosen]
        if self._trace.lam > 0:
            bound = bound + self._trace.lam * (self._diversity[chosen] + self._log_inverse)
        if self._costs is not None:
            bound = bound / self._costs[chosen]
        self._bound[chosen] = bound

    def _threshold(self) -> tuple[float, Int64]:
        """Smallest gain that still ties with the best judged one, and the judged candidates."""
        now = len(self._trace.picks)
        scanned = self._scanned
        fresh = scanned[self.allowance.alive[scanned] & (self._verified_at[scanned] == now)]
        if not fresh.size:
            return -np.inf, fresh
        best = int(fresh[np.argmax(self._bound[fresh])])
        margin = tie_margin(
            float(self._coverage[best]),
            self._trace.lam * float(self._diversity[best]),
            floor=self._floor,
        )
        if self._costs is not None:
            margin /= float(self._costs[best])
        return float(self._bound[best]) - margin, fresh

    def _rivals(self, threshold: float) -> Int64:
        scanned, bound = self._scanned, self._bound[self._scanned]
        stale = self.allowance.alive[scanned] & (
            self._verified_at[scanned] < len(self._trace.picks)
        )
        # A bound of -inf (no rank left) can only stay there: nothing to look at again.
        return scanned[stale & (bound >= threshold) & (bound > -np.inf)]

    def _largest(self, rivals: Int64, batch: int) -> Int64:
        if len(rivals) > batch:
            rivals = rivals[np.argpartition(-self._bound[rivals], batch - 1)[:batch]]
        return rivals[np.argsort(-self._bound[rivals], kind="stable")]

    def _refresh(self, chosen: Int64, threshold: float) -> None:
        looked_at = self._gains.look(
            chosen, self._bound, self._coverage, self._verified_at, threshold=threshold
        )
        if self._diverse:
            self._diversity[looked_at] = self._trace.diversity_gains(looked_at)
        self._set_bounds(looked_at)

    def _stop_diversity(self) -> None:
        """No candidate left has a rank of its own (ridge 0): coverage alone decides from here."""
        self._diverse = False
        self._diversity[:] = 0.0 if self._request.quality is None else self._request.quality
        self._all_bounds()
        self._scan_all()

    def _batch_size(self) -> int:
        needs = self._needs[2:][-_HISTORY:]  # the first pick is free, the second needs a full pass
        if not needs:
            return _FIRST_BATCH
        wanted = min(MOST_AT_ONCE, BATCH_MARGIN * float(np.median(needs)))
        return max(CANDIDATE_STEP, -(-int(wanted) // CANDIDATE_STEP) * CANDIDATE_STEP)

    def _look_on(self, watch: Watch | None, *, last: bool = False) -> None:
        if watch is not None:
            watch.look(self._trace, self._coverage, self._diversity, last=last)


__all__ = ["Selection", "evaluate", "knapsack_greedy", "lazy_greedy"]
