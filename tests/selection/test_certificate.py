"""Every bound against the optimum over all subsets, and what a certificate may say."""

import json
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.certificate import CertificateWatch, Worth, claim_of
from selection.coverage import CoverageShard, LocalCoverage
from selection.diversity import LogDet
from selection.lambda_rule import LambdaRule
from selection.objective import Objective
from selection.request import Limits, Request
from selection.top_gains import Largest, joined, top_gains


class Question:
    """A small instance: both terms from their definitions, in float64."""

    def __init__(self, vectors, objective, *, weights=None, quality=None, pool=None):
        self.vectors, self.objective, self.quality = vectors.astype(np.float64), objective, quality
        self.n = len(vectors)
        weights = np.ones(self.n) if weights is None else weights
        scale = 1.0 if objective.scale == "absolute" else 1.0 / weights.sum()
        self.weights = scale * weights
        self.pool = np.empty((0, vectors.shape[1])) if pool is None else pool.astype(np.float64)
        self.baseline = self.weights.sum() if pool is None else 0.0

    def covered(self, picks):
        def above(rows):
            return self.weights @ np.maximum(-1, self.vectors @ rows.T).max(axis=1, initial=-1)

        rows = self.vectors[list(picks)]
        return above(np.vstack([self.pool, rows])) - above(self.pool)

    def log_det(self, picks):
        def of(rows):
            eps = self.objective.ridge
            gram = (1 - eps) * (rows @ rows.T.copy()) + eps * np.eye(len(rows))
            sign, value = np.linalg.slogdet(gram) if len(rows) else (1, 0.0)
            return value if sign > 0 else -np.inf

        return of(np.vstack([self.pool, self.vectors[list(picks)]])) - of(self.pool)

    def value(self, picks):
        worth = self.covered(picks) - self.baseline
        if self.objective.lam > 0:
            kind = 0.0 if self.quality is None else self.quality[list(picks)].sum()
            worth += self.objective.lam * (self.log_det(picks) + kind)
        return worth

    def worth(self, picks):
        return Worth(self.value(picks), self.covered(picks) - self.baseline, len(picks))

    def value_of_g(self, picks):
        shift = math.log(1 / self.objective.ridge) if self.objective.lam else 0.0
        return self.value(picks) + self.baseline + self.objective.lam * len(picks) * shift

    def gains(self, picks):
        rest = [x for x in range(self.n) if x not in picks]
        coverage, diversity = np.zeros(self.n), np.full(self.n, -np.inf)
        before = self.log_det(picks)
        for x in rest:
            coverage[x] = self.covered([*picks, x]) - self.covered(picks)
            if before > -np.inf:
                diversity[x] = self.log_det([*picks, x]) - before
        return coverage, diversity

    def watch(self, k, **options):
        longest = float((self.vectors**2).sum(axis=1).max())
        return CertificateWatch(
            k,
            self.objective,
            baseline=self.baseline,
            dim=self.vectors.shape[1],
            max_squared_norm=longest,
            **options,
        )

    def look(self, watch, picks, *, stale=0, **limits):
        """Look at the prefix with gains as they were `stale` picks before."""
        coverage, diversity = self.gains(picks[: max(0, len(picks) - stale)])
        top = top_gains(
            coverage,
            diversity,
            k=watch.k,
            objective=self.objective,
            quality=self.quality,
            picked=np.array(picks, dtype=np.int64),
            **limits,
        )
        diverse = self.log_det(picks) if self.objective.lam > 0 else 0.0
        watch.look(top, covered=self.covered(picks), diverse=diverse, n_picks=len(picks))

    def certificates(self, order, k, *, answer, options=None, stale=0, **limits):
        """One certificate of every prefix alone, and one of all of them."""
        together = self.watch(k, **(options or {}))
        for n_picks in range(k + 1):
            alone = self.watch(k, **(options or {}))
            for watch in (alone, together):
                self.look(watch, order[:n_picks], stale=stale, **limits)
            yield alone.close("proved", self.worth(answer))
        yield together.close("proved", self.worth(answer))


LAMBDAS, RIDGES = st.sampled_from([0.0, 0.5, 1.0, 5.0]), st.sampled_from([0.0, 1e-3, 0.1])
SCALES = st.sampled_from(["absolute", "mean"])


def slack(value):
    return 1e-9 * max(1.0, abs(value))


def worst(question, sets):
    """An answer that lifts no bound: a bound is never below the answer's own value."""
    return min(sets, key=question.value)


