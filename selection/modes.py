"""How much work Stage 1 puts into its gains: W kept, exact without W, or screened on samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from selection.arrays import Int64, UInt64

Mode = Literal["auto", "dense", "exact", "screened"]

# W of so many points is 1 GiB; beyond it two workers would not fit beside each other.
DENSE_MOST = 16_384
# Beyond so many pairs of ground point and candidate exact gains take minutes on a core.
EXACT_PAIRS = 32_768**2
# Where more than this part of the candidates is picked, nearly all are judged anyway.
SCREENED_SHARE = 0.05
# Up to so many ground points leaders are judged on all of them.
VERIFY_ALL_MOST = 262_144
VERIFY_SAMPLE = 131_072
# The middle sample is so many times the small one, so that its errors are half as large.
_MIDDLE = 4
# 1 - f / f of all points is about .2 to .5 k / m2.
VERIFY_PER_PICK = 50


@dataclass(frozen=True)
class Effort:
    """How gains are computed.

    Attributes:
        mode: `dense` keeps W; `exact` computes every gain on all ground points; `screened` looks
            at m1 sampled points first and judges leaders on m2; `auto` chooses by size.
        m1: Ground points of the small sample.
        m2: Ground points leaders are judged on; `all` for all of V, None to choose by size.
        z: Standard errors added to an estimate on the small sample.
        unseen: Copies of a candidate that the small sample may have missed; 0 trusts the sample.
        memory_bytes: Memory of the process; `auto` keeps W only where it takes at most half of it.
    """

    mode: Mode = "auto"
    m1: int = 8_192
    m2: int | Literal["all"] | None = None
    z: float = 1.0
    unseen: float = 1.0
    memory_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        """Refuse sizes that make no sample."""
        if self.mode not in ("auto", "dense", "exact", "screened"):
            raise ValueError(
                f"effort.mode: found {self.mode!r}, wanted auto, dense, exact or screened"
            )
        if self.m1 < 2 or (isinstance(self.m2, int) and self.m2 < self.m1):
            raise ValueError(
                f"effort: found m1 = {self.m1} and m2 = {self.m2}, wanted 2 <= m1 <= m2"
            )
        for name in ("z", "unseen"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"effort.{name}: found {value}, wanted a number >= 0")


def resolve(effort: Effort, *, n_ground: int, n_candidates: int, k: int, square: bool) -> Effort:
    """Choose what was left open, by size alone.

    Args:
        effort: As asked for.
        n_ground: Ground points m.
        n_candidates: Candidates n.
        k: Picks wanted.
        square: The candidates are the ground points, so that W can be kept.

    Returns:
        An effort whose mode is not `auto` and whose m2 is not None. A sample as large as the
        ground set is no sample: then the mode is `exact`.
    """
    m2 = effort.m2
    if m2 is None:
        m2 = "all"
        if n_ground > VERIFY_ALL_MOST:
            m2 = max(VERIFY_SAMPLE, VERIFY_PER_PICK * k, effort.m1)
    if isinstance(m2, int) and m2 >= n_ground:
        m2 = "all"
    mode = effort.mode
    if mode == "auto":
        mode = _by_size(effort, n_ground, n_candidates, k, square)
    if mode == "dense" and not square:
        mode = "exact"
    if mode == "screened" and effort.m1 >= n_ground:
        mode = "exact"
    return replace(effort, mode=mode, m2=m2)


def _by_size(effort: Effort, n_ground: int, n_candidates: int, k: int, square: bool) -> Mode:
    fits = 4 * n_ground**2 <= effort.memory_bytes // 2
    if square and n_ground <= DENSE_MOST and fits:
        return "dense"
    if n_ground * n_candidates <= EXACT_PAIRS:
        return "exact"
    if k > SCREENED_SHARE * n_candidates and n_ground <= VERIFY_ALL_MOST:
        return "exact"
    return "screened"


def middle_points(effort: Effort, n_ground: int) -> int:
    """Return the size of the sample between m1 and m2; 0 where m2 is too small to need one.

    Args:
        effort: Resolved, `screened`.
        n_ground: Ground points m.
    """
    judged_on = effort.m2 if isinstance(effort.m2, int) else n_ground
    return _MIDDLE * effort.m1 if judged_on >= 2 * _MIDDLE * effort.m1 else 0


def sample_rows(keys: UInt64, m: int) -> Int64:
    """Draw m rows uniformly, the same for the same keys.

    The keys are mixed first: the random control takes the smallest of the plain ones, and should
    not be the sample it is judged beside.

    Args:
        keys: (n,) uint64 random keys.
        m: Rows wanted; clipped to n.

    Returns:
        (m,) int64, ascending.
    """
    mixed = (keys ^ (keys >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(mixed, kind="stable")[:m]
    return np.sort(order).astype(np.int64)
