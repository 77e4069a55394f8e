import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.ordering import ORDERS, Demonstration, order_of, permutations_of, rearranged


def demo(id, similarity):
    return Demonstration(id, f"text {id}", "answer", similarity)


FOUR = [demo("b", 0.5), demo("d", 0.9), demo("a", 0.5), demo("c", 0.1)]


def shown(order, demonstrations):
    return [demonstrations[i].id for i in ORDERS[order](demonstrations)]


def test_the_most_similar_stands_next_to_the_query():
    assert shown("similar-last", FOUR) == ["c", "b", "a", "d"]


def test_similar_first_is_similar_last_backwards():
    assert shown("similar-first", FOUR) == ["d", "a", "b", "c"]


def test_by_id_does_not_depend_on_the_query():
    assert shown("by-id", FOUR) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("order", ORDERS)
@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=2), st.sampled_from([0.0, 0.5, 1.0])),
        unique_by=lambda pair: pair[0],
        max_size=6,
    ),
    st.randoms(),
)
@settings(deadline=None)
def test_every_order_shows_each_once_whatever_order_they_came_in(order, pairs, random):
    demonstrations = [demo(*pair) for pair in pairs]
    shuffled = demonstrations[:]
    random.shuffle(shuffled)
    assert sorted(ORDERS[order](demonstrations)) == list(range(len(demonstrations)))
    assert shown(order, demonstrations) == shown(order, shuffled)


def labelled(text):
    """Demonstrations with these answers, most similar first."""
    return [Demonstration(f"{i}", "", answer, -float(i)) for i, answer in enumerate(text)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("aabb", "baba"),
        ("aaab", "aaba"),
        ("abc", "cba"),
        ("aabc", "caba"),
        ("aaa", "aaa"),
        ("", ""),
    ],
)
def test_interleaved_answers_alternate_from_the_query_backwards(answers, expected):
    demonstrations = labelled(answers)
    order = ORDERS["interleaved"](demonstrations)
    assert "".join(demonstrations[i].output for i in order) == expected


@given(st.text("abc", max_size=9))
@settings(deadline=None)
def test_equal_answers_are_neighbours_only_where_one_is_more_than_half(answers):
    demonstrations = labelled(answers)
    shown = "".join(demonstrations[i].output for i in ORDERS["interleaved"](demonstrations))
    most = max((answers.count(answer) for answer in answers), default=0)
    pairs = sum(a == b for a, b in itertools.pairwise(shown))
    assert pairs == max(0, 2 * most - len(answers) - 1)
    assert not answers or shown[-1] == answers[0] or 2 * most > len(answers)


def test_listed_order_follows_the_ids():
    order = order_of(["c", "a", "x", "d", "b"])(FOUR)
    assert [FOUR[i].id for i in order] == ["c", "a", "d", "b"]


def test_up_to_the_limit_all_orders_are_taken_and_the_first_changes_nothing():
    assert permutations_of(3, most=6, seed=0) == list(itertools.permutations(range(3)))
    assert permutations_of(1, most=1, seed=0) == [(0,)]


@settings(deadline=None, max_examples=20)
@given(st.integers(4, 30), st.integers(1, 23), st.integers(0, 5))
def test_above_it_distinct_orders_are_drawn_the_same_for_a_seed(n, most, seed):
    drawn = permutations_of(n, most=most, seed=seed)
    assert len(set(drawn)) == len(drawn) == min(most, math.factorial(n))
    assert all(sorted(order) == list(range(n)) for order in drawn)
    assert drawn == permutations_of(n, most=most, seed=seed)


def test_drawn_orders_are_uniform():
    """Each of 24 orders is in a draw of 6 with probability a quarter."""
    draws = [permutations_of(4, most=6, seed=seed) for seed in range(400)]
    counts = [sum(order in draw for draw in draws) for order in itertools.permutations(range(4))]
    # 100 expected, sd 8.7.
    assert min(counts) > 60
    assert max(counts) < 140


def test_places_that_a_shorter_list_lacks_are_passed_over():
    assert rearranged("abc", (2, 0, 1)) == ["c", "a", "b"]
    assert rearranged("ab", (2, 0, 1)) == ["a", "b"]
    assert rearranged("", (1, 0)) == []
