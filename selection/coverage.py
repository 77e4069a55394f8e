"""Facility location: how well the picks cover every ground point, one partition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from selection.arrays import Float32, Float64, Int64, require_vectors
from selection.kernels import GROUND_TILE, cover_by, excess


class CoverageOracle(Protocol):
    """Sums over all ground points, wherever they live; candidates are named by their index."""

    @property
    def n_points(self) -> int:
        """Number of ground points summed over."""

    def column_sum(self) -> Float64:
        """Sum of all ground vectors, (d,)."""

    def gains(self, indices: Int64) -> Float64:
        """Coverage gain of each of these candidates given the picks so far, (c,)."""

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; returns its coverage gain."""

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""

    def n_covered(self, k: int) -> Int64:
        """How many ground points each of the first k picks covers best, (k,)."""

    def reset(self) -> None:
        """Forget all picks."""


class CoverageShard:
    """The exact sums over the ground points of one partition.

    The cover of a point is its largest cosine to a pick, and -1 before the first: with that
    baseline C is monotone and submodular also where cosines are negative.
    """

    def __init__(self, vectors: Float32) -> None:
        """Keep the ground points.

        Args:
            vectors: (m, d) float32 unit vectors; m may be 0.

        Raises:
            ValueError: Not float32, not finite, not a matrix, or rows longer than 1.
        """
        self._vectors = require_vectors("CoverageShard.vectors", vectors)
        self.reset()

    @property
    def n_points(self) -> int:
        """Number of ground points m."""
        return len(self._vectors)

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self._vectors.shape[1])

    def reset(self) -> None:
        """Forget all picks; O(m)."""
        self._cover = np.full(self.n_points, -1.0, dtype=np.float32)
        self._owner = np.full(self.n_points, -1, dtype=np.int64)
        self._n_picks = 0

    def column_sum(self) -> Float64:
        """Return the sum of the ground vectors: the first gain of x is <x, sum> + m.

        Returns:
            (d,) float64; O(m d) time.
        """
        total = np.zeros(self.dim, dtype=np.float64)
        for start in range(0, self.n_points, GROUND_TILE):
            total += self._vectors[start : start + GROUND_TILE].sum(axis=0, dtype=np.float64)
        return total

    def gains(self, candidates: Float32) -> Float64:
        """Return sum_i max(0, w_ix - cover_i) for every candidate x.

        Args:
            candidates: (c, d) float32 unit vectors.

        Returns:
            (c,) float64; O(m d c) time, one tile of memory beyond the result.

        Raises:
            ValueError: The candidates are not finite float32 vectors of this dimension.
        """
        block = require_vectors("CoverageShard.gains.candidates", candidates, dim=self.dim)
        return excess(self._vectors, self._cover, block)

    def add(self, candidate: Float32) -> float:
        """Take a candidate as the next pick.

        Args:
            candidate: (d,) float32 unit vector.

        Returns:
            Its gain on these ground points; O(m d) time.

        Raises:
            ValueError: As `gains`.
        """
        return float(self.add_many(candidate[None, :])[0])

    def add_many(self, candidates: Float32) -> Float64:
        """Take candidates as the next picks, one after another.

        Args:
            candidates: (c, d) float32 unit vectors, in the order of picking.

        Returns:
            (c,) float64, the gain of each given those before it; O(m d c) time.

        Raises:
            ValueError: As `gains`.
        """
        block = require_vectors("CoverageShard.add.candidates", candidates, dim=self.dim)
        gains = cover_by(self._vectors, block, self._cover, self._owner, first=self._n_picks)
        if self._n_picks == 0 and len(block):
            # A point opposite to the first pick gains nothing, and is its too.
            self._owner[self._owner < 0] = 0
        self._n_picks += len(block)
        return gains

    def n_covered(self, k: int) -> Int64:
        """Return how many ground points each of the first k picks covers best.

        Args:
            k: Length of the answer.

        Returns:
            (k,) int64; a point covered equally by two picks belongs to the earlier.
        """
        owned = self._owner[self._owner >= 0]
        return np.bincount(owned, minlength=k)[:k].astype(np.int64)


class LocalCoverage:
    """A CoverageOracle over shards that live in this process, added up in their order."""

    def __init__(self, shards: Sequence[CoverageShard], candidates: Float32) -> None:
        """Keep the shards and the candidates.

        Args:
            shards: One per partition, in partition order.
            candidates: (n, d) float32 unit vectors that indices point into.

        Raises:
            ValueError: A shard has another dimension than the candidates.
        """
        self._shards = list(shards)
        self._candidates = require_vectors("LocalCoverage.candidates", candidates)
        for number, shard in enumerate(self._shards):
            if shard.dim != self._candidates.shape[1]:
                raise ValueError(
                    f"LocalCoverage: shard {number} has shape ({shard.n_points}, {shard.dim}), "
                    f"the candidates have {self._candidates.shape}; both must come from the same "
                    "encoder"
                )

    @property
    def n_points(self) -> int:
        """Number of ground points in all shards."""
        return sum(shard.n_points for shard in self._shards)

    def column_sum(self) -> Float64:
        """Return the sum of all ground vectors, (d,) float64."""
        total = np.zeros(self._candidates.shape[1], dtype=np.float64)
        for shard in self._shards:
            total += shard.column_sum()
        return total

    def gains(self, indices: Int64) -> Float64:
        """Return the coverage gains of these candidates, (c,) float64; O(N d c) time."""
        block = self._candidates[indices]
        total = np.zeros(len(block), dtype=np.float64)
        for shard in self._shards:
            total += shard.gains(block)
        return total

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; returns its coverage gain."""
        gain = 0.0
        for shard in self._shards:
            gain += shard.add(self._candidates[index])
        return gain

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""
        block = self._candidates[indices]
        total = np.zeros(len(block), dtype=np.float64)
        for shard in self._shards:
            total += shard.add_many(block)
        return total

    def n_covered(self, k: int) -> Int64:
        """Return how many ground points each of the first k picks covers best, (k,) int64."""
        total = np.zeros(k, dtype=np.int64)
        for shard in self._shards:
            total += shard.n_covered(k)
        return total

    def reset(self) -> None:
        """Forget all picks."""
        for shard in self._shards:
            shard.reset()
