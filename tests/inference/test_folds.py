from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.folds import fold_of


def rows_of(labels, groups=None):
    ids = [f"q{i}" for i in range(len(labels))]
    return ids, groups or [None] * len(labels), labels


def counts(folds, labels):
    """Queries of each label in each fold."""
    return [
        Counter(label for label, mine in zip(labels, folds.number, strict=True) if mine == fold)
        for fold in range(folds.n_folds)
    ]


queries = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["g", "h", "i", "j", None])), min_size=1
)


@settings(deadline=None, max_examples=40)
@given(queries, st.integers(2, 5), st.integers(0, 3), st.randoms(use_true_random=False))
def test_no_group_is_split_no_fold_is_empty_and_the_order_of_rows_is_nothing(
    rows, n_folds, seed, random
):
    ids, groups, labels = rows_of([label for label, _ in rows], [group for _, group in rows])
    folds = fold_of(ids, groups, labels, n_folds=n_folds, seed=seed)
    by_group = {}
    for group, number in zip(groups, folds.number.tolist(), strict=True):
        if group is not None:
            assert by_group.setdefault(group, number) == number
    n_groups = len(by_group) + groups.count(None)
    assert folds.n_folds == min(n_folds, n_groups)
    assert set(folds.number.tolist()) == set(range(folds.n_folds))
    order = list(range(len(ids)))
    random.shuffle(order)
    shuffled = fold_of(
        [ids[i] for i in order],
        [groups[i] for i in order],
        [labels[i] for i in order],
        n_folds=n_folds,
        seed=seed,
    )
    assert shuffled.number.tolist() == [folds.number[i] for i in order]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from("abcd"), min_size=12, max_size=60), st.integers(2, 10))
def test_without_groups_sizes_and_labels_differ_by_at_most_1(labels, n_folds):
    folds = fold_of(*rows_of(labels), n_folds=n_folds)
    assert np.ptp(np.bincount(folds.number)) <= 1
    for label in set(labels):
        each = [one[label] for one in counts(folds, labels)]
        assert max(each) - min(each) <= 1


def test_groups_keep_the_labels_in_proportion_as_far_as_they_allow():
    labels, groups = [], []
    for group in range(40):
        labels += ["rare"] + ["frequent"] * 3
        groups += [f"g{group}"] * 4
    folds = fold_of(*rows_of(labels, groups), n_folds=10)
    assert counts(folds, labels) == [Counter(rare=4, frequent=12)] * 10


def test_another_seed_deals_another_partition():
    rows = rows_of(["a", "b"] * 50)
    first, again, other = (fold_of(*rows, seed=seed).number.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_fewer_groups_than_folds_give_fewer_folds_and_say_so():
    folds = fold_of(*rows_of(list("aabb"), ["g", "g", "h", "h"]), n_folds=10)
    assert (folds.n_folds, folds.n_asked) == (2, 10)


def test_folds_that_lack_a_label_are_counted():
    labels = ["rare"] * 3 + ["frequent"] * 17
    assert fold_of(*rows_of(labels), n_folds=10).n_short == 7
    assert fold_of(*rows_of(["one"] * 20), n_folds=10).n_short == 0


def test_an_id_and_a_group_of_the_same_name_are_two_groups():
    folds = fold_of(["x", "y"], [None, "x"], ["a", "a"], n_folds=2)
    assert sorted(folds.number.tolist()) == [0, 1]


def test_no_queries_are_no_folds():
    assert fold_of([], [], []).n_folds == 0


@pytest.mark.parametrize(
    ("arguments", "n_folds", "words"),
    [
        ((["q"], [None], ["a"]), 1, "n_folds is 1: a partition needs at least 2"),
        ((["q"], [], ["a"]), 2, "1 ids, 0 groups and 1 labels"),
        ((["q", "q"], [None] * 2, ["a"] * 2), 2, "id 'q' stands 2 times"),
    ],
)
def test_what_is_no_partition_is_refused(arguments, n_folds, words):
    with pytest.raises(ValueError, match=words):
        fold_of(*arguments, n_folds=n_folds)
