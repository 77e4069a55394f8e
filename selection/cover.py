"""How well every ground point is covered so far, and by which pick."""

from __future__ import annotations

import numpy as np

from selection.arrays import Float64, Int64


class Cover:
    """How well every ground point is covered so far, and by which pick.

    A point's cover is its largest cosine to a pick, and -1 before the first: with that baseline C
    is monotone and submodular also where cosines are negative.
    """

    def __init__(self, n_points: int, weights: Float64 | None) -> None:
        """Start from no picks.

        Args:
            n_points: Number of ground points m.
            weights: (m,) float64 u, None for 1.
        """
        self.level = np.full(n_points, -1.0, dtype=np.float32)
        self.owner = np.full(n_points, -1, dtype=np.int64)
        self.n_picks = 0
        self._weights = weights
        self._given = False

    def picked(self, n_picks: int) -> None:
        """Count picks that have raised the cover."""
        if self.n_picks == 0 and n_picks and not self._given:
            # A point opposite to the first pick gains nothing, and is its too.
            self.owner[self.owner < 0] = 0
        self.n_picks += n_picks

    def given(self, n_vectors: int) -> float:
        """Return sum_i u_i (cover_i + 1) after vectors that are no picks have raised the cover."""
        self._given = self._given or n_vectors > 0
        above = self.level.astype(np.float64) + 1.0
        return float(above.sum() if self._weights is None else self._weights @ above)

    def n_covered(self, k: int) -> Int64:
        """Return how many points each of the first k picks owns, (k,) int64."""
        owned = self.owner[self.owner >= 0]
        return np.bincount(owned, minlength=k)[:k].astype(np.int64)


def require_no_picks(name: str, n_picks: int) -> None:
    """Refuse to start from vectors once something was picked.

    Args:
        name: What the caller calls this step.
        n_picks: Picks so far.

    Raises:
        ValueError: There are picks.
    """
    if n_picks:
        raise ValueError(
            f"{name}: found {n_picks} picks, wanted none; call reset first, then cover_with, "
            "then add"
        )
