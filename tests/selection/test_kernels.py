import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.kernels import (
    CANDIDATE_BLOCK,
    GROUND_TILE,
    column_sum,
    cover_by,
    excess,
    excess_moments,
    excess_per_query,
    lift_cover,
)
from selection.tiles import FEW


def literal_terms(ground, cover, candidates, weights):
    """u_i max(0, w_ix - cover_i), (m, c) float64."""
    cosines = ground.astype(np.float64) @ candidates.astype(np.float64).T
    terms = np.maximum(cosines - cover.astype(np.float64)[:, None], 0)
    return terms if weights is None else terms * weights[:, None]


def random_case(unit_vectors, m, c, d, *, seed, half, weighted):
    ground, candidates = unit_vectors(m, d, seed=seed), unit_vectors(c, d, seed=seed + 1)
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=m) if weighted else None
    cover = rng.uniform(-1, 0.5, m).astype(np.float32)
    return ground.astype(np.float16 if half else np.float32), cover, candidates, weights


@settings(deadline=None, max_examples=60)
@given(
    m=st.integers(0, 70),
    c=st.integers(0, 40),
    d=st.integers(1, 9),
    seed=st.integers(0, 1000),
    half=st.booleans(),
    weighted=st.booleans(),
)
def test_sums_and_squares_are_the_definition(unit_vectors, m, c, d, seed, half, weighted):
    ground, cover, candidates, weights = random_case(
        unit_vectors, m, c, d, seed=seed, half=half, weighted=weighted
    )
    terms = literal_terms(ground, cover, candidates, weights)
    total, squares = excess_moments(ground, cover, candidates, weights=weights)
    np.testing.assert_allclose(total, terms.sum(axis=0), rtol=1e-6, atol=1e-6 * (m + 1))
    np.testing.assert_allclose(squares, (terms**2).sum(axis=0), rtol=1e-5, atol=1e-6 * (m + 1))
    assert excess(ground, cover, candidates, weights=weights).tolist() == total.tolist()


def test_totals_are_accurate_to_1e_7_over_many_points(unit_vectors):
    ground, candidates = unit_vectors(20_000, 24), unit_vectors(20, 24, seed=1)
    cover = np.full(len(ground), -0.2, dtype=np.float32)
    exact = literal_terms(ground, cover, candidates, None).sum(axis=0)
    np.testing.assert_allclose(excess(ground, cover, candidates), exact, rtol=1e-7)


