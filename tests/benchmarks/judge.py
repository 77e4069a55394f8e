"""What a set of picks is worth, computed plainly: no code under test judges itself."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float16]
_BLOCK = 8192
# Gains closer than this part of themselves are a tie: float32 cosines of another BLAS differ.
TIE = 1e-5


@dataclass(frozen=True)
class Worth:
    """Of a set of k picks.

    Attributes:
        coverage: Mean over all rows of the largest cosine to a pick.
        log_det: Of (1 - eps) W + eps I over the picks.
        distance: Mean of 1 - cosine over pairs of picks.
        f: coverage + lam * log_det, the objective in `mean` scale.
        g: Its monotone form, f + 1 + lam k log(1 / eps): what ratios are taken of.
    """

    coverage: float
    log_det: float
    distance: float
    f: float
    g: float

    def as_dict(self) -> dict[str, float]:
        """The same for a file of results."""
        return asdict(self)


def worth(rows: Rows, picks: Sequence[int], *, lam: float = 0.0, ridge: float = 1e-3) -> Worth:
    """Judge a set on all rows; O(n d k) time, one block of cosines in memory."""
    chosen = np.asarray(rows[np.asarray(picks)], dtype=np.float32)
    coverage = float(_cover(rows, chosen).mean(dtype=np.float64))
    log_det, distance = spread(chosen, ridge)
    k = len(chosen)
    f = coverage + lam * log_det
    return Worth(coverage, log_det, distance, f, f + 1 + lam * k * math.log(1 / ridge))


def spread(chosen: npt.NDArray[np.float32], ridge: float) -> tuple[float, float]:
    """log det of (1 - eps) W + eps I and mean 1 - cosine of a set; O(k d^2 + d^3), no k x k array.

    The determinant is eps^k det(I + (1 - eps) / eps X' X), X the k rows.
    """
    wide = chosen.astype(np.float64)
    k, dim = wide.shape
    inner = np.eye(dim) + (1 - ridge) / ridge * (wide.T.copy() @ wide)
    log_det = k * math.log(ridge) + float(np.linalg.slogdet(inner)[1])
    total = wide.sum(axis=0)
    between = float(total @ total) - float(np.einsum("ij,ij->", wide, wide))
    return log_det, 1.0 - between / max(1, k * (k - 1))


def lift(value: float, best: float, random: float) -> float:
    """(value - random) / (best - random): how much of what choosing can gain was gained."""
    return (value - random) / (best - random) if best > random else math.nan


def overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Share of the picks of one that the other has too."""
    return len(set(one) & set(other)) / max(1, len(one))


def random_picks(n: int, k: int, seed: int = 0) -> list[int]:
    """k of n rows, uniformly."""
    return np.random.default_rng(seed).permutation(n)[:k].tolist()


def agreement(rows: Rows, ours: Sequence[int], theirs: Sequence[int]) -> str:
    """How far two ordered sets chosen by coverage agree.

    Returns:
        `equal`; `equal but for ties`, where whenever they differ both gain the same (within TIE)
        on what was picked before; or `differ from pick T, overlap O`.
    """
    at = 0
    ties = False
    while at < min(len(ours), len(theirs)):
        if ours[at] == theirs[at]:
            at += 1
            continue
        # A tie lets two picks change places: look for where the sets are the same again.
        stop = next(
            (t for t in range(at + 2, min(len(ours), at + 16) + 1) if _same(ours, theirs, at, t)),
            len(ours),
        )
        if not _tied(rows, list(ours[:at]), ours[at], theirs[at]):
            return f"differ from pick {at + 1}, overlap {overlap(ours, theirs):.3f}"
        if stop == len(ours) and not _same(ours, theirs, at, stop):
            return f"equal to a tie at pick {at + 1}, overlap {overlap(ours, theirs):.3f}"
        ties, at = True, stop
    return "equal but for ties" if ties else "equal"


def _same(ours: Sequence[int], theirs: Sequence[int], start: int, stop: int) -> bool:
    return set(ours[start:stop]) == set(theirs[start:stop])


def _tied(rows: Rows, before: list[int], one: int, other: int) -> bool:
    level = np.full(len(rows), -1.0)
    if before:
        level = _cover(rows, np.asarray(rows[before], np.float32)).astype(np.float64)
    gains = []
    for pick in (one, other):
        mine = np.asarray(rows, np.float64) @ rows[pick].astype(np.float64)
        gains.append(float(np.maximum(0.0, mine - level).sum()))
    return abs(gains[0] - gains[1]) <= TIE * max(gains)


def _cover(rows: Rows, chosen: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    cover = np.empty(len(rows), dtype=np.float32)
    columns = np.ascontiguousarray(chosen.T)
    for start in range(0, len(rows), _BLOCK):
        block = np.asarray(rows[start : start + _BLOCK], dtype=np.float32)
        cover[start : start + len(block)] = (block @ columns).max(axis=1)
    return cover
