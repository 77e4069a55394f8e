"""Checks at the door: what an array must be before any mathematics touches it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]

# Vectors stored in 16 bits are unit only to about 1%. Longer ones break the -1 baseline of the
# coverage, which needs every cosine to be at least -1.
MAX_SQUARED_NORM = 1.02


def require_vectors(name: str, vectors: Float32, *, dim: int | None = None) -> Float32:
    """Return the vectors as one C-ordered block, after checking dtype, shape, finiteness, norm.

    Args:
        name: What the caller calls this array; it opens every message.
        vectors: (n, d) float32, rows of norm at most 1.
        dim: The d that the other side of the product has.

    Returns:
        (n, d) float32, C-ordered; the same memory where it already was.

    Raises:
        ValueError: Not a float32 matrix, another d than `dim`, or a row that is not finite or is
            longer than 1.
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype != np.float32:
        raise ValueError(
            f"{name}: found shape {array.shape} of {array.dtype}, wanted (n, d) of float32; "
            "convert with np.asarray(x, dtype=np.float32)"
        )
    if dim is not None and array.shape[1] != dim:
        raise ValueError(
            f"{name}: found shape {array.shape}, wanted (n, {dim}) like the vectors it is compared "
            "with; both sides must come from the same encoder"
        )
    block = np.ascontiguousarray(array)
    _require_norms(name, block)
    return block


def squared_norms(vectors: Float32) -> Float64:
    """Return the squared length of every row, summed in float64; O(n d) time, O(n) memory.

    Args:
        vectors: (n, d) float32.

    Returns:
        (n,) float64.
    """
    result = np.empty(len(vectors), dtype=np.float64)
    for start in range(0, len(vectors), 1024):
        rows = vectors[start : start + 1024].astype(np.float64)
        result[start : start + 1024] = np.einsum("ij,ij->i", rows, rows)
    return result


def _require_norms(name: str, vectors: Float32) -> None:
    squared = np.einsum("ij,ij->i", vectors, vectors)
    bad = np.flatnonzero(~np.isfinite(squared))
    if bad.size:
        raise ValueError(
            f"{name}: {bad.size} of {len(vectors)} rows are not finite, the first is row {bad[0]} "
            f"(shape {vectors.shape}); leave them out before selecting"
        )
    long = np.flatnonzero(squared > MAX_SQUARED_NORM)
    if long.size:
        raise ValueError(
            f"{name}: {long.size} of {len(vectors)} rows are longer than 1, the first is row "
            f"{long[0]} with norm {float(squared[long[0]]) ** 0.5:.4g} (shape {vectors.shape}); "
            "divide every row by its norm"
        )


def require_per_row(name: str, values: npt.NDArray[np.generic], shape: tuple[int, ...]) -> None:
    """Refuse a companion array of another shape than the rows it describes.

    Args:
        name: What the caller calls this array.
        values: Any array.
        shape: The shape it must have.

    Raises:
        ValueError: The shapes differ.
    """
    if np.shape(values) != shape:
        raise ValueError(f"{name}: found shape {np.shape(values)}, wanted {shape}")
