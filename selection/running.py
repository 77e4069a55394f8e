"""Coverage sums over a sample that are brought up to date, and not formed anew.

A candidate's sums change only by the ground points whose cover has risen since they were formed.
At pick s that is about one point in s for every pick since, so a later look costs a part of a
first one: of the looks at 8,192 points for 1,000 of 100,000 a third of the products are left.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np

from selection.arrays import Float32, Float64, Int32, Int64, Vectors, rows_of
from selection.coverage import CoverageShard, LocalCoverage
from selection.kernels import part_of
from selection.loops import add_moments_since, covers_at
from selection.tiles import (
    GROUND_TILE,
    blocks,
    cosines_of,
    one_blas_thread,
    padded,
    share_out,
)
from selection.torch_coverage import TorchShard

# Rises that are kept, on average for each point; sums from before the oldest are formed anew.
REMEMBERED = 32
# Bytes for each of the points and each of the candidates, beside a CoverageShard's.
POINT_BYTES, CANDIDATE_BYTES = 8 * REMEMBERED + 8, 20
# Time for a point: to read it, and for each candidate; to gather it, and for each of those.
_READ, _PRODUCT, _GATHER, _UPDATE = 0.1, 0.01, 0.3, 0.012
# Candidates that share the points risen since the first of them was looked at.
_TOGETHER = 256


class RunningCoverage(LocalCoverage):
    """Sums over a sample in this process, with the last sums of every candidate.

    Sums that were brought up to date differ from new ones by rounding: by 1e-7 for each point
    whose cover rose. No result depends on the number of threads.
    """

    def __init__(
        self,
        points: Vectors,
        candidates: Vectors,
        *,
        weights: Float64 | None = None,
        threads: int = 1,
    ) -> None:
        """Keep the points and the candidates.

        Args:
            points: (m, d) float32 or float16 unit vectors.
            candidates: (n, d) float32 or float16 unit vectors that indices point into.
            weights: (m,) float64 of at least 0, None for 1.
            threads: Threads to use.

        Raises:
            ValueError: As `CoverageShard` and `LocalCoverage`.
        """
        self._shard = CoverageShard(points, weights=weights, threads=threads)
        super().__init__([self._shard], candidates)
        self._points, self._weights, self._threads = points, weights, threads
        self._total, self._squares = np.zeros((2, len(candidates)), dtype=np.float64)
        self._start()

    def moments(self, indices: Int64) -> tuple[Float64, Float64]:
        """Return gains and sums of squared terms, (c,) float64 each.

        Args:
            indices: (c,) int64, each once.

        Returns:
            As `LocalCoverage.moments`; O(m d c) time for candidates never looked at or long ago,
            for others O(r d c) with the r points whose cover has risen since.
        """
        since: Int64 = self._at[indices].astype(np.int64)
        order = np.argsort(since, kind="stable")
        since = since[order]
        n_new = self._n_anew(since)
        new, again = indices[order[:n_new]], indices[order[n_new:]]
        if len(new):
            self._total[new], self._squares[new] = super().moments(new)
        if len(again):
            self._update(again, since[n_new:])
        self._at[indices] = self._now
        return self._total[indices], self._squares[indices]

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""
        before = self._shard.level.copy()
        gains = super().add_many(indices)
        risen = np.flatnonzero(self._shard.level > before)
        self._now += 1
        self._risen[risen] = self._now
        self._rises.append(risen.astype(np.int32), before[risen])
        return gains

    def cover_with(self, vectors: Float32) -> float:
        """Start from vectors that are no candidates; returns what they cover above -1."""
        covered = super().cover_with(vectors)
        self._start()
        return covered

    def reset(self) -> None:
        """Forget all picks, the vectors started from, and the candidates' sums."""
        super().reset()
        self._start()

    def _start(self) -> None:
        self._now = 0
        self._at = np.full(len(self._candidates), -1, dtype=np.int32)
        # The last time that each point's cover rose.
        self._risen = np.zeros(self.n_points, dtype=np.int32)
        self._rises = _Rises(REMEMBERED * max(1, self.n_points))

    def _n_anew(self, since: Int64) -> int:
        """Return how many of the first are best formed anew, by the bytes and products of both."""
        # How many points rose last at each time or later, from the start on; none after now.
        counts = np.bincount(self._risen, minlength=self._now + 2)
        risen = np.cumsum(counts[::-1])[::-1][since + 1]
        n_forgotten = int(np.searchsorted(since, self._rises.first))
        update = _GATHER * risen + _UPDATE * np.cumsum(risen[::-1])[::-1]
        anew = self.n_points * (_READ + _PRODUCT * np.arange(1.0, len(since) + 1))
        cost = np.append(update, 0.0) + np.concatenate([[0.0], anew])
        return n_forgotten + int(np.argmin(cost[n_forgotten:]))

    def _update(self, indices: Int64, since: Int64) -> None:
        """Add what the points risen since have changed; `since` ascends."""
        rows = np.flatnonzero(self._risen > since[0])
        if not len(rows):
            return
        # Those risen after a later time are the first ones.
        rows = rows[np.argsort(-self._risen[rows], kind="stable")]
        times = -self._risen[rows]
        place = np.full(self.n_points, -1, dtype=np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        rises, now = self._rises.after(int(since[0])), self._shard.level[rows]
        weights = None if self._weights is None else self._weights[rows]
        points = np.empty((len(rows), self._points.shape[1]), dtype=np.float32)

        def gather(tile: slice) -> None:
            points[tile] = rows_of(self._points, rows[tile])

        def work(item: tuple[slice, slice]) -> Float64:
            part, tile = item
            distinct, when = np.unique(since[part], return_inverse=True)
            before = covers_at(*rises, distinct - since[0], place, tile.start, now[tile])
            cosines = cosines_of(padded(rows_of(self._candidates, indices[part])), points[tile])
            changes = np.zeros((2, part.stop - part.start), dtype=np.float64)
            weight = part_of(weights, tile)
            add_moments_since(cosines, before, when, now[tile], weight, changes[0], changes[1])
            return changes

        items = []
        for part in blocks(len(indices), _TOGETHER):
            n_rows = int(np.searchsorted(times, -since[part.start]))
            items += [(part, tile) for tile in blocks(n_rows, GROUND_TILE)]
        with one_blas_thread:
            for _ in share_out(gather, list(blocks(len(rows), GROUND_TILE)), threads=self._threads):
                pass
            found = share_out(work, items, threads=self._threads)
            for (part, _), changes in zip(items, found, strict=True):
                self._total[indices[part]] += changes[0]
                self._squares[indices[part]] += changes[1]


def sampled_coverage(
    points: Vectors,
    candidates: Vectors,
    *,
    weights: Float64 | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> LocalCoverage:
    """Return the sums over a sample: on a CPU brought up to date, on a GPU formed anew.

    Args:
        points: As `RunningCoverage`.
        candidates: As `RunningCoverage`.
        weights: As `RunningCoverage`.
        threads: As `RunningCoverage`.
        device: `cpu`, or a torch device.
    """
    if device == "cpu":
        return RunningCoverage(points, candidates, weights=weights, threads=threads)
    return LocalCoverage([TorchShard(points, weights=weights, device=device)], candidates)


class _Rises:
    """What each point's cover was before it rose, in the order of time."""

    def __init__(self, most: int) -> None:
        """Start at time 0.

        Args:
            most: Rises that are kept; the oldest are forgotten.
        """
        self.first = 0
        self._most, self._kept = most, 0
        self._log: deque[tuple[Int32, Float32]] = deque()

    def append(self, points: Int32, before: Float32) -> None:
        """Note the rises that lead to the next time.

        Args:
            points: (r,) int32, the points that rose.
            before: (r,) float32, their covers before.
        """
        self._log.append((points, before))
        self._kept += len(points)
        while self._kept > self._most:
            self._kept -= len(self._log.popleft()[0])
            self.first += 1

    def after(self, time: int) -> tuple[Int32, Float32, Int64]:
        """Return the rises after a time, not before `first`.

        Returns:
            (r,) points and (r,) covers before, in the order of time, and (t + 1,) where the rises
            to each of the t times since start, with their end.
        """
        log = list(islice(self._log, time - self.first, None))
        ends = np.cumsum([0, *(len(points) for points, _ in log)])
        points, before = (np.concatenate(parts) for parts in zip(*log, strict=True))
        return points, before, ends
