"""Costs, groups, required, given, weights, quality: against greedy from the definition."""

from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selection.lazy_greedy as searching
from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate, knapsack_greedy, lazy_greedy
from selection.objective import Objective
from selection.stage1 import random_picks
from tests.selection.asking import ask
from tests.selection.literal import feasible, naive_greedy, terms

SIZES = {"n": st.integers(2, 14), "seed": st.integers(0, 10_000)}
LAMBDAS = st.sampled_from([0.0, 0.5, 4.0])
SCALES = st.sampled_from(["absolute", "mean"])


def oracle_of(vectors, weights=None):
    return LocalCoverage([CoverageShard(vectors, weights=weights)], vectors)


def draw(n, seed):
    rng = np.random.default_rng(seed)
    return {
        "costs": rng.choice([0.5, 1.0, 2.0, 3.5], n),
        "groups": rng.integers(-1, 3, n),
        "quality": 2 * np.log(rng.uniform(0.3, 1.5, n)),
        "weights": rng.choice([0.0, 0.5, 1.0, 4.0], n),
    }


@settings(deadline=None, max_examples=40)
@given(**SIZES, lam=LAMBDAS, scale=SCALES, k=st.integers(1, 8), cap=st.integers(1, 3))
def test_at_most_m_of_a_group_picks_as_naive_greedy(unit_vectors, n, seed, lam, scale, k, cap):
    vectors, made = unit_vectors(n, 5, seed=seed), draw(n, seed)
    objective = Objective(lam=lam, scale=scale, ridge=1e-2)
    request = ask(n, k, objective, groups=made["groups"], max_per_group=cap)
    result = lazy_greedy(oracle_of(vectors), vectors, request)
    assert result.picks.tolist() == naive_greedy(vectors, request)[0]
    codes = made["groups"][result.picks]
    assert all((codes == code).sum() <= cap for code in set(codes.tolist()) - {-1})


@settings(deadline=None, max_examples=40)
@given(**SIZES, lam=LAMBDAS, k=st.integers(1, 8), n_given=st.integers(1, 4), scale=SCALES)
def test_given_vectors_are_built_upon(unit_vectors, n, seed, lam, k, n_given, scale):
    vectors = unit_vectors(n + n_given, 5, seed=seed)
    pool, vectors = vectors[:n_given], vectors[n_given:]
    request = ask(n, k, Objective(lam=lam, ridge=1e-2, scale=scale), given=pool)
    result = lazy_greedy(oracle_of(vectors), vectors, request)
    assert result.picks.tolist() == naive_greedy(vectors, request)[0]
    coverage, log_det, _ = terms(vectors, result.picks, request.objective, given=pool)
    assert result.value == pytest.approx(coverage + lam * log_det, rel=1e-5, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(**SIZES, lam=LAMBDAS, k=st.integers(1, 8), scale=SCALES)
def test_weights_and_quality_enter_as_defined(unit_vectors, n, seed, lam, k, scale):
    vectors, made = unit_vectors(n, 5, seed=seed), draw(n, seed)
    weights = made["weights"] + 0.01
    objective = Objective(lam=lam, ridge=1e-2, scale=scale)
    request = ask(n, k, objective, quality=made["quality"], n_total=float(weights.sum()))
    result = lazy_greedy(oracle_of(vectors, weights), vectors, request)
    assert result.picks.tolist() == naive_greedy(vectors, request, weights=weights)[0]
    again = evaluate(
        oracle_of(vectors, weights),
        vectors,
        result.picks,
        objective=objective,
        quality=made["quality"],
    )
    assert again.value == pytest.approx(result.value, rel=1e-6)
    coverage, log_det, bonus = terms(
        vectors, result.picks, objective, weights=weights, quality=made["quality"]
    )
    baseline = weights.sum() if scale == "absolute" else 1.0
    assert result.value == pytest.approx(
        coverage - baseline + lam * (log_det + bonus), rel=1e-4, abs=1e-4
    )


@settings(deadline=None, max_examples=40)
@given(**SIZES, lam=LAMBDAS, k=st.integers(2, 8))
def test_required_come_first_and_forbidden_never(unit_vectors, n, seed, lam, k):
    vectors, rng = unit_vectors(n, 5, seed=seed), np.random.default_rng(seed)
    required = rng.permutation(n)[: min(2, n - 1)]
    allowed = rng.random(n) < 0.7
    allowed[required] = True
    request = ask(n, k, Objective(lam=lam, ridge=1e-2), required=required, allowed=allowed)
    result = lazy_greedy(oracle_of(vectors), vectors, request)
    assert result.picks.tolist() == naive_greedy(vectors, request)[0]
    assert result.picks[: len(required)].tolist() == required.tolist()
    assert allowed[result.picks].all()


@settings(deadline=None, max_examples=60)
@given(**SIZES, lam=LAMBDAS, budget=st.sampled_from([0.5, 1.7, 4.0, 100.0]))
def test_a_budget_keeps_the_better_of_two_greedies_by_g(unit_vectors, n, seed, lam, budget):
    vectors, made = unit_vectors(n, 5, seed=seed), draw(n, seed)
    objective = Objective(lam=lam, ridge=1e-2)
    request = ask(n, n, objective, costs=made["costs"], budget=budget)
    oracle = oracle_of(vectors)
    result = knapsack_greedy(oracle, vectors, request)

    def worth(picks):
        coverage, log_det, _ = terms(vectors, picks, objective)
        return coverage + lam * (log_det - len(picks) * np.log(1e-2))

    passes = [naive_greedy(vectors, request, per_cost=flag)[0] for flag in (False, True)]
    assert made["costs"][result.picks].sum() <= budget * (1 + 1e-9)
    best = max(worth(picks) for picks in passes)
    assert worth(result.picks) == pytest.approx(best, rel=1e-5, abs=1e-5)
    if len(result.picks):
        np.testing.assert_array_equal(oracle.n_covered(len(result.picks)), result.n_covered)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 9), seed=st.integers(0, 5000), lam=LAMBDAS)
