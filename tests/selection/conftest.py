"""The slow, literal versions that the package is compared with."""

import numpy as np
import pytest

from selection.objective import COSINE_ROUNDING, TIE_TOLERANCE


def literal_value(vectors, picks, *, lam, ridge, scale=1.0, ground=None):
    """f(S) from its definition, in float64."""
    points = (vectors if ground is None else ground).astype(np.float64)
    chosen = vectors[list(picks)].astype(np.float64)
    coverage = scale * (points @ chosen.T.copy()).max(axis=1).sum()
    if lam == 0:
        return coverage
    gram = chosen @ chosen.T.copy()
    sign, log_det = np.linalg.slogdet((1 - ridge) * gram + ridge * np.eye(len(chosen)))
    return coverage + lam * (log_det if sign > 0 else -np.inf)


def literal_greedy(vectors, *, k, lam, ridge, tie_rank, scale=1.0):
    """Naive greedy: every gain of every step from the definition, ties to the smaller rank."""
    n = len(vectors)
    floor = COSINE_ROUNDING * scale * n
    picks, before, coverage_before = [], -scale * n, -scale * n
    for _ in range(min(k, n)):
        left = [i for i in range(n) if i not in picks]
        values = [
            literal_value(vectors, [*picks, i], lam=lam, ridge=ridge, scale=scale) for i in left
        ]
        covers = [
            literal_value(vectors, [*picks, i], lam=0, ridge=ridge, scale=scale) for i in left
        ]
        best = int(np.argmax(values))
        gain, part = values[best] - before, covers[best] - coverage_before
        margin = TIE_TOLERANCE * (abs(part) + abs(gain - part)) + floor
        tied = [j for j in range(len(left)) if values[j] >= values[best] - margin]
        pick = min(tied, key=lambda j: tie_rank[left[j]])
        picks.append(left[pick])
        before, coverage_before = values[pick], covers[pick]
    return picks


@pytest.fixture(scope="session")
def naive_value():
    return literal_value


@pytest.fixture(scope="session")
def naive_greedy():
    return literal_greedy


@pytest.fixture(scope="session")
def unit_vectors():
    """Makes (n, d) float32 unit vectors around `n_topics` directions; a seed fixes them."""

    def make(n, d, *, seed=0, n_topics=5, spread=1.0):
        rng = np.random.default_rng(seed)
        topics = rng.normal(size=(n_topics, d))
        vectors = topics[rng.integers(0, n_topics, n)] + spread * rng.normal(size=(n, d))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.astype(np.float32)

    return make
