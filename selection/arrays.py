"""Checks at the door: what an array must be before any mathematics touches it."""

from __future__ import annotations

from typing import TypeAlias, overload

import numba
import numpy as np
import numpy.typing as npt

Float16 = npt.NDArray[np.float16]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]
# Rows may be stored in 16 bits, to halve the memory; arithmetic is never narrower than float32.
Vectors: TypeAlias = Float32 | Float16

# Vectors stored in 16 bits are unit only to about 1%. Longer ones break the -1 baseline of the
# coverage, which needs every cosine to be at least -1.
MAX_SQUARED_NORM = 1.02
# Rows looked at together, so that no check needs a second copy of the vectors.
_CHECKED_ROWS = 1024
# Where sign, exponent and mantissa of a half are once its bits are shifted left by 13: 0x8FFFE000.
_SHIFTED = np.int32(-0x70002000)


@overload
def require_vectors(name: str, vectors: Float32, *, dim: int | None = None) -> Float32: ...
@overload
def require_vectors(name: str, vectors: Vectors, *, dim: int | None = None) -> Vectors: ...
def require_vectors(name: str, vectors: Vectors, *, dim: int | None = None) -> Vectors:
    """Return the vectors as one C-ordered block, after checking dtype, shape, finiteness, norm.

    Args:
        name: What the caller calls this array; it opens every message.
        vectors: (n, d) float32 or float16, rows of norm at most 1; may be a read-only np.memmap.
        dim: The d that the other side of the product has.

    Returns:
        (n, d) of the same dtype, C-ordered; the same memory where it already was. O(n d) time,
        1,024 rows of memory.

    Raises:
        ValueError: Not a matrix of these dtypes, another d than `dim`, or a row that is not finite
            or is longer than 1.
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype not in (np.float32, np.float16):
        raise ValueError(
            f"{name}: found shape {array.shape} of {array.dtype}, wanted (n, d) of float32 or "
            "float16; convert with np.asarray(x, dtype=np.float32)"
        )
    if dim is not None and array.shape[1] != dim:
        raise ValueError(
            f"{name}: found shape {array.shape}, wanted (n, {dim}) like the vectors it is compared "
            "with; both sides must come from the same encoder"
        )
    block: Vectors = np.require(array, requirements=["C", "A"])
    _require_norms(name, block)
    return block


def require_weights(name: str, weights: npt.ArrayLike, n: int) -> Float64:
    """Return weights as float64, after checking them.

    Args:
        name: What the caller calls this array.
        weights: (n,) finite numbers of at least 0, one per row.
        n: Number of rows.

    Returns:
        (n,) float64, C-ordered.

    Raises:
        ValueError: Another length, or a weight that is not finite or below 0.
    """
    values = np.ascontiguousarray(weights, dtype=np.float64)
    require_per_row(name, values, (n,))
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise ValueError(
            f"{name}: {bad.size} of {n} weights are not finite or are below 0, the first is "
            f"{values[bad[0]]} of row {bad[0]}; wanted finite weights of at least 0"
        )
    return values


def rows_of(vectors: Vectors, indices: Int64 | slice) -> Float32:
    """Return some rows as float32.

    Args:
        vectors: (n, d) float32 or float16.
        indices: (c,) int64, or a slice.

    Returns:
        (c, d) float32, C-ordered; a view where the rows are a slice of float32.
    """
    rows = vectors[indices]
    if rows.dtype == np.float32:
        return rows.astype(np.float32, copy=False)
    wide = np.empty(rows.shape, dtype=np.float32)
    widen(np.ascontiguousarray(rows).view(np.int16), wide)
    return wide


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def widen(bits: npt.NDArray[np.int16], out: Float32) -> None:
    """Convert float16 to float32 by moving bits: a tenth of the time of numpy's astype.

    Shifted left by 13, a half's exponent is read by float32 as 112 too small: the product with
    2**112 mends it, subnormal numbers included. Exact for all 65,536 patterns.

    Args:
        bits: (n, d) int16, a view of float16; its sign spreads over the upper half.
        out: (n, d) float32, written.
    """
    for i in range(bits.shape[0]):
        row, wide = bits[i], out[i]
        for j in range(row.shape[0]):
            half = np.int32(row[j])
            shifted = np.int32((half << np.int32(13)) & _SHIFTED)
            scaled = np.float32(shifted.view(np.float32) * np.float32(2.0**112)).view(np.int32)
            # An exponent of all ones stays one: infinities and NaN must not turn finite.
            endless = (half & np.int32(0x7C00)) == np.int32(0x7C00)
            ones = np.int32(0x7F800000) if endless else np.int32(0)
            wide[j] = np.int32(scaled | ones).view(np.float32)


def squared_norms(vectors: Vectors) -> Float64:
    """Return the squared length of every row, summed in float64; O(n d) time, O(n) memory.

    Args:
        vectors: (n, d) float32 or float16.

    Returns:
        (n,) float64.
    """
    result = np.empty(len(vectors), dtype=np.float64)
    for start in range(0, len(vectors), _CHECKED_ROWS):
        part = slice(start, start + _CHECKED_ROWS)
        rows = rows_of(vectors, part).astype(np.float64)
        result[part] = np.einsum("ij,ij->i", rows, rows)
    return result


def _require_norms(name: str, vectors: Vectors) -> None:
    squared = np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), _CHECKED_ROWS):
        part = slice(start, start + _CHECKED_ROWS)
        rows = rows_of(vectors, part)
        with np.errstate(over="ignore", invalid="ignore"):
            np.einsum("ij,ij->i", rows, rows, out=squared[part])
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
