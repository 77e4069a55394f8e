"""Bounds small enough to compute by hand: the figures are written out, not recomputed."""

import numpy as np
import pytest

from selection.certificate import CertificateWatch, Worth
from selection.objective import Objective
from selection.top_gains import top_gains

# P: a = (1, 0), b = (.8, .6), c = (.6, .8), d = (0, 1); four ground points, so C starts at -4.


def watch_of(k, *, lam, ridge):
    objective = Objective(lam=lam, ridge=ridge)
    return CertificateWatch(k, objective, baseline=4.0, dim=2, max_squared_norm=1.0)


def look(watch, coverage, diversity, *, covered, diverse, n_picks, quality=None):
    top = top_gains(
        np.array(coverage),
        np.array(diversity),
        k=watch.k,
        objective=watch.objective,
        quality=None if quality is None else np.array(quality),
    )
    watch.look(top, covered=covered, diverse=diverse, n_picks=n_picks)


def test_case_p_coverage_alone_after_both_picks():
    watch = watch_of(2, lam=0.0, ridge=0.0)
    # b, d picked: C + 4 = 7.76; a could add .20 and c .04.
    look(watch, [0.20, 0, 0.04, 0], [0, 0, 0, 0], covered=7.76, diverse=0.0, n_picks=2)
    seen = watch.close("proved", Worth(3.76, 3.76, 2), Worth(3.36, 3.36, 2))
    assert seen.bound == pytest.approx(4.00, abs=1e-12)
    assert seen.bound_of_g == pytest.approx(8.00, abs=1e-12)
    assert seen.ratio == seen.coverage_ratio == pytest.approx(3.76 / 4)
    assert seen.ratio_of_g == pytest.approx(7.76 / 8)
    assert seen.lift == seen.coverage_lift == pytest.approx(0.40 / 0.64)
    assert seen.coverage_bound == seen.bound
    assert seen.diversity_bound is None
    assert seen.tightest == "g"


def test_case_p_no_prefix_is_tighter_than_the_last():
    watch = watch_of(2, lam=0.0, ridge=0.0)
    # From the empty set 7.36 + 7.36; after b alone 7.36 + .40 + .24 = 8.00: the same as after both.
    look(watch, [6.4, 7.36, 7.36, 6.4], [0] * 4, covered=0.0, diverse=0.0, n_picks=0)
    assert watch.close("proved", Worth(3.76, 3.76, 2)).bound == pytest.approx(14.72 - 4)
    look(watch, [0.20, 0, 0.24, 0.40], [0] * 4, covered=7.36, diverse=0.0, n_picks=1)
    assert watch.close("proved", Worth(3.76, 3.76, 2)).bound == pytest.approx(4.00)
    look(watch, [0.20, 0, 0.04, 0], [0] * 4, covered=7.76, diverse=0.0, n_picks=2)
    assert watch.close("proved", Worth(3.76, 3.76, 2)).bound == pytest.approx(4.00)


def test_case_p_without_a_ridge_the_terms_are_bounded_apart():
    watch = watch_of(2, lam=1.0, ridge=0.0)
    # After b: coverage .20, .24, .40; two unit vectors have a log-determinant of at most 0.
    gains = [-1.021651, -np.inf, -2.545953, -0.446287]
    look(watch, [0.20, 0, 0.24, 0.40], gains, covered=7.36, diverse=0.0, n_picks=1)
    seen = watch.close("proved", Worth(3.313713, 3.76, 2))
    assert seen.bound == pytest.approx(4.00)  # the optimum {a, d} is 3.6
    assert seen.tightest == "apart"
    assert seen.bound_of_g is None
    assert seen.diversity_bound == 0.0