def order_of(n, seed, first=()):
    rest = [x for x in np.random.default_rng(seed).permutation(n).tolist() if x not in first]
    return [*first, *rest]


def assert_bounds_hold(question, certificates, sets):
    optimum = max(question.value(s) for s in sets)
    coverage = max(question.covered(s) for s in sets) - question.baseline
    log_det = max(question.log_det(s) for s in sets)
    for seen in certificates:
        if seen.bound is not None:
            assert seen.bound >= optimum - slack(optimum)
            assert seen.ratio is None or seen.ratio <= 1 + 1e-9
        if seen.coverage_bound is not None:
            assert seen.coverage_bound >= coverage - slack(coverage)
        if seen.diversity_bound is not None:
            assert seen.diversity_bound >= log_det - slack(log_det)
    assert seen.bound is not None
    assert seen.coverage_bound is not None


@settings(deadline=None, max_examples=80)
@given(
    n=st.integers(1, 8),
    d=st.integers(1, 9),
    seed=st.integers(0, 1000),
    lam=LAMBDAS,
    ridge=RIDGES,
    scale=SCALES,
    stale=st.integers(0, 2),
    data=st.data(),
)
def test_no_set_of_k_is_better_than_the_bound_of_any_prefix(
    unit_vectors, n, d, seed, lam, ridge, scale, stale, data
):
    k = data.draw(st.integers(1, n if ridge else min(n, d)))
    weights = data.draw(st.sampled_from([None, np.random.default_rng(seed).uniform(0, 3, n) + 0.1]))
    quality = data.draw(st.sampled_from([None, np.random.default_rng(seed).normal(size=n)]))
    question = Question(
        unit_vectors(n, d, seed=seed),
        Objective(lam=lam, ridge=ridge, scale=scale),
        weights=weights,
        quality=quality,
    )
    sets = list(combinations(range(n), k))
    seen = question.certificates(order_of(n, seed), k, answer=worst(question, sets), stale=stale)
    assert_bounds_hold(question, seen, sets)


@pytest.mark.parametrize("lam", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_the_bounds_of_a_greedy_run_hold_for_twelve_candidates(
    unit_vectors, naive_greedy, lam, ridge
):
    vectors = unit_vectors(12, 6, seed=3)
    question = Question(vectors, Objective(lam=lam, ridge=ridge))
    for k in (3, 9):
        order = naive_greedy(vectors, k=k, lam=lam, ridge=ridge, tie_rank=np.arange(12))
        sets = list(combinations(range(12), k))
        seen = list(question.certificates(order, k, answer=worst(question, sets)))
        assert_bounds_hold(question, seen, sets)
        assert seen[-1].bound == pytest.approx(min(one.bound for one in seen[:-1]), rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000), lam=LAMBDAS, ridge=st.sampled_from([1e-3, 0.1]), k=st.integers(2, 5)
)
def test_sets_that_must_hold_the_required_picks(unit_vectors, seed, lam, ridge, k):
    n, required = 7, [2, 5]
    quality = np.random.default_rng(seed).normal(size=n)
    question = Question(
        unit_vectors(n, 4, seed=seed), Objective(lam=lam, ridge=ridge), quality=quality
    )
    sets = [s for s in combinations(range(n), k) if set(required) <= set(s)]
    allowed = ~np.isin(np.arange(n), required)
    options = {"n_required": 2, "required_quality": float(quality[required].sum())}
    seen = list(
        question.certificates(
            order_of(n, seed, required),
            k,
            answer=worst(question, sets),
            options=options,
            allowed=allowed,
        )
    )
    assert seen[0].bound is seen[1].bound is None  # prefixes without all of the required
    assert_bounds_hold(question, seen, sets)
    if k == 2:
        assert seen[-1].bound == pytest.approx(question.value(required), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), lam=LAMBDAS, k=st.integers(1, 5), with_quality=st.booleans())
