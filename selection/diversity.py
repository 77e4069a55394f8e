"""Log-determinant gains, exact and incremental, without an N x k array."""

from __future__ import annotations

import numpy as np

from selection.arrays import Float32, Float64, Int64, require_vectors

# A squared residual below this part of the squared norm is rounding of float32 input: the vector
# lies in the span of the picks.
RANK_TOLERANCE = 1e-10
_BATCH = 1024


class LogDet:
    """Gains of D(S) = logdet(M_S), M = (1 - eps) W + eps I, with the true norms on the diagonal.

    With a ridge the gain of x is log(eps + (1 - eps) e_x' A^-1 e_x) where
    A = I + X_S' X_S / eps' and eps' = eps / (1 - eps); A^-1 is kept in float64 and updated by
    Sherman-Morrison. Without one it is the log of the squared residual of e_x outside the span of
    the picks, and -inf once that span holds e_x. A gain only falls as picks are added, so an old
    gain is an upper bound. After Chen et al. 2018 (fast greedy MAP), with d x d memory.
    """

    def __init__(self, candidates: Float32, ridge: float) -> None:
        """Start from no picks.

        Args:
            candidates: (n, d) float32 vectors that indices point into.
            ridge: eps in [0, 1).

        Raises:
            ValueError: The candidates are not finite float32 vectors, or the ridge is out of range.
        """
        if not 0 <= ridge < 1:
            raise ValueError(f"LogDet.ridge: found {ridge}, wanted 0 <= ridge < 1")
        self._candidates = require_vectors("LogDet.candidates", candidates)
        self._ridge = ridge
        self._inverse: Float64 | None = None
        self._basis: list[Float64] = []

    @property
    def exhausted(self) -> bool:
        """True when the ridge is 0 and the picks span the whole space: every gain is -inf."""
        return self._ridge == 0 and len(self._basis) >= self._candidates.shape[1]

    def gains(self, indices: Int64) -> Float64:
        """Return the log-determinant gain of each of these candidates.

        Args:
            indices: (c,) int64 into the candidates.

        Returns:
            (c,) float64, at least log(eps) with a ridge, -inf for a dependent vector without;
            O(c d^2) time.
        """
        result = np.empty(len(indices), dtype=np.float64)
        for start in range(0, len(indices), _BATCH):
            rows = self._candidates[indices[start : start + _BATCH]].astype(np.float64)
            result[start : start + len(rows)] = self._log_gains(rows)
        return result

    def add(self, index: int) -> float:
        """Take this candidate as the next pick; O(d^2).

        Args:
            index: Into the candidates.

        Returns:
            Its gain; -inf (only without a ridge) leaves the state as it was.
        """
        gain = float(self.gains(np.array([index], dtype=np.int64))[0])
        row = self._candidates[index].astype(np.float64)
        if self._ridge > 0:
            self._update_inverse(row)
        elif gain > -np.inf:
            residual = self._residuals(row[None, :])[0]
            self._basis.append(residual / np.linalg.norm(residual))
        return gain

    def _log_gains(self, rows: Float64) -> Float64:
        squared = np.einsum("ij,ij->i", rows, rows)
        if self._ridge > 0:
            shape = squared
            if self._inverse is not None:
                shape = np.einsum("ij,ij->i", rows @ self._inverse, rows)
            return np.log(self._ridge + (1 - self._ridge) * np.clip(shape, 0.0, squared))
        residual = self._residuals(rows)
        left = np.einsum("ij,ij->i", residual, residual)
        gain = np.full(len(rows), -np.inf)
        np.log(left, out=gain, where=left > RANK_TOLERANCE * np.maximum(squared, RANK_TOLERANCE))
        return gain

    def _update_inverse(self, row: Float64) -> None:
        if self._inverse is None:
            self._inverse = np.eye(len(row), dtype=np.float64)
        step = self._inverse @ row
        scale = self._ridge / (1 - self._ridge) + float(row @ step)
        self._inverse -= np.outer(step, step / scale)

    def _residuals(self, rows: Float64) -> Float64:
        if not self._basis:
            return rows
        if self.exhausted:
            return np.zeros_like(rows)
        basis = np.stack(self._basis)
        for _ in range(2):  # Gram-Schmidt once loses orthogonality on close vectors
            rows = rows - (rows @ basis.T) @ basis
        return rows
