import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection import ranking as ranking_module
from selection.stage2 import PER_QUERY, Pool, Queries, RankOptions, Recalled, dense

ALL = sorted(PER_QUERY)
GROUNDED = ["dual-div", "mutual-information", "s3", "s3-lowest"]
SHAPES = {
    "q": st.integers(1, 5),
    "n": st.integers(1, 30),
    "k": st.integers(1, 8),
    "seed": st.integers(0, 1000),
}


def keys_of(vectors):
    """Keys that go with the queries wherever they stand."""
    return np.ascontiguousarray(vectors[:, :2]).view(np.uint64)[:, 0]


def rank(name, queries, pool, *, ground=None, allowed=None, recalled=None, more=None, **options):
    n = len(pool)
    fields = {"tie_rank": np.arange(n), "labels": np.arange(n) % 3, "clusters": np.arange(n) % 4}
    fields |= {"ground": pool if ground is None else ground} | (more or {})
    return PER_QUERY[name](
        Queries(queries, keys_of(queries)),
        Pool(pool, **fields),
        options=RankOptions(**{"k": 4, **options}),
        allowed=allowed,
        recalled=recalled,
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
    assert ALL == [
        "dpp",
        "dual-div",
        "fixed",
        "kmeans",
        "knn",
        "mmr",
        "mutual-information",
        "probe",
        "random",
        "s3",
        "s3-lowest",
        "stratified",
    ]


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
    options = {"k": n, "lam": lam, "scale": scale, "ridge": 1e-2}
    more = {"n_total": 3 * m}
    result = rank("dual-div", queries, pool, ground=ground, more=more, **options)
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


@pytest.mark.parametrize(
    "name", sorted({*ALL} - {"random", "fixed", "stratified", "kmeans", "probe"})
)
def test_ties_go_to_the_smaller_rank(unit_vectors, name):
    queries, pool = unit_vectors(5, 8), np.repeat(unit_vectors(3, 8, seed=1), 4, axis=0)
    order = np.random.default_rng(0).permutation(12)
    ground = unit_vectors(50, 8, seed=2)
    first = rank(name, queries, pool, k=1, more={"tie_rank": order}, ground=ground)
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
        rank(name, queries, pool, more={"tie_rank": np.arange(2)})
    for field in ("labels", "clusters"):
        with pytest.raises(ValueError, match=field):
            rank(name, queries, pool, more={field: np.arange(2)})


@pytest.mark.parametrize("name", GROUNDED)
def test_coverage_without_ground_points_is_refused(unit_vectors, name):
    vectors = unit_vectors(4, 3)
    with pytest.raises(ValueError, match="no ground points"):
        rank(name, vectors, vectors, ground=np.empty((0, 3), dtype=np.float32))
    with pytest.raises(ValueError, match="no ground points"):
        rank(name, vectors, vectors, more={"ground": None})


def test_labels_and_clusters_are_asked_for_where_they_are_read(unit_vectors):
    vectors = unit_vectors(4, 3)
    with pytest.raises(ValueError, match="found no labels"):
        rank("stratified", vectors, vectors, more={"labels": None})
    with pytest.raises(ValueError, match="found no labels"):
        rank("probe", vectors, vectors, more={"labels": None})
    with pytest.raises(ValueError, match="found no clusters"):
        rank("kmeans", vectors, vectors, more={"clusters": None})


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(ALL), r=st.integers(1, 12), **SHAPES)
def test_only_recalled_and_allowed_candidates_are_picked(unit_vectors, name, q, n, k, r, seed):
    rng = np.random.default_rng(seed)
    queries, pool = unit_vectors(q, 5, seed=seed), unit_vectors(n, 5, seed=seed + 1)
    indices = np.stack([rng.permutation(n + r)[:r] for _ in range(q)])
    indices[indices >= n] = -1
    relevance = np.where(indices >= 0, rng.random((q, r)), np.nan)
    allowed = rng.random((q, n)) < 0.6
    recalled = Recalled(indices, relevance)
    result = rank(name, queries, pool, k=k, allowed=allowed, recalled=recalled)
    for query in range(q):
        usable = {int(i) for i in indices[query] if i >= 0 and allowed[query, i]}
        picks = result.indices[query, : result.n_valid[query]].tolist()
        assert len(picks) == len(set(picks)) == min(k, len(usable))
        assert set(picks) <= usable
        assert np.isfinite(result.scores[query, : len(picks)]).all()


