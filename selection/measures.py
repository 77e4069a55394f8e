"""How varied a set of picks is, how well it covers a corpus, and which labels it found; no LLM."""

from __future__ import annotations

import math

import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, require_vectors, squared_norms
from selection.kernels import lift_cover

# Eigenvalues of a normalised kernel below this are rounding; 0 log 0 is 0.
_NO_EIGENVALUE = 1e-12


def coverage(ground: Vectors, chosen: Vectors, *, threads: int = 1) -> float | None:
    """Return the mean over ground points of max(0, largest cosine to a pick); O(m k d) time.

    Args:
        ground: (m, d) float32 or float16 unit vectors, the corpus or a uniform sample of it.
        chosen: (k, d) unit vectors of the picks.
        threads: Threads to use.

    Returns:
        In [0, 1]; 0 without picks, None without ground points.

    Raises:
        ValueError: Rows that are not finite vectors of one dimension.
    """
    level = np.zeros(len(ground), dtype=np.float32)
    return _covered(ground, chosen, level, threads)


def facility_location(ground: Vectors, chosen: Vectors, *, threads: int = 1) -> float | None:
    """Return C(S) / C(V): the mean largest cosine over that of picking everything.

    Every ground point covers itself best, so C(V) is the sum of the norms squared, m for unit
    rows. It is below `coverage` only where a point's largest cosine to a pick is negative.

    Args:
        ground: As `coverage`.
        chosen: As `coverage`.
        threads: As `coverage`.

    Returns:
        In [-1, 1]; None without picks or ground points.

    Raises:
        ValueError: As `coverage`.
    """
    if not len(chosen):
        return None
    level = np.full(len(ground), -1.0, dtype=np.float32)
    mean = _covered(ground, chosen, level, threads)
    whole = float(squared_norms(ground).mean()) if len(ground) else 0.0
    return mean / whole if mean is not None and whole > 0 else None


def _covered(ground: Vectors, chosen: Vectors, level: Float32, threads: int) -> float | None:
    ground = require_vectors("measures: ground", ground)
    chosen = require_vectors("measures: chosen", chosen, dim=ground.shape[1])
    if not len(ground):
        return None
    lift_cover(ground, chosen, level, threads=threads)
    return float(level.mean(dtype=np.float64))


def log_det(chosen: Vectors, *, ridge: float = 1e-3) -> float | None:
    """Return log det((1 - eps) W + eps I) / k, W the cosines of the k picks.

    It is 0 where all are at right angles, log eps at worst. The smaller of W and its counterpart of
    d x d is factored: O(k d min(k, d)) time.

    Args:
        chosen: (k, d) vectors; each is taken as a direction.
        ridge: eps in (0, 1).

    Returns:
        At most 0; None without picks.

    Raises:
        ValueError: A ridge outside (0, 1), or rows that are not finite.
    """
    if not 0 < ridge < 1:
        raise ValueError(f"measures.log_det: found a ridge of {ridge}, wanted above 0, below 1")
    if not len(chosen):
        return None
    # Of the k eigenvalues of M, those that W has none for are eps.
    spectrum = _spectrum(chosen)
    total = float(np.log((1 - ridge) * spectrum + ridge).sum())
    return (total + (len(chosen) - len(spectrum)) * math.log(ridge)) / len(chosen)


def mean_cosine(chosen: Vectors) -> float | None:
    """Return the mean cosine over pairs of picks, O(k d) time; None for fewer than two."""
    k = len(chosen)
    if k < 2:
        return None
    rows = _directions(chosen)
    total = rows.sum(axis=0)
    own = float(np.einsum("ij,ij->", rows, rows))
    return (float(total @ total) - own) / (k * (k - 1))


def vendi_score(chosen: Vectors) -> float | None:
    """Return exp(-sum of p log p) over the eigenvalues p of W / k (Friedman and Dieng 2023, Eq. 2).

    It is the number of picks that would be as varied if no two had anything in common: 1 where all
    are equal, k where all are at right angles; never above d. O(k d min(k, d)) time.

    Args:
        chosen: (k, d) vectors; each is taken as a direction.

    Returns:
        In [1, min(k, d)]; None without picks.

    Raises:
        ValueError: Rows that are not finite.
    """
    if not len(chosen):
        return None
    shares = _spectrum(chosen) / len(chosen)
    shares = shares[shares > _NO_EIGENVALUE]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _spectrum(chosen: Vectors) -> Float64:
    """Eigenvalues of the cosines, (min(k, d),) float64; those left out are 0."""
    rows = _directions(chosen)
    narrow = rows if len(rows) <= rows.shape[1] else rows.T
    # Two buffers: a float64 matrix times its own transpose view has crashed OpenBLAS.
    return np.maximum(np.linalg.eigvalsh(narrow @ narrow.copy().T), 0.0)


def _directions(vectors: Vectors) -> Float64:
    """Rows of norm 1: what is stored in 16 bits is not, and the measures need W_ii = 1."""
    wide = require_vectors("measures: chosen", vectors).astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    return wide / np.where(norms > 0, norms, 1.0)


def label_coverage(corpus: Int64, chosen: Int64) -> float | None:
    """Return the share of the labels that occur in the corpus which a pick has.

    Args:
        corpus: (L,) int64, labelled rows of the corpus by label.
        chosen: (L,) int64, labelled picks by label.

    Returns:
        In [0, 1]; None where the corpus has no label.
    """
    occur = corpus > 0
    return float((chosen[occur] > 0).mean()) if occur.any() else None


def rare_labels(corpus: Int64) -> Int64:
    """Return the labels with fewer rows than half an even share, n / (2 L) of L that occur.

    Half an even share is the same rule for 3 labels and for 100, and leaves a balanced corpus
    without a rare label, where the rarest quarter would name some.

    Args:
        corpus: (L,) int64, labelled rows of the corpus by label.

    Returns:
        (r,) int64, which labels are rare.
    """
    occur = corpus > 0
    return np.flatnonzero(occur & (2 * occur.sum() * corpus < corpus.sum())).astype(np.int64)


def rare_class_recall(corpus: Int64, chosen: Int64) -> float | None:
    """Return the share of `rare_labels` that a pick has; None where no label is rare.

    Args:
        corpus: As `label_coverage`.
        chosen: As `label_coverage`.
    """
    rare = rare_labels(corpus)
    return float((chosen[rare] > 0).mean()) if len(rare) else None
