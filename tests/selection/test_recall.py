import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from selection import ranking as ranking_module
from selection.ranking import top_k
from selection.stage2 import Pool, Queries, Recalled, dense, filled, fused


def ask(vectors):
    return Queries(vectors, np.arange(len(vectors), dtype=np.uint64))


def lists(*rows):
    indices = np.array(rows, dtype=np.int64)
    return Recalled(indices, np.where(indices >= 0, 1.0, np.nan))


def test_dense_recall_is_that_of_scikit_learn(unit_vectors):
    queries, pool = unit_vectors(40, 24), unit_vectors(700, 24, seed=1)
    found = dense(ask(queries), Pool(pool, np.arange(700)), r=30)
    near = NearestNeighbors(n_neighbors=30, metric="cosine", algorithm="brute")
    distances, expected = near.fit(pool.astype(np.float64)).kneighbors(queries.astype(np.float64))
    np.testing.assert_array_equal(found.indices, expected)
    np.testing.assert_allclose(found.relevance, 1 - distances, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    q=st.integers(0, 4),
    n=st.integers(0, 100),
    copies=st.integers(1, 30),
    r=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_dense_recall_has_the_order_of_top_k_ties_included(unit_vectors, q, n, copies, r, seed):
    rng = np.random.default_rng(seed)
    pool = np.repeat(unit_vectors(max(1, -(-n // copies)), 6, seed=seed), copies, axis=0)[:n]
    queries, rank = unit_vectors(q, 6, seed=seed + 1), rng.permutation(n)
    allowed = rng.random((q, n)) < 0.7
    found = dense(ask(queries), Pool(pool, rank), r=r, allowed=allowed)
    cosines = queries.astype(np.float64) @ pool.astype(np.float64).T
    expected = top_k(cosines, k=r, allowed=allowed, tie_rank=rank)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.relevance, expected.scores, rtol=1e-12, atol=1e-12)


def test_dense_recall_is_the_same_to_the_last_bit_in_any_batch(unit_vectors, monkeypatch):
    queries, pool = unit_vectors(50, 384), Pool(unit_vectors(300, 384, seed=1), np.arange(300))
    whole = dense(ask(queries), pool, r=10)
    one = [dense(ask(queries[i : i + 1]), pool, r=10) for i in range(50)]
    monkeypatch.setattr(ranking_module, "_MAX_CHUNK", 7)
    for other in (
        Recalled(*(np.concatenate([getattr(o, f) for o in one]) for f in ("indices", "relevance"))),
        dense(ask(queries), pool, r=10, threads=3),
    ):
        np.testing.assert_array_equal(other.indices, whole.indices)
        np.testing.assert_array_equal(other.relevance, whole.relevance)


def test_a_pool_may_be_ranked_against_itself(unit_vectors):
    vectors = unit_vectors(50, 8)
    found = dense(ask(vectors), Pool(vectors, np.arange(50)), r=1)
    assert found.indices[:, 0].tolist() == list(range(50))


def test_reciprocal_rank_fusion_by_hand():
    one, other = lists([4, 2, 0], [1, 0, -1]), lists([2, 3, -1], [-1, -1, -1])
    result = fused([one, other], k_rrf=60, r=4, tie_rank=np.arange(5))
    # 2: 1/62 + 1/61; 4: 1/61; 3: 1/62; 0: 1/63; times 61 / 2.
    assert result.indices.tolist() == [[2, 4, 3, 0], [1, 0, -1, -1]]
    expected = np.array([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]) * 61 / 2
    np.testing.assert_allclose(result.relevance[0], expected, rtol=1e-12)
    # The second query's other list is empty: the first alone decides.
    np.testing.assert_allclose(result.relevance[1, :2], [1.0, 61 / 62], rtol=1e-12)
    assert np.isnan(result.relevance[1, 2:]).all()


def test_a_query_without_any_list_has_no_candidates_and_others_keep_theirs():
    nothing = lists([-1, -1], [-1, -1])
    result = fused([nothing, lists([-1], [3])], r=2, tie_rank=np.arange(4))
    assert result.indices.tolist() == [[-1, -1], [3, -1]]


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 12), n_lists=st.integers(1, 3), r=st.integers(1, 8), seed=st.integers(0, 999)
)
def test_fusion_is_its_formula_and_ties_go_to_the_smaller_rank(n, n_lists, r, seed):
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(n)
    recalled = [lists(rng.permutation(n)[: rng.integers(1, n + 1)]) for _ in range(n_lists)]
    result = fused(recalled, k_rrf=10, r=r, tie_rank=ranks)
    score = dict.fromkeys(range(n), 0.0)
    for one in recalled:
        for place, index in enumerate(one.indices[0].tolist()):
            score[index] += 1 / (10 + place + 1)
    order = sorted((i for i in score if score[i]), key=lambda i: (-round(score[i], 9), ranks[i]))
    assert result.indices[0][result.indices[0] >= 0].tolist() == order[:r]


def test_short_rows_are_filled_with_the_nearest_below_what_was_found():
    found = Recalled(
        np.array([[4, 2, 0], [1, -1, -1], [-1, -1, -1]]),
        np.array([[8.0, 4.0, 2.0], [5.0, np.nan, np.nan], [np.nan] * 3]),
    )
    near = Recalled(np.array([[3, 1, 5], [1, 3, 0], [2, 4, 5]]), np.array([[0.9, 0.5, 0.25]] * 3))
    result = filled(found, near, least=2)
    assert result.indices.tolist() == [[4, 2, 0], [1, 3, -1], [2, 4, 5]]
    # Divided by the largest; 3 has a cosine of .5, less 1; the query of nothing has its cosines.
    expected = [[1.0, 0.5, 0.25], [1.0, -0.5, np.nan], [0.9, 0.5, 0.25]]
    np.testing.assert_array_equal(result.relevance, expected)
    assert filled(lists([-1]), lists([-1]), least=1).indices.tolist() == [[-1]]
    with pytest.raises(ValueError, match="found lists for 3 and 1 queries"):
        filled(found, lists([0]), least=2)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 12), r=st.integers(1, 8), least=st.integers(1, 8), seed=st.integers(0, 999))
