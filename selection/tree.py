"""The merge tree: how many each partition hands on, and how often partial answers are merged."""

from __future__ import annotations

import math
from dataclasses import dataclass

# A set hands on at most this part of what it got, or choosing there would be no choice,
_AT_MOST = 0.5
# but never less than so many times its fair share of the k1 picks: the best set is spread over
# random parts evenly only on average.
_SHARES = 2.0
# Bytes beside the vector that greedy keeps for a candidate: bounds, gains, marks, norms.
BYTES_BESIDE = 96


@dataclass(frozen=True)
class Level:
    """One level of merging.

    Attributes:
        nodes: How many merges there are.
        fan_in: How many answers of the level below each gets, at most.
        candidates: Most candidates that one merge has.
        k: How many each hands on.
    """

    nodes: int
    fan_in: int
    candidates: int
    k: int


@dataclass(frozen=True)
class MergePlan:
    """What every partition chooses, and the merges above; the last level has one node.

    Attributes:
        partitions: Number of partitions P.
        local_k: How many each partition hands on.
        levels: From the partitions upwards; the last is the root, with k = k1.
        capacity: Most candidates one worker's memory holds.
    """

    partitions: int
    local_k: int
    levels: tuple[Level, ...]
    capacity: int

    def groups(self, level: int) -> list[list[int]]:
        """Which answers of the level below each node of this level merges, in order.

        Args:
            level: Index into `levels`.

        Returns:
            One list of positions a node.
        """
        below = self.partitions if level == 0 else self.levels[level - 1].nodes
        fan_in = self.levels[level].fan_in
        return [list(range(at, min(at + fan_in, below))) for at in range(0, below, fan_in)]


def candidate_bytes(dim: int, width: int = 4) -> int:
    """Return the bytes a merge keeps for a candidate of `dim` numbers of `width` bytes each."""
    return dim * width + BYTES_BESIDE


def plan_merges(
    n_rows: int,
    n_partitions: int,
    k1: int,
    *,
    dim: int,
    memory_bytes: int,
    width: int = 4,
) -> MergePlan:
    """Plan the merges from sizes that do not depend on the cluster.

    A set hands on k1 candidates, as RandGreeDi asks, unless that is more than half of what it
    has: then half, but at least twice its fair share of k1. Merges are stacked until what one of
    them gets fits half of a worker's memory (Lucic et al. 2016; GreedyML, Gopal et al. 2024).

    Args:
        n_rows: Rows of the whole corpus, N.
        n_partitions: P.
        k1: Picks wanted.
        dim: d.
        memory_bytes: Declared memory of a worker.
        width: Bytes of one stored number.

    Returns:
        The plan; with one partition a single root that hands its answer through.

    Raises:
        ValueError: No tree of merges fits that memory; says how much would.
    """
    bytes_each = candidate_bytes(dim, width)
    capacity = memory_bytes // 2 // bytes_each
    share = 1 / n_partitions
    local_k = each = _handed_on(n_rows * share, k1, share)
    count, levels = n_partitions, []
    while _together(count, each, n_rows) > capacity and count > 1:
        size = min(each, -(-n_rows // count))
        fan_in = min(count, max(2, capacity // max(1, size)))
        nodes = -(-count // fan_in)
        if fan_in * size <= capacity:
            fan_in = -(-count // nodes)  # equal shares, instead of full nodes and a rest
        merged = _handed_on(fan_in * size, k1, share * fan_in)
        if fan_in * size > capacity or _together(nodes, merged, n_rows) >= count * size:
            needed = 2 * bytes_each * (2 * size if fan_in * size > capacity else count * size)
            raise ValueError(
                f"merging {count} answers of {size:,} candidates with {bytes_each} bytes each "
                f"needs {needed / 2**20:,.0f} MiB in a worker, {memory_bytes / 2**20:,.0f} MiB are "
                "declared"
            )
        levels.append(Level(nodes, fan_in, fan_in * size, merged))
        count, each, share = nodes, merged, share * fan_in
    levels.append(Level(1, count, _together(count, each, n_rows), k1))
    return MergePlan(n_partitions, local_k, tuple(levels), capacity)


def _together(count: int, each: int, n_rows: int) -> int:
    return min(count * each, n_rows)


def _handed_on(held: float, k1: int, share: float) -> int:
    fair = k1 * min(1.0, share)
    # Four standard deviations of a random share: a few rows are spread very unevenly.
    least = _SHARES * fair + 4 * math.sqrt(fair) + 4
    return min(k1, math.ceil(max(least, held * _AT_MOST)))
