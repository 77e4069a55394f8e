"""What a query must not see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection import guards, ranking
from selection.guards import guarded


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def drawn(seed, n, d=5):
    return unit(np.random.default_rng(seed).standard_normal((n, d)))


def keys(*numbers):
    return np.array(numbers, np.uint64)


def test_a_cosine_at_the_ceiling_is_excluded_and_below_it_allowed():
    pool = unit([[1, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0]])
    query = unit([[1, 0]])
    assert guarded(query, pool, ceiling=0.8).tolist() == [[False, False, True, True]]
    assert guarded(query, pool, ceiling=0.81).tolist() == [[False, True, True, True]]
    assert guarded(query, pool, ceiling=1.0).tolist() == [[False, True, True, True]]
    assert guarded(query, pool).all()


def test_rounding_does_not_let_a_copy_pass_a_ceiling_of_1():
    vectors = drawn(0, 200, 384)
    assert not np.diagonal(guarded(vectors, vectors, ceiling=1.0)).any()


def test_vectors_stored_in_16_bits_are_as_similar_as_their_directions():
    stored = drawn(9, 100, 64).astype(np.float16).astype(np.float32)
    assert not np.diagonal(guarded(stored, stored, ceiling=1.0)).any()


def test_own_rows_and_duplicates_are_excluded_by_key():
    vectors = drawn(1, 4)
    ids = (keys(7, 8), keys(8, 9, 10, 11))
    texts = (keys(1, 2), keys(3, 1, 2, 1))
    found = guarded(vectors[:2], vectors, same=[ids, texts])
    assert found.tolist() == [[True, False, True, False], [False, True, False, True]]


def test_what_was_not_allowed_stays_so_and_the_mask_given_is_left_alone():
    vectors = drawn(2, 3)
    before = np.array([[False, True, True]])
    found = guarded(vectors[:1], vectors, same=[(keys(5), keys(1, 5, 2))], allowed=before)
    assert found.tolist() == [[False, False, True]]
    assert before.tolist() == [[False, True, True]]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 5), max_size=8),
    st.lists(st.integers(0, 5), max_size=8),
    st.floats(0.05, 1),
)
def test_the_mask_is_that_of_every_pair_looked_at_alone(mine, theirs, ceiling):
    queries, pool = drawn(3, len(mine)).reshape(-1, 5), drawn(4, len(theirs)).reshape(-1, 5)
    found = guarded(queries, pool, ceiling=ceiling, same=[(keys(*mine), keys(*theirs))])
    for row, key in enumerate(mine):
        for column, other in enumerate(theirs):
            cosine = float(queries[row].astype(float) @ pool[column].astype(float))
            assert found[row, column] == (key != other and cosine < ceiling - 1e-6)


def test_blocks_and_the_order_of_queries_change_nothing(monkeypatch):
    queries, pool = drawn(5, 13), drawn(6, 29)
    wanted = guarded(queries, pool, ceiling=0.4)
    monkeypatch.setattr(guards, "_POOL_BLOCK", 7)
    monkeypatch.setattr(ranking, "_CHUNK_FLOATS", 20)
    order = np.random.default_rng(7).permutation(13)
    assert np.array_equal(guarded(queries[order], pool, ceiling=0.4), wanted[order])
    assert 0 < wanted.mean() < 1


def test_an_empty_pool_and_no_queries_give_empty_masks():
    vectors = drawn(8, 3)
    none = np.empty((0, 5), np.float32)
    assert guarded(vectors, none, ceiling=0.9, same=[(keys(1, 2, 3), keys())]).shape == (3, 0)
    assert guarded(none, vectors, ceiling=0.9, same=[(keys(), keys(1, 2, 3))]).shape == (0, 3)


@pytest.mark.parametrize("ceiling", [0.0, -0.5, 1.01, float("nan")])
def test_a_ceiling_that_means_nothing_is_refused(ceiling):
    with pytest.raises(ValueError, match=f"ceiling of {ceiling}"):
        guarded(drawn(0, 1), drawn(0, 2), ceiling=ceiling)


def test_shapes_that_do_not_fit_are_refused_with_both():
    vectors = drawn(0, 2)
    with pytest.raises(ValueError, match=r"keys for 1 queries and 2 records.*for 2 and 2"):
        guarded(vectors, vectors, same=[(keys(1), keys(1, 2))])
    with pytest.raises(ValueError, match=r"\(1, 2\), wanted \(2, 2\)"):
        guarded(vectors, vectors, allowed=np.ones((1, 2), bool))
    with pytest.raises(ValueError, match="same encoder"):
        guarded(vectors, drawn(0, 2, 6), ceiling=0.9)
