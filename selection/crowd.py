"""What methods with a rule of their own know beside the candidates: masses and voters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from selection.arrays import Float64, Int64, Vectors

# As in the paper of vote-k, for a few thousand rows.
NEIGHBOURS = 150
# Fewer votes than this of a voter tell hardly anything apart.
LEAST_VOTES = 10
# Voters of one graph; of more points so many are drawn.
VOTERS_MOST = 16_384


@dataclass(frozen=True)
class Voters:
    """Points that vote for candidates, and stand for a whole corpus (vote-k).

    Attributes:
        vectors: (m, d) float32 or float16 unit vectors.
        own: (m,) int64, which candidate a voter is itself, -1 for none.
        weights: (m,) float64, how much a vote counts; None for 1.
        reach: A voter's neighbourhood ends at its `reach`-th nearest other voter.
    """

    vectors: Vectors
    own: Int64
    weights: Float64 | None = None
    reach: int = NEIGHBOURS


@dataclass(frozen=True)
class Crowd:
    """The points behind the candidates, for methods that do not ask a coverage oracle.

    Attributes:
        mass: (n,) float64, weight of the points that each candidate stands for; None for 1. Those
            of mass 0 are not clustered (k-means) and do not vote (vote-k).
        voters: Points that vote; None: the candidates do, weighed by their mass.
        neighbours: Most votes that one voter has.
        threads: Threads to use; no result depends on it.
    """

    mass: Float64 | None = None
    voters: Voters | None = None
    neighbours: int = NEIGHBOURS
    threads: int = 1


def votes_among(neighbours: int, n_points: int, n_total: int) -> int:
    """Return how many of so many points are the part of a neighbourhood that falls on them.

    Args:
        neighbours: Size of the neighbourhood among all points.
        n_points: Points of a random part or sample.
        n_total: All points.

    Returns:
        The part of `neighbours` in proportion, rounded up, at least LEAST_VOTES of them.
    """
    part = math.ceil(neighbours * n_points / max(1, n_total))
    return min(neighbours, max(LEAST_VOTES, part))
