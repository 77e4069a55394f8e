"""The case that apricot publishes: digits, squared correlation, facility location, baseline 0."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from selection.lazy_greedy import lazy_greedy
from selection.objective import Objective
from tests.selection.asking import ask

PICKS = [424, 1647, 396, 339, 1030, 331, 983, 1075, 1482, 1539]
GAINS = [736.794, 114.2782, 65.4154, 61.3037, 54.5428]


def squared_correlation():
    pixels = load_digits().data.astype(np.float64)
    pixels -= pixels.mean(axis=1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    return pixels, (pixels @ pixels.T.copy()) ** 2


class MatrixCoverage:
    """A CoverageOracle over a matrix in memory, with a baseline of 0 or -1."""

    def __init__(self, similarity, vectors, *, baseline):
        self.similarity, self.vectors, self.baseline = similarity, vectors, baseline
        self.n_points = self.total_weight = len(similarity)
        self.reset()

    def reset(self):
        self.cover = np.full(self.n_points, self.baseline, dtype=np.float64)
        self.owner = np.full(self.n_points, -1)
        self.picks = 0

    def column_sum(self):
        return self.vectors.sum(axis=0, dtype=np.float64)

    def gains(self, indices):
        return np.maximum(self.similarity[:, indices] - self.cover[:, None], 0).sum(axis=0)

    def add(self, index):
        better = self.similarity[:, index] > self.cover
        gain = (self.similarity[better, index] - self.cover[better]).sum()
        self.cover[better] = self.similarity[better, index]
        self.owner[better] = self.picks
        self.picks += 1
        return float(gain)

    def n_covered(self, k):
        return np.bincount(self.owner[self.owner >= 0], minlength=k)[:k]


def test_naive_greedy_reproduces_the_published_picks_and_gains():
    _, similarity = squared_correlation()
    oracle = MatrixCoverage(similarity, similarity, baseline=0.0)
    everything = np.arange(len(similarity))
    picks, gains = [], []
    for _ in PICKS:
        picks.append(int(np.argmax(oracle.gains(everything))))
        gains.append(oracle.add(picks[-1]))
    assert picks == PICKS
    assert gains[:5] == pytest.approx(GAINS, abs=1e-3)


def test_lazy_greedy_reproduces_the_published_picks_and_gains():
    pixels, similarity = squared_correlation()
    # A squared cosine is the cosine of the outer products, so the column sum serves here too.
    outer = np.einsum("ni,nj->nij", pixels, pixels).reshape(len(pixels), -1).astype(np.float32)
    oracle = MatrixCoverage(similarity, outer, baseline=-1.0)
    result = lazy_greedy(oracle, outer, ask(len(pixels), 10, Objective(lam=0.0)))
    n = len(pixels)
    assert result.picks.tolist() == PICKS
    assert result.gains[0] - n == pytest.approx(GAINS[0], abs=1e-3)
    assert result.gains[1:5] == pytest.approx(GAINS[1:], abs=1e-3)
    assert result.evaluations < 0.35 * n * 10
