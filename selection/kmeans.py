"""k-means: the candidates nearest to the centres of k clusters."""

from __future__ import annotations

import math

import numpy as np

from selection.arrays import Float32, Float64, Int64, UInt64, Vectors, rows_of, squared_norms
from selection.kcenter import farthest_first
from selection.lloyd import CENTRE_BLOCK, Clusters, Points, lloyd
from selection.loops import mixed
from selection.request import Allowance, Request, begin
from selection.tiles import blocks


def kmeans_picks(candidates: Vectors, request: Request) -> tuple[Int64, Float64]:
    """Cluster the points and pick the candidate nearest to the centre of each cluster.

    Centres start by k-means++ (Arthur and Vassilvitskii 2007) and move by Lloyd's rounds. What is
    given or required is a centre that stays where it is. Clusters pick the heaviest first; what
    they leave of k, because a cluster has nothing that may be picked or there are fewer distinct
    points than k, is filled farthest first.

    Args:
        candidates: (n, d) float32 or float16 unit vectors; points too, by `crowd.mass`.
        request: Size, ranks of ties, keys for the start, limits, and what is there already.

    Returns:
        (k,) int64, those required first; (k,) float64, mass of the cluster of each pick, 0 for
        those required or filled in. O(n d k) time a round; 60 bytes a point and 4 ln k more, and
        20 d bytes a centre.

    Raises:
        ValueError: A request that does not fit.
    """
    allowance, picks = begin(request, len(candidates))
    points = Points.of(candidates, request)
    fixed = _fixed(candidates, request, picks)
    n_free = max(0, min(request.k - len(picks), len(points)))
    centres = seeded(points, fixed, n_free)
    found = lloyd(points, centres, n_fixed=len(fixed))
    mass = [0.0] * len(picks)
    for position in _heaviest_first(points, found, n_fixed=len(fixed)):
        if len(picks) >= request.k:
            break
        pick = _first_alive(points.order[found.members(position)], allowance)
        if pick is not None:
            allowance.take(pick)
            picks.append(pick)
            mass.append(float(found.mass[position]))
    chosen = farthest_first(candidates, request, allowance, picks)
    return chosen, np.array(mass + [0.0] * (len(chosen) - len(mass)), dtype=np.float64)


def _fixed(candidates: Vectors, request: Request, picks: list[int]) -> Float32:
    """Centres that do not move, (f, d)."""
    required = rows_of(candidates, np.array(picks, dtype=np.int64))
    return required if request.given is None else np.concatenate([request.given, required])


def _heaviest_first(points: Points, found: Clusters, *, n_fixed: int) -> list[int]:
    """Clusters that have members, by falling mass; ties by their nearest member."""
    filled = [j for j in range(n_fixed, len(found.mass)) if found.size(j)]
    return sorted(filled, key=lambda j: (-found.mass[j], int(found.members(j)[0])))


def _first_alive(members: Int64, allowance: Allowance) -> int | None:
    alive = np.flatnonzero(allowance.alive[members])
    return int(members[alive[0]]) if alive.size else None


def seeded(points: Points, fixed: Float32, n_free: int) -> Float32:
    """Choose starting centres by k-means++, with a few trials a step.

    A point is drawn with a chance in proportion to mass times squared distance to the nearest
    centre: the point whose exponential clock of that rate rings first (Efraimidis and Spirakis
    2006). Clocks are hashes of key and step, so that the draw depends on neither order nor threads.

    Args:
        points: p points.
        fixed: (f, d) float32 centres that are there already.
        n_free: Centres wanted beside those.

    Returns:
        (f + n, d) float32, n at most n_free: fewer where there are fewer distinct points.
        O(p d n) time.
    """
    best = np.full(len(points), -np.inf)
    for block in blocks(len(fixed), CENTRE_BLOCK):
        best = np.maximum(best, _closeness(points, fixed[block]).max(axis=1))
    centres = [fixed]
    trials = 2 + int(math.log(max(1, n_free)))
    for step in range(n_free):
        first = step == 0 and not len(fixed)
        rate = points.mass if first else points.mass * points.distances(best)
        drawn = _rung_first(points.keys, rate, step=step, n=trials)
        if not len(drawn):
            break
        tried = rows_of(points.vectors, points.order[drawn])
        closer = np.maximum(_closeness(points, tried), best[:, None])
        left = [
            float(np.sum(points.mass * points.distances(closer[:, j]))) for j in range(len(drawn))
        ]
        winner = int(np.argmin(left))
        centres.append(tried[winner : winner + 1])
        best = closer[:, winner]
    return np.concatenate(centres)


def _closeness(points: Points, centres: Float32) -> Float64:
    """x.c - |c|^2 / 2 of every point and centre, the larger the nearer; (p, c)."""
    half = 0.5 * squared_norms(centres)
    result = np.empty((len(points), len(centres)), dtype=np.float64)

    def work(rows: slice, tile: Float32) -> None:
        result[rows] = tile @ centres.T - half

    points.by_tiles(work)
    return result


def _rung_first(keys: UInt64, rate: Float64, *, step: int, n: int) -> Int64:
    """The n points whose clocks ring first, in that order; those of rate 0 never do."""
    with np.errstate(over="ignore"):
        bits = mixed(keys ^ (np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    clocks = np.full(len(keys), np.inf)
    clocks[rate > 0] = -np.log(uniform[rate > 0]) / rate[rate > 0]
    first = np.argsort(clocks, kind="stable")[:n]
    return first[np.isfinite(clocks[first])].astype(np.int64)
