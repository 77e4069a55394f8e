"""The rankers that choose a set: each beside a literal loop, and by hand."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.stage2 import PER_QUERY, Pool, Queries, RankOptions, Recalled, cluster_codes

Q = np.float32([(1, 0)])
CIRCLE = np.deg2rad([0, 10, 20, 60, 90])
FAN = np.stack([np.cos(CIRCLE), np.sin(CIRCLE)], axis=1).astype(np.float32)


def rank(name, queries, vectors, *, allowed=None, recalled=None, fields=None, **options):
    keys = np.arange(len(queries), dtype=np.uint64)
    pool = Pool(vectors, **({"tie_rank": np.arange(len(vectors))} | (fields or {})))
    options = RankOptions(**{"k": 3, **options})
    asked = Queries(queries, keys)
    return PER_QUERY[name](asked, pool, options=options, allowed=allowed, recalled=recalled)


def picks(name, *arguments, **options):
    result = rank(name, *arguments, **options)
    return result.indices[0, : result.n_valid[0]].tolist()


def wide(vectors):
    return vectors.astype(np.float64)


def log_det(vectors, ridge=0.0):
    rows = wide(vectors)
    sign, value = np.linalg.slogdet((1 - ridge) * rows @ rows.T.copy() + ridge * np.eye(len(rows)))
    return value if sign > 0 else -np.inf


# dpp


def test_dpp_by_hand():
    # theta 0: after 0 degrees (first id of equals) the one at 90, with log det 0; then the plane
    # is full and the most relevant follow.
    result = rank("dpp", Q, FAN, k=4, theta=0.0)
    assert result.indices[0].tolist() == [0, 4, 1, 2]
    np.testing.assert_allclose(result.scores[0], [0, 0, np.log(1e-10), np.log(1e-10)], atol=1e-6)
    # 2 theta cos x + log sin^2 x: the best is 60 degrees at theta 1, 20 at 10, 10 at 60.
    assert picks("dpp", Q, FAN, k=2, theta=1.0) == [0, 3]
    assert picks("dpp", Q, FAN, k=2, theta=10.0) == [0, 2]
    assert picks("dpp", Q, FAN, k=2, theta=60.0) == [0, 1]


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 9),
    k=st.integers(1, 5),
    theta=st.sampled_from([0.5, 2.0, 8.0]),
    seed=st.integers(0, 999),
)
def test_every_dpp_pick_adds_the_most_to_the_log_determinant(unit_vectors, n, k, theta, seed):
    queries, pool = unit_vectors(1, 12, seed=seed), unit_vectors(n, 12, seed=seed + 1)
    result = rank("dpp", queries, pool, k=k, theta=theta)
    relevance, chosen, value = wide(pool) @ wide(queries[0]), [], 0.0
    for index, score in zip(result.indices[0], result.scores[0], strict=True):
        if index < 0:
            break
        worth = {
            i: 2 * theta * relevance[[*chosen, i]].sum() + log_det(pool[[*chosen, i]])
            for i in range(n)
            if i not in chosen
        }
        assert worth[index] == pytest.approx(max(worth.values()), abs=1e-5)
        assert score == pytest.approx(worth[index] - value, abs=1e-6)
        chosen, value = [*chosen, int(index)], worth[index]


def test_the_greedy_dpp_set_is_near_the_likeliest_of_all(unit_vectors):
    worst = 0.0
    for seed in range(20):
        queries, pool = unit_vectors(1, 12, seed=seed), unit_vectors(9, 12, seed=seed + 1)
        relevance = wide(pool) @ wide(queries[0])

        def value(chosen, relevance=relevance, pool=pool):
            return 4 * relevance[list(chosen)].sum() + log_det(pool[list(chosen)])

        best = max(value(chosen) for chosen in combinations(range(9), 3))
        worst = max(worst, best - value(picks("dpp", queries, pool)))
    assert 0 <= worst < 0.25


def test_dpp_never_repeats_an_item_when_the_rank_is_exhausted(unit_vectors):
    pool = np.repeat(unit_vectors(3, 2, seed=4), 5, axis=0)
    result = rank("dpp", unit_vectors(7, 2), pool, k=12)
    for row in result.indices:
        assert len(set(row.tolist())) == 12
    assert np.isfinite(result.scores).all()


# stratified


def test_stratified_by_hand():
    labels = np.array([0, 0, 1, 2, -1])
    relevance = np.array([[0.9, 0.8, 0.7, 0.6, 0.95]])
    recalled = Recalled(np.array([[4, 0, 1, 2, 3]]), np.sort(relevance)[:, ::-1].copy())
    fields = {"labels": labels}
    found = rank("stratified", Q, FAN, k=5, fields=fields, recalled=recalled, mmr_lambda=1.0)
    # Label 0 weighs .9 + .8, label 1 .7, label 2 .6; then by relevance: 4 without a label, 1.
    assert found.indices[0].tolist() == [0, 2, 3, 4, 1]
    np.testing.assert_allclose(found.scores[0], [0.9, 0.7, 0.6, 0.95, 0.8])
    one = {"fields": fields, "recalled": recalled, "mmr_lambda": 1.0, "k": 3}
    assert picks("stratified", Q, FAN, labels=1, **one) == [0, 4, 1]
    assert picks("stratified", Q, FAN, labels=0, **one) == [4, 0, 1]


def test_a_label_without_a_candidate_gives_its_place_to_the_rest():
    labels = np.array([0, 1, 2, 1, 1])
    allowed = np.array([[True, True, False, True, True]])
    found = picks("stratified", Q, FAN, k=4, fields={"labels": labels}, allowed=allowed)
    assert found[:2] in ([0, 1], [1, 0])
    assert sorted(found) == [0, 1, 3, 4]


def test_stratified_without_any_label_is_mmr(unit_vectors):
    queries, pool = unit_vectors(6, 8), unit_vectors(40, 8, seed=1)
    none = rank("stratified", queries, pool, fields={"labels": np.full(40, -1)})
    np.testing.assert_array_equal(none.indices, rank("mmr", queries, pool).indices)


@settings(deadline=None, max_examples=50)
@given(k=st.integers(1, 7), m=st.integers(0, 4), seed=st.integers(0, 999))
def test_stratified_is_its_literal_loop(unit_vectors, k, m, seed):
    queries, pool = unit_vectors(1, 9, seed=seed), unit_vectors(15, 9, seed=seed + 1)
    labels = np.random.default_rng(seed).integers(-1, 4, 15)
    relevance = wide(pool) @ wide(queries[0])
    recalled = np.argsort(-relevance)[:10].tolist()
    weight = {
        label: sum(max(relevance[i], 0) for i in recalled if labels[i] == label)
        for label in set(labels[recalled].tolist()) - {-1}
    }
    first = {label: next(i for i in recalled if labels[i] == label) for label in weight}
    order = sorted(weight, key=lambda label: (-weight[label], recalled.index(first[label])))
    chosen = [first[label] for label in order[: min(m, k)]]
    while len(chosen) < k:
        left = [i for i in recalled if i not in chosen]

        def value(i, chosen=chosen):
            near = max(wide(pool[chosen]) @ wide(pool[i])) if chosen else relevance[i]
            return 0.5 * relevance[i] - 0.5 * near if chosen else relevance[i]

        chosen.append(max(left, key=value))
    found = picks("stratified", queries, pool, k=k, labels=m, recall=10, fields={"labels": labels})
    assert found == chosen


# kmeans


def test_kmeans_takes_the_nearest_of_each_of_the_nearest_clusters():
    fields = {"clusters": np.array([1, 1, 1, 0, 2])}
    assert picks("kmeans", Q, FAN, k=2, fields=fields) == [0, 3]
    assert picks("kmeans", Q, FAN, k=3, fields=fields) == [0, 3, 4]
    # Clusters run out before k: the nearest of the rest.
    assert picks("kmeans", Q, FAN, k=5, fields=fields) == [0, 3, 4, 1, 2]
    # A cluster all of whose members are masked is passed over.
    allowed = np.array([[False, True, True, False, True]])
    assert picks("kmeans", Q, FAN, k=2, fields=fields, allowed=allowed) == [1, 4]
    assert picks("kmeans", Q, FAN, k=3, fields=fields, allowed=allowed) == [1, 4, 2]
    nothing = {"clusters": np.full(5, -1)}
    assert picks("kmeans", Q, FAN, k=3, fields=nothing) == [0, 1, 2]


def test_clusters_part_what_lies_apart_whatever_the_order(unit_vectors):
    topics = np.eye(4, 16, dtype=np.float32)
    rows = np.repeat(topics, 25, axis=0) + 0.05 * unit_vectors(100, 16)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    order = np.random.default_rng(0).permutation(100)
    for seed in range(5):
        codes = cluster_codes(rows, np.arange(100), n_clusters=4, seed=seed)
        assert len({tuple(codes[i : i + 25]) for i in range(0, 100, 25)}) == 4
        assert all(len(set(codes[i : i + 25].tolist())) == 1 for i in range(0, 100, 25))
        moved = cluster_codes(rows[order], order, n_clusters=4, seed=seed)
        np.testing.assert_array_equal(moved, codes[order])


def test_fewer_different_records_than_clusters_make_fewer():
    rows = np.repeat(np.eye(2, dtype=np.float32), 3, axis=0)
    assert sorted(set(cluster_codes(rows, np.arange(6), n_clusters=5).tolist())) == [0, 1]
    assert cluster_codes(rows[:0], np.arange(0), n_clusters=3).shape == (0,)
    with pytest.raises(ValueError, match="n_clusters: found 0"):
        cluster_codes(rows, np.arange(6), n_clusters=0)


# random and fixed


def test_random_draws_every_record_alike_and_anew_for_query_and_seed(unit_vectors):
    queries, pool = unit_vectors(3000, 4), unit_vectors(10, 4, seed=1)
    found = rank("random", queries, pool, k=3)
    counts = np.bincount(found.indices.ravel(), minlength=10)
    # 900 expected, standard deviation 25.
    assert (abs(counts - 900) < 125).all()
    other = rank("random", queries, pool, k=3, seed=1)
    assert 0.05 < (other.indices[:, 0] == found.indices[:, 0]).mean() < 0.15
    assert (np.diff(found.scores, axis=1) < 0).all()


def test_fixed_is_the_pool_from_its_front():
    allowed = np.array([[True, False, True, True, True]])
    assert picks("fixed", Q, FAN, k=3) == [0, 1, 2]
    assert picks("fixed", Q, FAN, k=3, allowed=allowed) == [0, 2, 3]
    recalled = Recalled(np.array([[4, -1, 1]]), np.ones((1, 3)))
    assert picks("fixed", Q, FAN, k=3, recalled=recalled) == [1, 4]


# s3-lowest


def literal_lowest(query, pool, ground, *, k, recall):
    """Div-S3 as it is told: by cosine, by gain given the query, by facility location."""
    relevance, cover = wide(pool) @ wide(query), wide(ground) @ wide(query)
    near = np.argsort(-relevance)[: max(recall, k)]
    gains = np.array([np.maximum(wide(ground) @ wide(pool[i]) - cover, 0).sum() for i in near])
    kept = near[np.argsort(gains)[: max(min(k, len(near)), -(-len(near) // 2))]]
    cosines = wide(pool[kept]) @ wide(pool[kept]).T.copy()
    chosen = []
    while len(chosen) < min(k, len(kept)):
        left = [i for i in range(len(kept)) if i not in chosen]
        # Of two that are nearest to each other either covers both alike: the first id.
        worth = {i: round(cosines[[*chosen, i]].max(axis=0).sum(), 5) for i in left}
        chosen.append(max(left, key=lambda i: (worth[i], -kept[i])))
    return sorted(kept[chosen].tolist(), key=lambda i: -relevance[i])


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 30), k=st.integers(1, 6), seed=st.integers(0, 999))
def test_s3_lowest_is_its_literal_loop(unit_vectors, n, k, seed):
    queries, pool, ground = (
        unit_vectors(size, 9, seed=seed + i) for i, size in enumerate((1, n, 40))
    )
    found = picks("s3-lowest", queries, pool, k=k, recall=14, fields={"ground": ground})
    assert found == literal_lowest(queries[0], pool, ground, k=k, recall=14)


def test_s3_lowest_stays_near_the_query_where_s3_goes_far(unit_vectors):
    queries, pool = unit_vectors(30, 32), unit_vectors(400, 32, seed=1)
    fields = {"ground": unit_vectors(500, 32, seed=2)}
    cosines = {
        name: np.mean(
            [
                pool[row] @ query
                for row, query in zip(
                    rank(name, queries, pool, fields=fields).indices, queries, strict=True
                )
            ]
        )
        for name in ("s3-lowest", "s3", "knn")
    }
    assert cosines["s3"] < 0.1 < 0.2 < cosines["s3-lowest"] < cosines["knn"]


# mutual-information


def literal_shared(query, pool, chosen, ground, *, lam, ridge, scale, diversity, own=0.0):
    """I_f(S; q) + diversity * D(S) from its definition, coverage counted from -1."""
    cosines = (wide(ground) @ wide(pool[chosen]).T).max(axis=1)
    value = scale * (np.minimum(cosines, wide(ground) @ wide(query)) + 1).sum()
    value += own * (max(wide(pool[chosen]) @ wide(query)) + 1)
    spread = log_det(pool[chosen], ridge)
    both = log_det(np.concatenate([pool[chosen], query[None]]), ridge)
    alone = log_det(query[None], ridge)
    return value + lam * (spread + alone - both) + diversity * spread


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 12),
    k=st.integers(1, 5),
    lam=st.sampled_from([0.0, 1.0, 20.0]),
    diversity=st.sampled_from([0.0, 0.5]),
    scale=st.sampled_from(["absolute", "mean"]),
    own=st.booleans(),
    seed=st.integers(0, 999),
)
def test_every_pick_adds_the_most_mutual_information(
    unit_vectors, n, k, lam, diversity, scale, own, seed
):
    queries, pool, ground = (
        unit_vectors(size, 9, seed=seed + i) for i, size in enumerate((1, n, 30))
    )
    factor = 1.0 if scale == "absolute" else 1 / (30 + own)
    options = {"lam": lam, "ridge": 1e-2, "diversity": diversity, "scale": scale}
    fields = {"ground": ground, "query_in_ground": own}
    found = rank("mutual-information", queries, pool, k=k, fields=fields, **options)
    options = {"lam": lam, "ridge": 1e-2, "diversity": diversity, "scale": factor}
    chosen, before = [], 0.0
    for index, score in zip(found.indices[0], found.scores[0], strict=True):
        if index < 0:
            break
        worth = {
            i: literal_shared(queries[0], pool, [*chosen, i], ground, own=own * factor, **options)
            for i in range(n)
            if i not in chosen
        }
        assert worth[index] == pytest.approx(max(worth.values()), abs=2e-4)
        assert score == pytest.approx(worth[index] - before, abs=2e-5 * (1 + lam))
        chosen, before = [*chosen, int(index)], worth[index]


def test_a_copy_of_a_pick_shares_nothing_new():
    pool = np.float32([(0.8, 0.6, 0), (0.8, 0.6, 0), (0.6, 0, 0.8)])
    options = {"k": 2, "fields": {"ground": pool}, "scale": "mean"}
    query = np.float32([(1, 0, 0)])
    assert picks("knn", query, pool, k=2) == [0, 1]
    assert picks("mutual-information", query, pool, **options) == [0, 2]


def test_without_a_ridge_dependent_candidates_and_zero_queries_stay_finite(unit_vectors):
    pool = np.repeat(unit_vectors(3, 2, seed=4), 5, axis=0)
    queries = np.concatenate([unit_vectors(6, 2), np.zeros((1, 2), np.float32), pool[:1]])
    options = {"k": 12, "ridge": 0.0, "diversity": 1.0, "fields": {"ground": pool}}
    found = rank("mutual-information", queries, pool, **options)
    assert np.isfinite(found.scores).all()
    assert all(len(set(row.tolist())) == 12 for row in found.indices)


def test_too_many_pairs_of_pool_and_ground_are_refused(unit_vectors, monkeypatch):
    monkeypatch.setattr("selection.mutual_information.KEPT_MOST", 100)
    vectors = unit_vectors(20, 3)
    with pytest.raises(ValueError, match="found 20 records and 20 ground points, wanted at most 5"):
        rank("mutual-information", vectors, vectors, fields={"ground": vectors})
