"""Facility location: how well the picks cover every ground point, one partition at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selection.arrays import (
    Float32,
    Float64,
    Int64,
    Vectors,
    require_vectors,
    require_weights,
    rows_of,
)
from selection.cover import Cover, require_no_picks
from selection.kernels import column_sum, cover_by, excess, excess_moments, lift_cover
from selection.oracle import CoverageOracle, Shard
from selection.tiles import CANDIDATE_BLOCK, blocks


class CoverageShard:
    """The exact sums over the ground points of one partition."""

    def __init__(
        self, vectors: Vectors, *, weights: Float64 | None = None, threads: int = 1
    ) -> None:
        """Keep the ground points, as they are stored.

        Args:
            vectors: (m, d) float32 or float16 unit vectors, may be a read-only np.memmap; m may
                be 0. Arithmetic is float32 either way.
            weights: (m,) float64 of at least 0, how much each point counts; None for 1.
            threads: Threads to use; no result depends on it.

        Raises:
            ValueError: Vectors of another dtype, not finite, not a matrix, or longer than 1; or a
                weight that is not finite or below 0.
        """
        self._vectors = require_vectors("CoverageShard.vectors", vectors)
        self._weights = (
            None
            if weights is None
            else require_weights("CoverageShard.weights", weights, len(self._vectors))
        )
        self._threads = threads
        self.reset()

    @property
    def n_points(self) -> int:
        """Number of ground points m."""
        return len(self._vectors)

    @property
    def total_weight(self) -> float:
        """Sum of the weights, m where there are none."""
        return float(self.n_points if self._weights is None else self._weights.sum())

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self._vectors.shape[1])

    @property
    def level(self) -> Float32:
        """How well every ground point is covered, (m,); raised in place by the next picks."""
        return self._cover.level

    def reset(self) -> None:
        """Forget all picks, and the vectors started from; O(m)."""
        self._cover = Cover(self.n_points, self._weights)

    def column_sum(self) -> Float64:
        """Return sum_i u_i e_i: the first gain of x is <x, sum> + total_weight.

        Returns:
            (d,) float64; O(m d) time.
        """
        return column_sum(self._vectors, weights=self._weights, threads=self._threads)

    def gains(self, candidates: Vectors) -> Float64:
        """Return sum_i u_i max(0, w_ix - cover_i) for every candidate x.

        Args:
            candidates: (c, d) float32 unit vectors.

        Returns:
            (c,) float64; O(m d c) time, a tile per thread of memory beyond the result.

        Raises:
            ValueError: The candidates are not finite vectors of this dimension.
        """
        block = require_vectors("CoverageShard.gains.candidates", candidates, dim=self.dim)
        return excess(
            self._vectors, self._cover.level, block, weights=self._weights, threads=self._threads
        )

    def moments(self, candidates: Vectors) -> tuple[Float64, Float64]:
        """Return the gains, and the sums of the squares of the terms they add up.

        Args:
            candidates: (c, d) float32 unit vectors.

        Returns:
            Two (c,) float64; O(m d c) time.

        Raises:
            ValueError: As `gains`.
        """
        block = require_vectors("CoverageShard.moments.candidates", candidates, dim=self.dim)
        return excess_moments(
            self._vectors, self._cover.level, block, weights=self._weights, threads=self._threads
        )

    def add(self, candidate: Vectors) -> float:
        """Take a candidate as the next pick.

        Args:
            candidate: (d,) float32 unit vector.

        Returns:
            Its gain on these ground points; O(m d) time.

        Raises:
            ValueError: As `gains`.
        """
        return float(self.add_many(candidate[None, :])[0])

    def add_many(self, candidates: Vectors) -> Float64:
        """Take candidates as the next picks, one after another.

        Args:
            candidates: (c, d) float32 unit vectors, in the order of picking.

        Returns:
            (c,) float64, the gain of each given those before it; O(m d c) time.

        Raises:
            ValueError: As `gains`.
        """
        block = require_vectors("CoverageShard.add.candidates", candidates, dim=self.dim)
        gains = cover_by(
            self._vectors,
            block,
            self._cover.level,
            self._cover.owner,
            first=self._cover.n_picks,
            weights=self._weights,
            threads=self._threads,
        )
        self._cover.picked(len(block))
        return gains

    def cover_with(self, vectors: Vectors) -> float:
        """Start from vectors that are no candidates: they raise the cover and own no point.

        Args:
            vectors: (a, d) float32 unit vectors, such as those annotated already.

        Returns:
            sum_i u_i (cover_i + 1), what they cover above the baseline; O(m d a) time.

        Raises:
            ValueError: As `gains`, or something was picked before.
        """
        require_no_picks("CoverageShard.cover_with", self._cover.n_picks)
        block = require_vectors("CoverageShard.cover_with.vectors", vectors, dim=self.dim)
        lift_cover(self._vectors, block, self._cover.level, threads=self._threads)
        return self._cover.given(len(block))

    def n_covered(self, k: int) -> Int64:
        """Return how many ground points each of the first k picks covers best.

        Args:
            k: Length of the answer.

        Returns:
            (k,) int64; a point covered equally by two picks belongs to the earlier, one that the
            vectors started from cover at least as well belongs to none.
        """
        return self._cover.n_covered(k)


class LocalCoverage:
    """A CoverageOracle over shards that live in this process, added up in their order."""

    def __init__(self, shards: Sequence[Shard], candidates: Vectors) -> None:
        """Keep the shards and the candidates.

        Args:
            shards: One per partition, in partition order.
            candidates: (n, d) float32 or float16 unit vectors that indices point into.

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

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all ground points."""
        return float(sum(shard.total_weight for shard in self._shards))

    def column_sum(self) -> Float64:
        """Return the weighted sum of all ground vectors, (d,) float64."""
        total = np.zeros(self._candidates.shape[1], dtype=np.float64)
        for shard in self._shards:
            total += shard.column_sum()
        return total

    def gains(self, indices: Int64) -> Float64:
        """Return the coverage gains of these candidates, (c,) float64; O(N d c) time."""
        total = np.zeros(len(indices), dtype=np.float64)
        for part in blocks(len(indices), CANDIDATE_BLOCK):
            block = rows_of(self._candidates, indices[part])
            for shard in self._shards:
                total[part] += shard.gains(block)
        return total

    def moments(self, indices: Int64) -> tuple[Float64, Float64]:
        """Return gains and sums of squared terms, (c,) float64 each; O(N d c) time."""
        total, squares = np.zeros((2, len(indices)), dtype=np.float64)
        for part in blocks(len(indices), CANDIDATE_BLOCK):
            block = rows_of(self._candidates, indices[part])
            for shard in self._shards:
                gains, squared = shard.moments(block)
                total[part] += gains
                squares[part] += squared
        return total, squares

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; returns its coverage gain."""
        return float(self.add_many(np.array([index], dtype=np.int64))[0])

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""
        block = rows_of(self._candidates, indices)
        total = np.zeros(len(block), dtype=np.float64)
        for shard in self._shards:
            total += shard.add_many(block)
        return total

    def cover_with(self, vectors: Float32) -> float:
        """Start from vectors that are no candidates; returns what they cover above -1."""
        return float(sum(shard.cover_with(vectors) for shard in self._shards))

    def n_covered(self, k: int) -> Int64:
        """Return how many ground points each of the first k picks covers best, (k,) int64."""
        total = np.zeros(k, dtype=np.int64)
        for shard in self._shards:
            total += shard.n_covered(k)
        return total

    def reset(self) -> None:
        """Forget all picks, and the vectors started from."""
        for shard in self._shards:
            shard.reset()


__all__ = ["CoverageOracle", "CoverageShard", "LocalCoverage", "Shard"]
