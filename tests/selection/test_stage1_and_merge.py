import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate, lazy_greedy
from selection.merge import merge
from selection.modes import Effort
from selection.objective import TIE_TOLERANCE, Objective
from selection.request import Limits
from selection.screening import Sample, Screening
from selection.stage1 import STAGE1, n_kept, search, select_local
from tests.selection.asking import ask, keys_of

EXACT = Effort(mode="exact")


def local_sets_of(method, vectors, owner, *, k, objective, effort=EXACT, **limits):
    n, keys, sets = len(vectors), keys_of(len(vectors)), []
    for part in range(owner.max() + 1):
        rows = np.flatnonzero(owner == part)
        request = ask(
            len(rows),
            k,
            objective,
            tie_rank=rows,
            keys=keys[rows],
            n_total=n,
            weight=n / max(1, len(rows)),
            **limits,
        )
        local = select_local(method, vectors[rows], request, effort=effort)
        sets.append(rows[local.selection.picks])
    return sets


def merged_of(method, vectors, sets, *, k, objective, screening=None, **more):
    n = len(vectors)
    return merge(
        method,
        LocalCoverage([CoverageShard(p) for p in np.array_split(vectors, 3)], vectors),
        vectors,
        ask(n, k, objective, **more),
        local_sets=sets,
        screening=screening,
    )


def judged_on(vectors, rows):
    """Leaders judged on some of the points, every one without screening."""
    oracle = LocalCoverage([CoverageShard(vectors[rows])], vectors)
    return Screening(None, Sample(oracle, np.isin(np.arange(len(vectors)), rows), len(vectors)))


def test_the_methods_are_those_of_the_documentation():
    assert set(STAGE1) == {"dual-div", "coverage", "vote-k", "kmeans", "kcenter", "random"}
    with pytest.raises(ValueError, match="'best', wanted one of dual-div, coverage, vote-k"):
        local_sets_of("best", np.eye(3, dtype=np.float32), np.zeros(3, int), k=1, objective=None)


def test_coverage_is_dual_div_with_lam_zero(unit_vectors):
    vectors, owner = unit_vectors(80, 6), np.zeros(80, dtype=int)
    div = local_sets_of("coverage", vectors, owner, k=9, objective=Objective(lam=7.0))
    zero = local_sets_of("dual-div", vectors, owner, k=9, objective=Objective(lam=0.0))
    both = local_sets_of("dual-div", vectors, owner, k=9, objective=Objective(lam=7.0))
    assert div[0].tolist() == zero[0].tolist()
    assert div[0].tolist() != both[0].tolist()


def test_random_is_the_smallest_keys_judged_by_the_full_objective(unit_vectors, naive_value):
    vectors, keys = unit_vectors(50, 6), keys_of(50)
    request = ask(50, 7, Objective(lam=2.0), keys=keys)
    local = select_local("random", vectors, request, effort=EXACT).selection
    assert local.picks.tolist() == np.argsort(keys)[:7].tolist()
    assert local.value == pytest.approx(naive_value(vectors, local.picks, lam=2.0, ridge=1e-3))


def test_a_partition_trades_coverage_against_diversity_as_the_whole_would(unit_vectors):
    vectors = unit_vectors(40, 6)
    objective = Objective(lam=20.0)
    request = ask(40, 8, objective, weight=10.0)
    partition = select_local("dual-div", vectors, request, effort=EXACT).selection
    oracle = LocalCoverage([CoverageShard(np.tile(vectors, (10, 1)))], vectors)
    whole = lazy_greedy(oracle, vectors, ask(40, 8, objective, n_total=400))
    assert partition.picks.tolist() == whole.picks.tolist()


