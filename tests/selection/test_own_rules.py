"""Promises that vote-k, k-means and k-center share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate
from selection.merge import merge
from selection.objective import Objective
from selection.stage1 import MAXIMISE_F, STAGE1
from tests.selection.asking import ask
from tests.selection.own_rules import awkward, blobs, chosen, neighbours, shuffled

METHODS = sorted({*STAGE1} - {*MAXIMISE_F, "random"})
pytestmark = pytest.mark.parametrize("method", METHODS)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 60), k=st.integers(1, 70), d=st.integers(1, 9), seed=st.integers(0, 999))
def test_picks_are_distinct_valid_and_as_many_as_asked_for(method, unit_vectors, n, k, d, seed):
    picks = chosen(method, unit_vectors(n, d, seed=seed), k, crowd=neighbours(7)).picks.tolist()
    assert len(set(picks)) == len(picks) == min(k, n)
    assert set(picks) <= set(range(n))


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 60), k=st.integers(1, 20), copies=st.booleans(), seed=st.integers(0, 999))
def test_the_order_of_the_rows_changes_nothing(method, unit_vectors, n, k, copies, seed):
    vectors = unit_vectors(n, 5, seed=seed)
    if copies:
        vectors = vectors[np.arange(n) % max(1, n // 3)]
    first = chosen(method, vectors, k, crowd=neighbours(4)).picks
    moved, ranks, keys = shuffled(vectors, seed)
    again = chosen(method, moved, k, crowd=neighbours(4), tie_rank=ranks, keys=keys).picks
    assert ranks[again].tolist() == first.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_threads_change_nothing(method, unit_vectors, dtype):
    vectors = unit_vectors(5000, 8).astype(dtype)
    one, many = (chosen(method, vectors, 12, threads=threads) for threads in (1, 3))
    assert one.picks.tolist() == many.picks.tolist()
    assert one.objective.tolist() == many.objective.tolist()


@pytest.mark.parametrize("name", awkward())
def test_copies_and_low_rank_are_no_trouble(method, name):
    vectors = awkward()[name]
    found = chosen(method, vectors, 12)
    assert len(set(found.picks.tolist())) == min(12, len(vectors))
    assert np.isfinite(found.objective).all()


def test_each_text_is_taken_once_before_any_is_taken_twice(method):
    # vote-k counts a text's copies as a tenth once one is picked: none here has ten times another.
    texts = np.repeat(np.arange(4), [1500, 700, 600, 200])
    vectors = blobs(4, spread=0.0)[np.random.default_rng(0).permutation(texts)]
    found = chosen(method, vectors, 4, crowd=neighbours(40)).picks
    assert len(np.unique(vectors[found], axis=0)) == 4


def test_one_pick_and_all_picks(method, unit_vectors):
    vectors = unit_vectors(30, 6)
    assert len(chosen(method, vectors, 1).picks) == 1
    assert sorted(chosen(method, vectors, 30).picks.tolist()) == list(range(30))


def test_f_measures_the_picks_as_it_measures_any(method, unit_vectors, naive_value):
    vectors, objective = unit_vectors(80, 6), Objective(lam=2.0)
    found = chosen(method, vectors, 9, objective=objective)
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    assert found.value == evaluate(oracle, vectors, found.picks, objective=objective).value
    assert found.value == pytest.approx(naive_value(vectors, found.picks, lam=2.0, ridge=1e-3))


def test_limits_hold_and_what_is_required_comes_first(method, unit_vectors):
    vectors, groups = unit_vectors(90, 6), np.arange(90) % 9 - 1
    allowed = np.arange(90) % 5 != 1
    found = chosen(
        *(method, vectors, 12),
        **{"allowed": allowed, "groups": groups, "max_per_group": 1, "required": np.array([32, 7])},
    ).picks
    assert found[:2].tolist() == [32, 7]
    assert len(set(found.tolist())) == 12
    assert allowed[found].all()
    own = groups[found]
    assert np.unique(own[own >= 0]).size == (own >= 0).sum()


def test_a_limit_that_leaves_too_few_ends_the_choice_early(method, unit_vectors):
    groups = np.arange(40) % 3
    found = chosen(method, unit_vectors(40, 6), 9, groups=groups, max_per_group=2).picks
    assert sorted(groups[found].tolist()) == [0, 0, 1, 1, 2, 2]


def test_what_is_given_moves_the_picks_elsewhere(method):
    # Rows of two of three topics are annotated: what comes next is of the third.
    vectors = blobs(300, spread=0.05, topics=3)
    found = chosen(method, vectors, 1, given=vectors[[3, 4]], crowd=neighbours(50)).picks
    assert (found % 3).tolist() == [2]


def test_a_merge_goes_by_the_same_rule_and_compares_nothing(method, unit_vectors):
    vectors = unit_vectors(120, 6)
    sets = [np.arange(0, 40), np.arange(50, 90)]
    oracle = LocalCoverage([CoverageShard(vectors)], vectors)
    request = ask(120, 8, crowd=neighbours(15))
    found = merge(method, oracle, vectors, request, local_sets=sets)
    assert (found.mode, found.best_local_partition) == ("merged", -1)
    assert set(found.selection.picks.tolist()) <= set(np.concatenate(sets).tolist())
    assert found.selection.value == found.merged_value


def test_rows_of_weight_0_and_partitions_without_rows_are_no_trouble(method, unit_vectors):
    vectors = unit_vectors(20, 4)
    assert len(chosen(method, vectors, 6, weights=np.zeros(20), n_total=20.0).picks) == 6
    nothing = chosen(method, vectors[:0], 3, n_total=10)
    assert nothing.picks.tolist() == []


@pytest.mark.parametrize("required", [np.array([3, 3]), np.array([40])])
def test_a_request_that_does_not_fit_is_refused(method, unit_vectors, required):
    with pytest.raises(ValueError, match="required"):
        chosen(method, unit_vectors(20, 4), 5, required=required)
