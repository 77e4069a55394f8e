"""Coverage from the whole matrix of cosines: for as many points as 4 n^2 bytes allow."""

from __future__ import annotations

import numba
import numpy as np

from selection.arrays import Float32, Float64, Int64, Vectors, require_vectors, require_weights
from selection.cover import Cover, require_no_picks
from selection.kernels import column_sum, lift_cover
from selection.loops import raise_cover
from selection.tiles import blocks, cosines_of, one_blas_thread, share_out, tile_of

# Square tiles: each is used twice, as it is and mirrored.
_TILE = 512
_MIRROR = 64
# Sums run in so many lanes, fixed here and not by the CPU, so that they round alike everywhere.
_LANES = 64
# Rows handed to a thread together; fewer entries of W than this are not worth handing over.
_ROWS = 64
_WORTHWHILE = 1 << 21


class DenseCoverage:
    """A CoverageOracle whose candidates are its ground points, and which keeps their cosines W.

    4 n^2 bytes. A gain is a sum over one row of W, O(n) instead of O(n d).
    """

    def __init__(
        self, vectors: Vectors, *, weights: Float64 | None = None, threads: int = 1
    ) -> None:
        """Compute W: one product for every pair of tiles, O(n^2 d / 2) time.

        Args:
            vectors: (n, d) float32 or float16 unit vectors. Their true squared norms stand on
                the diagonal of W.
            weights: (n,) float64 of at least 0, how much each point counts; None for 1.
            threads: Threads to use; no result depends on it.

        Raises:
            ValueError: Vectors of another dtype, not finite, not a matrix, or longer than 1; or a
                weight that is not finite or below 0.
        """
        self._vectors = require_vectors("DenseCoverage.vectors", vectors)
        self._weights = (
            None
            if weights is None
            else require_weights("DenseCoverage.weights", weights, len(self._vectors))
        )
        self._threads = threads
        self._cosines = symmetric_cosines(self._vectors, threads=threads)
        self.reset()

    @property
    def n_points(self) -> int:
        """Number of ground points n."""
        return len(self._vectors)

    @property
    def total_weight(self) -> float:
        """Sum of the weights, n where there are none."""
        return float(self.n_points if self._weights is None else self._weights.sum())

    def reset(self) -> None:
        """Forget all picks, and the vectors started from; O(n), W is kept."""
        self._cover = Cover(self.n_points, self._weights)

    def column_sum(self) -> Float64:
        """Return sum_i u_i e_i, (d,) float64; O(n d) time."""
        return column_sum(self._vectors, weights=self._weights, threads=self._threads)

    def gains(self, indices: Int64) -> Float64:
        """Return the coverage gains of these candidates, (c,) float64; O(n c) time."""
        return self._row_sums(indices, squares=False)[0]

    def moments(self, indices: Int64) -> tuple[Float64, Float64]:
        """Return gains and sums of squared terms, (c,) float64 each; O(n c) time."""
        gains, squares = self._row_sums(indices, squares=True)
        return gains, squares

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; returns its coverage gain; O(n) time."""
        return float(self.add_many(np.array([index], dtype=np.int64))[0])

    def add_many(self, indices: Int64) -> Float64:
        """Take these candidates as the next picks, in order; returns their gains, (c,)."""
        total = np.zeros(len(indices), dtype=np.float64)
        for number, index in enumerate(indices):
            raise_cover(
                self._cosines[index][:, None],
                self._cover.level,
                self._cover.owner,
                self._weights,
                self._cover.n_picks,
                total[number : number + 1],
            )
            self._cover.picked(1)
        return total

    def cover_with(self, vectors: Vectors) -> float:
        """Start from vectors that are no candidates; returns what they cover above -1.

        Args:
            vectors: (a, d) float32 unit vectors, such as those annotated already.

        Returns:
            sum_i u_i (cover_i + 1); O(n d a) time.

        Raises:
            ValueError: Not finite vectors of this dimension, or something was picked before.
        """
        require_no_picks("DenseCoverage.cover_with", self._cover.n_picks)
        dim = self._vectors.shape[1]
        block = require_vectors("DenseCoverage.cover_with.vectors", vectors, dim=dim)
        lift_cover(self._vectors, block, self._cover.level, threads=self._threads)
        return self._cover.given(len(block))

    def n_covered(self, k: int) -> Int64:
        """Return how many points each of the first k picks covers best, (k,) int64."""
        return self._cover.n_covered(k)

    def _row_sums(self, indices: Int64, *, squares: bool) -> Float64:
        result = np.zeros((1 + squares, len(indices)), dtype=np.float64)
        # Checked here: a compiled loop reads whatever memory an index points to.
        indices = np.arange(self.n_points, dtype=np.int64)[indices]

        def work(part: slice) -> None:
            add_row_excess(
                self._cosines, indices[part], self._cover.level, self._weights, result[:, part]
            )

        worthwhile = len(indices) * self.n_points > _WORTHWHILE
        parts = list(blocks(len(indices), _ROWS if worthwhile else max(1, len(indices))))
        list(share_out(work, parts, threads=self._threads, worthwhile=worthwhile))
        return result


def symmetric_cosines(vectors: Vectors, *, threads: int = 1) -> Float32:
    """Return all cosines, each pair computed once.

    Args:
        vectors: (n, d) float32 or float16.
        threads: Threads to use.

    Returns:
        (n, n) float32, exactly symmetric; O(n^2 d / 2) time, 4 n^2 bytes and a few tiles per thread
        of memory.
    """
    n = len(vectors)
    cosines = np.empty((n, n), dtype=np.float32)

    def work(rows: slice) -> None:
        left = tile_of(vectors, rows)
        for columns in blocks(n, _TILE):
            if columns.start >= rows.start:
                # Copied: a buffer times its own transpose takes BLAS's symmetric path.
                right = tile_of(vectors, columns, copy=True, name="right")
                mirror(cosines_of(left, right), rows.start, columns.start, cosines)

    with one_blas_thread:
        list(share_out(work, list(blocks(n, _TILE)), threads=threads))
    return cosines


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def mirror(tile: Float32, row: int, column: int, out: Float32) -> None:
    """Write a tile of a symmetric matrix, and its mirror image through a small square.

    Args:
        tile: (rows, columns) float32; on the diagonal its lower half is overwritten.
        row: Where the tile's first row stands in the matrix.
        column: Where its first column stands, `row` or beyond the tile's rows.
        out: (n, n) float32, written.
    """
    n_rows, n_columns = tile.shape
    if row == column:
        for i in range(n_rows):
            for j in range(i):
                tile[i, j] = tile[j, i]
    square = np.empty((_MIRROR, _MIRROR), dtype=np.float32)
    for top in range(0, n_rows, _MIRROR):
        height = min(_MIRROR, n_rows - top)
        for left in range(0, n_columns, _MIRROR):
            width = min(_MIRROR, n_columns - left)
            for i in range(height):
                for j in range(width):
                    value = tile[top + i, left + j]
                    square[j, i] = value
                    out[row + top + i, column + left + j] = value
            for j in range(width):
                for i in range(height):
                    out[column + left + j, row + top + i] = square[j, i]


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def add_row_excess(
    cosines: Float32, indices: Int64, cover: Float32, weights: Float64 | None, total: Float64
) -> None:
    """Add sum_j u_j max(0, cosines[i, j] - cover[j]) to total[0] for every row i asked for.

    Args:
        cosines: (n, n) float32.
        indices: (c,) int64 rows.
        cover: (n,) float32.
        weights: (n,) float64, or None for 1.
        total: (1, c) float64, added to in place; with a second row, the sums of squared terms.
    """
    zero, n = np.float32(0.0), cosines.shape[1]
    lanes = np.empty((total.shape[0], _LANES), dtype=np.float64)
    for number in range(indices.shape[0]):
        row = cosines[indices[number]]
        for lane in range(_LANES):
            for kind in range(total.shape[0]):
                lanes[kind, lane] = 0.0
        for start in range(0, n, _LANES):
            width = min(_LANES, n - start)
            part, level = row[start : start + width], cover[start : start + width]
            for lane in range(width):
                term = np.float64(max(part[lane] - level[lane], zero))
                if weights is not None:
                    term *= weights[start + lane]
                lanes[0, lane] += term
                if total.shape[0] > 1:
                    lanes[1, lane] += term * term
        for kind in range(total.shape[0]):
            for lane in range(_LANES):
                total[kind, number] += lanes[kind, lane]
