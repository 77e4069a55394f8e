"""vote-k without its second phase: picks that many points have among their nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, rows_of
from selection.crowd import VOTERS_MOST, Crowd, Voters
from selection.modes import sample_rows
from selection.request import Request, begin
from selection.tiles import blocks, one_blas_thread, share_out

# A vote counts rho^-p once its voter has p picks among its neighbours; that of the paper.
RHO = 10
# A whole vote. Scores are integers, so that equal scores are equal in whatever order they are
# added: what RHO has divided out of 14 digits is 0.
WHOLE_VOTE = 10**14
# Cosines are float64 and compared on this grid: copies round by 1e-16, other texts differ by more.
_GRID = float(2**29)
_OFFSET = 2**30
_PLACES = 2**31
_VOTER_BLOCK, _POINT_BLOCK = 256, 4096


@dataclass(frozen=True)
class Graph:
    """Who votes for whom.

    Attributes:
        votes: (m, v) int64 candidates, -1 behind the last.
        radius: (m,) int64, cosine (on the grid) at which a voter's neighbourhood ends.
    """

    votes: Int64
    radius: Int64


def vote_k_picks(candidates: Vectors, request: Request) -> Int64:
    """Pick the candidate with the highest score, k times (Su et al. 2023, "fast vote-k").

    score(u) = sum of s(v) over voters v that have u among their nearest neighbours, s(v) =
    rho^-(picks among v's neighbours), and 0 for a voter that is picked itself. The graph is exact;
    of more than VOTERS_MOST candidates so many vote, drawn by their keys. Vectors that are given
    count as picks.

    Args:
        candidates: (n, d) float32 or float16 unit vectors.
        request: Size, ranks of ties, keys, limits, what is there already, and `crowd`.

    Returns:
        (k,) int64, in the order of picking, those required first; ties, and what nobody votes
        for, by rank. O(m n d) time for m voters, and 32 bytes a vote.

    Raises:
        ValueError: A request that does not fit.
    """
    allowance, picks = begin(request, len(candidates))
    crowd = request.crowd or Crowd()
    if crowd.voters is not None and len(crowd.voters.vectors) > VOTERS_MOST:
        raise ValueError(
            f"request.crowd.voters: found {len(crowd.voters.vectors):,}, wanted at most "
            f"{VOTERS_MOST:,}; draw a sample"
        )
    voters = crowd.voters or _own_voters(candidates, request, crowd)
    graph = _graph(voters, candidates, request, crowd)
    count = _Count(graph, voters, request, len(candidates))
    for pick in picks:
        count.take(pick)
    while len(picks) < request.k and allowance.alive.any():
        open_ones = np.flatnonzero(allowance.alive)
        scores = count.scores[open_ones]
        tied = open_ones[scores == scores.max()]
        pick = int(tied[np.argmin(request.tie_rank[tied])])
        allowance.take(pick)
        count.take(pick)
        picks.append(pick)
    return np.array(picks, dtype=np.int64)


def _own_voters(candidates: Vectors, request: Request, crowd: Crowd) -> Voters:
    """The candidates that count, or a sample of them, as voters."""
    counting = np.arange(len(candidates), dtype=np.int64)
    if crowd.mass is not None:
        counting = np.flatnonzero(crowd.mass > 0)
    own = counting[sample_rows(request.keys[counting], VOTERS_MOST)]
    weights = None if crowd.mass is None else crowd.mass[own]
    whole = len(own) == len(candidates)
    return Voters(candidates if whole else candidates[own], own, weights)


def _graph(voters: Voters, candidates: Vectors, request: Request, crowd: Crowd) -> Graph:
    """The nearest candidates of each voter, and where its neighbourhood ends."""
    places = np.argsort(request.tie_rank, kind="stable")
    if crowd.voters is not None and request.limits.allowed is not None:
        places = places[request.limits.allowed[places]]  # others are no part of this merge
    in_order = np.array_equal(places, np.arange(len(candidates)))
    place_of = np.full(len(candidates) + 1, -1, dtype=np.int64)
    place_of[places] = np.arange(len(places))
    keys = nearest(
        voters.vectors,
        candidates if in_order else candidates[places],
        k=crowd.neighbours,
        own=place_of[voters.own],
        threads=crowd.threads,
    )
    radius = _ends(keys)
    if crowd.voters is not None:
        itself = np.arange(len(voters.vectors), dtype=np.int64)
        radius = _ends(
            nearest(
                voters.vectors,
                voters.vectors,
                k=voters.reach,
                own=itself,
                threads=crowd.threads,
            )
        )
        keys[keys // _PLACES < radius[:, None]] = -1
    votes = np.full(keys.shape, -1, dtype=np.int64)
    there = keys >= 0
    votes[there] = places[_PLACES - 1 - keys[there] % _PLACES]
    return Graph(votes, radius)


def _ends(keys: Int64) -> Int64:
    """The smallest cosine of each row; -1, below all, where there are too few points."""
    if not keys.shape[1]:
        return np.full(len(keys), -1, dtype=np.int64)
    return keys.min(axis=1) // _PLACES


def nearest(voters: Vectors, points: Vectors, *, k: int, own: Int64, threads: int = 1) -> Int64:
    """Return the k nearest points of every voter, itself left out; ties go to the first.

    Args:
        voters: (m, d) float32 or float16.
        points: (n, d) float32 or float16, at most 2^31 rows, in the order of their ranks.
        k: Points wanted.
        own: (m,) int64, the point that a voter is itself, -1 for none.
        threads: Threads to use.

    Returns:
        (m, min(k, n)) int64 in no order: cosine on a grid, times 2^31, plus 2^31 - 1 less the
        point's row; -1 where there are too few points. O(m n d) time in float64 and O(m k) memory,
        beside about 40 MiB a thread.
    """
    n, width = len(points), min(k, len(points))
    result = np.full((len(voters), width), -1, dtype=np.int64)

    def work(rows: slice) -> None:
        best = result[rows]
        block = rows_of(voters, rows).astype(np.float64)
        for columns in blocks(n, _POINT_BLOCK):
            tile = rows_of(points, columns).astype(np.float64)
            keys = _keys(block @ tile.T, columns)
            here = np.flatnonzero((own[rows] >= columns.start) & (own[rows] < columns.stop))
            keys[here, own[rows][here] - columns.start] = -1
            best[:] = _largest(best, keys)

    with one_blas_thread:
        for _ in share_out(work, list(blocks(len(voters), _VOTER_BLOCK)), threads=threads):
            pass
    return result


def _keys(cosines: Float64, columns: slice) -> Int64:
    """One integer for cosine and row, so that no two points of a voter are equal."""
    np.multiply(cosines, _GRID, out=cosines)
    np.rint(cosines, out=cosines)
    keys = cosines.astype(np.int64)
    keys += _OFFSET
    keys *= _PLACES
    keys += _PLACES - 1 - np.arange(columns.start, columns.stop)
    return keys


def _largest(best: Int64, keys: Int64) -> Int64:
    """The largest of what was found before and what is new, row by row."""
    both = np.concatenate([best, keys], axis=1)
    width = best.shape[1]
    both.partition(both.shape[1] - width, axis=1)
    return both[:, both.shape[1] - width :]


class _Count:
    """The score of every candidate, kept up to date from pick to pick."""

    def __init__(self, graph: Graph, voters: Voters, request: Request, n: int) -> None:
        self._votes, self._own = graph.votes, voters.own
        self._value = _whole_votes(voters)
        if request.given is not None and len(request.given):
            power = np.minimum(_within(voters.vectors, request.given, graph.radius), 15)
            self._value //= np.int64(RHO) ** power
        self.scores = np.zeros(n, dtype=np.int64)
        voter, column = np.nonzero(graph.votes >= 0)
        target = graph.votes[voter, column]
        np.add.at(self.scores, target, self._value[voter])
        by_target = np.argsort(target, kind="stable")
        self._voters = voter[by_target]
        self._start = np.searchsorted(target[by_target], np.arange(n + 1))

    def take(self, pick: int) -> None:
        """Discount the votes of those that voted for a pick; its own end."""
        voters = self._voters[self._start[pick] : self._start[pick + 1]]
        self._lower(voters, self._value[voters] // RHO)
        itself = np.flatnonzero(self._own == pick)
        self._lower(itself, np.zeros(len(itself), dtype=np.int64))

    def _lower(self, voters: Int64, value: Int64) -> None:
        votes = self._votes[voters]
        less = np.broadcast_to((self._value[voters] - value)[:, None], votes.shape)
        there = votes >= 0
        np.subtract.at(self.scores, votes[there], less[there])
        self._value[voters] = value


def _whole_votes(voters: Voters) -> Int64:
    if voters.weights is None:
        return np.full(len(voters.vectors), WHOLE_VOTE, dtype=np.int64)
    most = max(float(voters.weights.max(initial=0.0)), float(np.finfo(np.float64).tiny))
    return np.rint(voters.weights / most * WHOLE_VOTE).astype(np.int64)


def _within(voters: Vectors, given: Float32, radius: Int64) -> Int64:
    """How many of these vectors lie in the neighbourhood of each voter, (m,)."""
    count = np.zeros(len(voters), dtype=np.int64)
    wide = given.astype(np.float64)
    with one_blas_thread:
        for rows in blocks(len(voters), _VOTER_BLOCK):
            block = rows_of(voters, rows).astype(np.float64)
            for columns in blocks(len(wide), _POINT_BLOCK):
                grid = np.rint(block @ wide[columns].T * _GRID).astype(np.int64) + _OFFSET
                count[rows] += (grid >= radius[rows, None]).sum(axis=1)
    return count
