import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from inference.significance import holm, mcnemar, paired_shares, paired_t, wilson

# Student 1908: hours of sleep gained by ten patients, one drug minus the other.
SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]


def test_the_paired_t_test_gives_students_own_figures():
    found = paired_t(SLEEP)
    assert (found.n, found.note) == (10, "")
    assert found.mean == pytest.approx(1.58)
    assert found.sd == pytest.approx(1.2299, abs=1e-4)
    assert found.t == pytest.approx(4.0621, abs=1e-4)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((0.7001, 2.4599), abs=1e-4)


def test_the_paired_t_test_is_what_the_formula_gives():
    # mean 2, sd 1 and n = 3 by hand: t = 2 / (1 / sqrt 3); t(2) has a closed form.
    found = paired_t([1.0, 2.0, 3.0])
    t = 2 * math.sqrt(3)
    assert (found.mean, found.sd, found.t) == pytest.approx((2.0, 1.0, t))
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    half = 4.302653 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=12))
def test_the_paired_t_test_is_scipys(pairs):
    first, second = np.array(pairs).T
    found = paired_t((first - second).tolist())
    if found.sd > 1e-6:
        theirs = stats.ttest_rel(first, second)
        interval = theirs.confidence_interval(0.95)
        assert (found.t, found.p) == pytest.approx((theirs.statistic, theirs.pvalue))
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_arms_that_never_differ_are_equal_for_sure():
    found = paired_t([0.0] * 10)
    assert (found.t, found.p, found.low, found.high) == (None, 1.0, 0.0, 0.0)
    assert found.note == "no fold differs"


def test_equal_differences_have_the_least_p_that_their_number_bears():
    found = paired_t([0.3 - 0.2, 0.1, 0.7 - 0.6])  # equal but for rounding
    assert (found.sd, found.t, found.p) == (0.0, None, 0.25)
    assert "sign-flip" in found.note
    assert paired_t([-0.1] * 10).p == 2**-9


@pytest.mark.parametrize(("differences", "mean"), [([], None), ([0.5], 0.5)])
def test_fewer_than_two_folds_are_no_test(differences, mean):
    found = paired_t(differences)
    assert (found.mean, found.sd, found.p, found.low) == (mean, None, None, None)
    assert found.note == f"{len(differences)} folds: a t-test needs at least 2"


def test_holm_gives_the_values_computed_by_hand():
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, then 0.04 which may not fall below its forerunner.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_test_that_was_not_made_does_not_count_for_holm():
    assert holm([None, 0.02, None, 0.01]) == [None, 0.02, None, 0.02]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_keeps_the_order_and_rejects_what_stepping_down_rejects(p_values):
    corrected = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, corrected, strict=True))
    rejected = set()
    for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] * (len(p_values) - step) >= 0.05:
            break
        rejected.add(i)
    assert {i for i, q in enumerate(corrected) if q < 0.05} == rejected


def test_few_disagreements_are_judged_by_the_exact_binomial_test():
    # (1 + 9) / 2^9 on either side.
    found = mcnemar(1, 8)
    assert (found.test, found.p) == ("exact", pytest.approx(2 * 10 / 512))
    assert mcnemar(0, 0).p == 1.0
    assert mcnemar(12, 12).test == "exact"


def test_many_disagreements_are_judged_by_chi_square_with_the_correction():
    # Agresti: 86 against 150 of 1,600: (|86 - 150| - 1)^2 / 236 = 16.82.
    found = mcnemar(86, 150)
    assert found.test == "chi-square"
    assert found.p == pytest.approx(math.erfc(math.sqrt(63**2 / 236 / 2)))
    assert found.p == pytest.approx(4.115e-5, rel=1e-3)
    assert mcnemar(15, 10).test == "chi-square"
    assert mcnemar(20, 20).p == 1.0


def test_wilsons_interval_is_the_published_one_and_scipys():
    # Newcombe 1998 (two-sided intervals for the single proportion): 81 of 263.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    for k, n in ((0, 1), (3, 10), (10, 10), (1, 500)):
        theirs = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k, n) == pytest.approx((theirs.low, theirs.high))
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_interval_of_paired_shares_is_the_published_one():
    # Newcombe 1998 (improved intervals for paired proportions), table III, method 10.
    assert paired_shares(36, 12, 2, 0) == pytest.approx((0.0569, 0.3404), abs=1e-4)
    assert paired_shares(54, 0, 0, 0) == pytest.approx((-0.0664, 0.0664), abs=1e-4)


@settings(deadline=None, max_examples=40)
@given(*(st.integers(0, 30) for _ in range(4)))
def test_paired_shares_hold_the_difference_turn_round_and_always_have_a_width(a, b, c, d):
    low, high = paired_shares(a, b, c, d)
    assert (-high, -low) == pytest.approx(paired_shares(a, c, b, d))
    assert -1 <= low < high <= 1
    if a + b + c + d:
        assert low <= (b - c) / (a + b + c + d) <= high