def test_sets_with_at_most_m_per_group_and_without_the_forbidden(
    unit_vectors, seed, lam, k, with_quality
):
    n, groups = 8, np.array([0, 0, 0, 1, 1, 1, 1, -1])
    rng = np.random.default_rng(seed)
    allowed = rng.random(n) < 0.9
    allowed[[0, 3, 7]] = True

    def fits(chosen):
        counts = np.bincount(groups[list(chosen)] + 1, minlength=3)[1:]
        return allowed[list(chosen)].all() and counts.max() <= 2

    while not (sets := [s for s in combinations(range(n), k) if fits(s)]):
        k -= 1  # the limits leave room for fewer: all sets that are as large as they can be
    quality = rng.normal(size=n) if with_quality else None
    question = Question(
        unit_vectors(n, 5, seed=seed), Objective(lam=lam, ridge=1e-2), quality=quality
    )
    answer = worst(question, sets)
    seen = question.certificates(
        list(answer), k, answer=answer, allowed=allowed, groups=groups, max_per_group=2
    )
    assert_bounds_hold(question, seen, sets)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    lam=LAMBDAS,
    k=st.integers(1, 6),
    budget=st.floats(0.5, 6.0),
    with_quality=st.booleans(),
)
def test_under_a_budget_g_of_every_affordable_set_is_bounded_and_f_is_not_claimed(
    unit_vectors, seed, lam, k, budget, with_quality
):
    n = 7
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0.4, 2.0, n)
    quality = rng.normal(size=n) if with_quality else None
    question = Question(
        unit_vectors(n, 4, seed=seed), Objective(lam=lam, ridge=1e-2), quality=quality
    )
    sets = [
        s
        for size in range(k + 1)
        for s in combinations(range(n), size)
        if costs[list(s)].sum() <= budget
    ]
    optimum = max(question.value_of_g(s) for s in sets)
    answer = ()
    order = order_of(n, seed)
    for seen in question.certificates(
        order, k, answer=answer, options={"claim": "g"}, costs=costs, budget=budget
    ):
        assert seen.bound is seen.ratio is seen.lift is None
        assert seen.bound_of_g >= optimum - slack(optimum)
        best_c = max(question.covered(s) for s in sets) - question.baseline
        assert seen.coverage_bound >= best_c - slack(best_c)
        if lam:
            assert seen.diversity_bound >= max(question.log_det(s) for s in sets) - 1e-9


def test_a_budget_bounds_better_than_the_count_of_picks():
    question = Question(np.eye(6, dtype=np.float32), Objective(lam=0.0))
    watch = question.watch(6, claim="g")
    question.look(watch, [], costs=np.full(6, 2.0), budget=5.0)
    # Each covers 1 + 6 above the baseline; two and a half of them are affordable.
    assert watch.close("proved", question.worth([0, 1])).bound_of_g == pytest.approx(2.5 * 7)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    lam=LAMBDAS,
    d=st.integers(1, 6),
    a=st.integers(1, 4),
    k=st.integers(1, 6),
    ridge=st.sampled_from([1e-3, 0.1]),
)
def test_sets_given_an_annotated_pool(unit_vectors, seed, lam, d, a, k, ridge):
    question = Question(
        unit_vectors(7, d, seed=seed),
        Objective(lam=lam, ridge=ridge),
        pool=unit_vectors(a, d, seed=seed + 1),
    )
    sets = list(combinations(range(7), k))
    seen = question.certificates(order_of(7, seed), k, answer=worst(question, sets))
    assert_bounds_hold(question, seen, sets)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    d=st.integers(1, 8),
    ridge=RIDGES,
    length=st.floats(0.5, 1.0099),
    k=st.integers(1, 7),
)
def test_rows_that_are_not_quite_unit_are_within_the_log_determinant_bound(
    unit_vectors, seed, d, ridge, length, k
):
    k = k if ridge else min(k, d)
    scales = np.random.default_rng(seed).uniform(0.5, length, size=(7, 1))
    vectors = (unit_vectors(7, d, seed=seed) * scales).astype(np.float32)
    question = Question(vectors, Objective(lam=1.0, ridge=ridge))
    watch = question.watch(k)
    question.look(watch, [])
    sets = list(combinations(range(7), k))
    seen = watch.close("proved", question.worth(worst(question, sets)))
    assert seen.diversity_bound >= max(question.log_det(s) for s in sets) - 1e-9


def test_orthogonal_picks_below_the_dimension_and_a_tight_frame_above_reach_that_bound():
    basis = np.eye(3, dtype=np.float32)
    for vectors in (basis, np.vstack([basis, basis])):
        question = Question(vectors, Objective(lam=1.0, ridge=1e-2))
        n = len(vectors)
        watch = question.watch(n)
        question.look(watch, [])
        seen = watch.close("proved", question.worth(range(n)))
        assert seen.diversity_bound == pytest.approx(question.log_det(range(n)), abs=1e-9)