@pytest.mark.parametrize("name", sorted({*ALL} - {"fixed"}))
def test_the_order_of_the_pool_does_not_matter(unit_vectors, name):
    queries, pool = unit_vectors(20, 16), unit_vectors(60, 16, seed=1)
    ground = unit_vectors(300, 16, seed=2)
    allowed = np.random.default_rng(1).random((20, 60)) < 0.8
    order = np.random.default_rng(0).permutation(60)
    codes = {"tie_rank": np.arange(60), "labels": np.arange(60) % 3, "clusters": np.arange(60) % 4}
    moved = {field: values[order] for field, values in codes.items()}
    here = rank(name, queries, pool, ground=ground, allowed=allowed, more=codes)
    there = rank(name, queries, pool[order], ground=ground, allowed=allowed[:, order], more=moved)
    np.testing.assert_array_equal(order[there.indices], here.indices)


@pytest.mark.parametrize("name", ALL)
def test_threads_change_nothing(unit_vectors, name, monkeypatch):
    monkeypatch.setattr(ranking_module, "_MAX_CHUNK", 9)
    queries, pool = unit_vectors(61, 24), unit_vectors(90, 24, seed=1)
    one, three = (rank(name, queries, pool, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.indices, three.indices)
    np.testing.assert_array_equal(one.scores, three.scores)


@pytest.mark.parametrize("name", ALL)
def test_queries_without_an_allowed_candidate_get_none(unit_vectors, name):
    queries, pool = unit_vectors(3, 5), unit_vectors(8, 5, seed=1)
    allowed = np.zeros((3, 8), dtype=bool)
    allowed[1] = True
    result = rank(name, queries, pool, allowed=allowed)
    assert result.n_valid.tolist() == [0, 4, 0]
    assert (result.indices[[0, 2]] == -1).all()


@pytest.mark.parametrize("name", ["dpp", "knn", "mmr", "s3-lowest", "mutual-information"])
def test_dense_recall_given_is_dense_recall_made(unit_vectors, name):
    queries, pool = unit_vectors(9, 12), unit_vectors(80, 12, seed=1)
    near = dense(Queries(queries, keys_of(queries)), Pool(pool, np.arange(80)), r=20)
    given, made = (rank(name, queries, pool, recall=20, recalled=one) for one in (near, None))
    np.testing.assert_array_equal(given.indices, made.indices)
    np.testing.assert_array_equal(given.scores, made.scores)


@pytest.mark.parametrize("name", ["mmr", "dpp", "s3-lowest", "mutual-information"])
def test_a_pool_too_large_for_its_cosines_is_ranked_the_same(unit_vectors, name, monkeypatch):
    queries, pool = unit_vectors(9, 12), unit_vectors(80, 12, seed=1)
    kept = rank(name, queries, pool)
    monkeypatch.setattr("selection.pool.GRAM_MOST", 79)
    anew = rank(name, queries, pool)
    np.testing.assert_array_equal(kept.indices, anew.indices)
    np.testing.assert_allclose(kept.scores, anew.scores, rtol=1e-9)


def test_recalled_candidates_are_checked(unit_vectors):
    queries, pool = unit_vectors(2, 3), unit_vectors(6, 3)
    for indices, relevance, message in (
        ([[0, 6], [1, 2]], [[1, 1], [1, 1]], "found 0 to 6, wanted -1 to 5"),
        ([[0, -2], [1, 2]], [[1, 1], [1, 1]], "found -2 to 2"),
        ([[0, 1], [2, 2]], [[1, 1], [1, 1]], "1 of 2 rows name a candidate twice"),
        ([[0, 1]], [[1, 1]], r"found shape \(1, 2\), wanted \(2, r\)"),
        ([[0, 1], [1, 2]], [[1], [1]], r"relevance: found shape \(2, 1\), wanted \(2, 2\)"),
        ([[0, 1], [1, 2]], [[1, np.nan], [1, 1]], "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            rank("knn", queries, pool, recalled=Recalled(np.array(indices), np.array(relevance)))
