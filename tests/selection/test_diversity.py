import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.diversity import LogDet


def literal_gains(vectors, picks, ridge):
    """Gains of all that are no picks, as differences of slogdet, in float64."""
    wide = vectors.astype(np.float64)
    matrix = (1 - ridge) * (wide @ wide.T.copy()) + ridge * np.eye(len(wide))

    def log_det(chosen):
        return np.linalg.slogdet(matrix[np.ix_(chosen, chosen)])[1] if chosen else 0.0

    rest = [i for i in range(len(vectors)) if i not in picks]
    return rest, np.array([log_det([*picks, i]) - log_det(picks) for i in rest])


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 12),
    d=st.integers(1, 8),
    seed=st.integers(0, 1000),
    ridge=st.sampled_from([1e-3, 1e-2, 0.5]),
)
def test_gains_agree_with_slogdet_at_any_number_of_picks(unit_vectors, n, d, seed, ridge):
    vectors = unit_vectors(n, d, seed=seed)
    log_det, picks = LogDet(vectors, ridge), []
    for pick in range(n - 1):
        rest, expected = literal_gains(vectors, picks, ridge)
        np.testing.assert_allclose(log_det.gains(np.array(rest)), expected, atol=1e-10)
        assert log_det.add(pick) == pytest.approx(expected[rest.index(pick)], abs=1e-10)
        picks.append(pick)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 7), seed=st.integers(0, 1000))
def test_without_a_ridge_gains_agree_with_slogdet_below_the_dimension(unit_vectors, n, seed):
    vectors = unit_vectors(n, 12, seed=seed)
    log_det, picks = LogDet(vectors, 0.0), []
    for pick in range(n - 1):
        rest, expected = literal_gains(vectors, picks, 0.0)
        np.testing.assert_allclose(log_det.gains(np.array(rest)), expected, atol=1e-7)
        log_det.add(pick)
        picks.append(pick)


@settings(deadline=None, max_examples=60)
@given(
    d=st.integers(1, 9),
    seed=st.integers(0, 1000),
    ridge=st.sampled_from([1e-3, 1e-2]),
    half=st.booleans(),
    data=st.data(),
)
def test_gains_asked_for_at_any_time_agree_with_slogdet_far_beyond_the_dimension(
    unit_vectors, d, seed, ridge, half, data
):
    n = 3 * d + 8
    vectors = unit_vectors(n, d, seed=seed)
    vectors[n // 2 :: 3] = vectors[0]  # duplicates
    stored = vectors.astype(np.float16) if half else vectors
    log_det = LogDet(stored, ridge)
    picks = np.random.default_rng(seed).permutation(n)[: 3 * d].tolist()
    for step, pick in enumerate(picks):
        asked = data.draw(st.lists(st.integers(0, n - 1), max_size=4)) if step % 3 == 0 else []
        rest, expected = literal_gains(stored, picks[:step], ridge)
        for x, gain in zip(asked, log_det.gains(np.array(asked, dtype=np.int64)), strict=True):
            if x in rest:
                assert gain == pytest.approx(expected[rest.index(x)], abs=1e-10)
        log_det.add(pick)
    rest, expected = literal_gains(stored, picks, ridge)
    np.testing.assert_allclose(log_det.gains(np.array(rest)), expected, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 30),
    d=st.integers(1, 6),
    seed=st.integers(0, 1000),
    ridge=st.sampled_from([0.0, 1e-6, 1e-3, 0.3]),
)
def test_an_old_gain_is_an_upper_bound_and_none_is_below_log_eps(unit_vectors, n, d, seed, ridge):
    vectors = unit_vectors(n, d, seed=seed)
    log_det, every = LogDet(vectors, ridge), np.arange(n)
    before = log_det.gains(every)
    for pick in range(n):
        log_det.add(pick)
        after = log_det.gains(every)
        assert not np.isnan(after).any()
        assert (after <= before).all()
        assert (after >= (np.log(ridge) - 1e-9 if ridge else -np.inf)).all()
        before = after


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_gains_do_not_depend_on_when_they_were_asked_for_before(unit_vectors, ridge):
    vectors = unit_vectors(400, 24)
    often, once = LogDet(vectors, ridge), LogDet(vectors, ridge)
    rng = np.random.default_rng(1)
    for pick in range(20 if ridge == 0 else 100):
        often.gains(rng.integers(0, 400, 50))
        assert often.add(pick) == pytest.approx(once.add(pick), abs=1e-10)
    every = np.arange(100, 400)
    np.testing.assert_allclose(often.gains(every), once.gains(every), atol=1e-10)
    np.testing.assert_array_equal(once.gains(every[::-1]), once.gains(every)[::-1])


