"""What the labels of the picks alone say of other rows: the nearest pick, and a linear probe."""

from __future__ import annotations

import numpy as np

from selection.arrays import Float32, Int64, require_per_row, require_vectors
from selection.tiles import blocks, one_blas_thread

# Inverse weight of the squared coefficients beside the summed loss. Coordinates of a unit vector
# have a mean square of 1 / d; scikit-learn's 1 is meant for coordinates of mean square 1.
PROBE_C = 100.0
_PROBE_STEPS = 1000
_ROWS = 4096


def nearest_label(chosen: Float32, labels: Int64, rows: Float32) -> Int64:
    """Give each row the label of the pick with the largest cosine; ties to the earlier pick.

    Args:
        chosen: (k, d) float32 unit vectors.
        labels: (k,) int64 codes.
        rows: (n, d) float32 unit vectors.

    Returns:
        (n,) int64 codes; O(n k d) time.

    Raises:
        ValueError: No picks, or shapes that do not fit.
    """
    chosen, rows = _checked(chosen, labels, rows)
    found = np.empty(len(rows), dtype=np.int64)
    columns = np.ascontiguousarray(chosen.T, dtype=np.float64)
    with one_blas_thread:
        for part in blocks(len(rows), _ROWS):
            found[part] = labels[(rows[part].astype(np.float64) @ columns).argmax(axis=1)]
    return found


def linear_probe(chosen: Float32, labels: Int64, rows: Float32) -> Int64:
    """Train a multinomial logistic regression on the picks and let it label the rows.

    The weights of all labels are fitted together (L-BFGS), without class weights; of one label
    there is nothing to tell apart, and every row gets it.

    Args:
        chosen: (k, d) float32 unit vectors.
        labels: (k,) int64 codes.
        rows: (n, d) float32 unit vectors.

    Returns:
        (n,) int64 codes; O(steps k d L) time.

    Raises:
        ValueError: As `nearest_label`.
    """
    chosen, rows = _checked(chosen, labels, rows)
    # Importing it takes a second or two, which a run that stops before has no use for.
    from sklearn.linear_model import LogisticRegression

    if (labels == labels[0]).all():
        return np.full(len(rows), labels[0], dtype=np.int64)
    probe = LogisticRegression(C=PROBE_C, max_iter=_PROBE_STEPS)
    with one_blas_thread:
        probe.fit(chosen.astype(np.float64), labels)
        if not len(rows):
            return np.empty(0, dtype=np.int64)
        found: Int64 = probe.predict(rows.astype(np.float64)).astype(np.int64)
    return found


def _checked(chosen: Float32, labels: Int64, rows: Float32) -> tuple[Float32, Float32]:
    chosen = require_vectors("probe: chosen", chosen)
    rows = require_vectors("probe: rows", rows, dim=chosen.shape[1])
    require_per_row("probe: labels", labels, (len(chosen),))
    if not len(chosen):
        raise ValueError("probe: found no labelled picks, wanted at least one to learn from")
    return chosen, rows
