import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.dense import DenseCoverage, symmetric_cosines
from selection.lazy_greedy import lazy_greedy
from selection.objective import Objective
from selection.request import Request


def both(vectors, weights=None, threads=1):
    """The dense oracle, and the one without a matrix, on the same points."""
    shard = CoverageShard(vectors, weights=weights)
    return DenseCoverage(vectors, weights=weights, threads=threads), LocalCoverage([shard], vectors)


def weights_of(n, seed=0):
    return np.random.default_rng(seed).exponential(size=n)


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(1, 80),
    d=st.integers(1, 9),
    seed=st.integers(0, 1000),
    half=st.booleans(),
    weighted=st.booleans(),
    start=st.integers(0, 3),
)
def test_it_says_what_the_matrix_free_oracle_says(unit_vectors, n, d, seed, half, weighted, start):
    vectors = unit_vectors(n, d, seed=seed).astype(np.float16 if half else np.float32)
    weights = weights_of(n, seed) if weighted else None
    dense, free = both(vectors, weights)
    close = {"rtol": 1e-6, "atol": 1e-6 * (dense.total_weight + 1)}
    assert (dense.n_points, dense.total_weight) == (free.n_points, free.total_weight)
    assert dense.column_sum().tolist() == free.column_sum().tolist()
    if start:
        from_vectors = unit_vectors(start, d, seed=seed + 1)
        assert dense.cover_with(from_vectors) == free.cover_with(from_vectors)
    every = np.arange(n)
    for pick in range(min(n, 4)):
        for ours, theirs in zip(dense.moments(every), free.moments(every), strict=True):
            np.testing.assert_allclose(ours, theirs, **close)
        assert dense.gains(every).tolist() == dense.moments(every)[0].tolist()
        assert dense.add(pick) == pytest.approx(free.add(pick), rel=1e-6, abs=close["atol"])
    assert dense.n_covered(4).sum() <= n
    dense.reset()
    assert dense.n_covered(4).tolist() == [0] * 4
    assert (
        dense.gains(every).tolist() == DenseCoverage(vectors, weights=weights).gains(every).tolist()
    )


@pytest.mark.parametrize("n", [1, 31, 512, 513, 1300])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_matrix_is_exactly_symmetric_with_true_squared_norms(unit_vectors, n, dtype):
    vectors = (0.9 * unit_vectors(n, 5)).astype(dtype)
    cosines, wide = symmetric_cosines(vectors), vectors.astype(np.float64)
    assert (cosines == cosines.T).all()
    np.testing.assert_allclose(cosines, wide @ wide.T.copy(), atol=1e-6)
    np.testing.assert_allclose(np.diag(cosines), (wide**2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_results_are_bit_for_bit_those_of_one_thread(unit_vectors, weighted):
    vectors, found = unit_vectors(1700, 9), {}
    weights = weights_of(1700) if weighted else None
    for threads in (1, 2, 4):
        oracle = DenseCoverage(vectors, weights=weights, threads=threads)
        gained = oracle.add_many(np.array([3, 1699, 500]))
        parts = (gained, *oracle.moments(np.arange(1700)), oracle.gains(np.arange(1700)))
        cosines = symmetric_cosines(vectors, threads=threads)
        found[threads] = [part.tobytes() for part in (*parts, cosines)]
    assert found[1] == found[2] == found[4]


def test_a_gain_does_not_depend_on_the_candidates_beside_it(unit_vectors):
    vectors = unit_vectors(1500, 6)
    oracle = DenseCoverage(vectors, threads=2)
    oracle.add(4)
    every = oracle.gains(np.arange(1500))
    assert oracle.gains(np.array([1499, 7, 7])).tolist() == every[[1499, 7, 7]].tolist()


@pytest.mark.parametrize("copies", [2, 40])
def test_a_copy_of_a_pick_gains_nothing_but_rounding(unit_vectors, copies):
    vectors = np.repeat(unit_vectors(30, 64), copies, axis=0)
    oracle = DenseCoverage(vectors)
    oracle.add(0)
    assert (oracle.gains(np.arange(copies)) <= 1e-7 * len(vectors)).all()
    assert oracle.gains(np.array([0]))[0] == 0


def test_each_point_is_owned_by_its_nearest_pick_the_earlier_on_a_tie():
    points = np.array([(1, 0), (0.8, 0.6), (0, 1), (0, -1)], dtype=np.float32)
    oracle = DenseCoverage(points)
    oracle.add_many(np.array([0, 2]))
    oracle.add(2)
    assert oracle.n_covered(3).tolist() == [3, 1, 0]
    oracle.reset()
    oracle.cover_with(points[[2]])
    oracle.add(0)
    assert oracle.n_covered(1).tolist() == [3]


def test_starting_from_vectors_after_a_pick_is_refused(unit_vectors):
    oracle = DenseCoverage(unit_vectors(5, 3))
    oracle.add(1)
    with pytest.raises(ValueError, match=r"DenseCoverage.cover_with: found 1 picks, wanted none"):
        oracle.cover_with(unit_vectors(1, 3))


def test_a_candidate_that_is_not_there_is_refused(unit_vectors):
    oracle = DenseCoverage(unit_vectors(5, 3))
    with pytest.raises(IndexError):
        oracle.gains(np.array([5]))
    with pytest.raises(IndexError):
        oracle.add(5)


def test_no_points_at_all():
    oracle = DenseCoverage(np.zeros((0, 3), dtype=np.float32))
    assert oracle.gains(np.zeros(0, dtype=np.int64)).shape == (0,)
    assert oracle.column_sum().tolist() == [0, 0, 0]


def test_bad_weights_are_refused_by_their_row(unit_vectors):
    with pytest.raises(ValueError, match=r"DenseCoverage.weights: 1 of 3 .* row 2;"):
        DenseCoverage(unit_vectors(3, 2), weights=np.array([0.0, 1.0, -1.0]))


@pytest.mark.parametrize("lam", [0.0, 3.0])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lazy_greedy_makes_the_same_picks_with_and_without_the_matrix(
    unit_vectors, lam, half, weighted
):
    vectors = unit_vectors(700, 16, spread=0.6)
    vectors[300:340] = vectors[100]  # ties, to be broken alike
    vectors = vectors.astype(np.float16 if half else np.float32)
    weights = weights_of(700) if weighted else None
    dense, free = both(vectors, weights, threads=2)
    rank = np.random.default_rng(1).permutation(700)
    request = Request(
        k=40,
        objective=Objective(lam=lam, scale="absolute", ridge=1e-2),
        tie_rank=rank,
        keys=rank.astype(np.uint64),
        n_total=dense.total_weight,
    )
    ours, theirs = (lazy_greedy(oracle, vectors, request) for oracle in (dense, free))
    assert ours.picks.tolist() == theirs.picks.tolist()
    assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    assert ours.n_covered.tolist() == theirs.n_covered.tolist()
