"""What the greedy search asks of the ground points, whoever holds them and wherever."""

from __future__ import annotations

from typing import Protocol

from selection.arrays import Float32, Float64, Int64


class CoverageOracle(Protocol):
    """Sums over all ground points, wherever they live; candidates are named by their index."""

    @property
    def n_points(self) -> int:
        """Number of ground points summed over."""

    @property
    def total_weight(self) -> float:
        """Sum of the ground points' weights; their number where they have none."""

    def column_sum(self) -> Float64:
        """Weighted sum of all ground vectors, (d,)."""

    def gains(self, indices: Int64) -> Float64:
        """Coverage gain of each of these candidates given the picks so far, (c,)."""

    def moments(self, indices: Int64) -> tuple[Float64, Float64]:
        """Coverage gains, and the sums of the squares of the terms they add up, (c,) each."""

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; returns its coverage gain."""

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""

    def cover_with(self, vectors: Float32) -> float:
        """Start from vectors that are no candidates; returns what they cover above -1."""

    def n_covered(self, k: int) -> Int64:
        """How many ground points each of the first k picks covers best, (k,)."""

    def reset(self) -> None:
        """Forget all picks, and the vectors started from."""


class Shard(Protocol):
    """The sums over the ground points of one partition, for candidates given as vectors."""

    @property
    def n_points(self) -> int:
        """Number of ground points m."""

    @property
    def total_weight(self) -> float:
        """Sum of their weights."""

    @property
    def dim(self) -> int:
        """Dimension d."""

    def column_sum(self) -> Float64:
        """Weighted sum of the ground vectors, (d,)."""

    def gains(self, candidates: Float32) -> Float64:
        """Coverage gain of each of these vectors, (c,)."""

    def moments(self, candidates: Float32) -> tuple[Float64, Float64]:
        """Coverage gains, and the sums of the squares of the terms they add up, (c,) each."""

    def add_many(self, candidates: Float32) -> Float64:
        """Take these vectors as the next picks, in order; returns their gains, (c,)."""

    def cover_with(self, vectors: Float32) -> float:
        """Start from vectors that are no candidates; returns what they cover above -1."""

    def n_covered(self, k: int) -> Int64:
        """How many ground points each of the first k picks covers best, (k,)."""

    def reset(self) -> None:
        """Forget all picks, and the vectors started from."""
