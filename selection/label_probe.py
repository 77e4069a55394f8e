"""The nearest records of the labels that a query probably has: `probe`, and what guesses labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64
from selection.pairs import best_open
from selection.pool import Pool, Queries, Recalled
from selection.query_parts import Part, checked, rank_parts
from selection.ranking import Ranking, RankOptions
from selection.recall import candidates_of, empty_ranking, first_k, nearest
from selection.tiles import blocks, one_blas_thread

# Beside squared errors whose weights have mean 1; 0.3 to 3 are about as good.
RIDGE = 1.0
# Outputs of a regression on 0 and 1 are this sharp as logits.
TEMPERATURE = 0.1
# Least probability: of labels that no record has, and of records without a label.
LEAST = 1e-6
_ROWS = 4096


def probe(
    queries: Queries,
    pool: Pool,
    *,
    options: RankOptions,
    allowed: Bool | None = None,
    recalled: Recalled | None = None,
) -> Ranking:
    """Take the nearest among records of probable labels: cosine + probe_weight * log p(label | q).

    p is the softmax of a ridge regression of the pool's labels on its vectors, in which all labels
    weigh the same (regularised least squares classification, Rifkin et al. 2003), fitted for each
    query without what it must not see. With one label, or probe_weight 0, this is `knn`.

    Args:
        queries: What is ranked for.
        pool: With labels.
        options: Reads k, probe_weight and threads.
        allowed: (q, n) bool, False for a candidate that a query must not see, nor learn from.
        recalled: Candidates to choose among, with what stands in the place of the cosine; None
            takes the whole pool.

    Returns:
        The sums, best first. O(n d^2 + d^3) once, O(n d + L d) a query, and for one that must not
        see e records O(e d^2 + e^3).

    Raises:
        ValueError: No labels, shapes that do not fit, or rows that are not finite.
    """
    whole, pool = checked(queries, pool, allowed, recalled)
    if pool.labels is None:
        raise ValueError(
            "probe: found no labels, wanted a code for each of the records of the pool"
        )
    learned = fit(pool)
    beside = np.zeros((len(pool.vectors), learned.n_labels + 1), np.float32)
    beside[np.arange(len(beside)), learned.codes] = 1
    # One product gives cosine and bonus together: columns for labels beside those of the vectors.
    wide = replace(pool, vectors=np.hstack([pool.vectors, beside]))

    def rank(part: Part) -> Ranking:
        bonus = options.probe_weight * log_probabilities(learned, part)
        if part.recalled is None:
            vectors = np.hstack([part.vectors, bonus.astype(np.float32)])
            return first_k(nearest(replace(part, vectors=vectors), wide, options.k), options.k)
        candidates = candidates_of(part, pool, 1)
        result = empty_ranking(candidates, options.k)
        own = learned.codes[np.maximum(candidates.indices, 0)]
        values = candidates.relevance + np.take_along_axis(bonus, own, axis=1)
        _take_best(
            candidates.indices,
            values,
            pool.tie_rank,
            result.n_valid,
            result.indices,
            result.scores,
        )
        return result

    return rank_parts(rank, whole, width=len(pool.vectors), options=options)


@dataclass(frozen=True)
class Learned:
    """A ridge regression of labels on vectors with a constant, and what leaving records out takes.

    Attributes:
        vectors: (n, d) float32, what it was fitted to.
        codes: (n,) int64 labels, `n_labels` for none.
        n_labels: L; every one of them has a record.
        weights: (n,) float64 of the squared errors: each label n' / L in all, 0 without a label.
        inverse: (d + 1, d + 1) float64 inverse of the normal equations' matrix.
        coefficients: (d + 1, L) float64.
    """

    vectors: Float32
    codes: Int64
    n_labels: int
    weights: Float64
    inverse: Float64
    coefficients: Float64


def fit(pool: Pool) -> Learned:
    """Fit the regression; the same whatever the order of the pool. O(n d^2 + d^3) time.

    Args:
        pool: Checked, with labels; -1 for none.
    """
    assert pool.labels is not None
    names, codes = np.unique(pool.labels, return_inverse=True)
    n_unknown = int((names < 0).sum())
    n_labels = len(names) - n_unknown
    codes = np.where(pool.labels < 0, n_labels, codes - n_unknown).astype(np.int64)
    counts = np.bincount(codes, minlength=n_labels + 1).astype(np.float64)
    labelled = counts[:n_labels].sum()
    each = labelled / (max(1, n_labels) * np.maximum(counts, 1.0))
    each[n_labels] = 0.0
    weights = each[codes]
    order = np.argsort(pool.tie_rank, kind="stable")
    order = order[weights[order] > 0]
    with one_blas_thread:
        inverse, coefficients = _solved(
            pool.vectors[order], codes[order], weights[order], n_labels=n_labels
        )
    return Learned(pool.vectors, codes, n_labels, weights, inverse, coefficients)


def _solved(
    vectors: Float32, codes: Int64, weights: Float64, *, n_labels: int
) -> tuple[Float64, Float64]:
    """Inverse and coefficients; of fewer rows than dimensions in the space that they span."""
    d = vectors.shape[1]
    basis = np.eye(d)
    if len(vectors) < d:
        basis = np.linalg.qr(vectors.T.astype(np.float64))[0]
    r = basis.shape[1]
    matrix = np.diag(np.append(np.full(r, RIDGE), 0.0 if len(vectors) else 1.0))
    moments = np.zeros((r + 1, n_labels))
    for rows in blocks(len(vectors), _ROWS):
        wide = _with_constant(vectors[rows].astype(np.float64) @ basis)
        weighted = wide * weights[rows, None]
        matrix += wide.T @ weighted
        targets = codes[rows, None] == np.arange(n_labels)
        moments += weighted.T @ targets
    back = np.zeros((d + 1, r + 1))
    back[:d, :r], back[d, r] = basis, 1.0
    inverse = np.linalg.inv(matrix)
    return back @ inverse @ back.T.copy(), back @ (inverse @ moments)


def log_probabilities(learned: Learned, part: Part) -> Float64:
    """Say which labels queries probably have, each by what it may see.

    The counts of labels that weigh the errors are those of the whole pool.

    Args:
        learned: By `fit`.
        part: Queries, with the records they may see.

    Returns:
        (q, L + 1) float64, at least log of 1e-6; the last column, of no label, is that.
    """
    found = np.full((len(part), learned.n_labels + 1), np.log(LEAST))
    if not learned.n_labels:
        return found
    wide = _with_constant(part.vectors.astype(np.float64))
    outputs = _products(wide, learned.coefficients)
    seen = np.ones((len(part), learned.n_labels), dtype=np.bool_)
    if part.allowed is not None:
        _leave_out(learned, wide, part.allowed, outputs, seen)
    logits = np.where(seen, outputs / TEMPERATURE, -np.inf)
    highest = logits.max(axis=1, keepdims=True)
    some = np.isfinite(highest[:, 0])
    risen = np.exp(logits[some] - highest[some])
    shares = risen / risen.sum(axis=1, keepdims=True)
    found[some, : learned.n_labels] = np.log(np.maximum(shares, LEAST))
    return found


def _leave_out(
    learned: Learned, wide: Float64, allowed: Bool, outputs: Float64, seen: Bool
) -> None:
    """Take what a query must not see out of its outputs, by Woodbury's identity; exact."""
    known = learned.weights > 0
    total = np.bincount(learned.codes[known], minlength=learned.n_labels)
    for query in np.flatnonzero((~allowed & known).any(axis=1)):
        out = np.flatnonzero(~allowed[query] & known)
        codes = learned.codes[out]
        left = total - np.bincount(codes, minlength=learned.n_labels)
        seen[query] = left > 0
        if not left.any():
            continue
        rows = _with_constant(learned.vectors[out].astype(np.float64))
        weighted = (learned.inverse @ rows.T.copy()) * learned.weights[out]
        errors = rows @ learned.coefficients - (codes[:, None] == np.arange(learned.n_labels))
        shift = np.linalg.solve(np.eye(len(out)) - rows @ weighted, errors)
        outputs[query] += (wide[query] @ weighted) @ shift


def _with_constant(rows: Float64) -> Float64:
    return np.hstack([rows, np.ones((len(rows), 1))])


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _products(left: Float64, right: Float64) -> Float64:
    """Multiply row by row, so that no row's sum depends on the others in the batch."""
    found = np.zeros((left.shape[0], right.shape[1]))
    for row in range(left.shape[0]):
        for i in range(left.shape[1]):
            for column in range(right.shape[1]):
                found[row, column] += left[row, i] * right[i, column]
    return found


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def _take_best(
    candidates: Int64,
    values: Float64,
    tie_rank: Int64,
    n_valid: Int64,
    indices: Int64,
    scores: Float64,
) -> None:
    """Pick the largest values of each row; O(r k) a query."""
    r = candidates.shape[1]
    open_ = np.empty(r, dtype=np.bool_)
    for query in range(candidates.shape[0]):
        items = candidates[query]
        for j in range(r):
            open_[j] = items[j] >= 0
        for position in range(n_valid[query]):
            pick = best_open(values[query], open_, items, tie_rank)
            open_[pick] = False
            indices[query, position], scores[query, position] = items[pick], values[query, pick]
