import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.ordering import ORDERS, Demonstration, order_of


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
