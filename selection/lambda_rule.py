"""Dynamic lambda: how much the log-determinant counts may change from pick to pick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from selection.arrays import Float32, Float64

# Gains fall from pick to pick, so only the last ones say what the next will be.
_RECENT = 8
# Steps by which `distance` moves the weight of the log-determinant, in units of the lambda at
# which both terms added the same lately.
_FIRST_WEIGHT = 1 / 64
_UP, _DOWN = 2.0, 1 / 2
_MOST = 64.0
# Part of the error in the share (as a ratio of odds) that is corrected at each pick.
_CORRECTION = 0.25


@dataclass(frozen=True)
class LambdaRule:
    """A schedule, or a target that lambda is steered to.

    Attributes:
        kind: `linear` or `geometric`: from `start` at the first pick to `end` at the last.
            `share`: the log-determinant's share of what the last picks added to g, without
            quality. Its gain in g is log(1 / eps) larger than in f: the share depends on the ridge.
            `distance`: a floor on the mean of 1 - cosine over all pairs of picks.
        start: First lambda of a schedule.
        end: Last lambda of a schedule.
        target: The share, in (0, 1), or the distance, in (0, 2).
    """

    kind: Literal["linear", "geometric", "share", "distance"]
    start: float = 0.0
    end: float = 0.0
    target: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values for which no lambda follows."""
        if self.kind in ("linear", "geometric"):
            low = 0.0 if self.kind == "linear" else math.nextafter(0.0, 1.0)
            for name, value in (("start", self.start), ("end", self.end)):
                if not (math.isfinite(value) and value >= low):
                    wanted = ">= 0" if self.kind == "linear" else "> 0"
                    raise ValueError(f"lambda rule {self.kind}: {name} = {value}, wanted {wanted}")
            return
        most = 1.0 if self.kind == "share" else 2.0
        if self.kind not in ("share", "distance") or not 0 < self.target < most:
            raise ValueError(
                f"lambda rule {self.kind}: found target {self.target}, wanted a number between 0 "
                f"and {most:g}"
            )


class LambdaControl:
    """The lambda of the next pick, from the picks so far; the same history gives the same lambda.

    Shares are counted in terms of g, whose log-determinant gain is log(1 / eps) larger than that
    of f and never negative.
    """

    def __init__(self, lam: float, rule: LambdaRule | None, *, k: int, ridge: float) -> None:
        """Start before the first pick.

        Args:
            lam: The fixed lambda, used without a rule.
            rule: The rule, or None.
            k: Picks wanted; a schedule ends there.
            ridge: eps, above 0 where there is a rule.

        Raises:
            ValueError: A rule with ridge 0.
        """
        if rule is not None and ridge == 0:
            raise ValueError("lambda rule: found ridge 0, wanted a ridge above 0")
        self._rule, self._k = rule, k
        self._log_inverse = -math.log(ridge) if ridge > 0 else 0.0
        self._weight = _FIRST_WEIGHT
        if rule is not None and rule.kind == "share":
            self._weight = rule.target / (1 - rule.target)
        self._lams: list[float] = []
        self._sum: Float64 | None = None
        self._squares, self._n = 0.0, 0
        self.lam = lam if rule is None else self._scheduled(0)

    @property
    def fixed(self) -> bool:
        """True when lambda never changes."""
        return self._rule is None

    def update(
        self, vector: Float32, coverage: Sequence[float], diversity: Sequence[float]
    ) -> None:
        """Look at the history after a pick; O(d + picks).

        Args:
            vector: (d,) float32, the last pick.
            coverage: Coverage gain of every pick so far, as it entered f.
            diversity: Log-determinant gain of every pick so far, in terms of f.
        """
        if self._rule is None:
            return
        if self._rule.kind in ("linear", "geometric"):
            self.lam = self._scheduled(len(coverage))
            return
        self._lams.append(self.lam)
        row = vector.astype(np.float64)
        self._sum = row if self._sum is None else self._sum + row
        self._squares, self._n = self._squares + float(row @ row), self._n + 1
        # The first pick starts from the baseline and has the same log-determinant whoever it is.
        since = max(1, len(coverage) - _RECENT)
        spreads = [gain + self._log_inverse for gain in diversity[since:]]
        covered, spread = math.fsum(coverage[since:]), math.fsum(spreads)
        paid = math.fsum(lam * gain for lam, gain in zip(self._lams[since:], spreads, strict=True))
        self.lam = self._weighed(covered / spread if spread > 0 else 0.0, paid, covered)

    def _scheduled(self, step: int) -> float:
        rule = self._rule
        if rule is None or rule.kind in ("share", "distance"):
            return 0.0
        part = min(1.0, step / max(1, self._k - 1))
        if rule.kind == "linear":
            return rule.start + (rule.end - rule.start) * part
        return rule.start * (rule.end / rule.start) ** part

    def _weighed(self, even: float, paid: float, covered: float) -> float:
        """`even` is the lambda at which both terms added the same lately."""
        assert self._rule is not None
        if self._rule.kind == "share":
            odds = self._rule.target / (1 - self._rule.target)
            if paid > 0 and covered > 0:
                step = (odds * covered / paid) ** _CORRECTION
                self._weight *= min(_UP, max(_DOWN, step))
            return even * self._weight
        if self._n >= 2:
            step = _UP if self.mean_distance() < self._rule.target else _DOWN
            self._weight = min(_MOST, max(_FIRST_WEIGHT, self._weight * step))
        return even * self._weight

    def mean_distance(self) -> float:
        """Mean of 1 - cosine over all pairs of picks so far; nan below two."""
        if self._sum is None or self._n < 2:
            return math.nan
        pairs = self._n * (self._n - 1)
        return 1.0 - (float(self._sum @ self._sum) - self._squares) / pairs
