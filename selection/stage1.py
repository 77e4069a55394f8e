"""Stage 1: which few rows are worth annotating."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selection.arrays import Float64, Int64, Vectors, require_vectors, rows_of
from selection.certificate import CertificateWatch
from selection.coverage import CoverageOracle, CoverageShard, LocalCoverage
from selection.crowd import Crowd
from selection.dense import DenseCoverage
from selection.kcenter import kcenter_picks
from selection.kmeans import kmeans_picks
from selection.lazy_greedy import evaluate, knapsack_greedy, lazy_greedy
from selection.modes import Effort, middle_points, resolve, sample_rows
from selection.objective import Objective
from selection.request import Allowance, Limits, Request, begin
from selection.running import sampled_coverage
from selection.screening import Sample, Screening
from selection.torch_coverage import TorchShard
from selection.trace import Selection
from selection.vote_k import vote_k_picks
from selection.watch import Watch

# 16-bit ground points are widened once where they take no more than this part of the memory.
WIDE_SHARE = 8

Method = Callable[
    [CoverageOracle, Vectors, Request, Screening | None, Watch | None],
    Selection,
]


@dataclass(frozen=True)
class Local:
    """What one set of ground points chose among its own.

    Attributes:
        selection: The picks, with their gains on all ground points.
        effort: How the gains were computed.
        bounds: Upper bounds seen on the way, for the certificate; None for budgets, and for methods
            that do not maximise f.
    """

    selection: Selection
    effort: Effort
    bounds: CertificateWatch | None


def dual_div(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """Greedy on coverage plus lambda times the log-determinant (Dual-Div)."""
    if request.per_cost:
        return knapsack_greedy(oracle, candidates, request, screening=screening)
    return lazy_greedy(oracle, candidates, request, screening=screening, watch=watch)


def coverage(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """Greedy on coverage alone, that is lambda 0 (the paper's Div)."""
    plain = replace(request, objective=without_lambda(request.objective), quality=None)
    return dual_div(oracle, candidates, plain, screening, watch)


def random(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """The candidates with the smallest keys that the limits allow; the control.

    It is measured by the full objective, exactly, whatever the screening.
    """
    return _measured(oracle, candidates, request, random_picks(request, len(candidates)))


def kcenter(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """Farthest-first traversal (`kcenter_picks`), measured by the full objective."""
    return _measured(oracle, candidates, request, kcenter_picks(candidates, request))


def kmeans(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """The members nearest to the centres of k-means (`kmeans_picks`), measured likewise."""
    picks, mass = kmeans_picks(candidates, request)
    return replace(_measured(oracle, candidates, request, picks), mass=mass)


def vote_k(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None = None,
    watch: Watch | None = None,
) -> Selection:
    """Graph-based vote-k (`vote_k_picks`), measured by the full objective."""
    return _measured(oracle, candidates, request, vote_k_picks(candidates, request))


def _measured(
    oracle: CoverageOracle, candidates: Vectors, request: Request, picks: Int64
) -> Selection:
    """What picks that f did not choose are worth."""
    result = _evaluated(oracle, candidates, request, picks, request.objective)
    return replace(result, n_candidates=int(Allowance(request.limits, len(candidates)).alive.sum()))


def _evaluated(
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    picks: Int64,
    objective: Objective,
) -> Selection:
    return evaluate(
        oracle,
        candidates,
        picks,
        objective=objective,
        n_total=request.n_total,
        coverage_weight=request.coverage_weight,
        given=request.given,
        quality=request.quality,
    )


STAGE1: dict[str, Method] = {
    "dual-div": dual_div,
    "coverage": coverage,
    "vote-k": vote_k,
    "kmeans": kmeans,
    "kcenter": kcenter,
    "random": random,
}
# These look for the largest f; the others choose by a rule of their own and f only measures them.
MAXIMISE_F = ("dual-div", "coverage")
# These depend on random keys even where nothing is sampled.
DRAWN = ("random", "kmeans")


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
    return without_lambda(objective) if method == "coverage" else objective


def without_lambda(objective: Objective) -> Objective:
    """Return the same objective with coverage alone."""
    return replace(objective, lam=0.0, rule=None)


def n_kept(chosen: Selection, limits: Limits) -> int:
    """Return how many of these picks stay, judged on other points than they were chosen on.

    Args:
        chosen: Picks with their gains, those required first.
        limits: With `stop_at_negative` the rest ends before the first gain below 0.
    """
    first = 0 if limits.required is None else len(limits.required)
    negative = np.flatnonzero(chosen.gains[first:] < 0)
    if not limits.stop_at_negative or not negative.size:
        return len(chosen.picks)
    return first + int(negative[0])


def random_picks(request: Request, n: int) -> Int64:
    """Return up to k candidates in the order of their keys, within the limits.

    Args:
        request: Its keys, limits and k count.
        n: Number of candidates.

    Returns:
        (k,) int64; those required come first.
    """
    allowance, picks = begin(request, n)
    for index in np.lexsort((request.tie_rank, request.keys)).tolist():
        if len(picks) >= request.k:
            break
        if allowance.alive[index]:
            allowance.take(index)
            picks.append(index)
    return np.array(picks, dtype=np.int64)


def select_local(
    method: str,
    vectors: Vectors,
    request: Request,
    *,
    effort: Effort,
    weights: Float64 | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> Local:
    """Select inside one set of points, ground points and candidates alike.

    Args:
        method: A key of STAGE1.
        vectors: (m, d) float32 or float16 unit vectors; m may be 0.
        request: What is asked for; `coverage_weight` is n_total over the weight of these points.
        effort: How gains are computed.
        weights: (m,) float64 ground weights, None for 1.
        threads: Threads for the kernels; results do not depend on it.
        device: `cpu`, or a torch device that holds the ground points.

    Returns:
        The picks as indices into `vectors`.

    Raises:
        ValueError: Unknown method, bad vectors, or a request that does not fit them.
    """
    choose = method_named(method)
    vectors = require_vectors("select_local.vectors", vectors)
    n = len(vectors)
    used = resolve(effort, n_ground=n, n_candidates=n, k=request.k, square=True)
    ground = Ground(
        vectors,
        weights,
        threads=threads,
        device=device,
        wide_bytes=effort.memory_bytes // WIDE_SHARE,
    )
    if method not in MAXIMISE_F or n == 0:
        chosen = choose(
            ground.all_of_it(), vectors, _with_points(request, weights, threads), None, None
        )
        return Local(chosen, replace(used, mode="exact"), None)
    oracle: CoverageOracle
    if used.mode == "dense" and device == "cpu":
        oracle = DenseCoverage(vectors, weights=weights, threads=threads)
        screening = None
    else:
        oracle = ground.all_of_it()
        screening = ground.screening(used, request) if used.mode == "screened" else None
    judge = judged_objective(method, request.objective)
    bounds = None if request.per_cost else CertificateWatch.of(request, judge, oracle, vectors)
    watch = None if bounds is None else Watch(bounds, request, judge)
    chosen = search(choose, oracle, vectors, request, screening, watch)
    return Local(chosen, used, bounds)


def _with_points(request: Request, weights: Float64 | None, threads: int) -> Request:
    """The request to candidates that are the points, for methods with a rule of their own."""
    crowd = request.crowd or Crowd()
    mass = weights if crowd.mass is None else crowd.mass
    return replace(request, crowd=replace(crowd, mass=mass, threads=threads))


def search(
    choose: Method,
    oracle: CoverageOracle,
    candidates: Vectors,
    request: Request,
    screening: Screening | None,
    watch: Watch | None = None,
) -> Selection:
    """Run a method, on a sample where the screening says so, and judge its picks on the oracle.

    Args:
        choose: A value of STAGE1.
        oracle: Sums over all ground points.
        candidates: (n, d) float32 or float16 unit vectors.
        request: What is asked for, with the oracle's `coverage_weight`.
        screening: As `lazy_greedy`.
        watch: As `lazy_greedy`.

    Returns:
        The picks, with their gains on the oracle; with `stop_at_negative` those before the first
        that would lower f there.
    """
    if choose not in (dual_div, coverage):
        return choose(oracle, candidates, request, None, None)
    if screening is None or screening.verify is None:
        return choose(oracle, candidates, request, screening, watch)
    sample = screening.verify.oracle
    stands_for = request.n_total / sample.total_weight if sample.total_weight else 0.0
    found = choose(
        sample, candidates, replace(request, coverage_weight=stands_for), screening, watch
    )
    objective = request.objective
    if choose is coverage:
        objective = without_lambda(objective)

    def judged(n: int) -> Selection:
        # A rule may end at 0, and all terms are wanted all the same.
        all_terms = replace(objective, lam=1.0 if objective.diverse else 0.0, rule=None)
        exact = _evaluated(oracle, candidates, request, found.picks[:n], all_terms)
        lams = found.lams[:n]
        return exact.weighed(lams, float(lams[-1]) if n else found.lam)

    exact = judged(len(found.picks))
    kept = n_kept(exact, request.limits)
    return replace(
        exact if kept == len(found.picks) else judged(kept),
        evaluations=found.evaluations,
        screened=found.screened,
        n_candidates=found.n_candidates,
    )


class Ground:
    """The ground points of one process, and samples of them."""

    def __init__(
        self,
        vectors: Vectors,
        weights: Float64 | None,
        *,
        threads: int = 1,
        device: str = "cpu",
        wide_bytes: int = 0,
    ) -> None:
        """Keep the points.

        Args:
            vectors: (m, d) float32 or float16 unit vectors, candidates too.
            weights: (m,) float64, None for 1.
            threads: Threads for the kernels.
            device: `cpu`, or a torch device.
            wide_bytes: 16-bit points that take no more than this as float32 are widened once,
                and not tile by tile for every few candidates.
        """
        self._wide_bytes = wide_bytes
        self._vectors, self._weights = vectors, weights
        self._threads, self._device = threads, device

    def all_of_it(self) -> LocalCoverage:
        """Sums over all points, of candidates that are these points."""
        points, weights = self._vectors, self._weights
        if self._device != "cpu":
            shard = TorchShard(points, weights=weights, device=self._device)
            return LocalCoverage([shard], self._vectors)
        if points.dtype == np.float16 and 4 * points.size <= self._wide_bytes:
            points = rows_of(points, slice(None))
        own = CoverageShard(points, weights=weights, threads=self._threads)
        return LocalCoverage([own], self._vectors)

    def screening(self, effort: Effort, request: Request) -> Screening:
        """Samples of an effort whose mode is `screened`, drawn by the request's keys."""
        verify = None
        if isinstance(effort.m2, int):
            verify = self._sample(effort.m2, request)
        screen = self._sample(effort.m1, request)
        points = middle_points(effort, len(self._vectors))
        middle = self._sample(points, request) if points else None
        return Screening(screen, verify, effort.z, effort.unseen, self._threads, middle)

    def _sample(self, m: int, request: Request) -> Sample:
        rows = sample_rows(request.keys, m)
        members = np.zeros(len(self._vectors), dtype=np.bool_)
        members[rows] = True
        weights = None if self._weights is None else self._weights[rows]
        oracle = sampled_coverage(
            rows_of(self._vectors, rows),
            self._vectors,
            weights=weights,
            threads=self._threads,
            device=self._device,
        )
        return Sample(oracle, members, len(self._vectors), self._weights)