def test_filled_rows_are_distinct_keep_what_was_found_and_reach_least(n, r, least, seed):
    rng = np.random.default_rng(seed)
    least = min(least, r)
    mine, theirs = (rng.permutation(n)[: min(r, n)] for _ in range(2))
    mine = mine[: rng.integers(0, len(mine) + 1)]
    found = lists(np.r_[mine, np.full(r - len(mine), -1)])
    result = filled(found, lists(np.r_[theirs, np.full(r - len(theirs), -1)]), least=least)
    row = result.indices[0][result.indices[0] >= 0].tolist()
    assert row[: len(mine)] == mine.tolist()
    assert len(set(row)) == len(row)
    wanted = max(len(mine), min(least, len({*mine, *theirs})))
    assert len(row) == (wanted if len(mine) else len(theirs))
    assert (np.diff(result.relevance[0][: len(row)]) <= 0).all()


def test_lists_that_cannot_be_fused_are_refused():
    one = lists([0, 1])
    for arguments, message in (
        (([],), "found lists for"),
        (([one, lists([0], [1])],), r"found lists for \[1, 2\]"),
        (([one],), "tie_rank: found 1 ranks, wanted more than 1"),
    ):
        with pytest.raises(ValueError, match=message):
            fused(*arguments, r=2, tie_rank=np.arange(1))
    for options in ({"k_rrf": 0, "r": 2}, {"k_rrf": 60, "r": 0}):
        with pytest.raises(ValueError, match="wanted k_rrf > 0 and r >= 1"):
            fused([one], tie_rank=np.arange(2), **options)
    with pytest.raises(ValueError, match=r"dense\.r: found 0"):
        dense(
            ask(np.eye(2, dtype=np.float32)), Pool(np.eye(2, dtype=np.float32), np.arange(2)), r=0
        )