@pytest.mark.parametrize("method", STAGE1)
def test_an_empty_partition_selects_nothing(method):
    nothing = np.empty((0, 4), dtype=np.float32)
    local = select_local(method, nothing, ask(0, 3, n_total=10), effort=EXACT)
    assert local.selection.picks.tolist() == []


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(2, 60),
    parts=st.integers(1, 6),
    k=st.integers(1, 12),
    seed=st.integers(0, 1000),
    method=st.sampled_from(["dual-div", "coverage"]),
    ridge=st.sampled_from([0.0, 1e-3]),
)
def test_merged_is_at_least_every_local_solution(unit_vectors, n, parts, k, seed, method, ridge):
    vectors = unit_vectors(n, 16, seed=seed)
    owner = np.random.default_rng(seed).integers(0, parts, n)
    objective = Objective(lam=1.0, ridge=ridge)
    sets = local_sets_of(method, vectors, owner, k=k, objective=objective)
    merged = merged_of(method, vectors, sets, k=k, objective=objective)
    picks = merged.selection.picks.tolist()
    assert len(set(picks)) == len(picks) == min(k, sum(map(len, sets)))
    assert set(picks) <= set(np.concatenate(sets).tolist())
    longest = max(map(len, sets))
    if longest == len(picks):
        parts = merged.selection.coverage_gains, merged.selection.diversity_gains
        slack = 2 * TIE_TOLERANCE * sum(np.abs(part).sum() for part in parts)
        assert merged.selection.value >= merged.best_local_value - slack
    assert merged.selection.value == (
        merged.best_local_value if merged.mode == "local" else merged.merged_value
    )


def test_the_local_solution_is_returned_when_greedy_over_the_union_is_worse():
    # Greedy over the union falls into the trap {2, 0} = 3.44; partition 1 holds {0, 1} = 3.60.
    vectors = np.array([(1, 0, 0), (0, 1, 0), (0.6, 0.8, 0), (0, 0.8, 0.6)], dtype=np.float32)
    sets = [np.array([2, 3]), np.array([0, 1])]
    merged = merged_of("coverage", vectors, sets, k=2, objective=Objective())
    assert merged.mode == "local"
    assert merged.best_local_partition == 1
    assert merged.merged_value == pytest.approx(3.44, abs=1e-5)
    assert merged.best_local_value == pytest.approx(3.60, abs=1e-5)
    assert sorted(merged.selection.picks.tolist()) == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_ties_between_partitions_go_to_the_first_rows(unit_vectors, seed):
    """Copies of the same texts in every partition: each has a set that is worth the same."""
    vectors = np.tile(unit_vectors(6, 32, seed=seed, spread=3.0), (8, 1))
    copy, text = np.divmod(np.arange(48), 6)
    owner, objective = (copy + text) % 3, Objective(lam=0.5)
    sets = local_sets_of("dual-div", vectors, owner, k=6, objective=objective)
    merged = merged_of("dual-div", vectors, sets, k=6, objective=objective)
    assert merged.best_local_value == pytest.approx(merged.merged_value, rel=1e-6)
    assert merged.mode == "merged"
    assert sorted(merged.selection.picks.tolist()) == [0, 1, 2, 3, 4, 5]


# Ends before f falls.


def test_a_local_solution_that_wins_ends_before_its_first_negative_gain(unit_vectors):
    vectors, objective = unit_vectors(9, 3, seed=1646), Objective(lam=1.0, ridge=1e-2)
    stop = {"objective": objective, "stop_at_negative": True}
    sets = local_sets_of("dual-div", vectors, np.arange(9) % 3, k=3, **stop)
    merged = merged_of("dual-div", vectors, sets, k=9, **stop)
    assert merged.mode == "local"
    # On its own partition the last of them did not lower f, on all points it does.
    whole = sets[merged.best_local_partition]
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    uncut = evaluate(oracle, vectors, whole, objective=objective)
    assert uncut.first_negative == len(whole) - 1
    assert uncut.value > merged.merged_value
    assert merged.selection.picks.tolist() == whole[:-1].tolist()
    assert merged.selection.value == merged.best_local_value > uncut.value


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), lam=st.sampled_from([0.5, 2.0, 8.0]), sampled=st.booleans())
def test_no_pick_lowers_f_on_all_points_when_told_to_stop(unit_vectors, seed, lam, sampled):
    vectors = unit_vectors(24, 3, seed=seed)
    stop = {"objective": Objective(lam=lam, ridge=1e-2), "stop_at_negative": True}
    sets = local_sets_of("dual-div", vectors, np.arange(24) % 3, k=24, **stop)
    screening = judged_on(vectors, np.arange(0, 24, 3)) if sampled else None
    found = merged_of("dual-div", vectors, sets, k=24, screening=screening, **stop).selection
    assert 1 <= len(found.picks) == len(found.gains)
    assert (found.gains >= -1e-6 * found.gains[0]).all()