def test_more_picks_than_dimensions_without_a_ridge_stay_finite(unit_vectors):
    question = Question(unit_vectors(6, 2), Objective(lam=1.0, ridge=0.0))
    watch = question.watch(5)
    coverage, _ = question.gains([0])
    top = top_gains(coverage, np.full(6, -np.inf), k=5, objective=question.objective)
    watch.look(top, covered=question.covered([0]), diverse=0.0, n_picks=1)
    picks = [0, 1, 2, 3, 4]
    diverse = question.log_det([0, 1])  # those without a rank of their own count 0
    coverage = question.covered(picks) - question.baseline
    seen = watch.close("proved", Worth(coverage + diverse, coverage, 5))
    assert seen.bound >= coverage + diverse
    assert seen.bound_of_g is None
    assert seen.tightest == "apart"
    assert math.isfinite(seen.diversity_bound)


@pytest.mark.parametrize("lam", [0.0, 1.0])
@pytest.mark.parametrize("with_quality", [False, True])
def test_with_every_candidate_picked_the_bound_is_the_value(unit_vectors, lam, with_quality):
    quality = np.linspace(-2, 1, 6) if with_quality else None
    question = Question(unit_vectors(6, 4), Objective(lam=lam, ridge=1e-3), quality=quality)
    watch = question.watch(6)
    question.look(watch, list(range(6)))
    seen = watch.close("proved", question.worth(range(6)), question.worth(range(3)))
    assert seen.bound == pytest.approx(question.value(range(6)), abs=1e-9)
    assert seen.ratio == pytest.approx(1, abs=1e-9) or seen.bound <= 0
    assert seen.coverage_ratio == seen.coverage_lift == pytest.approx(1, abs=1e-9)


def test_a_pick_of_low_quality_need_not_be_in_the_best_set(unit_vectors):
    quality = np.array([-50.0, 0, 0, 0, 0])
    question = Question(unit_vectors(5, 4), Objective(lam=1.0, ridge=0.1), quality=quality)
    watch = question.watch(2)
    question.look(watch, [0])
    sets = list(combinations(range(5), 2))
    seen = watch.close("proved", question.worth(worst(question, sets)))
    assert seen.bound >= max(map(question.value, sets))


def limits_of(rng, n, kind):
    if kind == "groups":
        return {"groups": rng.integers(-1, 4, n), "max_per_group": 2}
    if kind == "budget":
        return {"costs": rng.uniform(0.1, 2.0, n), "budget": 3.0}
    return {}


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 40),
    seed=st.integers(0, 1000),
    k=st.integers(0, 12),
    lam=LAMBDAS,
    ridge=RIDGES,
    kind=st.sampled_from(["none", "groups", "budget"]),
    parts=st.integers(1, 5),
    with_quality=st.booleans(),
)
def test_joined_parts_bound_like_the_whole(n, seed, k, lam, ridge, kind, parts, with_quality):
    rng = np.random.default_rng(seed)
    objective = Objective(lam=lam, ridge=ridge)
    columns = {"coverage": rng.random(n), "diversity": -4 * rng.random(n)}
    quality = rng.normal(size=n) if with_quality else None
    limits = {"allowed": rng.random(n) < 0.8} | limits_of(rng, n, kind)
    part_of = rng.integers(0, parts, n)

    def top(chosen):
        rows = {name: v if np.ndim(v) == 0 else v[chosen] for name, v in limits.items()}
        return top_gains(
            columns["coverage"][chosen],
            columns["diversity"][chosen],
            k=k,
            objective=objective,
            quality=None if quality is None else quality[chosen],
            **rows,
        )

    whole = top(np.ones(n, dtype=np.bool_))
    together = joined([top(part_of == part) for part in range(parts)])
    for name in ("coverage", "diversity", "quality", "both"):
        one, other = getattr(whole, name), getattr(together, name)
        assert (one is None) == (other is None)
        if one is None:
            continue
        np.testing.assert_array_equal(one.values, other.values)
        for count in range(k + 1):
            for exactly in (True, False):
                sums = [
                    x.most(count, exactly=exactly, budget=limits.get("budget"))
                    for x in (one, other)
                ]
                assert sums[0] == pytest.approx(sums[1], rel=1e-12)


def test_a_group_keeps_its_largest_and_those_without_a_group_are_not_limited():
    gains = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    groups = np.array([-1, -1, -1, 3, 3, 8, 8])
    top = top_gains(gains, None, k=6, objective=Objective(lam=0.0), groups=groups, max_per_group=1)
    assert top.coverage.values.tolist() == [7, 5, 3, 2, 1]
    assert top.coverage.groups.tolist() == [8, 3, -1, -1, -1]


