"""Sums brought up to date are those formed anew, for less work."""

import numpy as np
import pytest

from selection import running
from selection.coverage import CoverageShard, LocalCoverage
from selection.running import RunningCoverage


def plain(points, candidates, weights=None):
    return LocalCoverage([CoverageShard(points, weights=weights)], candidates)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_stay_those_of_all_points(unit_vectors, monkeypatch, dtype, weighted):
    monkeypatch.setattr(running, "REMEMBERED", 2)
    vectors = unit_vectors(900, 16, n_topics=30).astype(dtype)
    draw = np.random.default_rng(3)
    weights = draw.random(300) if weighted else None
    kept = RunningCoverage(vectors[:300], vectors, weights=weights)
    anew = plain(vectors[:300], vectors, weights)
    for number in range(120):
        # A few of them often, all of them now and then: recent, old and forgotten sums.
        most = 900 if number % 50 == 0 else 200
        some = draw.permutation(most)[: draw.integers(1, most)]
        for ours, theirs in zip(kept.moments(some), anew.moments(some), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=3e-6)
        pick = int(draw.integers(900))
        assert kept.add(pick) == anew.add(pick)
    np.testing.assert_allclose(kept.gains(np.arange(900)), anew.gains(np.arange(900)))
    assert kept.n_covered(120).tolist() == anew.n_covered(120).tolist()


def test_a_look_soon_after_forms_products_with_risen_points_only(unit_vectors, monkeypatch):
    vectors = unit_vectors(2000, 16, n_topics=50)
    kept = RunningCoverage(vectors, vectors)
    every, rows = np.arange(2000), []
    real = running.cosines_of

    def counted(block, points):
        rows.append(len(points))
        return real(block, points)

    monkeypatch.setattr(running, "cosines_of", counted)
    kept.add_many(np.arange(0, 2000, 20))
    kept.moments(every)
    assert not rows  # never looked at: formed anew
    before = kept._shard.level.copy()
    kept.add(7)
    risen = int((kept._shard.level > before).sum())
    kept.moments(every)
    assert set(rows) == {risen}
    assert 0 < risen < 200


def test_no_result_depends_on_the_threads(unit_vectors):
    vectors = unit_vectors(3000, 16, n_topics=40)
    found = []
    for threads in (1, 2, 5):
        oracle = RunningCoverage(vectors[:800], vectors, threads=threads)
        sums = [oracle.moments(np.arange(3000))]
        for pick in range(5, 50, 3):
            oracle.add(pick)
            sums.append(oracle.moments(np.arange(pick, 3000)))
        found.append(np.concatenate([np.stack(pair).ravel() for pair in sums]).tolist())
    assert found[0] == found[1] == found[2]


def test_starting_anew_forgets_the_sums(unit_vectors):
    vectors = unit_vectors(400, 8)
    oracle, some = RunningCoverage(vectors[:100], vectors), np.arange(50)
    first = oracle.moments(some)[0].tolist()
    assert oracle.moments(some)[0].tolist() == first
    oracle.add(3)
    assert oracle.moments(some)[0].tolist() != first
    oracle.reset()
    assert oracle.moments(some)[0].tolist() == first
    oracle.cover_with(vectors[60:70])
    other = plain(vectors[:100], vectors)
    other.cover_with(vectors[60:70])
    assert oracle.moments(some)[0].tolist() == other.moments(some)[0].tolist()


def test_few_candidates_or_points(unit_vectors):
    vectors = unit_vectors(5, 8)
    assert RunningCoverage(vectors[:0], vectors).moments(np.arange(5))[0].tolist() == [0.0] * 5
    one = RunningCoverage(vectors[:1], vectors[:1])
    assert one.moments(np.array([0]))[0][0] == pytest.approx(2.0)
    one.add(0)
    assert one.moments(np.array([0]))[0][0] == pytest.approx(0.0, abs=1e-6)
    assert one.moments(np.zeros(0, dtype=np.int64))[0].shape == (0,)
