"""Recall by sparse vectors against the dense product, and what its rows may depend on."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from selection import ranking
from selection.sparse import sparse_top


def drawn(seed, shape, density=0.3):
    rng = np.random.default_rng(seed)
    return sp.random_array(shape, density=density, rng=rng, dtype=np.float32).tocsr()


def test_the_largest_products_by_hand():
    pool = sp.csr_array(np.array([[1, 0, 0], [2, 0, 1], [0, 0, 3], [0, 0, 0]], np.float32))
    queries = sp.csr_array(np.array([[1, 0, 0], [1, 0, 1], [0, 5, 0]], np.float32))
    found = sparse_top(queries, pool, r=3, tie_rank=np.array([3, 2, 1, 0]))
    # The second query has 3 with records 1 and 2, of which 2 has the smaller rank.
    assert found.indices.tolist() == [[1, 0, -1], [2, 1, 0], [-1, -1, -1]]
    np.testing.assert_array_equal(
        found.relevance, [[2, 1, np.nan], [3, 3, 1], [np.nan, np.nan, np.nan]]
    )


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(0, 6), st.integers(0, 30), st.integers(1, 35), st.booleans()
)
def test_rows_are_those_of_the_dense_product(seed, q, n, r, masked):
    rng = np.random.default_rng(seed)
    queries, pool = drawn(seed, (q, 12)), drawn(seed + 1, (n, 12))
    allowed = rng.random((q, n)) < 0.6 if masked else None
    rank = rng.permutation(n)
    found = sparse_top(queries, pool, r=r, tie_rank=rank, allowed=allowed)
    dense = queries.toarray().astype(np.float64) @ pool.toarray().astype(np.float64).T
    for row in range(q):
        open_ = (dense[row] > 0) & (True if allowed is None else allowed[row])
        picks = found.indices[row][found.indices[row] >= 0]
        assert len(set(picks.tolist())) == len(picks) == min(r, open_.sum())
        assert open_[picks].all()
        np.testing.assert_allclose(
            found.relevance[row, : len(picks)], np.sort(dense[row][open_])[::-1][:r], atol=1e-5
        )


def test_neither_batch_nor_order_of_queries_changes_a_bit(monkeypatch):
    queries, pool, rank = drawn(0, (9, 40)), drawn(1, (50, 40)), np.arange(50)
    wanted = sparse_top(queries, pool, r=5, tie_rank=rank)
    order = np.random.default_rng(2).permutation(9)
    monkeypatch.setattr(ranking, "_CHUNK_FLOATS", 100)
    found = sparse_top(queries[order], pool, r=5, tie_rank=rank)
    np.testing.assert_array_equal(found.indices, wanted.indices[order])
    np.testing.assert_array_equal(found.relevance, wanted.relevance[order])


def test_unsorted_entries_give_the_same_and_are_left_as_they_are():
    queries, pool = drawn(3, (4, 40)), drawn(4, (30, 40))
    mixed = queries.copy()
    for start, end in zip(mixed.indptr[:-1], mixed.indptr[1:], strict=True):
        mixed.indices[start:end] = mixed.indices[start:end][::-1].copy()
        mixed.data[start:end] = mixed.data[start:end][::-1].copy()
    mixed.has_sorted_indices = False
    before = mixed.indices.copy()
    wanted = sparse_top(queries, pool, r=5, tie_rank=np.arange(30))
    found = sparse_top(mixed, pool, r=5, tie_rank=np.arange(30))
    np.testing.assert_array_equal(found.relevance, wanted.relevance)
    np.testing.assert_array_equal(mixed.indices, before)


def test_shapes_that_do_not_fit_are_refused_with_both():
    with pytest.raises(ValueError, match=r"\(2, 5\).*\(3, 6\).*same encoder"):
        sparse_top(drawn(0, (2, 5)), drawn(0, (3, 6)), r=1, tie_rank=np.arange(3))
    with pytest.raises(ValueError, match=r"tie_rank.*\(2,\).*\(3,\)"):
        sparse_top(drawn(0, (2, 5)), drawn(0, (3, 5)), r=1, tie_rank=np.arange(2))
    with pytest.raises(ValueError, match=r"allowed.*\(3, 2\).*\(2, 3\)"):
        sparse_top(
            drawn(0, (2, 5)),
            drawn(0, (3, 5)),
            r=1,
            tie_rank=np.arange(3),
            allowed=np.ones((3, 2), bool),
        )
    with pytest.raises(ValueError, match="r 0"):
        sparse_top(drawn(0, (2, 5)), drawn(0, (3, 5)), r=0, tie_rank=np.arange(3))


def test_entries_that_are_not_finite_are_refused_and_counted():
    pool = drawn(0, (3, 5), 1.0)
    pool.data[2] = np.nan
    with pytest.raises(ValueError, match="1 of 15 entries of the pool"):
        sparse_top(drawn(0, (2, 5)), pool, r=1, tie_rank=np.arange(3))
