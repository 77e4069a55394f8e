import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate, lazy_greedy
from selection.objective import COSINE_ROUNDING, TIE_TOLERANCE, Objective
from tests.selection.asking import ask

SHAPES = {
    "n": st.integers(1, 14),
    "d": st.integers(1, 6),
    "k": st.integers(1, 16),
    "seed": st.integers(0, 10_000),
    "lam": st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    "ridge": st.sampled_from([1e-3, 1e-2, 0.3]),
}


def shards_of(vectors, parts=1):
    return [CoverageShard(part) for part in np.array_split(vectors, parts)]


def select(vectors, *, k, lam=1.0, ridge=1e-3, scale="absolute", parts=1, **more):
    oracle = LocalCoverage(shards_of(vectors, parts), vectors)
    objective = Objective(lam=lam, scale=scale, ridge=ridge)
    return lazy_greedy(oracle, vectors, ask(len(vectors), k, objective, **more))


@settings(deadline=None, max_examples=60)
@given(**SHAPES)
def test_every_lazy_pick_is_a_greedy_pick(unit_vectors, naive_value, n, d, k, seed, lam, ridge):
    vectors = unit_vectors(n, d, seed=seed)
    picks = select(vectors, k=k, lam=lam, ridge=ridge).picks.tolist()
    assert len(set(picks)) == len(picks) == min(k, n)
    for step in range(len(picks)):
        left = [i for i in range(n) if i not in picks[:step]]
        values = {i: naive_value(vectors, [*picks[:step], i], lam=lam, ridge=ridge) for i in left}
        best = max(values.values())
        assert values[picks[step]] >= best - 1e-5 * (abs(best) + n)


@settings(deadline=None, max_examples=60)
@given(**SHAPES)
def test_the_objective_is_the_definition(unit_vectors, naive_value, n, d, k, seed, lam, ridge):
    vectors = unit_vectors(n, d, seed=seed)
    result = select(vectors, k=k, lam=lam, ridge=ridge)
    for step in range(len(result.picks)):
        literal = naive_value(vectors, result.picks[: step + 1], lam=lam, ridge=ridge)
        assert result.objective[step] == pytest.approx(literal, abs=1e-5 * n, rel=1e-5)
    np.testing.assert_allclose(
        result.gains, result.coverage_gains + lam * result.diversity_gains, rtol=1e-12, atol=1e-12
    )
    assert result.n_covered.sum() == n


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.integers(0, 5), min_size=1, max_size=14),
    k=st.integers(1, 6),
    lam=st.sampled_from([0.0, 0.5, 3.0]),
    seed=st.integers(0, 100),
)
def test_ties_go_to_the_smaller_rank_as_in_naive_greedy(naive_greedy, rows, k, lam, seed):
    corners = np.array(
        [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, 0.8, 0), (0, 0.6, 0.8), (0.8, 0, 0.6)]
    )
    vectors = corners[rows].astype(np.float32)
    rank = np.random.default_rng(seed).permutation(len(rows))
    expected = naive_greedy(vectors, k=k, lam=lam, ridge=1e-2, tie_rank=rank)
    result = select(vectors, k=k, lam=lam, ridge=1e-2, tie_rank=rank)
    assert result.picks.tolist() == expected


@settings(deadline=None, max_examples=30)
@given(n=st.integers(2, 60), seed=st.integers(0, 1000), lam=st.sampled_from([0.0, 1.0, 5.0]))
def test_row_order_does_not_matter(unit_vectors, n, seed, lam):
    vectors = unit_vectors(n, 8, seed=seed)
    shuffle = np.random.default_rng(seed).permutation(n)
    straight = select(vectors, k=10, lam=lam)
    shuffled = select(vectors[shuffle], k=10, lam=lam, tie_rank=shuffle)
    assert shuffle[shuffled.picks].tolist() == straight.picks.tolist()


@pytest.mark.parametrize("parts", [2, 3, 8, 40])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_partitions_as_shards_give_the_picks_of_one_shard(unit_vectors, parts, lam):
    vectors = unit_vectors(300, 16, seed=3)
    whole, split = (select(vectors, k=40, lam=lam, parts=count) for count in (1, parts))
    assert split.picks.tolist() == whole.picks.tolist()
    np.testing.assert_allclose(split.objective, whole.objective, rtol=1e-6)
    assert split.n_covered.tolist() == whole.n_covered.tolist()


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_laziness_saves_most_evaluations_and_never_needs_more_than_naive(unit_vectors, lam):
    vectors = unit_vectors(2000, 24, n_topics=30, spread=0.7)
    result = select(vectors, k=50, lam=lam)
    assert result.n_candidates == 2000
    assert result.evaluations < 0.25 * 2000 * 50


@settings(deadline=None, max_examples=30)
@given(**SHAPES)
def test_evaluations_are_at_most_n_times_k(unit_vectors, n, d, k, seed, lam, ridge):
    result = select(unit_vectors(n, d, seed=seed), k=k, lam=lam, ridge=ridge)
    assert result.evaluations <= n * k


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 12), seed=st.integers(0, 1000), lam=st.sampled_from([0.5, 2.0]))
def test_mean_scale_is_absolute_scale_with_lam_times_n(unit_vectors, n, seed, lam):
    vectors = unit_vectors(n, 4, seed=seed)
    mean = select(vectors, k=n, lam=lam, scale="mean")
    absolute = select(vectors, k=n, lam=lam * n)
    np.testing.assert_allclose(mean.objective * n, absolute.objective, rtol=1e-9, atol=1e-9)


