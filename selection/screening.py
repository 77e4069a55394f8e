"""Sampled ground points: estimates of coverage gains, and how far they may be off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, Vectors, rows_of, squared_norms
from selection.coverage import CoverageOracle
from selection.tiles import blocks, share_out

# Candidates gathered at a time. Few, so that they were last looked at with like numbers of picks.
_ROWS = 512


class OwnCover:
    """Each candidate's largest cosine to what was picked, brought up to date only when asked."""

    def __init__(
        self, candidates: Vectors, given: Float32 | None = None, *, threads: int = 1
    ) -> None:
        """Start from no picks.

        Args:
            candidates: (n, d) float32 or float16.
            given: (a, d) float32 vectors that are chosen already, or None.
            threads: Threads to use.
        """
        self._candidates, self._threads = candidates, threads
        n, dim = candidates.shape
        first = np.zeros((0, dim), dtype=np.float32) if given is None else given
        self._picks = np.empty((max(64, 2 * len(first)), dim), dtype=np.float32)
        self._picks[: len(first)] = first
        self._n = len(first)
        self._squared = squared_norms(candidates)
        self._cover = np.full(n, -1.0, dtype=np.float32)
        self._at = np.zeros(n, dtype=np.int32)

    def add(self, index: int) -> None:
        """Take a candidate as the next pick; O(d)."""
        if self._n == len(self._picks):
            self._picks = np.concatenate([self._picks, np.empty_like(self._picks)])
        self._picks[self._n] = rows_of(self._candidates, np.array([index], dtype=np.int64))[0]
        self._n += 1

    def own_excess(self, indices: Int64) -> Float64:
        """Return what each candidate would add to its own cover, max(0, |e_x|^2 - cover_x).

        Args:
            indices: (c,) int64, each once.

        Returns:
            (c,) float64; O(c d) time for each pick since they were last looked at.
        """
        stale = indices[self._at[indices] < self._n]
        stale = stale[np.argsort(self._at[stale], kind="stable")]
        parts = [stale[rows] for rows in blocks(len(stale), _ROWS)]
        for _ in share_out(self._raise, parts, threads=self._threads):
            pass
        excess: Float64 = np.maximum(0.0, self._squared[indices] - self._cover[indices])
        return excess

    def _raise(self, indices: Int64) -> None:
        since = int(self._at[indices[0]])
        cosines = rows_of(self._candidates, indices) @ self._picks[since : self._n].T
        self._cover[indices] = np.maximum(self._cover[indices], cosines.max(axis=1))
        self._at[indices] = self._n


@dataclass(frozen=True)
class Sample:
    """Ground points drawn uniformly, with what it takes to estimate sums over all of them.

    A candidate among the sampled points counts its own cosine of 1, which its rivals outside the
    sample do not: at 4,096 of 80,000 points more than half of the picks came from the sample. So a
    candidate's own term is left out of the mean and added with its true weight.

    Attributes:
        oracle: Sums over the m sampled points.
        members: (n,) bool, the candidates that are sampled points.
        population: Number N of ground points the sample stands for.
        weights: (n,) float64 ground weights of the candidates, None for 1.
    """

    oracle: CoverageOracle
    members: Bool
    population: int
    weights: Float64 | None = None

    def estimate(
        self, indices: Int64, own: OwnCover, *, unseen: float = 0.0
    ) -> tuple[Float64, Float64]:
        """Estimate the coverage gain on all ground points.

        Args:
            indices: (c,) int64 candidates.
            own: Their own cover, with the same picks as the oracle.
            unseen: Copies of a candidate that the sample may have missed, for the standard error.

        Returns:
            (c,) estimates and (c,) standard errors, both of the sum over N points.
        """
        total, squares = self.oracle.moments(indices)
        excess = own.own_excess(indices)
        if self.weights is not None:
            excess = excess * self.weights[indices]
        member = self.members[indices]
        count = self.oracle.n_points - member.astype(np.float64)
        total = np.maximum(0.0, total - np.where(member, excess, 0.0))
        squares = np.maximum(0.0, squares - np.where(member, excess**2, 0.0))
        rest = float(self.population - 1)
        count = np.maximum(count, 1.0)
        mean = total / count
        # As if that many points more had been copies: a small cluster may have none in the sample.
        variance = np.maximum(0.0, (squares + unseen * excess**2) / count - mean**2)
        # Drawn without replacement: a sample of everything has no error.
        finite = np.maximum(0.0, 1.0 - count / max(rest, 1.0))
        return excess + rest * mean, rest * np.sqrt(variance / count * finite)


@dataclass(frozen=True)
class Screening:
    """How screened greedy looks at candidates.

    Attributes:
        screen: The small sample that every stale candidate is looked at on first; None: every
            stale candidate is judged at once.
        middle: A sample in between, for those that lead on the small one; None: they are judged.
        verify: The larger sample that leaders are judged on; None: the exact oracle, all of V.
        z: Standard errors added to an estimate on the small sample to make it an upper bound.
        unseen: Copies of a candidate that the small sample may have missed, in that error.
        threads: Threads for each candidate's own cover.
    """

    screen: Sample | None
    verify: Sample | None
    z: float = 1.0
    unseen: float = 1.0
    threads: int = 1
    middle: Sample | None = None

    @property
    def smallest(self) -> CoverageOracle | None:
        """Sums over the smallest sample; None where there is none."""
        for sample in (self.screen, self.verify):
            if sample is not None:
                return sample.oracle
        return None