def test_a_choice_on_a_sample_ends_where_f_falls_on_all_points(unit_vectors):
    vectors, objective = unit_vectors(24, 3, seed=0), Objective(lam=0.5, ridge=1e-2)
    screening = judged_on(vectors, np.arange(0, 24, 3))
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    request = ask(24, 24, objective, stop_at_negative=True)
    there = ask(24, 24, objective, n_total=24, weight=3.0, stop_at_negative=True)
    sample = lazy_greedy(screening.verify.oracle, vectors, there, screening=screening)
    uncut = evaluate(oracle, vectors, sample.picks, objective=objective)
    assert uncut.first_negative == 3 < len(sample.picks)
    found = search(STAGE1["dual-div"], oracle, vectors, request, screening)
    assert found.picks.tolist() == sample.picks[:3].tolist()
    assert found.gains == pytest.approx(uncut.gains[:3])
    assert found.n_covered.sum() == 24
    control = search(STAGE1["random"], oracle, vectors, request, screening)
    assert len(control.picks) == 24


def test_required_rows_that_lower_f_do_not_end_what_follows(unit_vectors):
    vectors = unit_vectors(24, 3, seed=2)
    vectors[1] = vectors[0]
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    free = lazy_greedy(oracle, vectors, ask(24, 24, Objective(), required=np.array([0, 1])))
    assert free.first_negative == 1
    limits = Limits(required=np.array([0, 1]), stop_at_negative=True)
    kept = n_kept(free, limits)
    assert 2 < kept < 24
    assert (free.gains[2:kept] >= 0).all()
    assert free.gains[kept] < 0
    assert n_kept(free, Limits()) == 24


def test_one_partition_with_everything_is_the_centralised_answer(unit_vectors):
    vectors, objective = unit_vectors(200, 8), Objective()
    central = local_sets_of(
        "dual-div", vectors, np.zeros(200, dtype=int), k=20, objective=objective
    )
    merged = merged_of("dual-div", vectors, [np.arange(200)], k=20, objective=objective)
    assert merged.selection.picks.tolist() == central[0].tolist()


def test_random_partitions_come_close_to_the_centralised_value(unit_vectors):
    vectors, objective = unit_vectors(800, 16, n_topics=40), Objective()
    owner = np.random.default_rng(3).integers(0, 8, 800)
    sets = local_sets_of("dual-div", vectors, owner, k=30, objective=objective)
    merged = merged_of("dual-div", vectors, sets, k=30, objective=objective)
    central = merged_of("dual-div", vectors, [np.arange(800)], k=30, objective=objective)
    assert merged.selection.value >= 0.98 * central.selection.value


def test_the_random_control_is_not_improved_by_comparison(unit_vectors):
    vectors, keys = unit_vectors(90, 5), keys_of(90)
    owner = np.arange(90) % 3
    sets = local_sets_of("random", vectors, owner, k=10, objective=Objective())
    merged = merged_of("random", vectors, sets, k=10, objective=Objective())
    assert merged.selection.picks.tolist() == np.argsort(keys)[:10].tolist()
    assert (merged.mode, merged.best_local_partition) == ("merged", -1)
    assert np.isnan(merged.best_local_value)


def test_empty_local_sets_are_no_trouble(unit_vectors):
    vectors = unit_vectors(10, 4)
    nothing = np.empty(0, dtype=np.int64)
    sets = [nothing, np.array([3, 4]), nothing]
    merged = merged_of("dual-div", vectors, sets, k=5, objective=Objective())
    assert sorted(merged.selection.picks.tolist()) == [3, 4]
    assert merged_of("dual-div", vectors, [], k=5, objective=Objective()).selection.value == -np.inf


def test_an_index_outside_the_candidates_is_refused(unit_vectors):
    with pytest.raises(ValueError, match="set 1 has indices from 2 to 10, wanted 0 to 9"):
        merged_of(
            "dual-div",
            unit_vectors(10, 4),
            [np.array([1]), np.array([2, 10])],
            k=2,
            objective=Objective(),
        )


def test_evaluations_of_a_merge_stay_within_the_union(unit_vectors):
    vectors = unit_vectors(300, 8)
    sets = [np.arange(0, 30), np.arange(100, 130)]
    merged = merged_of("dual-div", vectors, sets, k=15, objective=Objective())
    assert merged.selection.n_candidates == 60
    assert merged.selection.evaluations <= 60 * 15
    judged = evaluate(
        LocalCoverage([CoverageShard(vectors)], vectors),
        vectors,
        merged.selection.picks,
        objective=Objective(),
    )
    assert judged.value == pytest.approx(merged.selection.value, rel=1e-6)