def test_a_coverage_weight_stands_for_points_that_are_elsewhere(unit_vectors):
    vectors = unit_vectors(30, 6)
    once = select(vectors, k=5, lam=3.0, weight=4.0)
    repeated = select(np.tile(vectors, (4, 1)), k=5, lam=3.0)
    np.testing.assert_allclose(once.objective, repeated.objective, rtol=1e-6)
    partial = select(vectors, k=5, lam=3.0, scale="mean", weight=4.0, n_total=120)
    whole = select(vectors, k=5, lam=3.0, scale="mean")
    np.testing.assert_allclose(partial.objective, whole.objective, rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_rank_three_gives_eight_distinct_finite_picks(ridge):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 3)) @ np.linalg.qr(rng.normal(size=(20, 3)))[0].T
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    result = select(vectors, k=8, ridge=ridge)
    assert len(set(result.picks.tolist())) == 8
    assert np.isfinite(result.gains).all()
    assert np.isfinite(result.objective).all()
    assert result.rank_exhausted_at == (3 if ridge == 0 else None)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_hundreds_of_duplicates_are_picked_once_before_any_is_picked_twice(
    unit_vectors, ridge, lam
):
    originals = unit_vectors(6, 10, seed=5)
    vectors = np.repeat(originals, 100, axis=0)
    result = select(vectors, k=20, lam=lam, ridge=ridge)
    picks = result.picks
    assert len(set(picks.tolist())) == 20
    assert len(set((picks[:6] // 100).tolist())) == 6
    assert np.isfinite(result.objective).all()
    # Of equal rows the first is taken.
    assert (picks[:6] % 100 == 0).all()


def test_identical_rows_are_picked_in_the_order_of_their_rank():
    vectors = np.tile(np.array([[0.36, 0.48, 0.8]], dtype=np.float32), (500, 1))
    rank = np.random.default_rng(1).permutation(500)
    result = select(vectors, k=7, tie_rank=rank)
    assert rank[result.picks].tolist() == list(range(7))


def test_one_row_and_k_above_n_and_no_rows(unit_vectors):
    one = select(unit_vectors(1, 4), k=5)
    assert one.picks.tolist() == [0]
    assert one.value == pytest.approx(1.0, abs=1e-6)
    assert sorted(select(unit_vectors(9, 4), k=100).picks.tolist()) == list(range(9))
    none = select(np.empty((0, 4), dtype=np.float32), k=3)
    assert none.picks.tolist() == []
    assert none.value == -np.inf


def test_forbidden_candidates_cover_and_are_not_picked(unit_vectors):
    vectors = unit_vectors(20, 4)
    forbidden = np.arange(20) % 3 != 0
    result = select(vectors, k=50, allowed=~forbidden)
    assert sorted(result.picks.tolist()) == list(range(0, 20, 3))
    assert result.n_candidates == 7
    assert result.n_covered.sum() == 20


def test_the_first_negative_gain_is_logged(unit_vectors):
    vectors = unit_vectors(40, 3, seed=2)
    result = select(vectors, k=20, lam=5.0)
    assert result.first_negative is not None
    assert (result.gains[: result.first_negative] >= 0).all()
    assert result.gains[result.first_negative] < 0


@settings(deadline=None, max_examples=30)
@given(**SHAPES)
def test_evaluating_the_picks_gives_the_same_trace(unit_vectors, n, d, k, seed, lam, ridge):
    vectors = unit_vectors(n, d, seed=seed)
    result = select(vectors, k=k, lam=lam, ridge=ridge)
    again = evaluate(
        LocalCoverage(shards_of(vectors), vectors),
        vectors,
        result.picks,
        objective=Objective(lam=lam, ridge=ridge),
    )
    # One pick at a time and all at once are other products: 1e-7 a ground point.
    np.testing.assert_allclose(again.objective, result.objective, atol=1e-7 * n)
    np.testing.assert_array_equal(again.n_covered, result.n_covered)


def test_the_same_call_gives_the_same_bits(unit_vectors):
    vectors = unit_vectors(400, 12)
    first, second = (select(vectors, k=30) for _ in range(2))
    np.testing.assert_array_equal(first.picks, second.picks)
    np.testing.assert_array_equal(first.gains, second.gains)


def test_evaluate_refuses_a_pick_twice_or_outside(unit_vectors):
    vectors = unit_vectors(5, 3)
    oracle = LocalCoverage(shards_of(vectors), vectors)
    for picks in ([1, 1], [5], [-1]):
        with pytest.raises(ValueError, match="distinct indices below 5"):
            evaluate(oracle, vectors, np.array(picks), objective=Objective())


def test_bad_arrays_are_refused_with_what_was_found(unit_vectors):
    vectors = unit_vectors(5, 3)
    for bad in (np.nan, np.inf, -np.inf):
        broken = vectors.copy()
        broken[3, 1] = bad
        with pytest.raises(ValueError, match=r"1 of 5 rows are not finite, the first is row 3"):
            select(broken, k=2)
    with pytest.raises(ValueError, match="float64, wanted"):
        select(vectors.astype(np.float64), k=2)
    with pytest.raises(ValueError, match="longer than 1"):
        select(vectors * np.float32(2), k=2)
    with pytest.raises(ValueError, match=r"tie_rank: found shape \(4,\), wanted \(5,\)"):
        select(vectors, k=2, tie_rank=np.arange(4))
    with pytest.raises(ValueError, match="found -1"):
        select(vectors, k=-1)


@pytest.mark.parametrize(
    "fields", [{"lam": -1.0}, {"lam": np.nan}, {"ridge": 1.0}, {"ridge": -1e-3}, {"scale": "sum"}]
)
def test_an_impossible_objective_is_refused(fields):
    with pytest.raises(ValueError, match=f"objective.{next(iter(fields))}"):
        Objective(**fields)


def test_tolerances_are_what_the_documentation_says():
    assert (TIE_TOLERANCE, COSINE_ROUNDING) == (1e-6, 1e-7)
