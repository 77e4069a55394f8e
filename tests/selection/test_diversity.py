import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.diversity import LogDet


def literal_gains(vectors, picks, ridge):
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
        np.testing.assert_allclose(log_det.gains(np.array(rest)), expected, atol=1e-8)
        assert log_det.add(pick) == pytest.approx(expected[rest.index(pick)], abs=1e-8)
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
    for pick in range(min(n, 10)):
        log_det.add(pick)
        after = log_det.gains(every)
        assert not np.isnan(after).any()
        with np.errstate(invalid="ignore"):
            assert (after <= before + 1e-7).all()
        assert (after >= (np.log(ridge) - 1e-9 if ridge else -np.inf)).all()
        before = after


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
