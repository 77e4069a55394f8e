"""How a greedy search looks at candidates again: exactly, or on samples of the ground points."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from selection.arrays import Float64, Int32, Int64, Vectors
from selection.request import Request
from selection.screening import OwnCover, Sample, Screening
from selection.tiles import CANDIDATE_STEP
from selection.trace import Trace

# Screened candidates judged at a time, the largest bounds first: a few may settle the step.
LEADERS = CANDIDATE_STEP
# Those looked at on the middle sample before: more, because that costs less.
_RACED = 128


class Gains(Protocol):
    """Coverage gains of stale candidates.

    Attributes:
        evaluations: Gains judged so far.
        screened: Gains estimated on the small sample so far.
    """

    evaluations: int
    screened: int

    def look(
        self,
        chosen: Int64,
        bound: Float64,
        coverage: Float64,
        verified_at: Int64,
        *,
        threshold: float,
    ) -> Int64:
        """Lower the coverage bounds of these candidates; returns those that were looked at.

        Args:
            chosen: (c,) int64 candidates, the largest bound first.
            bound: (n,) bounds of all gains.
            coverage: (n,) bounds of the coverage gains, changed in place.
            verified_at: (n,) the number of picks each was last judged with, changed in place.
            threshold: Smallest gain that still ties with the best one judged with the picks so
                far; -inf where none was.
        """

    def add(self, index: int) -> None:
        """Follow a pick."""


class ExactGains:
    """Coverage gains of stale candidates, each computed on all ground points."""

    def __init__(self, trace: Trace) -> None:
        self.evaluations = 0
        self.screened = 0
        self._trace = trace

    def look(
        self,
        chosen: Int64,
        bound: Float64,
        coverage: Float64,
        verified_at: Int64,
        *,
        threshold: float,
    ) -> Int64:
        """Judge all of them."""
        now = len(self._trace.picks)
        coverage[chosen] = self._trace.scale * self._trace.oracle.gains(chosen)
        verified_at[chosen] = now
        self.evaluations += len(chosen)
        return chosen

    def add(self, index: int) -> None:
        """Follow a pick."""


class ScreenedGains:
    """Coverage gains looked at on a small sample first, and judged on a larger one or on all.

    Leaders on the small sample are looked at on the middle one, where there is one, before they
    are judged: its errors are half as large, and most of the leaders were so by error.
    """

    def __init__(
        self, trace: Trace, candidates: Vectors, request: Request, screening: Screening
    ) -> None:
        self.evaluations = 0
        self.screened = 0
        self._trace, self._screening = trace, screening
        self._own = OwnCover(candidates, request.given, threads=screening.threads)
        self._screened_at = np.full(len(candidates), -1, dtype=np.int32)
        self._raced_at = np.full(len(candidates), -1, dtype=np.int32)
        # Screened with the picks so far and not judged, and ground points looked at for it.
        self._seen = np.zeros(0, dtype=np.int64)
        self._spent = 0
        self._price = LEADERS * trace.oracle.n_points
        self._looked_on = [s for s in (screening.screen, screening.middle) if s is not None]
        for sample in self._looked_on:
            sample.oracle.reset()
            if request.given is not None and len(request.given):
                sample.oracle.cover_with(request.given)
        # Estimates are sums over the population that the trace's oracle stands for.
        self._scale = trace.scale
        if screening.verify is not None:
            self._scale *= trace.oracle.n_points / screening.verify.population

    def look(
        self,
        chosen: Int64,
        bound: Float64,
        coverage: Float64,
        verified_at: Int64,
        *,
        threshold: float,
    ) -> Int64:
        """Screen what is stale, and judge leaders when all rivals are screened, or before.

        One judged gain rules out many candidates, so that they need not even be screened: leaders
        are judged as soon as the screening has cost as much as judging them.
        """
        screen, middle = self._screening.screen, self._screening.middle
        if screen is None:
            return self._judge(chosen, coverage, verified_at)
        now, known = len(self._trace.picks), threshold > -np.inf
        stale = chosen[self._screened_at[chosen] < now]
        # Those that were judged last time and not picked are the likeliest to be next.
        judged_at = verified_at[chosen]
        before = chosen[(judged_at > 0) & (judged_at >= self._screened_at[chosen])]
        self._seen = self._seen[bound[self._seen] >= threshold]
        if not known and before.size:
            return self._judge(before[:LEADERS], coverage, verified_at)
        if known and not stale.size:
            leaders = chosen
        elif not self._seen.size or (known and self._spent < self._price):
            self._spent += screen.oracle.n_points * len(stale)
            self._seen = np.concatenate([self._seen, stale])
            return self._lower(screen, stale, coverage, self._screened_at)
        else:
            leaders = self._seen[np.argsort(-bound[self._seen], kind="stable")]
        raced = self._raced_at[leaders] == now
        if middle is not None and not raced[:LEADERS].all():
            return self._lower(middle, leaders[~raced][:_RACED], coverage, self._raced_at)
        return self._judge(leaders[:LEADERS], coverage, verified_at)

    def _judge(self, leaders: Int64, coverage: Float64, verified_at: Int64) -> Int64:
        self._seen = self._seen[~np.isin(self._seen, leaders)]
        self._spent = 0
        if self._screening.verify is None:
            judged = self._trace.oracle.gains(leaders)
        else:
            judged, _ = self._screening.verify.estimate(leaders, self._own)
        coverage[leaders] = self._scale * judged
        verified_at[leaders] = len(self._trace.picks)
        self.evaluations += len(leaders)
        return leaders

    def _lower(self, sample: Sample, chosen: Int64, coverage: Float64, looked_at: Int32) -> Int64:
        estimate, error = sample.estimate(chosen, self._own, unseen=self._screening.unseen)
        upper = self._scale * (estimate + self._screening.z * error)
        coverage[chosen] = np.minimum(coverage[chosen], upper)
        looked_at[chosen] = len(self._trace.picks)
        self.screened += len(chosen)
        return chosen

    def add(self, index: int) -> None:
        """Follow a pick."""
        for sample in self._looked_on:
            sample.oracle.add(index)
        self._own.add(index)
        self._seen = self._seen[:0]
