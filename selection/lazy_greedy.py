"""Exact lazy greedy: the picks of naive greedy for a fraction of its gain evaluations."""

from __future__ import annotations

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, require_per_row, require_vectors
from selection.coverage import CoverageOracle
from selection.kernels import CANDIDATE_STEP
from selection.objective import COSINE_ROUNDING, Objective, tie_margin
from selection.trace import Selection, Trace

# Stale candidates are refreshed in batches of this many times the median need of the last steps.
BATCH_MARGIN = 1.2
_HISTORY = 32
_FIRST_BATCH = 256


def lazy_greedy(
    oracle: CoverageOracle,
    candidates: Float32,
    *,
    k: int,
    objective: Objective,
    tie_rank: Int64,
    coverage_weight: float = 1.0,
    forbidden: Bool | None = None,
    n_total: int | None = None,
) -> Selection:
    """Pick k candidates, each the one with the largest gain of f given the picks before it.

    The first pick costs one product with the column sum. After that a candidate's old gains, kept
    apart for coverage and diversity, bound its new ones from above (both terms are submodular), so
    only candidates whose bound reaches the best fresh gain are looked at again (Minoux 1978). In
    the worst case n * k evaluations of O(N d), in practice a few passes over the candidates.

    Args:
        oracle: Coverage sums over the ground points; it is reset first and holds the picks after.
        candidates: (n, d) float32 unit vectors, those the oracle's indices name.
        k: Picks wanted; clipped to the candidates allowed.
        objective: lam, scale and ridge of f.
        tie_rank: (n,) int64; among gains that tie (see `tie_margin`) the smallest rank is picked.
        coverage_weight: N / m where the oracle's m ground points stand for N.
        forbidden: (n,) bool, True for candidates that must not be picked.
        n_total: N of the whole corpus, for scale `mean`; None means coverage_weight * m.

    Returns:
        The picks, all distinct, with their gains.

    Raises:
        ValueError: k below 0, bad vectors, or a companion array of another length.
    """
    candidates = require_vectors("lazy_greedy.candidates", candidates)
    if k < 0:
        raise ValueError(f"lazy_greedy.k: found {k}, wanted at least 0")
    require_per_row("lazy_greedy.tie_rank", tie_rank, (len(candidates),))
    alive = np.ones(len(candidates), dtype=np.bool_)
    if forbidden is not None:
        require_per_row("lazy_greedy.forbidden", forbidden, (len(candidates),))
        alive = ~np.asarray(forbidden, dtype=np.bool_)
    scale = objective.coverage_scale(oracle.n_points, weight=coverage_weight, n_total=n_total)
    trace = Trace(oracle, candidates, objective=objective, scale=scale)
    search = _Search(trace, _first_gains(oracle, candidates, scale), tie_rank, alive)
    n_candidates = int(alive.sum())
    for _ in range(min(k, n_candidates)):
        search.step()
    return trace.selection(evaluations=search.evaluations, n_candidates=n_candidates)


def evaluate(
    oracle: CoverageOracle,
    candidates: Float32,
    picks: Int64,
    *,
    objective: Objective,
    n_total: int | None = None,
    coverage_weight: float = 1.0,
) -> Selection:
    """Return what an ordered set, chosen by anybody, is worth on this oracle; O(k N d) time.

    Args:
        oracle: Coverage sums over the ground points; it is reset first and holds the picks after.
        candidates: (n, d) float32 unit vectors.
        picks: (k,) int64 distinct indices into the candidates.
        objective: lam, scale and ridge of f.
        n_total: N of the whole corpus, for scale `mean`.
        coverage_weight: N / m where the oracle's m ground points stand for N.

    Returns:
        The same picks with their gains, as `lazy_greedy` reports them.

    Raises:
        ValueError: A pick twice or outside the candidates.
    """
    picks = np.asarray(picks, dtype=np.int64)
    n = len(candidates)
    if len(np.unique(picks)) != len(picks) or (
        picks.size and not 0 <= picks.min() <= picks.max() < n
    ):
        raise ValueError(
            f"evaluate.picks: found {len(picks)} indices, {len(np.unique(picks))} of them "
            f"distinct, wanted distinct indices below {n}"
        )
    scale = objective.coverage_scale(oracle.n_points, weight=coverage_weight, n_total=n_total)
    trace = Trace(oracle, candidates, objective=objective, scale=scale)
    trace.add_many(picks)
    return trace.selection(evaluations=len(picks), n_candidates=n)


