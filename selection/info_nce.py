"""InfoNCE over cosines of linearly mapped vectors: its value and its gradient, by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from selection.arrays import Bool, Float64


@dataclass(frozen=True)
class Batch:
    """Rows that are trained together: what one of them brings along counts against the others.

    Attributes:
        rows: (b, d) float64, what is asked for.
        records: (c, d) float64, what can be shown.
        positive: (b, c) bool, records that help a row; at least one in each row.
        negative: (b, c) bool, records that count against a row; at least one, none of its positive.
    """

    rows: Float64
    records: Float64
    positive: Bool
    negative: Bool


def loss(weights: Float64, batch: Batch, *, temperature: float) -> float:
    """Return the loss summed over the rows of a batch; O((b + c) r d + b c r) time.

    With s the cosines of W x and W p over the temperature, P_i the positives of row i and N_i its
    negatives (van den Oord et al. 2018; Rubin et al. 2022 draw one positive):

        sum over i of mean over p in P_i of -log(e^s_ip / (e^s_ip + sum over n in N_i of e^s_in))

    Args:
        weights: W, (r, d) float64.
        batch: Rows, records, and which count how.
        temperature: Above 0.
    """
    left, _ = _directions(batch.rows @ weights.T)
    right, _ = _directions(batch.records @ weights.T)
    return _contrast(left @ right.T / temperature, batch)[0]


def loss_and_gradient(
    weights: Float64, batch: Batch, *, temperature: float
) -> tuple[float, Float64]:
    """Return the same loss with its derivative by W; three times the cost of `loss`.

    Args:
        weights: W, (r, d) float64.
        batch: Rows, records, and which count how.
        temperature: Above 0.

    Returns:
        The loss, and (r, d) float64.
    """
    left, left_norms = _directions(batch.rows @ weights.T)
    right, right_norms = _directions(batch.records @ weights.T)
    value, slope = _contrast(left @ right.T / temperature, batch)
    slope /= temperature
    by_rows = _through_norm(slope @ right, left, left_norms)
    by_records = _through_norm(slope.T @ left, right, right_norms)
    return value, by_rows.T @ batch.rows + by_records.T @ batch.records


def _directions(mapped: Float64) -> tuple[Float64, Float64]:
    """Rows of norm 1, and the norms they had, (n, 1); a zero has no direction and pulls at none."""
    norms = np.linalg.norm(mapped, axis=1, keepdims=True)
    norms = np.where(norms > 0, norms, np.inf)
    return mapped / norms, norms


def _through_norm(slope: Float64, directions: Float64, norms: Float64) -> Float64:
    """The derivative by a vector, from that by its direction: what lies along it has no effect."""
    along = np.sum(slope * directions, axis=1, keepdims=True)
    return (slope - along * directions) / norms


def _contrast(scores: Float64, batch: Batch) -> tuple[float, Float64]:
    """The loss, and its derivative by the scores, (b, c)."""
    against = np.where(batch.negative, scores, -np.inf)
    highest = against.max(axis=1, keepdims=True)
    weight = np.exp(against - highest)
    total = weight.sum(axis=1, keepdims=True)
    # How far all negatives together stand above each positive; -log(...) is its softplus.
    margin = np.where(batch.positive, highest + np.log(total) - scores, -np.inf)
    share = 1.0 / batch.positive.sum(axis=1, keepdims=True)
    value = float((np.logaddexp(0.0, margin) * share).sum())
    wrong = expit(margin) * share
    return value, weight / total * wrong.sum(axis=1, keepdims=True) - wrong
