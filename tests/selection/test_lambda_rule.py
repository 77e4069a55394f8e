"""A lambda that changes from pick to pick: against naive greedy with the same rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.lambda_rule import LambdaControl, LambdaRule
from selection.lazy_greedy import lazy_greedy
from selection.objective import Objective
from tests.selection.asking import ask
from tests.selection.literal import naive_greedy

RULES = [
    LambdaRule("linear", start=0.0, end=5.0),
    LambdaRule("linear", start=8.0, end=0.0),
    LambdaRule("geometric", start=10.0, end=0.1),
    LambdaRule("share", target=0.3),
    LambdaRule("distance", target=0.9),
]


def select(vectors, k, rule):
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    return lazy_greedy(oracle, vectors, ask(len(vectors), k, Objective(ridge=1e-2, rule=rule)))


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 14),
    k=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(RULES),
)
def test_the_picks_are_those_of_naive_greedy_with_the_same_rule(unit_vectors, n, k, seed, rule):
    vectors = unit_vectors(n, 5, seed=seed)
    request = ask(n, k, Objective(ridge=1e-2, rule=rule))
    result = select(vectors, k, rule)
    picks, lams = naive_greedy(vectors, request)
    assert result.picks.tolist() == picks
    np.testing.assert_allclose(result.lams, lams, rtol=1e-3, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(k=st.integers(2, 60), start=st.floats(0.1, 9), end=st.floats(0.1, 9))
def test_a_schedule_goes_from_start_to_end(unit_vectors, k, start, end):
    vectors = unit_vectors(60, 8)
    for kind in ("linear", "geometric"):
        lams = select(vectors, k, LambdaRule(kind, start=start, end=end)).lams
        assert lams[0] == pytest.approx(start)
        assert lams[-1] == pytest.approx(end)
        assert (np.diff(lams) * np.sign(end - start) >= -1e-12).all()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_share_is_reached(unit_vectors, share):
    vectors = unit_vectors(800, 24, n_topics=40)
    result = select(vectors, 60, LambdaRule("share", target=share))
    spread = result.lams * (result.diversity_gains - np.log(1e-2))
    found = spread[2:].sum() / (spread[2:].sum() + result.coverage_gains[2:].sum())
    assert found == pytest.approx(share, abs=0.12)


def test_a_floor_on_the_distance_is_kept_where_coverage_alone_falls_below(unit_vectors):
    vectors = unit_vectors(800, 24, n_topics=3, spread=0.6)

    def distance(picks):
        rows = vectors[picks].astype(np.float64)
        cosines = rows @ rows.T.copy()
        k = len(rows)
        return 1 - (cosines.sum() - np.trace(cosines)) / (k * (k - 1))

    plain = select(vectors, 30, LambdaRule("linear", start=0.0, end=0.0))
    floor = distance(plain.picks) + 0.05
    steered = select(vectors, 30, LambdaRule("distance", target=floor))
    assert distance(plain.picks) < floor <= distance(steered.picks) + 0.02


def test_the_mean_distance_is_the_mean_over_pairs(unit_vectors):
    vectors = unit_vectors(7, 5)
    control = LambdaControl(1.0, LambdaRule("distance", target=0.5), k=7, ridge=1e-2)
    assert np.isnan(control.mean_distance())
    for i, row in enumerate(vectors):
        control.update(row, [1.0] * (i + 1), [-1.0] * (i + 1))
    rows = vectors.astype(np.float64)
    pairs = [1 - rows[i] @ rows[j] for i in range(7) for j in range(i)]
    assert control.mean_distance() == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "share", "target": 0.0},
        {"kind": "share", "target": 1.0},
        {"kind": "distance", "target": 2.0},
        {"kind": "distance", "target": float("nan")},
        {"kind": "linear", "start": -1.0, "end": 1.0},
        {"kind": "geometric", "start": 0.0, "end": 1.0},
        {"kind": "geometric", "start": 1.0, "end": float("inf")},
        {"kind": "magic", "target": 0.5},
    ],
)
def test_an_impossible_rule_is_refused(fields):
    with pytest.raises(ValueError, match=f"lambda rule {fields['kind']}"):
        LambdaRule(**fields)


def test_a_rule_needs_a_ridge():
    with pytest.raises(ValueError, match="ridge above 0"):
        Objective(ridge=0.0, rule=LambdaRule("share", target=0.1))
