import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection import ranking as ranking_module
from selection.stage2 import PER_QUERY, RankOptions

ALL = sorted(PER_QUERY)
SHAPES = {
    "q": st.integers(1, 5),
    "n": st.integers(1, 30),
    "k": st.integers(1, 8),
    "seed": st.integers(0, 1000),
}


def rank(name, queries, pool, *, ground=None, allowed=None, tie_rank=None, n_total=None, **options):
    return PER_QUERY[name](
        queries,
        pool,
        options=RankOptions(**{"k": 4, **options}),
        allowed=allowed,
        tie_rank=np.arange(len(pool)) if tie_rank is None else tie_rank,
        ground=pool if ground is None else ground,
        n_total=n_total,
    )


def langchain_mmr(query, pool, *, k, mmr_lambda):
    """The loop of langchain_core.vectorstores.utils.maximal_marginal_relevance, on unit vectors."""
    to_query = pool @ query
    picks = [int(np.argmax(to_query))]
    while len(picks) < min(k, len(pool)):
        best_score, best_index = -np.inf, -1
        similarity = pool @ pool[picks].T.copy()
        for i, query_score in enumerate(to_query):
            if i in picks:
                continue
            score = mmr_lambda * query_score - (1 - mmr_lambda) * max(similarity[i])
            if score > best_score:
                best_score, best_index = score, i
        picks.append(best_index)
    return picks


def literal_gain(query, pool, ground, *, lam, ridge, scale):
    query, pool, ground = (x.astype(np.float64) for x in (query, pool, ground))
    cover = ground @ query
    gains = np.empty(len(pool))
    for x, vector in enumerate(pool):
        pair = np.stack([query, vector])
        matrix = (1 - ridge) * (pair @ pair.T.copy()) + ridge * np.eye(2)
        log_det = np.linalg.slogdet(matrix)[1] - np.log(matrix[0, 0])
        gains[x] = scale * np.maximum(ground @ vector - cover, 0).sum() + lam * log_det
    return gains


def test_the_methods_are_those_of_the_documentation():
    assert ALL == ["dual-div", "knn", "mmr", "s3"]


@settings(deadline=None, max_examples=50)
@given(mmr_lambda=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), **SHAPES)
def test_mmr_picks_what_langchain_picks(unit_vectors, q, n, k, seed, mmr_lambda):
    queries, pool = unit_vectors(q, 9, seed=seed), unit_vectors(n, 9, seed=seed + 1)
    ours = rank("mmr", queries, pool, k=k, mmr_lambda=mmr_lambda, recall=n)
    for query in range(q):
        theirs = langchain_mmr(
            queries[query].astype(np.float64), pool.astype(np.float64), k=k, mmr_lambda=mmr_lambda
        )
        picks = ours.indices[query, : ours.n_valid[query]].tolist()
        assert picks == theirs


def test_mmr_looks_only_at_the_nearest(unit_vectors):
    queries, pool = unit_vectors(6, 9), unit_vectors(200, 9, seed=1)
    picks = rank("mmr", queries, pool, recall=10, mmr_lambda=0.0)
    near = rank("knn", queries, pool, k=10)
    for query in range(6):
        assert set(picks.indices[query]) <= set(near.indices[query])
        assert picks.indices[query, 0] == near.indices[query, 0]
    assert (rank("mmr", queries, pool, k=8, recall=1).n_valid == 8).all()


@settings(deadline=None, max_examples=40)
@given(
    m=st.integers(1, 40),
    lam=st.sampled_from([0.0, 1.0, 5.0]),
    scale=st.sampled_from(["absolute", "mean"]),
    **SHAPES,
)
def test_dual_div_is_the_literal_gain_given_one_query(unit_vectors, q, n, k, seed, m, lam, scale):
    queries, pool, ground = (
        unit_vectors(size, 7, seed=seed + i) for i, size in enumerate((q, n, m))
    )
    options = {"k": n, "lam": lam, "scale": scale, "ridge": 1e-2, "n_total": 3 * m}
    result = rank("dual-div", queries, pool, ground=ground, **options)
    weight = 3.0 if scale == "absolute" else 1 / m
    for query in range(q):
        expected = literal_gain(queries[query], pool, ground, lam=lam, ridge=1e-2, scale=weight)
        np.testing.assert_allclose(
            result.scores[query], expected[result.indices[query]], atol=3e-6 * m, rtol=1e-5
        )
        assert (np.diff(result.scores[query]) <= 1e-4).all()


def test_s3_is_dual_div_with_lam_zero(unit_vectors):
    queries, pool, ground = (unit_vectors(size, 7, seed=size) for size in (5, 40, 90))
    s3 = rank("s3", queries, pool, ground=ground, lam=9.0)
    zero = rank("dual-div", queries, pool, ground=ground, lam=0.0)
    np.testing.assert_array_equal(s3.indices, zero.indices)
    np.testing.assert_array_equal(s3.scores, zero.scores)


