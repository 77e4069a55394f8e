"""Screened greedy: unbiased about sampled candidates, close to exact, exact where it must be."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.lambda_rule import LambdaRule
from selection.lazy_greedy import evaluate, lazy_greedy
from selection.modes import Effort, resolve, sample_rows
from selection.objective import Objective
from selection.screening import OwnCover, Sample, Screening
from selection.stage1 import select_local
from tests.selection.asking import ask, keys_of

EXACT = Effort(mode="exact")


def run(vectors, k, effort, objective=None, weights=None, **more):
    request = ask(len(vectors), k, objective, **more)
    return select_local("dual-div", vectors, request, effort=effort, weights=weights)


def value_of(vectors, picks, objective, given=None):
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    return evaluate(oracle, vectors, picks, objective=objective, given=given).value


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(2, 7), m=st.integers(1, 7), seed=st.integers(0, 999), n_picks=st.integers(0, 3)
)
def test_over_all_samples_the_estimates_average_to_the_exact_gain(
    unit_vectors, n, m, seed, n_picks
):
    vectors, m = unit_vectors(n, 5, seed=seed), min(m, n)
    exact = LocalCoverage([CoverageShard(vectors)], vectors)
    picks = range(min(n_picks, n - 1))
    for pick in picks:
        exact.add(pick)
    indices, inside, outside = np.arange(n), [], []
    for rows in combinations(range(n), m):
        members = np.isin(indices, rows)
        oracle, own = (
            LocalCoverage([CoverageShard(vectors[list(rows)])], vectors),
            OwnCover(vectors),
        )
        for pick in picks:
            oracle.add(pick)
            own.add(pick)
        estimate, error = Sample(oracle, members, n).estimate(indices, own)
        assert (error >= 0).all()
        inside.append(np.where(members, estimate, np.nan))
        outside.append(np.where(members, np.nan, estimate))
    truth = exact.gains(indices)
    if m > 1:  # a sample of one's own self alone says nothing of the others
        np.testing.assert_allclose(np.nanmean(inside, axis=0), truth, rtol=1e-5, atol=1e-5)
    if m < n:
        np.testing.assert_allclose(np.nanmean(outside, axis=0), truth, rtol=1e-5, atol=1e-5)


def test_a_sampled_candidate_is_no_better_than_its_twin_outside(unit_vectors):
    half = unit_vectors(400, 12, n_topics=40)
    vectors = np.concatenate([half, half])  # row i and row i + 400 are equal
    members = np.arange(800) < 400
    oracle = LocalCoverage([CoverageShard(vectors[:400])], vectors)
    own = OwnCover(vectors)
    for pick in (3, 50):
        oracle.add(pick)
        own.add(pick)
    inside, _ = Sample(oracle, members, 800).estimate(np.arange(100, 200), own)
    outside, _ = Sample(oracle, members, 800).estimate(np.arange(500, 600), own)
    own_part = own.own_excess(np.arange(100, 200))
    # The twin's sample still holds the sampled row, once among 400.
    np.testing.assert_allclose(outside - inside, own_part * (799 / 400), rtol=0.2)


def test_few_picks_come_from_the_sample(unit_vectors):
    vectors = unit_vectors(6000, 24, n_topics=300, spread=0.5)
    request = ask(6000, 100, Objective(lam=0.0))
    effort = Effort(mode="screened", m1=600, m2=1200)
    chosen = select_local("dual-div", vectors, request, effort=effort).selection
    members = np.zeros(6000, dtype=bool)
    members[sample_rows(request.keys, 600)] = True
    assert members[chosen.picks].mean() < 0.25  # a tenth is expected


@pytest.mark.parametrize("lam", [0.0, 5.0])
@pytest.mark.parametrize("m2", ["all", 2000])
def test_screened_comes_close_to_exact(unit_vectors, lam, m2):
    vectors, objective = unit_vectors(5000, 24, n_topics=100, spread=0.8), Objective(lam=lam)
    exact = run(vectors, 30, EXACT, objective).selection
    effort = Effort(mode="screened", m1=500, m2=m2)
    screened = run(vectors, 30, effort, objective)
    assert screened.effort.mode == "screened"
    control = select_local("random", vectors, ask(5000, 30, objective), effort=EXACT).selection
    lift = (screened.selection.value - control.value) / (exact.value - control.value)
    assert lift > (0.98 if m2 == "all" else 0.9)
    assert screened.selection.evaluations < exact.evaluations / 2
    assert screened.selection.screened > 0
    # What is reported is f on all points, not on the sample.
    judged = value_of(vectors, screened.selection.picks, objective)
    assert screened.selection.value == pytest.approx(judged, rel=1e-6)


@pytest.mark.parametrize("m2", ["all", 900])
def test_many_errors_of_margin_give_the_exact_picks(unit_vectors, m2):
    vectors = unit_vectors(900, 12, n_topics=50)
    effort = Effort(mode="screened", m1=300, m2=m2, z=50.0)
    screened = run(vectors, 40, effort).selection
    assert screened.picks.tolist() == run(vectors, 40, EXACT).selection.picks.tolist()


def test_weights_and_given_vectors_are_screened_too(unit_vectors):
    vectors = unit_vectors(1500, 12, n_topics=50)
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 1500)
    more = {"given": unit_vectors(20, 12, seed=9), "n_total": float(weights.sum())}
    effort = Effort(mode="screened", m1=200, m2="all", z=50.0)
    screened = run(vectors, 25, effort, weights=weights, **more).selection
    exact = run(vectors, 25, EXACT, weights=weights, **more).selection
    assert screened.picks.tolist() == exact.picks.tolist()


@pytest.mark.parametrize("copies", [2, 200])
def test_duplicates_are_no_trouble(unit_vectors, copies):
    vectors = np.repeat(unit_vectors(1200 // copies, 10, seed=4), copies, axis=0)
    effort = Effort(mode="screened", m1=100, m2=400)
    result = run(vectors, 40, effort).selection
    assert len(set(result.picks.tolist())) == 40
    assert np.isfinite(result.objective).all()


def test_the_same_call_gives_the_same_bits_whatever_the_threads(unit_vectors):
    vectors = unit_vectors(9000, 16, n_topics=60)
    effort = Effort(mode="screened", m1=3000, m2=5000)
    request = ask(9000, 12)
    one, four = (
        select_local("dual-div", vectors, request, effort=effort, threads=t).selection
        for t in (1, 4)
    )
    np.testing.assert_array_equal(one.picks, four.picks)
    np.testing.assert_array_equal(one.gains, four.gains)


def test_modes_follow_from_size_alone():
    def mode(n, n_candidates=None, k=300, square=True, **fields):
        count = n if n_candidates is None else n_candidates
        found = resolve(Effort(**fields), n_ground=n, n_candidates=count, k=k, square=square)
        return found.mode, found.m2

    assert mode(10_000) == ("dense", "all")
    assert mode(16_385) == ("exact", "all")
    assert mode(10_000, memory_bytes=2**28) == ("exact", "all")
    assert mode(40_000) == ("screened", "all")
    assert mode(40_000, k=4_000) == ("exact", "all")
    assert mode(1_000_000) == ("screened", 131_072)
    assert mode(1_000_000, m2="all") == ("screened", "all")
    assert mode(100_000, 800, square=False) == ("exact", "all")
    assert mode(100_000, 19_200, square=False) == ("screened", "all")
    assert mode(10_000, mode="dense", square=False) == ("exact", "all")
    assert mode(5_000, mode="screened") == ("exact", "all")
    assert mode(40_000, mode="exact", m2=20_000)[0] == "exact"


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "fast"},
        {"m1": 1},
        {"m1": 100, "m2": 50},
        {"z": -1.0},
        {"unseen": -1.0},
        {"z": float("nan")},
    ],
)
def test_an_impossible_effort_is_refused(fields):
    with pytest.raises(ValueError, match="effort"):
        Effort(**fields)


def test_a_sample_is_the_same_for_the_same_keys_and_is_not_the_control():
    keys = keys_of(5000)
    rows = sample_rows(keys, 500)
    assert rows.tolist() == sorted(set(rows.tolist()))
    np.testing.assert_array_equal(rows, sample_rows(keys, 500))
    control = np.argsort(keys)[:500]
    assert len(set(rows.tolist()) & set(control.tolist())) < 100


@pytest.mark.parametrize("end", [0.0, 3.0])
def test_a_rule_on_a_sample_reports_every_term_on_all_points(unit_vectors, end):
    vectors = unit_vectors(1200, 10, n_topics=30)
    objective = Objective(ridge=1e-2, rule=LambdaRule("linear", start=5.0, end=end))
    effort = Effort(mode="screened", m1=200, m2=600)
    result = run(vectors, 15, effort, objective).selection
    assert (result.diversity_gains[1:] < 0).all()
    np.testing.assert_allclose(
        result.gains, result.coverage_gains + result.lams * result.diversity_gains
    )
    judged = value_of(vectors, result.picks, Objective(lam=end, ridge=1e-2))
    assert result.value == pytest.approx(judged, rel=1e-6)


def test_a_candidate_whose_twins_the_sample_missed_keeps_a_margin():
    cluster = np.tile(np.eye(4, dtype=np.float32)[0], (10, 1))
    rest = np.tile(np.eye(4, dtype=np.float32)[1], (90, 1))
    vectors = np.concatenate([cluster, rest])
    members = np.arange(100) >= 80  # 20 points, none of the cluster
    oracle, own = LocalCoverage([CoverageShard(vectors[80:])], vectors), OwnCover(vectors)
    oracle.add(10)
    own.add(10)
    sample, first = Sample(oracle, members, 100), np.array([0])
    estimate, error = sample.estimate(first, own, unseen=1.0)
    # Nothing seen but itself; the error is that of one copy among 20 points, 79 of 99 unseen.
    assert estimate[0] == pytest.approx(1.0)
    assert error[0] == pytest.approx(99 / 20 * np.sqrt(79 / 99))
    _, trusting = sample.estimate(first, own, unseen=0.0)
    assert trusting[0] == 0


def test_without_a_small_sample_a_whole_batch_is_judged_at_once(unit_vectors, monkeypatch):
    vectors, sizes = unit_vectors(3000, 16, n_topics=60), []
    rows = np.arange(0, 3000, 3)
    oracle = LocalCoverage([CoverageShard(vectors[rows])], vectors)
    screening = Screening(None, Sample(oracle, np.isin(np.arange(3000), rows), 3000))
    estimate = Sample.estimate

    def counted(self, indices, own, **more):
        sizes.append(len(indices))
        return estimate(self, indices, own, **more)

    monkeypatch.setattr(Sample, "estimate", counted)
    lazy_greedy(oracle, vectors, ask(3000, 20, weight=3.0), screening=screening)
    assert max(sizes) > 500