def test_old_gains_of_what_is_picked_by_now_do_not_count():
    gains, objective = np.array([9.0, 2.0, 1.0]), Objective(lam=1.0, ridge=0.1)
    picked = np.array([0])
    top = top_gains(gains, np.zeros(3), k=2, objective=objective, picked=picked)
    assert top.coverage.values.tolist() == [2, 1]
    np.testing.assert_allclose(top.diversity.values, [math.log(10)] * 2)
    np.testing.assert_allclose(top.both.values, np.array([2, 1]) + math.log(10))
    assert gains.tolist() == [9, 2, 1]


def test_only_a_set_of_fixed_size_must_take_what_lowers_the_sum():
    largest = Largest(np.array([2.0, 1.0, -4.0]))
    assert largest.most(3, exactly=True, budget=None) == -1
    assert largest.most(3, exactly=False, budget=None) == 3


def test_with_fewer_candidates_than_picks_wanted_the_bound_is_of_as_many_as_there_are():
    question = Question(np.eye(3, dtype=np.float32), Objective(lam=1.0, ridge=0.1))
    watch = question.watch(9)
    question.look(watch, [0, 1, 2])
    seen = watch.close("proved", question.worth([0, 1, 2]))
    assert seen.bound == pytest.approx(question.value([0, 1, 2]), abs=1e-9)
    assert seen.diversity_bound == pytest.approx(0.0, abs=1e-9)


def test_parts_of_different_questions_are_not_joined():
    gains, objective = np.ones(3), Objective(lam=0.0)
    parts = [top_gains(gains, None, k=k, objective=objective) for k in (1, 2)]
    with pytest.raises(ValueError, match=r"joined.parts: found 2 parts with 2 different"):
        joined(parts)
    with pytest.raises(ValueError, match=r"joined.parts: found 0 parts"):
        joined([])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gain_that_is_not_finite_is_refused_unless_it_is_not_allowed(bad):
    gains, objective = np.array([1.0, 2.0]), Objective(lam=1.0)
    coverage = np.array([1.0, bad if bad > 0 or np.isnan(bad) else np.nan])
    with pytest.raises(ValueError, match=r"top_gains.coverage: 1 of 2 allowed candidates"):
        top_gains(coverage, gains, k=1, objective=objective)
    allowed = np.array([True, False])
    top = top_gains(coverage, -gains, k=2, objective=objective, allowed=allowed)
    assert top.coverage.values.tolist() == [1.0]


def test_gains_of_another_length_and_missing_gains_are_refused():
    objective = Objective(lam=1.0)
    with pytest.raises(ValueError, match=r"top_gains.diversity: found shape \(2,\)"):
        top_gains(np.ones(3), np.ones(2), k=1, objective=objective)
    with pytest.raises(ValueError, match=r"top_gains.diversity: found None with lam 1.0"):
        top_gains(np.ones(3), None, k=1, objective=objective)


def test_without_a_look_nothing_is_claimed(unit_vectors):
    question = Question(unit_vectors(4, 3), Objective(lam=1.0))
    seen = question.watch(2).close("proved", question.worth([0, 1]), question.worth([2, 3]))
    facts = seen.as_dict()
    assert facts.pop("kind") == "proved"
    assert facts.pop("diversity_bound") == pytest.approx(0.0, abs=1e-6)
    assert set(facts.values()) == {None}


def test_bounds_come_through_json_to_another_watch_and_only_lower_its_own(unit_vectors):
    quality = np.linspace(-1, 1, 6)
    question = Question(unit_vectors(6, 4), Objective(lam=1.0), quality=quality)
    one, other, answer = question.watch(3), question.watch(3), question.worth([0, 1, 2])
    assert set(one.smallest.values()) == {None}
    one.take(other.smallest)
    question.look(one, [0, 1])
    other.take(json.loads(json.dumps(one.smallest)))
    assert other.close("proved", answer) == one.close("proved", answer)
    other.take({name: value + 1 for name, value in one.smallest.items()})
    assert other.smallest == one.smallest


