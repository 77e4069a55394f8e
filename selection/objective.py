"""The objective f = C + lam * D of Stage 1, and the rule by which two gains are called equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from selection.lambda_rule import LambdaRule

# Two gains that differ by less than this part of themselves are a tie, broken by rank.
TIE_TOLERANCE = 1e-6
# A float32 cosine is off by a few 1e-8; a coverage gain is a sum of n_points of them.
COSINE_ROUNDING = 1e-7


@dataclass(frozen=True)
class Objective:
    """What Stage 1 maximises: coverage plus `lam` times the log-determinant.

    Attributes:
        lam: Weight of the log-determinant, at least 0; 0 is coverage alone.
        scale: `absolute` is the paper's sum over the corpus; `mean` divides the coverage by the
            corpus size N, so that one `lam` means the same for every N.
        ridge: eps of M = (1 - eps) W + eps I, in [0, 1); 0 is the paper exactly.
        rule: Changes lambda from pick to pick; `lam` is then not looked at, and a set is judged by
            the last lambda.
    """

    lam: float = 1.0
    scale: Literal["absolute", "mean"] = "absolute"
    ridge: float = 1e-3
    rule: LambdaRule | None = None

    def __post_init__(self) -> None:
        """Refuse values for which f is not defined."""
        if not (math.isfinite(self.lam) and self.lam >= 0):
            raise ValueError(f"objective.lam: found {self.lam}, wanted a finite number >= 0")
        if not 0 <= self.ridge < 1:
            raise ValueError(f"objective.ridge: found {self.ridge}, wanted 0 <= ridge < 1")
        if self.scale not in ("absolute", "mean"):
            raise ValueError(f"objective.scale: found {self.scale!r}, wanted 'absolute' or 'mean'")
        if self.rule is not None and self.ridge == 0:
            raise ValueError("objective.rule: found ridge 0, wanted a ridge above 0")

    @property
    def diverse(self) -> bool:
        """True when the log-determinant counts."""
        return self.lam > 0 or self.rule is not None

    def coverage_scale(self, total_weight: float, *, weight: float, n_total: float | None) -> float:
        """Return the factor by which a sum over ground points of this weight enters f.

        Args:
            total_weight: Weight of the ground points that are summed over, m when unweighted.
            weight: N / m where they stand for a corpus of weight N, else 1.
            n_total: N; None means weight * total_weight.

        Returns:
            `weight` for `absolute`, `weight / N` for `mean`.
        """
        if self.scale == "absolute":
            return weight
        total = weight * total_weight if n_total is None else float(n_total)
        return weight / total if total > 0 else 0.0


def tie_margin(coverage: float, diversity: float, *, floor: float) -> float:
    """Return how far below the best gain another gain still counts as equal.

    Args:
        coverage: The best candidate's coverage gain, as it enters f.
        diversity: Its log-determinant gain times lam.
        floor: What rounding alone can move a coverage gain by.

    Returns:
        TIE_TOLERANCE times the size of the two parts, plus the floor; infinite parts count as 0.
    """
    size = sum(abs(part) for part in (coverage, diversity) if math.isfinite(part))
    return TIE_TOLERANCE * size + floor