def test_a_budget_is_within_its_factor_of_the_best_g(unit_vectors, n, seed, lam):
    vectors, made = unit_vectors(n, 4, seed=seed), draw(n, seed)
    objective = Objective(lam=lam, ridge=1e-2)
    request = ask(n, n, objective, costs=made["costs"], budget=4.0)

    def worth(picks):
        coverage, log_det, _ = terms(vectors, picks, objective)
        return coverage + lam * (log_det - len(picks) * np.log(1e-2))

    sets = (list(s) for size in range(1, n + 1) for s in combinations(range(n), size))
    best = max((worth(s) for s in sets if made["costs"][s].sum() <= 4.0), default=0.0)
    found = knapsack_greedy(oracle_of(vectors), vectors, request)
    assert worth(found.picks) >= (1 - 1 / np.e) / 2 * best - 1e-6


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 9), seed=st.integers(0, 5000), lam=LAMBDAS, k=st.integers(1, 4))
def test_group_limits_keep_half_of_the_best_g(unit_vectors, n, seed, lam, k):
    vectors, groups = unit_vectors(n, 4, seed=seed), draw(n, seed)["groups"]
    objective = Objective(lam=lam, ridge=1e-2)
    request = ask(n, k, objective, groups=groups, max_per_group=1)

    def worth(picks):
        coverage, log_det, _ = terms(vectors, picks, objective)
        return coverage + lam * (log_det - len(picks) * np.log(1e-2))

    def allowed(picks):
        return all(feasible(request, picks[:i], picks[i]) for i in range(len(picks)))

    sets = (list(s) for size in range(1, k + 1) for s in combinations(range(n), size))
    best = max(worth(s) for s in sets if allowed(s))
    found = lazy_greedy(oracle_of(vectors), vectors, request)
    assert worth(found.picks) >= best / 2 - 1e-6


@settings(deadline=None, max_examples=30)
@given(**SIZES, lam=st.sampled_from([5.0, 30.0]))
def test_stopping_at_a_negative_gain_ends_where_naive_greedy_does(unit_vectors, n, seed, lam):
    vectors = unit_vectors(n, 3, seed=seed)
    request = ask(n, n, Objective(lam=lam, ridge=1e-2), stop_at_negative=True)
    result = lazy_greedy(oracle_of(vectors), vectors, request)
    assert result.picks.tolist() == naive_greedy(vectors, request)[0]
    assert (result.gains >= 0).all()


def test_random_picks_keep_to_the_limits(unit_vectors):
    made = draw(60, 3)
    request = ask(
        60,
        20,
        costs=made["costs"],
        budget=12.0,
        groups=np.arange(60) % 5,
        max_per_group=2,
        required=np.array([7]),
        allowed=np.arange(60) != 9,
    )
    picks = random_picks(request, 60)
    assert picks[0] == 7
    assert 9 not in picks
    assert made["costs"][picks].sum() <= 12.0
    assert np.bincount(picks % 5).max() <= 2


@pytest.mark.parametrize("search", [lazy_greedy, knapsack_greedy])
def test_costs_that_add_up_to_the_budget_but_for_rounding_are_within_it(unit_vectors, search):
    vectors = unit_vectors(8, 3)
    wanted = np.array([6, 2, 4])
    assert sum([0.1] * 3) > 0.3
    cents = {"costs": np.full(8, 0.1), "budget": 0.3}
    for required in wanted, wanted[:2], wanted[:1], None:
        request = ask(8, 8, costs=cents["costs"], budget=cents["budget"], required=required)
        found = search(oracle_of(vectors), vectors, request)
        assert len(found.picks) == len(random_picks(request, 8)) == 3
        if required is not None:
            assert found.picks[: len(required)].tolist() == required.tolist()
    dearer = cents | {"costs": np.where(np.arange(8) == 2, 0.1 + 1e-9, 0.1)}
    with pytest.raises(ValueError, match=r"they cost 0.3, more than the budget 0.3"):
        search(oracle_of(vectors), vectors, ask(8, 8, **dearer, required=wanted))


