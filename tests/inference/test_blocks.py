import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.blocks import find_blocks, route

# Two topics: queries about records 0 to 2, and about 3 to 5.
TOPICS = np.array([[0, 1], [0, 2], [1, 0], [3, 4], [3, 5]])


def kept_by(ranked, members):
    """Relevance kept, literally."""
    total = 0.0
    for row in ranked:
        each = [sum(1 / (i + 1) for i, r in enumerate(row) if r in block) for block in members]
        total += max(each)
    return total


def whole(ranked):
    return sum(1 / (i + 1) for row in ranked for i, r in enumerate(row) if r >= 0)


def test_two_topics_have_a_block_each_with_the_highest_summed_relevance():
    blocks = find_blocks(TOPICS, n_records=6, n_blocks=2, size=2)
    # Record 0: 1 + 1 + 1/2, record 1: 1/2 + 1; record 3: 2, records 4 and 5: 1/2 each, 4 first.
    assert blocks.members == [[0, 1], [3, 4]]
    assert blocks.relevance == [[2.5, 1.5], [2.0, 0.5]]
    assert blocks.n_queries == [3, 2]
    assert blocks.kept == pytest.approx((1.5 + 1 + 1.5 + 1.5 + 1) / 7.5)


def test_one_block_is_what_is_most_relevant_to_all_queries():
    blocks = find_blocks(TOPICS, n_records=6, n_blocks=1, size=3)
    assert blocks.members == [[0, 3, 1]]


def test_a_query_goes_to_the_block_that_keeps_most_of_its_list():
    assert route(np.array([[5, 0], [0, 5], [9, 9]]), [[0, 1], [5]]).tolist() == [1, 0, 0]


def test_queries_without_a_list_are_left_out():
    lists = np.array([[0, 1], [-1, -1], [0, -1]])
    blocks = find_blocks(lists, n_records=2, n_blocks=4, size=1)
    assert (blocks.members, blocks.n_queries) == ([[0]], [2])
    assert find_blocks(lists[1:2], n_records=2, n_blocks=4, size=1).members == []


lists_of_queries = st.lists(
    st.permutations(range(6)).map(lambda order: order[:3]), min_size=1, max_size=12
)


@given(lists_of_queries, st.integers(1, 4), st.integers(1, 3), st.randoms())
@settings(deadline=None, max_examples=100)
def test_blocks_are_distinct_records_and_keep_what_they_say(lists, n_blocks, size, random):
    ranked = np.array(lists)
    blocks = find_blocks(ranked, n_records=6, n_blocks=n_blocks, size=size)
    assert 1 <= len(blocks.members) <= n_blocks
    assert all(len(set(b)) == len(b) <= size for b in blocks.members)
    assert sum(blocks.n_queries) == len(lists)
    assert min(blocks.n_queries) > 0
    assert blocks.kept == pytest.approx(kept_by(ranked, blocks.members) / whole(ranked))
    random.shuffle(lists)
    assert find_blocks(np.array(lists), n_records=6, n_blocks=n_blocks, size=size) == blocks


@given(lists_of_queries, st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_one_block_is_the_best_one_and_two_never_beat_brute_force(lists, n_blocks):
    ranked = np.array(lists)
    single = max(kept_by(ranked, [list(b)]) for b in itertools.combinations(range(6), 2))
    one = find_blocks(ranked, n_records=6, n_blocks=1, size=2)
    assert one.kept * whole(ranked) == pytest.approx(single)
    several = find_blocks(ranked, n_records=6, n_blocks=n_blocks, size=2)
    best = max(
        kept_by(ranked, [list(a), list(b)])
        for a, b in itertools.combinations_with_replacement(itertools.combinations(range(6), 2), 2)
    )
    assert n_blocks > 2 or several.kept * whole(ranked) <= best + 1e-9
