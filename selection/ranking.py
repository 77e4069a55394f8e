"""What Stage 2 returns, and the one rule by which scores become an order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np

from selection.arrays import Bool, Float64, Int64
from selection.objective import TIE_TOLERANCE, Objective

# Floats that one chunk of queries may hold per array: 32 MiB, whatever the number of queries.
_CHUNK_FLOATS = 1 << 22
_MAX_CHUNK = 1024


@dataclass(frozen=True)
class Ranking:
    """The demonstrations of each query, best first.

    Attributes:
        indices: (q, k) int64 into the pool, distinct within a row; -1 from n_valid on.
        scores: (q, k) float64, the method's own score of each; nan from n_valid on.
        n_valid: (q,) int64, how many entries of each row exist: min(k, candidates allowed).
    """

    indices: Int64
    scores: Float64
    n_valid: Int64


@dataclass(frozen=True)
class RankOptions:
    """Settings of Stage 2; a ranker reads those that concern it.

    Attributes:
        k: Demonstrations per query, at least 1.
        lam: Weight of the log-determinant, as in Stage 1.
        scale: As in Stage 1.
        ridge: As in Stage 1.
        mmr_lambda: Weight of relevance against redundancy in MMR, 0 to 1; LangChain's default.
        recall: Candidates that a method with a recalled set looks at; at least k are taken.
        theta: Weight of relevance against the log-determinant in `dpp`, at least 0.
        labels: Labels that `stratified` gives a place of their own; None means k.
        diversity: Weight of the log-determinant of the set in `mutual-information`, at least 0.
        probe_weight: Weight of the log-probability of a record's label in `probe`, at least 0.
        seed: Of the draws of `random`.
        threads: Threads to use; no result depends on it.
    """

    k: int
    lam: float = 1.0
    scale: Literal["absolute", "mean"] = "absolute"
    ridge: float = 1e-3
    mmr_lambda: float = 0.5
    recall: int = 50
    theta: float = 2.0
    labels: int | None = None
    diversity: float = 0.0
    probe_weight: float = 0.2
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse values no ranker can use."""
        if self.k < 1 or self.recall < 1:
            raise ValueError(
                f"rank options: found k {self.k} and recall {self.recall}, wanted at least 1"
            )
        if not 0 <= self.mmr_lambda <= 1:
            raise ValueError(f"rank options: found mmr_lambda {self.mmr_lambda}, wanted 0 to 1")
        for name in ("theta", "diversity", "probe_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"rank options: found {name} {value}, wanted a finite number >= 0")
        if self.labels is not None and self.labels < 0:
            raise ValueError(f"rank options: found labels {self.labels}, wanted at least 0")
        self.objective()

    def objective(self) -> Objective:
        """Return the objective of Stage 1 with the same lam, scale and ridge."""
        return Objective(lam=self.lam, scale=self.scale, ridge=self.ridge)


def query_chunks(n_queries: int, floats_per_query: int) -> Iterator[slice]:
    """Yield slices of queries small enough that memory does not grow with their number.

    Args:
        n_queries: Number of queries.
        floats_per_query: Widest array row that one query needs.
    """
    size = min(_MAX_CHUNK, max(1, _CHUNK_FLOATS // max(1, floats_per_query)))
    for start in range(0, n_queries, size):
        yield slice(start, min(start + size, n_queries))


def stack(parts: list[Ranking], k: int) -> Ranking:
    """Join the rankings of consecutive chunks of queries.

    Args:
        parts: In the order of the queries; may be empty.
        k: Width of the result where there are none.
    """
    if not parts:
        empty = np.empty((0, k), dtype=np.int64)
        return Ranking(empty, empty.astype(np.float64), np.empty(0, dtype=np.int64))
    return Ranking(
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.n_valid for part in parts]),
    )


def top_k(
    scores: Float64,
    *,
    k: int,
    allowed: Bool | None,
    tie_rank: Int64,
    floor: float = TIE_TOLERANCE,
) -> Ranking:
    """Return the k best allowed candidates of every row; ties go to the smaller rank.

    Again and again the largest score b left is looked for, and of all scores of at least
    b - TIE_TOLERANCE * |b| - floor the one with the smallest tie rank is taken.

    Args:
        scores: (q, n) float64; -inf is a score like any other.
        k: Wanted per row.
        allowed: (q, n) bool, or None for all.
        tie_rank: (n,) int64.
        floor: What rounding alone can move a score by.

    Returns:
        min(k, allowed) distinct entries per row; O(q (n + k^2)) time without many ties.
    """
    q, n = scores.shape
    ranking = Ranking(
        np.full((q, k), -1, dtype=np.int64),
        np.full((q, k), np.nan, dtype=np.float64),
        np.full(q, min(k, n), dtype=np.int64),
    )
    if allowed is not None:
        np.minimum(allowed.sum(axis=1), k, out=ranking.n_valid)
    if q and n:
        within = _within_reach(scores, allowed, k, floor)
        ranks = np.ascontiguousarray(tie_rank, dtype=np.int64)
        scores = np.ascontiguousarray(scores)
        _rank_rows(scores, within, ranks, floor, ranking.indices, ranking.scores, ranking.n_valid)
    return ranking


def full_order(scores: Float64, tie_rank: Int64, *, floor: float = TIE_TOLERANCE) -> Int64:
    """Return all candidates in the order in which `top_k` would take them; O(n log n).

    Args:
        scores: (n,) float64.
        tie_rank: (n,) int64.
        floor: As in `top_k`.

    Returns:
        (n,) int64, a permutation.
    """
    falling = np.argsort(-scores, kind="stable")
    taken = np.zeros(len(scores), dtype=np.bool_)
    order: list[int] = []
    heap: list[tuple[int, int]] = []
    entered, head = 0, 0
    while len(order) < len(scores):
        while taken[falling[head]]:
            head += 1
        best = float(scores[falling[head]])
        # As the best score left falls, the window below it only moves down: nobody drops out.
        least = best - TIE_TOLERANCE * abs(best) - floor if math.isfinite(best) else best
        while entered < len(scores) and scores[falling[entered]] >= least:
            index = int(falling[entered])
            heapq.heappush(heap, (int(tie_rank[index]), index))
            entered += 1
        index = heapq.heappop(heap)[1]
        taken[index] = True
        order.append(index)
    return np.array(order, dtype=np.int64)


def _within_reach(scores: Float64, allowed: Bool | None, k: int, floor: float) -> Bool:
    """Entries that can be among the k: at least the k-th largest, or tied with it; (q, n)."""
    masked = scores if allowed is None else np.where(allowed, scores, -np.inf)
    n = scores.shape[1]
    if n > k:
        least = np.partition(masked, n - k, axis=1)[:, n - k]
        within = scores >= (least - TIE_TOLERANCE * np.abs(least) - floor)[:, None]
    else:
        within = np.ones(scores.shape, dtype=np.bool_)
    return within if allowed is None else within & allowed


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _rank_rows(
    scores: Float64,
    within: Bool,
    tie_rank: Int64,
    floor: float,
    indices: Int64,
    values: Float64,
    n_valid: Int64,
) -> None:
    left = np.empty(scores.shape[1], dtype=np.int64)
    for row in range(scores.shape[0]):
        n_left = 0
        for column in range(scores.shape[1]):
            if within[row, column]:
                left[n_left] = column
                n_left += 1
        for position in range(n_valid[row]):
            best = -np.inf
            for i in range(n_left):
                best = max(best, scores[row, left[i]])
            least = best - TIE_TOLERANCE * abs(best) - floor
            pick = -1
            for i in range(n_left):
                if scores[row, left[i]] >= least and (
                    pick < 0 or tie_rank[left[i]] < tie_rank[left[pick]]
                ):
                    pick = i
            indices[row, position] = left[pick]
            values[row, position] = scores[row, left[pick]]
            n_left -= 1
            left[pick] = left[n_left]