def test_case_p_with_a_ridge_term_by_term():
    watch = watch_of(2, lam=1.0, ridge=0.1)
    # After b (M, eps .1): f-gains a -.530641, c -1.132376, d +.055254; log(1 / eps) = 2.302585.
    diversity = [-0.730641, -2.302585, -1.372376, -0.344746]
    look(watch, [0.20, 0, 0.24, 0.40], diversity, covered=7.36, diverse=0.0, n_picks=1)
    seen = watch.close("proved", Worth(3.415254, 3.76, 2))
    # g: 7.36 + 2.302585 + (.055254 - .530641 + 2 * 2.302585) - 4 - 2 * 2.302585 = 5.187198.
    # log-determinant: 2.302585 + (2 * 2.302585 - .344746 - .730641) - 2 * 2.302585 = 1.227198.
    # apart: (7.36 + .40 + .24 - 4) + min(0, 1.227198) = 4.00, the smallest.
    assert seen.bound == pytest.approx(4.00, abs=1e-5)
    assert seen.bound_of_g == pytest.approx(4.00 + 4 + 2 * 2.302585, abs=1e-5)
    assert seen.tightest == "apart"
    assert seen.ratio == pytest.approx(3.415254 / 4.00, abs=1e-5)
    assert seen.diversity_bound == pytest.approx(0.0, abs=1e-12)


def test_both_terms_together_are_tightest_where_they_compete():
    watch = watch_of(2, lam=1.0, ridge=0.1)
    # One candidate adds coverage 3 at the lowest log-determinant, another nothing at the highest.
    look(watch, [3.0, 0.0], [-2.302585, 0.0], covered=4.0, diverse=-1.5, n_picks=1)
    seen = watch.close("proved", Worth(-1.5, 0.0, 2))
    # g: 4 - 1.5 + 2.302585 + (3 + 0) + (0 + 2.302585) - 4 - 2 * 2.302585; apart: 3 + 0.
    assert seen.bound == pytest.approx(1.5, abs=1e-5)
    assert seen.tightest == "g"


def test_each_terms_own_gains_are_tightest_where_different_prefixes_settle_them():
    watch = watch_of(1, lam=1.0, ridge=0.1)
    # The first prefix leaves no coverage to add, the second next to no log-determinant.
    look(watch, [0.0, 0.0], [0.0, 0.0], covered=4.2, diverse=0.0, n_picks=1)
    look(watch, [3.0, 0.0], [-2.202585, -2.302585], covered=4.0, diverse=-1.5, n_picks=1)
    seen = watch.close("proved", Worth(-1.5, 0.0, 1))
    # Together 2.502585 and 1.6; coverage .2; log-determinant 2.302585 and -1.5 + .1.
    assert seen.coverage_bound == pytest.approx(0.2, abs=1e-5)
    assert seen.diversity_bound == pytest.approx(-1.4, abs=1e-5)
    assert seen.bound == pytest.approx(-1.2, abs=1e-5)
    assert seen.tightest == "gains-apart"
    assert seen.ratio is seen.lift is None  # a bound below 0 has no ratio


def test_four_picks_in_the_plane_share_two_dimensions():
    watch = watch_of(4, lam=1.0, ridge=0.1)
    look(watch, [0.0] * 4, [0.0] * 4, covered=4.0, diverse=0.0, n_picks=0)
    seen = watch.close("proved", Worth(-10.0, -1.0, 4))
    # 2 log(4/2 * .9 + .1) + 2 log .1 = 1.283708 - 4.605170.
    assert seen.diversity_bound == pytest.approx(-3.321463, abs=1e-5)


def test_quality_of_the_picks_counts_in_the_sum_of_the_best_set():
    watch = watch_of(1, lam=2.0, ridge=0.1)
    # After a with quality -3: the best set is {b}, not {a}: 2 * 0 + what b covers.
    look(
        watch,
        [0.0, 1.0],
        [-2.302585, 0.0],
        covered=4.0,
        diverse=0.0,
        n_picks=1,
        quality=[-3.0, 0.0],
    )
    seen = watch.close("proved", Worth(-6.0, 0.0, 1))
    # apart: coverage 4 + 1 - 4, log-determinant 0, quality max(-3, 0) = 0.
    assert seen.bound == pytest.approx(1.0, abs=1e-5)
    assert seen.tightest == "apart"


@pytest.mark.parametrize(
    ("budget", "most"), [(0.5, 1.5), (2.0, 5.0), (3.0, 7.0), (4.5, 8.5), (9.0, 10.0)]
)
def test_a_budget_takes_a_part_of_the_last_candidate(budget, most):
    # 3 for a cost of 1, 4 for 2, 3 for 3.
    top = top_gains(
        np.array([3.0, 4.0, 3.0]),
        None,
        k=9,
        objective=Objective(lam=0.0),
        costs=np.array([1.0, 2.0, 3.0]),
        budget=budget,
    )
    assert top.coverage.most(9, exactly=False, budget=budget) == pytest.approx(most)
