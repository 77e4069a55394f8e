"""What an ordered set of picks is worth, term by term."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selection.arrays import Float32, Float64, Int64
from selection.coverage import CoverageOracle
from selection.diversity import LogDet
from selection.objective import Objective


@dataclass(frozen=True)
class Selection:
    """An ordered set of picks and what each of them added to f.

    Attributes:
        picks: (k,) int64 indices into the candidates, in the order of picking.
        gains: (k,) float64, coverage_gains + lam * diversity_gains.
        coverage_gains: (k,) float64 as they enter f (weighted, divided by N for `mean`); the first
            counts from the baseline of -1 per ground point.
        diversity_gains: (k,) float64, log-determinant gains before lam; 0 for a pick that adds no
            rank (ridge 0), and all 0 for lam 0, where they are not computed.
        objective: (k,) float64, f of the first t + 1 picks in the paper's terms, that is with the
            baseline taken off again.
        n_covered: (k,) int64, ground points that each pick covers best in the end.
        evaluations: Coverage gains computed; naive greedy computes about n_candidates * k.
        n_candidates: Candidates that could have been picked.
        first_negative: First step whose gain is below 0, None if there is none.
        rank_exhausted_at: First step that could add no rank (ridge 0), None if there is none.
    """

    picks: Int64
    gains: Float64
    coverage_gains: Float64
    diversity_gains: Float64
    objective: Float64
    n_covered: Int64
    evaluations: int
    n_candidates: int
    first_negative: int | None
    rank_exhausted_at: int | None

    @property
    def value(self) -> float:
        """F of the whole set; -inf for the empty one."""
        return float(self.objective[-1]) if len(self.objective) else -np.inf


class Trace:
    """A growing set of picks: the oracle's cover and the log-determinant move together."""

    def __init__(
        self, oracle: CoverageOracle, candidates: Float32, *, objective: Objective, scale: float
    ) -> None:
        """Start from no picks; resets the oracle.

        Args:
            oracle: Sums over the ground points.
            candidates: (n, d) float32.
            objective: Gives lam and the ridge.
            scale: Factor by which a coverage sum enters f.
        """
        oracle.reset()
        self.oracle = oracle
        self.lam = objective.lam
        self.scale = scale
        self._log_det = LogDet(candidates, objective.ridge) if objective.lam > 0 else None
        self.picks: list[int] = []
        self._coverage: list[float] = []
        self._diversity: list[float] = []
        self._rank_exhausted_at: int | None = None

    def diversity_gains(self, indices: Int64) -> Float64:
        """Return the log-determinant gains of these candidates, 0 where lam is 0."""
        if self._log_det is None:
            return np.zeros(len(indices), dtype=np.float64)
        return self._log_det.gains(indices)

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
        self._coverage.append(self.scale * coverage)
        self._diversity.append(diversity)
        self.picks.append(index)

    def selection(self, *, evaluations: int, n_candidates: int) -> Selection:
        """Close the trace.

        Args:
            evaluations: Coverage gains computed on the way.
            n_candidates: Candidates that could have been picked.

        Returns:
            The picks with their gains and the cumulative objective.
        """
        coverage = np.array(self._coverage, dtype=np.float64)
        diversity = np.array(self._diversity, dtype=np.float64)
        gains = coverage + self.lam * diversity
        negative = np.flatnonzero(gains < 0)
        return Selection(
            picks=np.array(self.picks, dtype=np.int64),
            gains=gains,
            coverage_gains=coverage,
            diversity_gains=diversity,
            objective=np.cumsum(gains) - self.scale * self.oracle.n_points,
            n_covered=self.oracle.n_covered(len(self.picks)),
            evaluations=evaluations,
            n_candidates=n_candidates,
            first_negative=int(negative[0]) if negative.size else None,
            rank_exhausted_at=self._rank_exhausted_at,
        )
