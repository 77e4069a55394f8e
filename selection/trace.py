"""What an ordered set of picks is worth, term by term."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, rows_of
from selection.coverage import CoverageOracle
from selection.diversity import LogDet
from selection.lambda_rule import LambdaControl
from selection.objective import Objective
from selection.tiles import one_blas_thread


@dataclass(frozen=True)
class Selection:
    """An ordered set of picks and what each of them added to f.

    Attributes:
        picks: (k,) int64 indices into the candidates, in the order of picking.
        gains: (k,) float64, coverage_gains + lambda * (diversity_gains + quality_gains), with the
            lambda of that step.
        coverage_gains: (k,) float64 as they enter f (weighted, divided by N for `mean`); the first
            counts from the baseline of -1 per ground point, or from what was given.
        diversity_gains: (k,) float64, log-determinant gains before lambda; 0 for a pick that adds
            no rank (ridge 0), and all 0 for lambda 0, where they are not computed.
        quality_gains: (k,) float64, 2 log r of each pick; 0 without a quality.
        lams: (k,) float64, the lambda each pick was made with.
        lam: The lambda that the whole set is judged by: the last one.
        objective: (k,) float64, f of the first t + 1 picks in the paper's terms, that is with the
            baseline taken off again; f(S | A) where something was given.
        n_covered: (k,) int64, ground points that each pick covers best in the end.
        evaluations: Coverage gains judged, on all ground points or on the larger sample; naive
            greedy computes about n_candidates * k.
        screened: Coverage gains estimated on a sample.
        n_candidates: Candidates that could have been picked.
        first_negative: First step whose gain is below 0, None if there is none.
        rank_exhausted_at: First step that could add no rank (ridge 0), None if there is none.
        mass: (k,) float64, weight of the points that each pick stands for; None for methods that
            do not say.
    """

    picks: Int64
    gains: Float64
    coverage_gains: Float64
    diversity_gains: Float64
    quality_gains: Float64
    lams: Float64
    lam: float
    objective: Float64
    n_covered: Int64
    evaluations: int
    screened: int
    n_candidates: int
    first_negative: int | None
    rank_exhausted_at: int | None
    mass: Float64 | None = None

    @property
    def value(self) -> float:
        """F of the whole set; -inf for the empty one."""
        return float(self.objective[-1]) if len(self.objective) else -np.inf

    def weighed(self, lams: Float64, lam: float) -> Selection:
        """Return the same picks with the same terms under other lambdas.

        Args:
            lams: (k,) float64, the lambda each pick was made with.
            lam: The lambda that the whole set is judged by.
        """
        spread = self.diversity_gains + self.quality_gains
        baseline = np.cumsum(self.coverage_gains + self.lam * spread) - self.objective
        gains = self.coverage_gains + lams * spread
        negative = np.flatnonzero(gains < 0)
        return replace(
            self,
            gains=gains,
            lams=lams,
            lam=lam,
            objective=np.cumsum(self.coverage_gains + lam * spread) - baseline,
            first_negative=int(negative[0]) if negative.size else None,
        )

    def value_of_g(self, ridge: float, lam: float) -> float:
        """G of the whole set: monotone, so that sets of different size can be compared.

        Args:
            ridge: eps; 0 only where lambda is 0.
            lam: The lambda to judge by.
        """
        gain = math.fsum(self.coverage_gains) + lam * math.fsum(self.quality_gains)
        if lam > 0:
            spread = math.fsum(self.diversity_gains) - len(self.picks) * math.log(ridge)
            gain += lam * spread
        return gain


class Trace:
    """A growing set of picks: the oracle's cover, the log-determinant and lambda move together."""

    def __init__(
        self,
        oracle: CoverageOracle,
        candidates: Vectors,
        *,
        objective: Objective,
        scale: float,
        k: int = 1,
        quality: Float64 | None = None,
        given: Float32 | None = None,
    ) -> None:
        """Start from no picks; resets the oracle.

        Args:
            oracle: Sums over the ground points.
            candidates: (n, d) float32 or float16.
            objective: Gives lambda, its rule and the ridge.
            scale: Factor by which a coverage sum enters f.
            k: Picks wanted, where a schedule of lambda ends.
            quality: (n,) float64 or None.
            given: (a, d) float32 vectors that are chosen already, or None.
        """
        oracle.reset()
        self.oracle = oracle
        self.scale = scale
        self.picks: list[int] = []
        self.coverage: list[float] = []
        self.diversity: list[float] = []
        self._lams: list[float] = []
        self._candidates = candidates
        self._quality = quality
        self._control = LambdaControl(objective.lam, objective.rule, k=k, ridge=objective.ridge)
        self._log_det = LogDet(candidates, objective.ridge) if objective.diverse else None
        self._rank_exhausted_at: int | None = None
        self._baseline = scale * oracle.total_weight
        if given is not None and len(given):
            oracle.cover_with(given)
            self._baseline = 0.0
            if self._log_det is not None:
                with one_blas_thread:
                    self._log_det.begin_with(given)

    @property
    def lam(self) -> float:
        """Lambda of the next pick."""
        return self._control.lam

    @property
    def fixed_lam(self) -> bool:
        """True when lambda never changes."""
        return self._control.fixed

    def diversity_gains(self, indices: Int64) -> Float64:
        """Return log-determinant gains plus quality, before lambda; 0 where neither counts."""
        if self._log_det is None:
            return np.zeros(len(indices), dtype=np.float64)
        gains = self._log_det.gains(indices)
        return gains if self._quality is None else gains + self._quality[indices]

    def add(self, index: int) -> None:
        """Take a candidate; one without a rank of its own adds its coverage only, and is marked."""
        self._append(index, self.oracle.add(index))

    def add_many(self, indices: Int64) -> None:
        """Take candidates in order, with one call to the oracle."""
        for index, gain in zip(indices, self.oracle.add_many(indices), strict=True):
            self._append(int(index), float(gain))

    def _append(self, index: int, coverage: float) -> None:
        diversity = self._log_det.add(index) if self._log_det is not None else 0.0
        if diversity == -np.inf:
            diversity = 0.0
            if self._rank_exhausted_at is None:
                self._rank_exhausted_at = len(self.picks)
        self.coverage.append(self.scale * coverage)
        self.diversity.append(diversity)
        self._lams.append(self.lam)
        self.picks.append(index)
        if not self._control.fixed:
            row = rows_of(self._candidates, np.array([index], dtype=np.int64))[0]
            self._control.update(row, self.coverage, self.diversity)

    def quality_gains(self) -> Float64:
        """Return 2 log r of each pick, 0 where it does not count."""
        if self._quality is None or self._log_det is None:
            return np.zeros(len(self.picks), dtype=np.float64)
        return self._quality[np.array(self.picks, dtype=np.int64)].astype(np.float64)

    def selection(self, *, evaluations: int, n_candidates: int, screened: int = 0) -> Selection:
        """Close the trace.

        Args:
            evaluations: Exact coverage gains computed on the way.
            n_candidates: Candidates that could have been picked.
            screened: Coverage gains estimated on a sample.

        Returns:
            The picks with their gains and the cumulative objective.
        """
        coverage = np.array(self.coverage, dtype=np.float64)
        diversity = np.array(self.diversity, dtype=np.float64)
        lams = np.array(self._lams, dtype=np.float64)
        quality = self.quality_gains()
        gains = coverage + lams * (diversity + quality)
        last = float(lams[-1]) if len(lams) else self.lam
        negative = np.flatnonzero(gains < 0)
        return Selection(
            picks=np.array(self.picks, dtype=np.int64),
            gains=gains,
            coverage_gains=coverage,
            diversity_gains=diversity,
            quality_gains=quality,
            lams=lams,
            lam=last,
            objective=np.cumsum(coverage + last * (diversity + quality)) - self._baseline,
            n_covered=self.oracle.n_covered(len(self.picks)),
            evaluations=evaluations,
            screened=screened,
            n_candidates=n_candidates,
            first_negative=int(negative[0]) if negative.size else None,
            rank_exhausted_at=self._rank_exhausted_at,
        )