def close_vectors(n, d, spread):
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(1, d)) + spread * rng.normal(size=(n, d))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("ridge", "tolerance"), [(0.0, 1e-9), (1e-3, 1e-10)])
def test_close_vectors_keep_their_digits(ridge, tolerance):
    vectors, picks = close_vectors(60, 40, 5e-5), list(range(20))
    log_det = LogDet(vectors, ridge)
    for pick in picks:
        log_det.gains(np.arange(pick, 60, 7))
        log_det.add(pick)
    # The last diagonal entries of R in X' = Q R, computed without squaring anything.
    for x in range(20, 60):
        if ridge == 0:
            chosen = vectors[[*picks, x]].astype(np.float64)
            expected = 2 * np.log(abs(np.linalg.qr(chosen.T, mode="r")[-1, -1]))
        else:
            rest, gains = literal_gains(vectors, picks, ridge)
            expected = gains[rest.index(x)]
        assert log_det.gains(np.array([x]))[0] == pytest.approx(expected, abs=tolerance)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 8),
    a=st.integers(0, 9),
    d=st.integers(1, 6),
    seed=st.integers(0, 1000),
    ridge=st.sampled_from([0.0, 1e-3, 0.1]),
)
def test_gains_given_a_pool_are_those_after_picking_it(unit_vectors, n, a, d, seed, ridge):
    vectors, pool = unit_vectors(n, d, seed=seed), unit_vectors(a, d, seed=seed + 1)
    given_pool, both = LogDet(vectors, ridge), LogDet(np.vstack([vectors, pool]), ridge)
    total = given_pool.begin_with(pool)
    picked = [both.add(n + i) for i in range(a)]
    assert total == pytest.approx(sum(gain for gain in picked if gain > -np.inf), abs=1e-9)
    np.testing.assert_allclose(given_pool.gains(np.arange(n)), both.gains(np.arange(n)), atol=1e-9)
    assert given_pool.exhausted == both.exhausted


def test_a_pool_is_worth_the_log_determinant_of_its_matrix(unit_vectors):
    pool = unit_vectors(20, 6)
    gram = pool.astype(np.float64) @ pool.T.astype(np.float64).copy()
    expected = np.linalg.slogdet(0.99 * gram + 0.01 * np.eye(20))[1]
    assert LogDet(unit_vectors(3, 6), 0.01).begin_with(pool) == pytest.approx(expected, abs=1e-10)


def test_a_pool_of_another_dimension_is_refused(unit_vectors):
    with pytest.raises(ValueError, match=r"LogDet.begin_with: found shape \(4, 5\), wanted"):
        LogDet(unit_vectors(3, 6), 0.01).begin_with(unit_vectors(4, 5))


def test_rows_may_lie_in_a_file_as_sixteen_bits(unit_vectors, tmp_path):
    vectors = unit_vectors(50, 8).astype(np.float16)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped, held = np.load(tmp_path / "vectors.npy", mmap_mode="r"), vectors.astype(np.float32)
    one, other = LogDet(mapped, 1e-2), LogDet(held, 1e-2)
    for pick in range(12):
        assert one.add(pick) == other.add(pick)
    np.testing.assert_array_equal(one.gains(np.arange(50)), other.gains(np.arange(50)))
    norms = (held.astype(np.float64) ** 2).sum(axis=1)
    assert one.max_squared_norm == pytest.approx(norms.max(), rel=1e-12)


def test_memory_does_not_grow_with_the_number_of_picks(unit_vectors):
    log_det = LogDet(unit_vectors(200, 5), 1e-2)
    for pick in range(200):
        log_det.add(pick)
    held = [value for value in vars(log_det).values() if isinstance(value, np.ndarray)]
    assert sum(value.nbytes for value in held) <= 200 * (4 * 5 + 20) + 2 * 5 * 5 * 8


def test_true_norms_stand_on_the_diagonal(unit_vectors):
    vectors = (unit_vectors(5, 4) * np.float32(0.9)).astype(np.float32)
    rest, expected = literal_gains(vectors, [0, 1], 1e-3)
    log_det = LogDet(vectors, 1e-3)
    log_det.add(0)
    log_det.add(1)
    np.testing.assert_allclose(log_det.gains(np.array(rest)), expected, atol=1e-10)


def test_sixteen_bit_vectors_never_give_nan(unit_vectors):
    originals = unit_vectors(20, 8).astype(np.float16).astype(np.float32)
    vectors = np.repeat(originals, 3, axis=0)
    for ridge in (0.0, 1e-6, 1e-3):
        log_det = LogDet(vectors, ridge)
        for pick in range(0, 60, 2):
            log_det.add(pick)
        gains = log_det.gains(np.arange(60))
        assert not np.isnan(gains).any()
        assert (gains < np.inf).all()


def test_a_duplicate_has_no_rank_of_its_own_without_a_ridge(unit_vectors):
    vectors = np.repeat(unit_vectors(2, 5), 2, axis=0)
    log_det = LogDet(vectors, 0.0)
    log_det.add(0)
    gains = log_det.gains(np.arange(4))
    assert gains[:2].tolist() == [-np.inf, -np.inf]
    assert np.isfinite(gains[2:]).all()
    assert log_det.add(1) == -np.inf
    np.testing.assert_array_equal(log_det.gains(np.arange(4)), gains)
    assert not log_det.exhausted


def test_a_zero_vector_is_dependent_not_a_crash():
    vectors = np.zeros((2, 3), dtype=np.float32)
    assert LogDet(vectors, 0.0).gains(np.array([0]))[0] == -np.inf
    assert LogDet(vectors, 1e-3).gains(np.array([0]))[0] == pytest.approx(np.log(1e-3))


def test_a_ridge_out_of_range_is_refused(unit_vectors):
    with pytest.raises(ValueError, match=r"LogDet.ridge: found 1.0"):
        LogDet(unit_vectors(2, 2), 1.0)
