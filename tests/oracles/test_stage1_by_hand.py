"""Cases small enough to compute by hand: the figures are written out, not recomputed."""

from itertools import combinations

import numpy as np
import pytest

from selection.coverage import CoverageShard, LocalCoverage
from selection.diversity import LogDet
from selection.lazy_greedy import evaluate, lazy_greedy
from selection.objective import Objective
from tests.selection.asking import ask

T = np.array([(1, 0), (0.8, 0.6), (0.28, 0.96), (0, 1)], dtype=np.float32)
P = np.array([(1, 0), (0.8, 0.6), (0.6, 0.8), (0, 1)], dtype=np.float32)
TRAP = np.array([(1, 0, 0), (0, 1, 0), (0.6, 0.8, 0), (0, 0.8, 0.6)], dtype=np.float32)
A, B, C, D = range(4)


def oracle_of(vectors):
    return LocalCoverage([CoverageShard(vectors)], vectors)


def select(vectors, k, *, lam=1.0, ridge=0.0, tie_rank=None):
    rank = np.arange(len(vectors)) if tie_rank is None else np.asarray(tie_rank)
    objective = Objective(lam=lam, ridge=ridge)
    request = ask(len(vectors), k, objective, tie_rank=rank)
    return lazy_greedy(oracle_of(vectors), vectors, request)


def gains_after_b(vectors, *, lam, ridge):
    oracle, log_det = oracle_of(vectors), LogDet(vectors, ridge)
    oracle.add(B)
    log_det.add(B)
    others = np.array([A, C, D])
    return oracle.gains(others), log_det.gains(others)


def optimum(vectors, k, *, lam, ridge):
    def value(picks):
        objective = Objective(lam=lam, ridge=ridge)
        return evaluate(oracle_of(vectors), vectors, np.array(picks), objective=objective).value

    best = max(combinations(range(len(vectors)), k), key=value)
    return set(best), value(best)


@pytest.mark.parametrize(
    ("vectors", "sums"),
    [(T, [2.08, 3.20, 3.04, 2.56]), (P, [2.4, 3.36, 3.36, 2.4])],
    ids=["T", "P"],
)
def test_first_gains_are_the_column_sums_plus_one_per_point(vectors, sums):
    oracle = oracle_of(vectors)
    np.testing.assert_allclose(vectors @ oracle.column_sum(), sums, atol=1e-6)
    np.testing.assert_allclose(oracle.gains(np.arange(4)), np.array(sums) + 4, atol=1e-5)


@pytest.mark.parametrize(
    ("ridge", "expected", "total"),
    [
        (0.0, [-0.821651, -0.461651, 0.113713], 3.313713),
        (0.1, [-0.530641, -0.170641, 0.215254], 3.415254),
    ],
)
def test_case_t_gains_picks_and_optimum(ridge, expected, total):
    coverage, diversity = gains_after_b(T, lam=1.0, ridge=ridge)
    np.testing.assert_allclose(coverage + diversity, expected, atol=1e-5)
    result = select(T, 2, ridge=ridge)
    assert result.picks.tolist() == [B, D]
    assert result.value == pytest.approx(total, abs=1e-5)
    assert optimum(T, 2, lam=1.0, ridge=ridge) == ({A, D}, pytest.approx(3.76, abs=1e-5))


def test_case_p_gains_after_b_term_by_term():
    coverage, diversity = gains_after_b(P, lam=1.0, ridge=0.0)
    np.testing.assert_allclose(coverage, [0.20, 0.24, 0.40], atol=1e-6)
    # .6 and .8 in float32 move the log of the small residual of c by 2e-5.
    np.testing.assert_allclose(diversity, [-1.021651, -2.545953, -0.446287], atol=5e-5)


def test_case_p_exact_tie_goes_to_the_smaller_rank_not_to_float32():
    assert select(P, 1).picks.tolist() == [B]
    assert select(P, 1, tie_rank=[0, 2, 1, 3]).picks.tolist() == [C]


def test_case_p_coverage_alone_is_optimal():
    result = select(P, 2, lam=0.0)
    assert result.picks.tolist() == [B, D]
    assert result.value == pytest.approx(3.76, abs=1e-5)
    assert optimum(P, 2, lam=0.0, ridge=0.0)[1] == pytest.approx(3.76, abs=1e-5)
    oracle = oracle_of(P)
    oracle.add(B)
    oracle.add(D)
    np.testing.assert_allclose(oracle.gains(np.array([A, C])), [0.20, 0.04], atol=1e-6)