def _first_gains(oracle: CoverageOracle, candidates: Float32, scale: float) -> Float64:
    """Coverage gains from the empty set, <x, sum> + m, for all candidates; O(n d)."""
    total = oracle.column_sum()
    gains = np.empty(len(candidates), dtype=np.float64)
    for start in range(0, len(candidates), 1024):
        gains[start : start + 1024] = candidates[start : start + 1024].astype(np.float64) @ total
    return scale * (gains + oracle.n_points)


class _Search:
    """Bounds of all candidates; `step` makes one pick."""

    def __init__(self, trace: Trace, first_gains: Float64, tie_rank: Int64, alive: Bool) -> None:
        n = len(first_gains)
        self.evaluations = 0
        self._trace = trace
        self._tie_rank = tie_rank
        self._alive = alive
        self._coverage = first_gains
        self._diverse = trace.lam > 0
        self._diversity = trace.lam * trace.diversity_gains(np.arange(n, dtype=np.int64))
        self._bound = self._coverage + self._diversity
        self._fresh_at = np.zeros(n, dtype=np.int64)
        self._floor = COSINE_ROUNDING * trace.scale * trace.oracle.n_points
        self._needs: list[int] = []

    def step(self) -> None:
        """Refresh stale candidates until none can beat or tie the best fresh one, then pick."""
        batch, before = self._batch_size(), self._bound.copy()
        while True:
            threshold, fresh = self._threshold()
            rivals = self._rivals(threshold)
            if rivals.size:
                self._refresh(self._largest(rivals, batch))
                batch *= 2
            elif threshold == -np.inf:
                self._stop_diversity()
            else:
                break
        # What had to be looked at, not what was: else one full pass would breed the next.
        self._needs.append(int((before[fresh] >= threshold).sum()))
        tied = fresh[self._bound[fresh] >= threshold]
        pick = int(tied[np.argmin(self._tie_rank[tied])])
        self._alive[pick] = False
        self._trace.add(pick)

    def _threshold(self) -> tuple[float, Int64]:
        """Smallest gain that still ties with the best fresh one, and the fresh candidates."""
        now = len(self._trace.picks)
        fresh = np.flatnonzero(self._alive & (self._fresh_at == now))
        if not fresh.size:
            return -np.inf, fresh
        best = int(fresh[np.argmax(self._bound[fresh])])
        margin = tie_margin(
            float(self._coverage[best]), float(self._diversity[best]), floor=self._floor
        )
        return float(self._bound[best]) - margin, fresh

    def _rivals(self, threshold: float) -> Int64:
        stale = self._alive & (self._fresh_at < len(self._trace.picks))
        # A bound of -inf (no rank left) can only stay there: nothing to look at again.
        return np.flatnonzero(stale & (self._bound >= threshold) & (self._bound > -np.inf))

    def _largest(self, rivals: Int64, batch: int) -> Int64:
        if len(rivals) <= batch:
            return rivals
        order = np.argpartition(-self._bound[rivals], batch - 1)
        return rivals[order[:batch]]

    def _refresh(self, chosen: Int64) -> None:
        self._coverage[chosen] = self._trace.scale * self._trace.oracle.gains(chosen)
        if self._diverse:
            self._diversity[chosen] = self._trace.lam * self._trace.diversity_gains(chosen)
        self._bound[chosen] = self._coverage[chosen] + self._diversity[chosen]
        self._fresh_at[chosen] = len(self._trace.picks)
        self.evaluations += len(chosen)

    def _stop_diversity(self) -> None:
        """No candidate left has a rank of its own (ridge 0): coverage alone decides from here."""
        self._diverse = False
        self._diversity[:] = 0.0
        self._bound = self._coverage.copy()

    def _batch_size(self) -> int:
        needs = self._needs[2:][-_HISTORY:]  # the first pick is free, the second needs a full pass
        if not needs:
            return _FIRST_BATCH
        wanted = BATCH_MARGIN * float(np.median(needs))
        return max(CANDIDATE_STEP, -(-int(wanted) // CANDIDATE_STEP) * CANDIDATE_STEP)


__all__ = ["Selection", "evaluate", "lazy_greedy"]
