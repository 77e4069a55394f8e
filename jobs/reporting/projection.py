"""The flat map of the report: where its rows lie."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from jobs.errors import InvariantError

N_NEIGHBORS = 15
N_EPOCHS = 200


@dataclass(frozen=True)
class Projection:
    """Vectors laid flat.

    Attributes:
        points: Shape (n, 2), float32, finite.
        method: "UMAP" or "PCA".
        note: Why PCA was used instead of UMAP; empty for UMAP.
    """

    points: NDArray[np.float32]
    method: str
    note: str


def project(vectors: NDArray[np.floating], *, seed: int) -> Projection:
    """Lay vectors flat by UMAP (McInnes et al. 2018, cosine), or by PCA where UMAP cannot.

    The neighbours are computed exactly, in blocks: at 20,000 x 384 that takes 9 s of one core,
    the layout 10 s; UMAP's own approximate search would first compile for 40 s.

    Args:
        vectors: Shape (n, d), finite, any float dtype.
        seed: Seed of the layout; equal vectors and seeds give equal points.

    Returns:
        The points. O(n^2 d) time, O(n N_NEIGHBORS) memory besides one block of similarities.

    Raises:
        InvariantError: A vector is not finite; such rows are excluded before.
    """
    unit = _unit(vectors)
    n = len(unit)
    if n <= N_NEIGHBORS:
        return Projection(_pca(unit, seed), "PCA", f"{n} rows are too few for UMAP")
    try:
        points = _umap(unit, seed)
    except Exception as error:  # degenerate data fails in many ways; a map is no reason to stop
        why = f"UMAP failed ({type(error).__name__}: {str(error)[:120]})"
        return Projection(_pca(unit, seed), "PCA", why)
    if not np.isfinite(points).all():
        return Projection(_pca(unit, seed), "PCA", "UMAP gave points that are not finite")
    return Projection(points, "UMAP", "")


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    unit = np.asarray(vectors, dtype=np.float32)
    bad = int((~np.isfinite(unit)).any(axis=1).sum())
    if bad:
        raise InvariantError(
            f"{bad} of {len(unit)} vectors of the map are not finite: exclude these rows before."
        )
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    return unit / np.where(norms > 0, norms, 1)


def _umap(unit: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    import umap  # imported late: it takes seconds, and only the report needs it

    neighbours = _nearest(unit, N_NEIGHBORS)
    layout = umap.UMAP(
        n_neighbors=N_NEIGHBORS,
        n_epochs=N_EPOCHS,
        metric="cosine",
        init="pca",
        random_state=seed,
        n_jobs=1,
        precomputed_knn=neighbours,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that new points cannot be added later
        return np.asarray(layout.fit_transform(unit), dtype=np.float32)


def _nearest(
    unit: NDArray[np.float32], k: int, *, block: int = 512
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k nearest rows by cosine distance, the row itself first; shapes (n, k)."""
    indices = np.empty((len(unit), k), dtype=np.int64)
    distances = np.empty((len(unit), k), dtype=np.float32)
    for start in range(0, len(unit), block):
        distance = 1 - unit[start : start + block] @ unit.T
        own = np.arange(len(distance))
        distance[own, start + own] = -1  # before any duplicate
        nearest = np.argpartition(distance, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(distance, nearest, axis=1)
        order = np.argsort(found, axis=1, kind="stable")
        indices[start : start + block] = np.take_along_axis(nearest, order, axis=1)
        distances[start : start + block] = np.take_along_axis(found, order, axis=1)
    return indices, np.maximum(distances, 0)


def _pca(unit: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    points = np.zeros((len(unit), 2), dtype=np.float32)
    n_axes = min(2, *unit.shape) if len(unit) > 1 else 0
    if n_axes and np.ptp(unit, axis=0).any():
        pca = PCA(n_axes, svd_solver="randomized", random_state=seed)
        points[:, :n_axes] = pca.fit_transform(unit)
    return points