@pytest.mark.parametrize(
    ("lam", "gain", "total"), [(0.5, 0.176856, 3.536856), (1.0, -0.046287, 3.313713)]
)
def test_case_p_without_a_ridge(lam, gain, total):
    result = select(P, 2, lam=lam)
    assert result.picks.tolist() == [B, D]
    assert result.gains[1] == pytest.approx(gain, abs=1e-5)
    assert result.value == pytest.approx(total, abs=1e-5)
    assert result.first_negative == (1 if gain < 0 else None)
    assert optimum(P, 2, lam=lam, ridge=0.0) == ({A, D}, pytest.approx(3.6, abs=1e-5))


def test_case_p_third_pick_has_no_rank_left():
    log_det = LogDet(P, 0.0)
    log_det.add(B)
    log_det.add(D)
    assert log_det.exhausted
    assert np.all(log_det.gains(np.arange(4)) == -np.inf)
    result = select(P, 4)
    assert sorted(result.picks.tolist()) == [A, B, C, D]
    assert result.rank_exhausted_at == 2
    assert np.isfinite(result.objective).all()
    np.testing.assert_allclose(result.diversity_gains[2:], 0.0)


def test_case_p_with_a_ridge():
    coverage, diversity = gains_after_b(P, lam=1.0, ridge=0.1)
    np.testing.assert_allclose(coverage + diversity, [-0.530641, -1.132376, 0.055254], atol=1e-5)
    result = select(P, 3, ridge=0.1)
    assert result.picks.tolist() == [B, D, A]
    assert result.gains[0] == pytest.approx(3.36 + 4, abs=1e-5)
    assert result.objective[1] == pytest.approx(3.415254, abs=1e-5)
    assert result.gains[2] == pytest.approx(-1.115985, abs=1e-5)
    assert optimum(P, 2, lam=1.0, ridge=0.1) == ({A, D}, pytest.approx(3.6, abs=1e-5))


def test_greedy_is_not_optimal_and_we_say_so():
    singles = [select(TRAP[[i]], 1, lam=0.0) for i in range(4)]
    assert [len(single.picks) for single in singles] == [1] * 4
    values = [
        evaluate(oracle_of(TRAP), TRAP, np.array([i]), objective=Objective(lam=0.0)).value
        for i in range(4)
    ]
    np.testing.assert_allclose(values, [1.6, 2.6, 3.04, 2.44], atol=1e-5)
    result = select(TRAP, 2, lam=0.0)
    assert result.picks.tolist() == [2, 0]
    assert result.value == pytest.approx(3.44, abs=1e-5)
    assert optimum(TRAP, 2, lam=0.0, ridge=0.0) == ({0, 1}, pytest.approx(3.60, abs=1e-5))


def test_equicorrelated_schur_complements():
    gram = np.full((6, 6), 0.5) + 0.5 * np.eye(6)
    vectors = np.linalg.cholesky(gram).astype(np.float32)
    log_det = LogDet(vectors, 0.0)
    gains = [log_det.add(i) for i in range(6)]
    np.testing.assert_allclose(np.exp(gains), [1, 0.75, 0.666667, 0.625, 0.6, 0.583333], atol=1e-5)
    assert sum(gains[:4]) == pytest.approx(-1.163151, abs=1e-5)


def test_antipodal_pair_is_submodular_with_the_baseline_of_minus_one():
    pair = np.array([[1, 0], [-1, 0]], dtype=np.float32)
    oracle = oracle_of(pair)
    alone = oracle.gains(np.array([1]))[0]
    oracle.add(0)
    after = oracle.gains(np.array([1]))[0]
    # With a baseline of 0 these are 0 and 2: a gain that rises.
    assert (alone, after) == (pytest.approx(2.0), pytest.approx(2.0))


def test_exact_duplicate_costs_log_two_eps():
    twins = np.array([[0.6, 0.8], [0.6, 0.8]], dtype=np.float32)
    log_det = LogDet(twins, 1e-3)
    log_det.add(0)
    assert log_det.gains(np.array([1]))[0] == pytest.approx(np.log(2e-3 - 1e-6), abs=1e-3)
    assert log_det.gains(np.array([1]))[0] == pytest.approx(-6.22, abs=0.01)
