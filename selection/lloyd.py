"""Points to be clustered, and Lloyd's rounds that move centres to the means of their points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from selection.arrays import Float32, Float64, Int64, UInt64, Vectors, rows_of, squared_norms
from selection.crowd import Crowd
from selection.loops import add_to_centres
from selection.request import Request
from selection.tiles import GROUND_TILE, blocks, one_blas_thread, parts_of, share_out

# Lloyd ends after so many rounds, or when one lowers the sum of squares by less than this part.
MOST_ROUNDS = 100
LEAST_FALL = 1e-4
# A squared distance as small as this is 0: cosines are float32.
SAME_PLACE = 1e-6
# Centres that a tile of points is compared with at once.
CENTRE_BLOCK = 1024


@dataclass(frozen=True)
class Points:
    """What is clustered, in the order of ranks, whatever the order of the candidates.

    Attributes:
        vectors: (n, d) all candidates.
        order: (p,) int64, those with a mass above 0.
        mass: (p,) float64.
        squared: (p,) float64 squared norms.
        keys: (p,) uint64 random keys.
        threads: Threads to use.
    """

    vectors: Vectors
    order: Int64
    mass: Float64
    squared: Float64
    keys: UInt64
    threads: int

    @classmethod
    def of(cls, candidates: Vectors, request: Request) -> Points:
        """Those of the candidates that have a mass."""
        crowd = request.crowd or Crowd()
        order = np.argsort(request.tie_rank, kind="stable").astype(np.int64)
        mass = np.ones(len(order)) if crowd.mass is None else crowd.mass[order]
        order, mass = order[mass > 0], mass[mass > 0].astype(np.float64)
        squared = squared_norms(candidates)[order]
        return cls(candidates, order, mass, squared, request.keys[order], crowd.threads)

    def __len__(self) -> int:
        return len(self.order)

    def rows(self, rows: slice) -> Float32:
        """Some of them as float32; O(rows * d) memory."""
        return rows_of(self.vectors, self.order[rows])

    def by_tiles(self, work: Callable[[slice, Float32], None]) -> None:
        """Call work on tiles that depend on the number of points alone, on all threads."""

        def part(rows: slice) -> None:
            for start in range(rows.start, rows.stop, GROUND_TILE):
                tile = slice(start, min(start + GROUND_TILE, rows.stop))
                work(tile, self.rows(tile))

        with one_blas_thread:
            for _ in share_out(part, parts_of(len(self)), threads=self.threads):
                pass

    def distances(self, best: Float64) -> Float64:
        """Squared distances from max over centres c of x.c - |c|^2 / 2; 0 at rounding; (p,)."""
        distances = np.maximum(self.squared - 2.0 * best, 0.0)
        distances[distances <= SAME_PLACE] = 0.0
        return distances


@dataclass(frozen=True)
class Clusters:
    """Points by the centre that they are nearest to.

    Attributes:
        centres: (c, d) float32.
        labels: (p,) int64.
        distances: (p,) float64, squared, to the own centre.
        mass: (c,) float64.
        by_label: (p,) int64 points by cluster, in each the nearest to the centre first.
        start: (c + 1,) int64, where each cluster begins there.
        rounds: Rounds that were run.
    """

    centres: Float32
    labels: Int64
    distances: Float64
    mass: Float64
    by_label: Int64
    start: Int64
    rounds: int

    def size(self, cluster: int) -> int:
        """Number of its members."""
        return int(self.start[cluster + 1] - self.start[cluster])

    def members(self, cluster: int) -> Int64:
        """Its points, the nearest to the centre first, ties by rank."""
        return self.by_label[self.start[cluster] : self.start[cluster + 1]]

    @property
    def inertia(self) -> float:
        """Sum of squared distances without masses."""
        return float(np.sum(self.distances))


def lloyd(points: Points, centres: Float32, *, n_fixed: int) -> Clusters:
    """Move every centre to the mean of its points, round by round.

    Args:
        points: p points.
        centres: (c, d) float32, to start with.
        n_fixed: The first so many do not move.

    Returns:
        The clusters after the last round. A centre that loses all its points goes to the point
        farthest from its own centre.
    """
    last, fallen_to = np.full(len(points), -1, dtype=np.int64), np.inf
    for number in range(MOST_ROUNDS + 1):
        labels, distances = _assigned(points, centres)
        total = float(np.sum(points.mass * distances))
        still = np.array_equal(labels, last) or total >= (1 - LEAST_FALL) * fallen_to
        if number == MOST_ROUNDS or still or len(centres) == n_fixed:
            break
        centres, moved = _means(points, centres, labels, distances, n_fixed=n_fixed)
        last, fallen_to = labels, np.inf if moved else total
    mass = _masses(points, labels, len(centres))
    start = np.searchsorted(np.sort(labels), np.arange(len(centres) + 1)).astype(np.int64)
    grid = np.rint(distances / SAME_PLACE).astype(np.int64)
    by_label = np.lexsort((grid, labels)).astype(np.int64)
    return Clusters(centres, labels, distances, mass, by_label, start, number)


def _assigned(points: Points, centres: Float32) -> tuple[Int64, Float64]:
    """The nearest centre of every point, ties to the first, and the squared distance to it."""
    half = (0.5 * squared_norms(centres)).astype(np.float32)
    labels = np.zeros(len(points), dtype=np.int64)
    best = np.full(len(points), -np.inf)

    def work(rows: slice, tile: Float32) -> None:
        for block in blocks(len(centres), CENTRE_BLOCK):
            near = tile @ centres[block].T - half[block]
            first = near.argmax(axis=1)
            value = near[np.arange(len(near)), first].astype(np.float64)
            better = value > best[rows]
            labels[rows] = np.where(better, first + block.start, labels[rows])
            best[rows] = np.where(better, value, best[rows])

    points.by_tiles(work)
    return labels, points.distances(best)


def _means(
    points: Points, centres: Float32, labels: Int64, distances: Float64, *, n_fixed: int
) -> tuple[Float32, bool]:
    """The centres of these clusters, and whether one without points had to be moved."""
    sums = np.zeros(centres.shape, dtype=np.float64)
    for start in range(0, len(points), GROUND_TILE):
        rows = slice(start, min(start + GROUND_TILE, len(points)))
        add_to_centres(points.rows(rows), points.mass[rows], labels[rows], sums)
    mass = _masses(points, labels, len(centres))
    result = centres.copy()
    full = np.flatnonzero(mass > 0)
    full = full[full >= n_fixed]
    result[full] = sums[full] / mass[full, None]
    empty = np.flatnonzero(mass == 0)
    empty = empty[empty >= n_fixed]
    far = np.argsort(-distances, kind="stable")[: len(empty)]
    far = far[distances[far] > 0]
    empty = empty[: len(far)]
    result[empty] = rows_of(points.vectors, points.order[far])
    return result, bool(len(empty))


def _masses(points: Points, labels: Int64, n: int) -> Float64:
    return np.bincount(labels, weights=points.mass, minlength=n).astype(np.float64)