def test_knn_is_cosine_order(unit_vectors):
    queries, pool = unit_vectors(7, 12), unit_vectors(100, 12, seed=1)
    cosines = queries.astype(np.float64) @ pool.astype(np.float64).T
    result = rank("knn", queries, pool, k=5)
    np.testing.assert_array_equal(result.indices, np.argsort(-cosines, axis=1)[:, :5])
    np.testing.assert_allclose(result.scores, -np.sort(-cosines, axis=1)[:, :5], rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(name=st.sampled_from(ALL), **SHAPES)
def test_every_row_holds_the_promised_number_of_distinct_allowed_candidates(
    unit_vectors, name, q, n, k, seed
):
    allowed = np.random.default_rng(seed).random((q, n)) < 0.5
    queries, pool = unit_vectors(q, 5, seed=seed), unit_vectors(n, 5, seed=seed + 1)
    result = rank(name, queries, pool, k=k, allowed=allowed)
    assert result.indices.shape == result.scores.shape == (q, k)
    for query in range(q):
        valid = result.n_valid[query]
        assert valid == min(k, allowed[query].sum())
        picks = result.indices[query, :valid].tolist()
        assert len(set(picks)) == valid
        assert allowed[query, picks].all()
        assert np.isfinite(result.scores[query, :valid]).all()
        assert (result.indices[query, valid:] == -1).all()
        assert np.isnan(result.scores[query, valid:]).all()


@pytest.mark.parametrize("name", ALL)
def test_batch_size_and_query_order_do_not_matter(unit_vectors, name, monkeypatch):
    queries, pool = unit_vectors(61, 24), unit_vectors(90, 24, seed=1)
    ground = unit_vectors(700, 24, seed=2)
    whole = rank(name, queries, pool, ground=ground)
    shuffle = np.random.default_rng(0).permutation(61)
    np.testing.assert_array_equal(
        rank(name, queries[shuffle], pool, ground=ground).indices, whole.indices[shuffle]
    )
    for size in (1, 7, 60):
        parts = [
            rank(name, queries[start : start + size], pool, ground=ground).indices
            for start in range(0, 61, size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole.indices)
    monkeypatch.setattr(ranking_module, "_CHUNK_FLOATS", 9000)
    np.testing.assert_array_equal(rank(name, queries, pool, ground=ground).indices, whole.indices)


@pytest.mark.parametrize("name", ALL)
def test_ties_go_to_the_smaller_rank(unit_vectors, name):
    queries, pool = unit_vectors(5, 8), np.repeat(unit_vectors(3, 8, seed=1), 4, axis=0)
    order = np.random.default_rng(0).permutation(12)
    first = rank(name, queries, pool, k=1, tie_rank=order, ground=unit_vectors(50, 8, seed=2))
    for pick in first.indices[:, 0]:
        twins = np.arange(pick // 4 * 4, pick // 4 * 4 + 4)
        assert order[pick] == order[twins].min()


@pytest.mark.parametrize("name", ALL)
def test_no_queries_and_an_empty_pool(unit_vectors, name):
    pool, nothing = unit_vectors(5, 3), np.empty((0, 3), dtype=np.float32)
    assert rank(name, nothing, pool).indices.shape == (0, 4)
    assert rank(name, pool, nothing, ground=pool).n_valid.tolist() == [0] * 5


@pytest.mark.parametrize("name", ALL)
def test_bad_arrays_are_refused_with_what_was_found(unit_vectors, name):
    queries, pool = unit_vectors(2, 3), unit_vectors(6, 3)
    with pytest.raises(ValueError, match=r"\(2, 4\), the pool has \(6, 3\)"):
        rank(name, unit_vectors(2, 4), pool)
    broken = pool.copy()
    broken[5] = np.nan
    with pytest.raises(ValueError, match=r"stage2.pool: 1 of 6 rows are not finite"):
        rank(name, queries, broken, ground=pool)
    with pytest.raises(ValueError, match=r"stage2.queries: 1 of 6 rows are not finite"):
        rank(name, broken, pool)
    with pytest.raises(ValueError, match=r"allowed: found shape \(6, 2\), wanted \(2, 6\)"):
        rank(name, queries, pool, allowed=np.ones((6, 2), dtype=bool))
    with pytest.raises(ValueError, match="tie_rank"):
        rank(name, queries, pool, tie_rank=np.arange(2))


@pytest.mark.parametrize("name", ["dual-div", "s3"])
def test_coverage_without_ground_points_is_refused(unit_vectors, name):
    vectors = unit_vectors(4, 3)
    with pytest.raises(ValueError, match="no ground points"):
        rank(name, vectors, vectors, ground=np.empty((0, 3), dtype=np.float32))
    with pytest.raises(ValueError, match="no ground points"):
        PER_QUERY[name](vectors, vectors, options=RankOptions(k=2), tie_rank=np.arange(4))
