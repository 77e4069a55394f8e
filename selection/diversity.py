"""Log-determinant gains, exact and incremental, without an N x k array."""

from __future__ import annotations

import numpy as np

from selection.arrays import (
    Float32,
    Float64,
    Int64,
    Vectors,
    require_vectors,
    rows_of,
    squared_norms,
)

# A squared residual below this part of the squared norm is rounding of float32 input: the vector
# lies in the span of the picks.
RANK_TOLERANCE = 1e-10
# Without a ridge, a residual below this part of the squared norm is computed anew: subtraction
# would leave too few digits of it.
_CANCELLED = 1e-4
_BATCH = 128
_FIRST_ROWS = 16


class LogDet:
    """Gains of D(S) = logdet(M_S), M = (1 - eps) W + eps I, with the true norms on the diagonal.

    The gain of x is log(eps + (1 - eps) s_x) with s_x = e_x' A^-1 e_x, A = I + X_S' X_S / eps' and
    eps' = eps / (1 - eps). Picking j takes (n_j' e_x)^2 off every s_x, where v = A^-1 e_j and
    n_j = v / sqrt(eps' + e_j' v), so that A^-1 = I - sum of n_j n_j'. The rows n_j of the last
    picks are kept, up to d of them; then they are folded into a d x d matrix. Each candidate keeps
    the s_x it had when last asked for and pays only for the picks since. Without a ridge
    eps' = 0: the n_j are an orthonormal basis of the picks, s_x is the squared residual outside
    their span, and the gain is -inf once the span holds e_x.

    A gain only falls as picks are added, so an old gain is an upper bound. Memory: 2 d^2 numbers
    and 20 bytes per candidate, for any number of picks. After Chen et al. 2018 (fast greedy MAP).
    """

    def __init__(self, candidates: Vectors, ridge: float) -> None:
        """Start from no picks; O(n d).

        Args:
            candidates: (n, d) float32 or float16 vectors that indices point into.
            ridge: eps in [0, 1).

        Raises:
            ValueError: The candidates are not finite vectors, or the ridge is out of range.
        """
        if not 0 <= ridge < 1:
            raise ValueError(f"LogDet.ridge: found {ridge}, wanted 0 <= ridge < 1")
        self._candidates = require_vectors("LogDet.candidates", candidates)
        self._ridge = ridge
        self._squared = squared_norms(self._candidates)
        self._shape = self._squared.copy()
        self._at = np.zeros(len(candidates), dtype=np.int32)
        self._folded = 0
        self._inverse: Float64 | None = None
        self._n_rows = 0
        self._rows = np.empty((0, candidates.shape[1]), dtype=np.float64)

    @property
    def exhausted(self) -> bool:
        """True when the ridge is 0 and the picks span the whole space: every gain is -inf."""
        return self._ridge == 0 and self._n_rows >= self._candidates.shape[1]

    @property
    def max_squared_norm(self) -> float:
        """The largest squared norm of a candidate, 0 without any."""
        return float(self._squared.max(initial=0.0))

    def gains(self, indices: Int64) -> Float64:
        """Return the log-determinant gain of each of these candidates.

        Args:
            indices: (c,) int64 into the candidates.

        Returns:
            (c,) float64, at least log(eps) with a ridge, -inf for a dependent vector without;
            O(d) time per candidate and pick since it was last asked for, at most O(d^2).
        """
        self._bring_up_to_date(indices)
        return self._log(self._shape[indices], self._squared[indices])

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; O(d^2).

        Args:
            index: Into the candidates.

        Returns:
            Its gain; -inf (only without a ridge) leaves the state as it was.
        """
        picked = np.array([index], dtype=np.int64)
        gain = float(self.gains(picked)[0])
        if gain > -np.inf:
            row = rows_of(self._candidates, picked).astype(np.float64)
            self._append(row, self._apply_inverse(row))
        return gain

    def begin_with(self, vectors: Float32) -> float:
        """Take vectors that are no candidates as picks, an annotated pool A; O(a d^2).

        Gains are then those given A: D(A u S u x) - D(A u S).

        Args:
            vectors: (a, d) float32.

        Returns:
            The sum of their gains, which is logdet(M_A) where no picks were made before; without a
            ridge, dependent vectors are left out of it.

        Raises:
            ValueError: Not finite vectors of the candidates' dimension.
        """
        dim = self._candidates.shape[1]
        vectors = require_vectors("LogDet.begin_with", vectors, dim=dim)
        total = 0.0
        for start in range(len(vectors)):
            row = vectors[start : start + 1].astype(np.float64)
            applied = self._apply_inverse(row)
            squared = np.einsum("ij,ij->i", row, row)
            shape = np.minimum(self._quadratic(row, applied), squared)
            gain = float(self._log(shape, squared)[0])
            if gain > -np.inf:
                self._append(row, applied)
                total += gain
        return total

    def _log(self, shape: Float64, squared: Float64) -> Float64:
        if self._ridge > 0:
            return np.log(self._ridge + (1 - self._ridge) * shape)
        gain = np.full(len(shape), -np.inf)
        if not self.exhausted:
            ranked = shape > RANK_TOLERANCE * np.maximum(squared, RANK_TOLERANCE)
            np.log(shape, out=gain, where=ranked)
        return gain

    def _bring_up_to_date(self, indices: Int64) -> None:
        if self.exhausted:
            return
        now = self._folded + self._n_rows
        stale = indices[self._at[indices] < now]
        stale = stale[np.argsort(self._at[stale], kind="stable")]
        for start in range(0, len(stale), _BATCH):
            self._subtract_picks(stale[start : start + _BATCH])
        self._at[stale] = now

    def _subtract_picks(self, chosen: Int64) -> None:
        rows = rows_of(self._candidates, chosen).astype(np.float64)
        before, at = self._shape[chosen], self._at[chosen]
        shape = before.copy()
        old = at < self._folded
        if self._inverse is not None and old.any():
            shape[old] = np.einsum("ij,ij->i", rows[old] @ self._inverse, rows[old])
        seen = np.maximum(at - self._folded, 0)
        first = int(seen.min())
        parts = rows @ self._rows[first : self._n_rows].T
        if int(seen.max()) > first:
            parts[np.arange(first, self._n_rows) < seen[:, None]] = 0.0
        shape -= np.einsum("ij,ij->i", parts, parts)
        if self._ridge == 0:
            squared = self._squared[chosen]
            small = (shape < _CANCELLED * squared) & (before > RANK_TOLERANCE * squared)
            shape[small] = self._quadratic(rows[small], self._apply_inverse(rows[small]))
        self._shape[chosen] = np.clip(shape, 0.0, before)

    def _quadratic(self, rows: Float64, applied: Float64) -> Float64:
        """Return e' A^-1 e from A^-1 e; without a ridge A^-1 is a projection: its squared norm."""
        left = rows if self._ridge > 0 else applied
        return np.maximum(np.einsum("ij,ij->i", left, applied), 0.0)

    def _apply_inverse(self, rows: Float64) -> Float64:
        basis = self._rows[: self._n_rows]
        result = rows if self._inverse is None else rows @ self._inverse
        result = result - (rows @ basis.T) @ basis
        if self._ridge == 0:  # Gram-Schmidt once loses orthogonality on close vectors
            result = result - (result @ basis.T) @ basis
        return result

    def _append(self, row: Float64, applied: Float64) -> None:
        if self._n_rows == len(self._rows):
            self._make_room()
        scale = self._ridge / (1 - self._ridge) + self._quadratic(row, applied)[0]
        self._rows[self._n_rows] = applied[0] / np.sqrt(scale)
        self._n_rows += 1

    def _make_room(self) -> None:
        dim = self._candidates.shape[1]
        if self._n_rows < dim:
            grown = np.empty((min(max(_FIRST_ROWS, 2 * self._n_rows), dim), dim), dtype=np.float64)
            grown[: self._n_rows] = self._rows
            self._rows = grown
            return
        if self._inverse is None:
            self._inverse = np.eye(dim, dtype=np.float64)
        # A buffer times its own transpose view takes a BLAS path that has crashed: hence the copy.
        self._inverse -= self._rows.T @ self._rows.copy()
        self._folded += self._n_rows
        self._n_rows = 0
