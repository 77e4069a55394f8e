"""Identifier coverage: what is replaced by what, against a brute-force search."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.pool import Pool
from selection.ranking import Ranking
from selection.tag_cover import cover_tags


def tags(rows, n_tags):
    matrix = np.zeros((len(rows), n_tags), bool)
    for row, columns in enumerate(rows):
        matrix[row, list(columns)] = True
    return sp.csr_array(matrix)


def ranking_of(rows, k):
    indices = np.full((len(rows), k), -1, np.int64)
    for row, records in enumerate(rows):
        indices[row, : len(records)] = records
    scores = np.where(indices >= 0, 10.0 - np.arange(k), np.nan)
    return Ranking(indices, scores, (indices >= 0).sum(axis=1))


def line(n):
    """Records on a quarter circle: record i is the i-th nearest to the query (1, 0)."""
    angles = np.linspace(0, np.pi / 2, max(n, 2))[:n]
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Pool(vectors.reshape(n, 2), np.arange(n))


QUERY = np.array([[1, 0]], np.float32)


def one(shown, names, carries, *, k=None, allowed=None, pool=None, n_tags=4):
    """Cover the tags of one query."""
    found = cover_tags(
        ranking_of([shown], len(shown) if k is None else k),
        QUERY,
        pool or line(len(carries)),
        query_tags=tags([names], n_tags),
        pool_tags=tags(carries, n_tags),
        allowed=None if allowed is None else np.array([allowed]),
    )
    return found


def picks(found):
    return [record for record in found.ranking.indices[0].tolist() if record >= 0]


# By hand.


def test_a_covered_query_keeps_its_ranking():
    found = one([2, 0], {1}, [{1}, {1}, set()])
    assert picks(found) == [2, 0]
    np.testing.assert_array_equal(found.ranking.scores, [[10, 9]])
    assert found.needed.tolist() == [[False, True]]
    assert found.n_came_in.tolist() == [0]


def test_the_last_that_is_not_needed_goes_and_the_newcomer_has_no_score():
    # 1 carries tag 0; 3 and 4 carry tag 1, and 3 is nearer.
    found = one([0, 1, 2], {0, 1}, [set(), {0}, set(), {1}, {1}])
    assert picks(found) == [0, 1, 3]
    np.testing.assert_array_equal(found.ranking.scores, [[10, 9, np.nan]])
    assert found.needed.tolist() == [[False, True, True]]
    assert found.n_came_in.tolist() == [1]
    assert picks(one([0, 2, 1], {0, 1}, [set(), {0}, set(), {1}, {1}])) == [0, 1, 3]


def test_the_record_with_most_uncovered_tags_comes_first():
    found = one([0, 1], {0, 1, 2}, [set(), set(), {0}, {1}, {0, 1}, {2}])
    assert picks(found) == [4, 5]
    assert found.uncovered.nnz == 0


def test_a_newcomer_can_make_another_one_superfluous():
    assert picks(one([0, 1], {0, 1, 2}, [{0}, {1}, {1, 2}])) == [0, 2]


def test_where_all_are_needed_the_set_is_chosen_anew():
    # {0} and {1} are both needed and {2} has no place; {0, 1} and {2} cover all.
    assert picks(one([0, 1], {0, 1, 2}, [{0}, {1}, {2}, {0, 1}])) == [3, 2]


def test_a_set_chosen_anew_keeps_those_shown_in_a_tie():
    carries = [{0}, {1}, {2}, {0, 1}, {3}, {4}]
    found = one([0, 1, 2], {0, 1, 2, 3, 4}, carries, n_tags=5)
    assert picks(found) == [2, 3, 4]
    np.testing.assert_array_equal(found.ranking.scores, [[8, np.nan, np.nan]])
    assert found.uncovered.indices.tolist() == [4]


def test_a_set_chosen_anew_with_room_is_filled_from_the_ranking():
    carries = [{0, 5}, {1, 6}, {2, 7}, {0, 1, 2, 5, 6, 7}, {3}]
    found = one([0, 1, 2], {0, 1, 2, 3, 5, 6, 7}, carries, n_tags=8)
    assert picks(found) == [0, 3, 4]


def test_more_tags_than_k_leave_some_uncovered_and_say_which():
    found = one([0], {0, 1, 2}, [{0}, {1}, {2}])
    assert picks(found) == [0]
    assert found.uncovered.toarray().tolist() == [[False, True, True, False]]
    assert found.absent.nnz == 0


def test_a_tag_without_an_allowed_record_is_absent_not_uncovered():
    found = one([0], {1, 2}, [set(), {1}, {2}], allowed=[True, True, False])
    assert picks(found) == [1]
    assert found.absent.toarray().tolist() == [[False, False, True, False]]
    assert found.uncovered.nnz == 0


def test_a_row_with_room_takes_records_in_before_any_goes():
    found = one([0], {0}, [set(), {0}], k=3)
    assert picks(found) == [0, 1]
    assert found.ranking.n_valid.tolist() == [2]


def test_equal_cosines_go_to_the_smaller_tie_rank():
    vectors = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    pool = Pool(vectors, np.array([0, 3, 1, 2]))
    assert picks(one([0], {0}, [set(), {0}, {0}, {0}], pool=pool)) == [2]


def test_queries_that_name_nothing_are_left_alone():
    found = one([1, 0], set(), [{0}, {1}])
    assert picks(found) == [1, 0]
    assert not found.needed.any()


def test_an_empty_ranking_and_an_empty_pool_are_left_alone():
    found = cover_tags(
        ranking_of([[]], 2),
        QUERY,
        line(0),
        query_tags=tags([{0}], 1),
        pool_tags=sp.csr_array((0, 1), dtype=bool),
        allowed=np.ones((1, 0), bool),
    )
    assert picks(found) == []
    assert found.absent.toarray().tolist() == [[True]]


def test_a_ranking_of_no_demonstrations_covers_nothing_and_says_so():
    found = one([], {0}, [{0}], k=0)
    assert found.ranking.indices.shape == (1, 0)
    assert found.uncovered.nnz == 1


def test_entries_that_are_stored_but_false_name_nothing():
    names = tags([{0, 1}], 4)
    names.data[0] = False
    found = cover_tags(
        ranking_of([[0]], 1),
        QUERY,
        line(2),
        query_tags=names,
        pool_tags=tags([{1}, {0}], 4),
    )
    assert picks(found) == [0]
    assert names.nnz == 2


# Properties.


@st.composite
def cases(draw):
    n, k, n_tags, q = draw(st.integers(1, 7)), draw(st.integers(1, 4)), 4, draw(st.integers(1, 4))
    some = st.sets(st.integers(0, n_tags - 1), max_size=n_tags)
    carries = draw(
        st.lists(st.sets(st.integers(0, n_tags - 1), max_size=2), min_size=n, max_size=n)
    )
    names = draw(st.lists(some, min_size=q, max_size=q))
    flags = draw(st.lists(st.booleans(), min_size=q * n, max_size=q * n))
    allowed = np.array(flags).reshape(q, n)
    shown = []
    for row in range(q):
        open_ = draw(st.permutations(np.flatnonzero(allowed[row]).tolist()))
        shown.append(open_[:k])
    return carries, names, allowed, shown, k


def solved(case, rows=None):
    carries, names, allowed, shown, k = case
    rows = range(len(names)) if rows is None else rows
    return cover_tags(
        ranking_of([shown[row] for row in rows], k),
        np.repeat(QUERY, len(rows), axis=0),
        line(len(carries)),
        query_tags=tags([names[row] for row in rows], 4),
        pool_tags=tags(carries, 4),
        allowed=allowed[list(rows)],
    )


@settings(deadline=None, max_examples=150)
@given(cases())
def test_covers_are_as_good_as_greedy_promises_and_all_is_accounted_for(case):
    carries, names, allowed, shown, k = case
    found = solved(case)
    for row, named in enumerate(names):
        mine = [record for record in found.ranking.indices[row].tolist() if record >= 0]
        open_ = np.flatnonzero(allowed[row]).tolist()
        assert len(set(mine)) == len(mine) == found.ranking.n_valid[row]
        assert set(mine) <= set(open_)
        assert len(mine) >= len(shown[row])
        covered = named & set().union(*(carries[record] for record in mine))
        possible = named & set().union(*(carries[record] for record in open_))
        assert set(found.uncovered[[row]].indices.tolist()) == possible - covered
        assert set(found.absent[[row]].indices.tolist()) == named - possible
        best = max(
            len(named & set().union(*(carries[record] for record in some)))
            for some in itertools.combinations(open_, min(k, len(open_)))
        )
        assert len(covered) >= math.ceil((1 - 1 / math.e) * best - 1e-9)
        before = named & set().union(*(carries[record] for record in shown[row]))
        assert len(covered) >= len(before)
        if possible <= before:
            assert mine == shown[row]
        needed = [mine[position] for position in np.flatnonzero(found.needed[row])]
        assert named & set().union(*(carries[record] for record in needed)) == covered
        assert found.n_came_in[row] == len(set(mine) - set(shown[row]))


@settings(deadline=None, max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_neither_batch_nor_order_of_queries_changes_a_row(case, random):
    whole = solved(case)
    order = list(range(len(case[1])))
    random.shuffle(order)
    shuffled = solved(case, order)
    for at, row in enumerate(order):
        alone = solved(case, [row])
        for other, place in ((shuffled, at), (alone, 0)):
            for name in ("indices", "scores"):
                np.testing.assert_array_equal(
                    getattr(other.ranking, name)[place], getattr(whole.ranking, name)[row]
                )
            assert (other.needed[place] == whole.needed[row]).all()


@settings(deadline=None, max_examples=60)
@given(cases())
def test_with_one_tag_a_record_all_tags_that_fit_are_covered(case):
    carries, names, allowed, shown, k = case
    single = [set(list(own)[:1]) for own in carries]
    found = solved((single, names, allowed, shown, k))
    for row, named in enumerate(names):
        carried = named & set().union(*(single[i] for i in np.flatnonzero(allowed[row])))
        assert found.uncovered[[row]].nnz == max(0, len(carried) - k)


# Bad input.


def test_a_ranking_of_records_that_are_not_allowed_is_refused():
    with pytest.raises(ValueError, match=r"1 demonstrations are not allowed.*record 1 of query 0"):
        one([0, 1], {0}, [{0}, {0}], allowed=[True, False])


def test_tags_of_other_rows_or_of_another_list_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 3\) for 1 queries and \(2, 4\) for 2 records"):
        cover_tags(
            ranking_of([[0]], 1),
            QUERY,
            line(2),
            query_tags=tags([{0}], 3),
            pool_tags=tags([{0}, {0}], 4),
        )
