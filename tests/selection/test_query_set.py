import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.stage2 import FOR_ALL, QuerySummary, RankOptions, top_k_for_all

ALL = sorted(FOR_ALL)


def summary_of(queries, ground, *, size=None):
    summary = QuerySummary(ground, queries.shape[1])
    step = size or len(queries)
    for start in range(0, len(queries), step):
        summary.add(queries[start : start + step])
    return summary


def score(name, summary, pool, *, n_total=None, **options):
    return FOR_ALL[name](
        summary,
        pool,
        options=RankOptions(**{"k": 3, **options}),
        tie_rank=np.arange(len(pool)),
        n_total=n_total,
    )


def test_the_methods_are_those_of_the_documentation():
    assert ALL == ["dual-div", "s3", "similar"]


@settings(deadline=None, max_examples=50)
@given(
    q=st.integers(1, 20),
    n=st.integers(1, 12),
    m=st.integers(1, 30),
    lam=st.sampled_from([0.0, 1.0, 4.0]),
    scale=st.sampled_from(["absolute", "mean"]),
    seed=st.integers(0, 1000),
)
def test_dual_div_is_equation_12_from_its_definition(
    unit_vectors, naive_value, q, n, m, lam, scale, seed
):
    queries, pool, ground = (
        unit_vectors(size, 6, seed=seed + i) for i, size in enumerate((q, n, m))
    )
    factor = 2.0 if scale == "absolute" else 1 / m
    both = np.concatenate([queries, pool])
    value = {"lam": lam, "ridge": 1e-2, "scale": factor, "ground": ground}
    before = naive_value(both, range(q), **value)
    expected = [naive_value(both, [*range(q), q + x], **value) - before for x in range(n)]
    options = {"lam": lam, "ridge": 1e-2, "scale": scale, "n_total": 2 * m}
    actual = score("dual-div", summary_of(queries, ground), pool, **options)
    np.testing.assert_allclose(actual, expected, atol=3e-6 * m, rtol=1e-6)


def test_s3_is_dual_div_with_lam_zero(unit_vectors):
    queries, pool, ground = (unit_vectors(size, 7, seed=size) for size in (5, 40, 90))
    summary = summary_of(queries, ground)
    s3, zero = score("s3", summary, pool, lam=9.0), score("dual-div", summary, pool, lam=0.0)
    np.testing.assert_array_equal(s3, zero)
    assert (s3 != score("dual-div", summary, pool, lam=9.0)).any()


def test_similar_is_the_mean_cosine(unit_vectors):
    queries, pool = unit_vectors(50, 7), unit_vectors(9, 7, seed=1)
    expected = (pool.astype(np.float64) @ queries.astype(np.float64).T).mean(axis=1)
    np.testing.assert_allclose(score("similar", summary_of(queries, None), pool), expected)


@pytest.mark.parametrize("name", ALL)
def test_batch_size_and_query_order_do_not_matter(unit_vectors, name):
    queries, pool, ground = (unit_vectors(size, 16, seed=size) for size in (300, 40, 500))
    whole = score(name, summary_of(queries, ground), pool)
    shuffled = queries[np.random.default_rng(0).permutation(300)]
    for other in (summary_of(queries, ground, size=7), summary_of(shuffled, ground, size=128)):
        np.testing.assert_allclose(score(name, other, pool), whole, rtol=1e-6, atol=1e-6)
        assert other.count == 300


def test_more_queries_than_dimensions_stay_finite_with_a_ridge(unit_vectors):
    queries, pool, ground = (unit_vectors(size, 4, seed=size) for size in (2000, 30, 60))
    assert np.isfinite(score("dual-div", summary_of(queries, ground), pool)).all()


def test_without_a_ridge_coverage_decides_once_the_queries_span_the_space(unit_vectors):
    queries, pool, ground = (unit_vectors(size, 4, seed=size) for size in (20, 30, 60))
    summary = summary_of(queries, ground)
    np.testing.assert_array_equal(
        score("dual-div", summary, pool, ridge=0.0), score("s3", summary, pool)
    )


@settings(deadline=None, max_examples=60)
@given(q=st.integers(0, 6), n=st.integers(0, 15), k=st.integers(1, 6), seed=st.integers(0, 1000))
def test_every_query_gets_the_same_set_less_what_it_must_not_see(q, n, k, seed):
    rng = np.random.default_rng(seed)
    scores, rank = rng.integers(0, 4, n).astype(np.float64), rng.permutation(n)
    allowed = rng.random((q, n)) < 0.7
    free = top_k_for_all(scores, k=n + 1, allowed=None, q=1, tie_rank=rank)
    order = free.indices[0, :n].tolist()
    assert order == sorted(range(n), key=lambda i: (-scores[i], rank[i]))
    masked = top_k_for_all(scores, k=k, allowed=allowed, q=q, tie_rank=rank)
    for query in range(q):
        expected = [i for i in order if allowed[query, i]][:k]
        assert masked.n_valid[query] == len(expected)
        assert masked.indices[query, : len(expected)].tolist() == expected
        np.testing.assert_array_equal(masked.scores[query, : len(expected)], scores[expected])
        assert (masked.indices[query, len(expected) :] == -1).all()
        assert np.isnan(masked.scores[query, len(expected) :]).all()


def test_bad_input_is_refused_with_what_was_found(unit_vectors):
    vectors = unit_vectors(6, 3)
    summary = QuerySummary(vectors, 3)
    with pytest.raises(ValueError, match="found 0 queries"):
        score("dual-div", summary, vectors)
    with pytest.raises(ValueError, match=r"queries: found shape \(6, 4\), wanted \(n, 3\)"):
        summary.add(unit_vectors(6, 4))
    broken = vectors.copy()
    broken[2] = np.inf
    with pytest.raises(ValueError, match="first is row 2"):
        summary.add(broken)
    summary.add(vectors)
    with pytest.raises(ValueError, match="pool: 1 of 6 rows"):
        score("similar", summary, broken)
    with pytest.raises(ValueError, match="no ground points"):
        score("s3", summary_of(vectors, None), vectors)
    with pytest.raises(ValueError, match=r"allowed: found shape \(6, 2\), wanted \(2, 6\)"):
        top_k_for_all(np.zeros(6), k=2, allowed=np.ones((6, 2), bool), q=2, tie_rank=np.arange(6))