def test_equal_terms_do_not_add_up_their_rounding():
    ground = np.tile(np.float32([[0.1, 0.3]]), (50_000, 1))
    candidates, cover = np.float32([[0.7, 0.1]]), np.full(50_000, -1, dtype=np.float32)
    term = literal_terms(ground[:1], cover[:1], candidates, None)[0, 0]
    assert excess(ground, cover, candidates)[0] == pytest.approx(50_000 * term, rel=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_results_are_bit_for_bit_those_of_one_thread(unit_vectors, half, weighted):
    m = 5 * GROUND_TILE + 77
    ground, cover, candidates, weights = random_case(
        unit_vectors, m, 600, 8, seed=3, half=half, weighted=weighted
    )
    found = {}
    for threads in (1, 2, 4):
        options = {"weights": weights, "threads": threads}
        sums = excess_moments(ground, cover, candidates, **options)
        level, owner = cover.copy(), np.full(m, -1, dtype=np.int64)
        gains = cover_by(ground, candidates, level, owner, first=0, **options)
        lifted = cover.copy()
        lift_cover(ground, candidates, lifted, threads=threads)
        mean = column_sum(ground, **options)
        parts = (excess(ground, cover, candidates, **options), *sums, gains, level, owner)
        found[threads] = [part.tobytes() for part in (*parts, lifted, mean)]
    assert found[1] == found[2] == found[4]


def test_halves_sum_like_their_float32(unit_vectors):
    ground, cover, candidates, _ = random_case(
        unit_vectors, GROUND_TILE + 5, 300, 33, seed=1, half=True, weighted=False
    )
    wide = ground.astype(np.float32)
    assert (excess(ground, cover, candidates) == excess(wide, cover, candidates)).all()


def test_weights_of_one_change_nothing_and_of_two_double(unit_vectors):
    ground, cover, candidates, _ = random_case(
        unit_vectors, 3000, 40, 12, seed=2, half=False, weighted=False
    )
    plain = excess(ground, cover, candidates)
    ones = np.ones(len(ground))
    assert excess(ground, cover, candidates, weights=ones).tolist() == plain.tolist()
    assert excess(ground, cover, candidates, weights=2 * ones).tolist() == (2 * plain).tolist()


def test_a_weight_counts_like_that_many_copies(unit_vectors):
    ground, cover, candidates, _ = random_case(
        unit_vectors, 60, 9, 5, seed=4, half=False, weighted=False
    )
    times = np.arange(60) % 4
    copies = excess(np.repeat(ground, times, axis=0), np.repeat(cover, times), candidates)
    weighted = excess(ground, cover, candidates, weights=times.astype(np.float64))
    np.testing.assert_allclose(weighted, copies, rtol=1e-6)


def test_more_candidates_than_share_a_pass(unit_vectors):
    ground, candidates = unit_vectors(50, 3), unit_vectors(CANDIDATE_BLOCK + 300, 3, seed=1)
    cover = np.full(50, -1, dtype=np.float32)
    expected = literal_terms(ground, cover, candidates, None).sum(axis=0)
    np.testing.assert_allclose(excess(ground, cover, candidates), expected, rtol=1e-6)
    owner, level = np.full(50, -1, dtype=np.int64), cover.copy()
    gains = cover_by(ground, candidates, level, owner, first=10, threads=2)
    cosines = ground.astype(np.float64) @ candidates.astype(np.float64).T
    np.testing.assert_allclose(level, cosines.max(axis=1), atol=1e-6)
    assert gains.sum() == pytest.approx(50 + cosines.max(axis=1).sum(), rel=1e-6)
    np.testing.assert_allclose(cosines[np.arange(50), owner - 10], cosines.max(axis=1), atol=1e-6)


def test_padding_covers_nothing(unit_vectors):
    ground = -np.abs(unit_vectors(40, 3))
    pick = np.abs(unit_vectors(1, 3, seed=1))
    level, owner = np.full(40, -1, dtype=np.float32), np.full(40, -1, dtype=np.int64)
    cover_by(ground, pick, level, owner, first=0)
    lifted = np.full(40, -1, dtype=np.float32)
    lift_cover(ground, pick, lifted)
    np.testing.assert_allclose(level, (ground @ pick.T)[:, 0], atol=1e-6)
    assert lifted.tolist() == level.tolist()
    assert set(owner) == {0}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("c", [1, 16, 33, 300])
def test_a_copy_of_a_pick_gains_nothing_but_rounding_in_any_batch(unit_vectors, c, half, weighted):
    m = GROUND_TILE + 333
    ground, _, candidates, weights = random_case(
        unit_vectors, m, c, 384, seed=5, half=half, weighted=weighted
    )
    level, owner = np.full(m, -1, dtype=np.float32), np.full(m, -1, dtype=np.int64)
    cover_by(ground, candidates[c // 2 :][:1], level, owner, first=0, weights=weights)
    again = excess(ground, level, candidates, weights=weights, threads=2)[c // 2]
    assert again <= 1e-7 * (m if weights is None else weights.sum())


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_copy_of_a_pick_gains_exactly_nothing_in_a_small_batch(unit_vectors, threads, half):
    # Up to FEW candidates are multiplied as a pick is, and round alike.
    m = 3 * GROUND_TILE + 333
    ground, _, candidates, weights = random_case(
        unit_vectors, m, FEW, 384, seed=6, half=half, weighted=True
    )
    for pick in (0, 3, FEW - 1):
        level, owner = np.full(m, -1, dtype=np.float32), np.full(m, -1, dtype=np.int64)
        cover_by(
            ground, candidates[pick][None], level, owner, first=0, weights=weights, threads=threads
        )
        assert excess(ground, level, candidates, weights=weights, threads=threads)[pick] == 0


@pytest.mark.parametrize("half", [False, True])
def test_the_column_sum_is_weighted_and_in_float64(unit_vectors, half):
    ground = unit_vectors(2 * GROUND_TILE + 9, 6).astype(np.float16 if half else np.float32)
    weights = np.random.default_rng(0).exponential(size=len(ground))
    wide = ground.astype(np.float64)
    np.testing.assert_allclose(column_sum(ground), wide.sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(column_sum(ground, weights=weights), weights @ wide, rtol=1e-11)


def test_queries_may_meet_ground_points_stored_in_16_bits(unit_vectors):
    halves = unit_vectors(300, 6).astype(np.float16)
    queries, candidates = unit_vectors(3, 6, seed=1), unit_vectors(5, 6, seed=2)
    wide = halves.astype(np.float32)
    np.testing.assert_array_equal(
        excess_per_query(halves, queries, candidates), excess_per_query(wide, queries, candidates)
    )


def test_no_ground_points_and_no_candidates_give_zeros():
    none, one = np.zeros((0, 3), dtype=np.float32), np.float32([[1, 0, 0]])
    cover = np.zeros(0, dtype=np.float32)
    assert excess(none, cover, one, threads=2).tolist() == [0.0]
    assert excess(one, np.zeros(1, dtype=np.float32), none, threads=2).shape == (0,)
    assert column_sum(none).tolist() == [0, 0, 0]
