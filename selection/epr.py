"""A linear map under which near records are those that help the LLM (Rubin et al. 2022, EPR).

The encoder stays as it is. From what an LLM said of some candidates of some rows, a matrix W is
learned; recall then goes by the cosine of W q and W x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from scipy.optimize import minimize

from selection.arrays import Float32, Float64, require_vectors
from selection.info_nce import Batch, loss, loss_and_gradient
from selection.lessons import Lessons, batches_of, in_order
from selection.shortlist import dot
from selection.tiles import one_blas_thread

# One row in so many is held out, where there are enough to tell anything.
_HELD_OUT = 5
_HELD_OUT_FROM = 10


@dataclass(frozen=True)
class EprOptions:
    """How a map is trained.

    Attributes:
        temperature: What cosines are divided by in the loss, above 0.
        pull: Weight of the squared distance to the start, above 0: the smaller, the farther a map
            of few rows runs after their noise.
        steps: Most steps of L-BFGS, at least 1.
        rank: Rows of W; None for as many as a vector has numbers.
        batch: Rows whose records count against each other, at least 1.
    """

    temperature: float = 0.2
    pull: float = 0.03
    steps: int = 100
    rank: int | None = None
    batch: int = 256

    def __post_init__(self) -> None:
        """Refuse values that nothing can be trained with."""
        for name in ("temperature", "pull"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"epr.{name}: found {value}, wanted a finite number above 0")
        for name in ("steps", "batch", "rank"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"epr.{name}: found {value}, wanted at least 1")


@dataclass(frozen=True)
class Losses:
    """Mean loss a row, at the start and after training."""

    before: float
    after: float


@dataclass(frozen=True)
class Trained:
    """A map and how it came about.

    Attributes:
        weights: W, (r, d) float32.
        losses: On the rows it was trained on, without the pull.
        n_rows: Rows that had something to teach.
        n_steps: Steps taken.
    """

    weights: Float32
    losses: Losses
    n_rows: int
    n_steps: int


def train(lessons: Lessons, options: EprOptions | None = None) -> Trained:
    """Learn W by L-BFGS from the identity, or of lower rank from the records' main directions.

    Minimised is the mean of `info_nce.loss` a row plus pull / 2 * |W - start|^2. Rows are taken by
    their keys, `batch` at a time, records by their tie ranks: neither the order of the rows nor
    that of the pool changes a bit. O(steps (m + n) r d) time for up to `batch` rows.

    Args:
        lessons: Rows without a positive are passed over.
        options: How.

    Returns:
        The map.

    Raises:
        ValueError: No row teaches anything, a rank above d, or shapes that do not fit.
    """
    options = options or EprOptions()
    lessons = in_order(lessons)
    with one_blas_thread:
        start = _start(lessons.records, options.rank)
        batches = batches_of(lessons, options.batch)
        weights, n_steps = _descend(start, batches, options)
        losses = _losses(start, weights, batches, options)
    return Trained(weights.astype(np.float32), losses, len(lessons), n_steps)


def held_out(lessons: Lessons, options: EprOptions | None = None) -> Losses | None:
    """Train on four fifths of the rows and return the losses on the last fifth, by their keys.

    Says whether a map of so many rows helps rows that it has not seen.

    Args:
        lessons: As for `train`.
        options: As for `train`.

    Returns:
        None where fewer than 10 rows teach anything.

    Raises:
        ValueError: As `train`.
    """
    options = options or EprOptions()
    lessons = in_order(lessons)
    n_kept = len(lessons) - len(lessons) // _HELD_OUT
    if len(lessons) < _HELD_OUT_FROM:
        return None
    with one_blas_thread:
        start = _start(lessons.records, options.rank)
        weights, _ = _descend(start, batches_of(lessons[:n_kept], options.batch), options)
        return _losses(start, weights, batches_of(lessons[n_kept:], options.batch), options)


def mapped(vectors: Float32, weights: Float32) -> Float32:
    """Return W x / |W x| for every row x, each by itself: the same to the last bit in any batch.

    Args:
        vectors: (n, d) float32.
        weights: W, (r, d) float32.

    Returns:
        (n, r) float32 unit rows, zero where W x is; O(n r d) time.

    Raises:
        ValueError: Another d, or weights that are not finite.
    """
    if weights.ndim != 2 or not np.isfinite(weights).all():
        raise ValueError(f"epr.weights: found shape {weights.shape}, wanted finite (r, d)")
    vectors = require_vectors("epr.vectors", vectors, dim=weights.shape[1])
    product = np.empty((len(vectors), len(weights)), dtype=np.float64)
    _project(vectors, np.ascontiguousarray(weights, dtype=np.float32), product)
    norms = np.sqrt(np.einsum("ij,ij->i", product, product))[:, None]
    return (product / np.where(norms > 0, norms, 1.0)).astype(np.float32)


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _project(vectors: Float32, weights: Float32, out: Float64) -> None:
    for i in range(vectors.shape[0]):
        for j in range(weights.shape[0]):
            out[i, j] = dot(vectors[i], weights[j])


def _start(records: Float32, rank: int | None) -> Float64:
    """The identity, or the `rank` directions in which the records are largest."""
    dim = records.shape[1]
    if rank is None or rank == dim:
        return np.eye(dim)
    if rank > dim:
        raise ValueError(f"epr.rank: found {rank}, wanted at most d = {dim}")
    wide = records.astype(np.float64)
    _, vectors = np.linalg.eigh(wide.T.copy() @ wide)
    main: Float64 = np.ascontiguousarray(vectors[:, ::-1][:, :rank].T)
    # Either sign of a direction would do; its largest number is made positive.
    largest = np.abs(main).argmax(axis=1)
    signs: Float64 = np.sign(main[np.arange(rank), largest])[:, None]
    return main * signs


def _descend(start: Float64, batches: Sequence[Batch], options: EprOptions) -> tuple[Float64, int]:
    n_rows = sum(len(batch.rows) for batch in batches)

    def objective(flat: Float64) -> tuple[float, Float64]:
        weights = flat.reshape(start.shape)
        away = weights - start
        value, slope = options.pull / 2 * float((away * away).sum()), options.pull * away
        for batch in batches:
            own, gradient = loss_and_gradient(weights, batch, temperature=options.temperature)
            value, slope = value + own / n_rows, slope + gradient / n_rows
        return value, slope.ravel()

    limits = {"maxiter": options.steps}
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=limits)
    return found.x.reshape(start.shape), int(found.nit)


def _losses(
    start: Float64, weights: Float64, batches: Sequence[Batch], options: EprOptions
) -> Losses:
    n_rows = sum(len(batch.rows) for batch in batches)
    before, after = (
        sum(loss(one, batch, temperature=options.temperature) for batch in batches) / n_rows
        for one in (start, weights)
    )
    return Losses(before, after)
