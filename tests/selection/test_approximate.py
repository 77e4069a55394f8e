"""Dense recall: exact search is exact, the graph says what it misses."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from selection import approximate
from selection.approximate import GraphOptions, NearestIndex

GRAPH = GraphOptions(exact_up_to=0, search_width=32)


def drawn(seed, n, d=8):
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def literal(queries, pool, r, rank, allowed=None):
    cosines = queries.astype(float) @ pool.astype(float).T
    rows = []
    for row in range(len(queries)):
        open_ = [i for i in range(len(pool)) if allowed is None or allowed[row, i]]
        rows.append(sorted(open_, key=lambda i: (-round(cosines[row, i], 9), rank[i]))[:r])
    return rows


def listed(found):
    return [[i for i in row if i >= 0] for row in found.indices.tolist()]


@pytest.fixture(scope="module")
def graph():
    return NearestIndex(drawn(0, 3000), np.arange(3000), options=GRAPH)


# Exact.


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 20), st.integers(1, 25))
def test_up_to_the_limit_search_is_that_of_a_literal_loop(seed, q, n, r):
    rng = np.random.default_rng(seed)
    queries, pool, rank = drawn(seed, q), drawn(seed + 1, n), rng.permutation(n)
    allowed = rng.random((q, n)) < 0.7
    index = NearestIndex(pool, rank)
    assert index.exact
    assert listed(index.top(queries, r, allowed)) == literal(queries, pool, r, rank, allowed)


def test_blocks_of_the_pool_change_nothing(monkeypatch):
    pool, queries, rank = drawn(1, 50), drawn(2, 7), np.random.default_rng(3).permutation(50)
    pool[40:] = pool[:10]
    allowed = np.random.default_rng(4).random((7, 50)) < 0.5
    wanted = NearestIndex(pool, rank).top(queries, 12, allowed)
    monkeypatch.setattr(approximate, "_POOL_BLOCK", 9)
    found = NearestIndex(pool, rank).top(queries, 12, allowed)
    assert np.array_equal(found.indices, wanted.indices)
    np.testing.assert_allclose(found.relevance, wanted.relevance, atol=1e-12)


def test_an_exact_index_has_a_recall_of_1():
    found = NearestIndex(drawn(0, 30), np.arange(30)).measure(drawn(1, 5), 10)
    assert (found.share, found.least, found.r, found.n_queries) == (1, 1, 10, 5)


# The graph.


def test_the_graph_finds_nearly_all_with_exact_cosines_in_order(graph):
    pool, queries = drawn(0, 3000), drawn(5, 50)
    assert not graph.exact
    found = graph.top(queries, 10)
    theirs = NearestNeighbors(n_neighbors=10, metric="cosine").fit(pool).kneighbors(queries)[1]
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(found.indices, theirs, strict=True)]
    assert np.mean(shares) > 0.9
    cosines = np.take_along_axis(queries.astype(float) @ pool.astype(float).T, found.indices, 1)
    np.testing.assert_allclose(found.relevance, cosines, atol=1e-12)
    assert (np.diff(found.relevance, axis=1) <= 1e-6).all()


def test_measured_recall_is_that_against_a_literal_loop(monkeypatch):
    pool, queries = drawn(0, 2000, 32), drawn(6, 40, 32)
    poor = GraphOptions(exact_up_to=0, links=2, build_width=2, search_width=10)
    index = NearestIndex(pool, np.arange(2000), options=poor)
    measured = index.measure(queries, 5)
    truth, found = literal(queries, pool, 5, np.arange(2000)), listed(index.top(queries, 5))
    shares = [len(set(a) & set(b)) / 5 for a, b in zip(truth, found, strict=True)]
    assert measured.share == pytest.approx(np.mean(shares))
    assert measured.least == min(shares) < 1
    assert (measured.r, measured.n_queries) == (5, 40)


def test_the_same_pool_gives_the_same_in_any_order_of_rows_and_queries(graph):
    queries = drawn(7, 20)
    wanted = graph.top(queries, 10)
    order = np.random.default_rng(8).permutation(3000)
    again = NearestIndex(drawn(0, 3000)[order], np.arange(3000)[order], options=GRAPH)
    found = again.top(queries[::-1], 10)
    assert np.array_equal(order[found.indices][::-1], wanted.indices)


def test_the_batch_changes_nothing(graph):
    queries = drawn(9, 6)
    whole = graph.top(queries, 10)
    for row in range(6):
        assert np.array_equal(graph.top(queries[[row]], 10).indices[0], whole.indices[row])


def test_queries_that_may_see_little_are_compared_with_all_of_it(graph):
    queries, pool = drawn(10, 4), drawn(0, 3000)
    allowed = np.zeros((4, 3000), bool)
    allowed[0, ::500] = True
    allowed[1, :] = True
    near = np.argsort(-(queries[2] @ pool.T))
    allowed[2, near[40:]] = True
    found = listed(graph.top(queries, 8, allowed))
    assert [len(row) for row in found] == [6, 8, 8, 0]
    wanted = literal(queries, pool, 8, np.arange(3000), allowed)
    assert found[0] == wanted[0]
    assert found[2] == wanted[2]


def test_many_copies_are_found_one_for_the_other():
    pool = drawn(0, 400)
    pool[:390] = pool[0]
    index = NearestIndex(pool, np.arange(400), options=GRAPH)
    found = index.top(pool[:1], 10)
    assert len(set(found.indices[0].tolist())) == 10
    assert index.measure(pool[:1], 10).share == 1


def test_fewer_records_than_wanted_give_short_rows():
    index = NearestIndex(drawn(0, 5), np.arange(5), options=GRAPH)
    assert [sorted(row) for row in listed(index.top(drawn(1, 2), 9))] == [list(range(5))] * 2


# Bad input.


def test_without_faiss_the_error_names_the_extra_and_small_pools_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"dualdiv\[ann\].*exact_up_to"):
        NearestIndex(drawn(0, 5), np.arange(5), options=GRAPH)
    assert NearestIndex(drawn(0, 5), np.arange(5)).top(drawn(1, 1), 2).indices.shape == (1, 2)


@pytest.mark.parametrize("n", [0, 1])
def test_an_empty_pool_recalls_nothing(n):
    index = NearestIndex(drawn(0, n), np.arange(n))
    assert listed(index.top(drawn(1, 2), 3)) == [list(range(n))] * 2
    assert index.top(np.empty((0, 8), np.float32), 3).indices.shape == (0, 3)


def test_shapes_and_sizes_that_mean_nothing_are_refused():
    index = NearestIndex(drawn(0, 5), np.arange(5))
    with pytest.raises(ValueError, match="same encoder"):
        index.top(drawn(0, 2, 9), 3)
    with pytest.raises(ValueError, match=r"allowed.*\(2, 4\).*\(2, 5\)"):
        index.top(drawn(0, 2), 3, np.ones((2, 4), bool))
    with pytest.raises(ValueError, match="r 0"):
        index.top(drawn(0, 2), 0)
    with pytest.raises(ValueError, match="links=1"):
        GraphOptions(links=1)