def test_an_answer_above_its_proved_bound_is_an_error_and_lifts_a_statistical_one():
    question = Question(np.eye(4, dtype=np.float32), Objective(lam=0.0))
    watch = question.watch(1)
    top = top_gains(np.full(4, 2.0), None, k=1, objective=question.objective)  # truly 1 + 4
    watch.look(top, covered=0.0, diverse=0.0, n_picks=0)
    with pytest.raises(ValueError, match=r"worth 5, more than the bound 2 of any answer"):
        watch.close("proved", question.worth([0]))
    seen = watch.close("statistical", question.worth([0]), z=2.0)
    assert seen.bound == pytest.approx(question.value([0]))
    assert (seen.ratio, seen.z) == (pytest.approx(1.0), 2.0)


@pytest.mark.parametrize(
    ("scale", "pool", "baseline"), [("absolute", 0, 10.0), ("mean", 0, 1.0), ("mean", 2, 0.0)]
)
def test_a_watch_for_a_request_knows_its_weights_quality_and_norms(
    unit_vectors, scale, pool, baseline
):
    vectors, weights = unit_vectors(5, 3) * np.float32(0.5), np.array([1.0, 1.0, 2.0, 0.0, 1.0])
    oracle = LocalCoverage([CoverageShard(vectors, weights=weights)], vectors)
    request = Request(
        3,
        Objective(scale=scale),
        tie_rank=np.arange(5),
        keys=np.arange(5, dtype=np.uint64),
        n_total=10.0,
        coverage_weight=2.0,
        limits=Limits(required=np.array([1, 4])),
        quality=np.arange(5.0),
        given=unit_vectors(pool, 3),
    )
    watch = CertificateWatch.of(request, request.objective, oracle, vectors)
    assert (watch.k, watch.dim, watch.claim) == (3, 3, "f")
    assert (watch.n_required, watch.required_quality) == (2, 5.0)
    assert watch.baseline == pytest.approx(baseline)
    assert watch.max_squared_norm == pytest.approx(0.25, rel=1e-6)


def test_a_kind_without_its_evidence_is_refused(unit_vectors):
    question = Question(unit_vectors(4, 3), Objective(lam=0.0))
    for kind in ("sampled", "statistical"):
        with pytest.raises(ValueError, match=f"certificate.kind: found '{kind}' with sample None"):
            question.watch(2).close(kind, question.worth([0, 1]))


def test_with_lambda_changing_only_the_terms_apart_are_bounded(unit_vectors):
    question = Question(unit_vectors(6, 4), Objective(lam=1.0))
    watch = question.watch(3, claim="terms")
    question.look(watch, [0])
    seen = watch.close("proved", question.worth([0, 1, 2]), question.worth([3, 4, 5]))
    assert seen.bound is seen.bound_of_g is seen.ratio is seen.tightest is None
    assert 0 < seen.coverage_ratio <= 1
    assert seen.coverage_lift is not None


def test_what_is_claimed_follows_from_the_limits():
    plain = Objective()
    assert claim_of(Limits(), plain) == "f"
    assert claim_of(Limits(budget=3.0), plain) == "g"
    assert claim_of(Limits(stop_at_negative=True), plain) == "g"
    ruled = Objective(rule=LambdaRule("linear", 1.0, 0.1))
    assert claim_of(Limits(budget=3.0), ruled) == "terms"


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), lam=LAMBDAS, ridge=RIDGES, k=st.integers(1, 6))
def test_facts_are_plain_json_without_nan_or_infinity(unit_vectors, seed, lam, ridge, k):
    vectors = np.repeat(unit_vectors(3, 2, seed=seed), 2, axis=0)
    question = Question(vectors, Objective(lam=lam, ridge=ridge))
    log_det, watch, diverse = LogDet(vectors, ridge), question.watch(k), 0.0
    for n_picks in range(k + 1):
        coverage, _ = question.gains(list(range(n_picks)))
        diversity = log_det.gains(np.arange(6))  # -inf without a ridge: duplicates
        top = top_gains(coverage, diversity, k=k, objective=question.objective)
        watch.look(top, covered=question.covered(range(n_picks)), diverse=diverse, n_picks=n_picks)
        gain = log_det.add(n_picks) if n_picks < k else 0.0
        diverse += gain if gain > -np.inf else 0.0
    coverage = question.covered(range(k)) - question.baseline
    answer = Worth(coverage + lam * diverse, coverage, k)
    nothing = Worth(-np.inf, -np.inf, 0)
    for random in (None, answer, nothing):
        facts = watch.close("sampled", answer, random, sample=6).as_dict()
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert facts["sample"] == 6