def test_a_budget_below_the_cheapest_cost_picks_nothing(unit_vectors):
    vectors = unit_vectors(5, 3)
    request = ask(5, 5, costs=np.full(5, 2.0), budget=1.0)
    result = knapsack_greedy(oracle_of(vectors), vectors, request)
    assert result.picks.tolist() == []
    assert result.value == -np.inf


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"budget": 1.0}, "costs missing"),
        ({"budget": -1.0, "costs": np.ones(6)}, "found -1"),
        ({"budget": 1.0, "costs": np.ones(6), "stop_at_negative": True}, "stop_at_negative"),
        ({"budget": 1.0, "costs": np.array([1, 1, 1, 1, 1, 0.0])}, "not a number above 0"),
        ({"budget": 1.0, "costs": np.array([1, 1, 1, 1, 1, np.nan])}, "not a number above 0"),
        ({"max_per_group": 1}, "without groups"),
        ({"max_per_group": 0, "groups": np.zeros(6, int)}, "found 0"),
        ({"required": np.array([0, 0])}, "distinct ones below 6"),
        ({"required": np.array([6])}, "distinct ones below 6"),
        ({"required": np.arange(4)}, "found 4, wanted at most k = 3"),
        ({"required": np.array([1]), "allowed": np.arange(6) != 1}, "must not be picked"),
        (
            {"required": np.array([1, 2]), "costs": np.ones(6), "budget": 1.5},
            "more than the budget 1.5",
        ),
        (
            {"required": np.array([1, 2]), "groups": np.zeros(6, int), "max_per_group": 1},
            "2 of one group",
        ),
        ({"quality": np.full(6, np.nan)}, "quality: found values that are not finite"),
        ({"groups": np.zeros(5, int), "max_per_group": 1}, r"groups: found shape \(5,\)"),
    ],
)
def test_a_request_that_no_set_can_meet_is_refused(unit_vectors, more, message):
    vectors = unit_vectors(6, 3)
    with pytest.raises(ValueError, match=message):
        lazy_greedy(oracle_of(vectors), vectors, ask(6, 3, **more))


@settings(deadline=None, max_examples=20)
@given(n=st.integers(4, 12), seed=st.integers(0, 500))
def test_quality_still_decides_when_no_rank_is_left(unit_vectors, n, seed):
    vectors, quality = unit_vectors(n, 2, seed=seed), draw(n, seed)["quality"]
    request = ask(n, n, Objective(lam=50.0, ridge=0.0), quality=quality)
    result = lazy_greedy(oracle_of(vectors), vectors, request)
    after = result.rank_exhausted_at
    assert after is not None
    rest = result.coverage_gains[after:] + 50.0 * result.quality_gains[after:]
    first = result.picks[after]
    others = [i for i in range(n) if i not in result.picks[:after]]
    oracle = oracle_of(vectors)
    oracle.add_many(result.picks[:after])
    gains = oracle.gains(np.array(others)) + 50.0 * quality[others]
    assert rest[0] >= gains.max() - 1e-4
    assert first in others


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(6, 60),
    seed=st.integers(0, 10_000),
    lam=LAMBDAS,
    ridge=st.sampled_from([0.0, 1e-3]),
    more=st.sampled_from(["plain", "groups", "budget", "required"]),
    scanned=st.integers(1, 5),
)
def test_scanning_the_largest_bounds_only_changes_no_pick(
    unit_vectors, n, seed, lam, ridge, more, scanned
):
    vectors, made = unit_vectors(n, 4, seed=seed), draw(n, seed)
    limits = {
        "plain": {},
        "groups": {"groups": made["groups"], "max_per_group": 2},
        "budget": {"costs": made["costs"], "budget": n / 4},
        "required": {"required": np.array([3, 1])},
    }[more]
    if more == "budget" and lam > 0:
        ridge = 1e-3
    request = ask(n, min(n, 9), Objective(lam=lam, ridge=ridge), **limits)
    every = lazy_greedy(oracle_of(vectors), vectors, request)
    with mock.patch.object(searching, "_SCANNED", scanned):
        few = lazy_greedy(oracle_of(vectors), vectors, request)
    assert few.picks.tolist() == every.picks.tolist()
    np.testing.assert_allclose(few.gains, every.gains, rtol=1e-6, atol=1e-6)
