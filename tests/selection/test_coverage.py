import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.kernels import GROUND_TILE


def literal_gains(ground, cover, candidates):
    cosines = ground.astype(np.float64) @ candidates.astype(np.float64).T
    return np.maximum(cosines - cover[:, None], 0).sum(axis=0)


@settings(deadline=None, max_examples=40)
@given(m=st.integers(0, 60), c=st.integers(1, 40), d=st.integers(1, 9), seed=st.integers(0, 1000))
def test_gains_are_the_definition_before_and_after_picks(unit_vectors, m, c, d, seed):
    ground, candidates = unit_vectors(m, d, seed=seed), unit_vectors(c, d, seed=seed + 1)
    shard, cover = CoverageShard(ground), np.full(m, -1.0)
    for pick in range(min(c, 4)):
        expected = literal_gains(ground, cover, candidates)
        np.testing.assert_allclose(shard.gains(candidates), expected, atol=1e-6 * (m + 1))
        gain = shard.add(candidates[pick])
        assert gain == pytest.approx(expected[pick], abs=1e-6 * (m + 1))
        cover = np.maximum(cover, ground.astype(np.float64) @ candidates[pick].astype(np.float64))


def test_more_than_one_tile_of_points_and_candidates(unit_vectors):
    ground, candidates = unit_vectors(2 * GROUND_TILE + 17, 5), unit_vectors(531, 5, seed=9)
    expected = literal_gains(ground, np.full(len(ground), -1.0), candidates)
    np.testing.assert_allclose(CoverageShard(ground).gains(candidates), expected, rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 60), d=st.integers(1, 9), seed=st.integers(0, 1000))
def test_gains_never_rise(unit_vectors, m, d, seed):
    vectors = unit_vectors(m, d, seed=seed)
    shard = CoverageShard(vectors)
    before = shard.gains(vectors)
    for pick in range(min(m, 6)):
        shard.add(vectors[pick])
        after = shard.gains(vectors)
        assert (after <= before + 1e-7 * m).all()
        assert (after >= 0).all()
        before = after


def test_the_first_gain_is_the_column_sum_plus_one_per_point(unit_vectors):
    vectors = unit_vectors(200, 7)
    shard = CoverageShard(vectors)
    first = vectors.astype(np.float64) @ shard.column_sum() + shard.n_points
    np.testing.assert_allclose(shard.gains(vectors), first, rtol=1e-6)


def test_a_copy_of_a_pick_gains_nothing_to_rounding(unit_vectors):
    vectors = unit_vectors(500, 33)
    shard = CoverageShard(vectors)
    shard.add(vectors[4])
    assert shard.gains(vectors[[4]])[0] <= 1e-7 * 500


def test_each_point_is_owned_by_its_nearest_pick_the_earlier_on_a_tie():
    points = np.array([(1, 0), (0.8, 0.6), (0, 1), (0, -1)], dtype=np.float32)
    shard = CoverageShard(points)
    for pick in (0, 2, 2):
        shard.add(points[pick])
    assert shard.n_covered(3).tolist() == [3, 1, 0]
    shard.reset()
    assert shard.n_covered(3).tolist() == [0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(m=st.integers(1, 40), parts=st.integers(1, 6), seed=st.integers(0, 100))
def test_shards_add_up_to_the_whole(unit_vectors, m, parts, seed):
    vectors = unit_vectors(m, 5, seed=seed)
    whole = LocalCoverage([CoverageShard(vectors)], vectors)
    split = LocalCoverage([CoverageShard(p) for p in np.array_split(vectors, parts)], vectors)
    every = np.arange(m)
    assert split.n_points == whole.n_points
    np.testing.assert_allclose(split.column_sum(), whole.column_sum(), atol=1e-9)
    assert split.add(0) == pytest.approx(whole.add(0), rel=1e-6)
    np.testing.assert_allclose(split.gains(every), whole.gains(every), atol=1e-6 * m)
    assert split.n_covered(1).tolist() == whole.n_covered(1).tolist() == [m]


def test_the_callers_vectors_are_not_changed(unit_vectors):
    vectors = unit_vectors(30, 4)
    vectors.flags.writeable = False
    shard = CoverageShard(vectors)
    shard.add(vectors[0])
    assert shard.gains(vectors).shape == (30,)


def test_bad_candidates_are_refused(unit_vectors):
    shard = CoverageShard(unit_vectors(5, 3))
    with pytest.raises(ValueError, match=r"found shape \(2, 4\), wanted \(n, 3\)"):
        shard.gains(unit_vectors(2, 4))
    with pytest.raises(ValueError, match="of float64, wanted"):
        shard.gains(unit_vectors(2, 3).astype(np.float64))
    with pytest.raises(ValueError, match=r"found shape \(2, 4\), wanted \(n, 3\)"):
        shard.moments(unit_vectors(2, 4))
    with pytest.raises(ValueError, match=r"cover_with.*wanted \(n, 3\)"):
        shard.cover_with(unit_vectors(2, 4))
    with pytest.raises(ValueError, match="not finite"):
        shard.add(np.array([np.nan, 0, 0], dtype=np.float32))
    with pytest.raises(ValueError, match="shard 0 has shape"):
        LocalCoverage([shard], unit_vectors(2, 4))


def test_many_picks_at_once_are_the_same_picks_one_by_one():
    rng = np.random.default_rng(3)
    ground, picks = (rng.standard_normal((n, 24)).astype(np.float32) for n in (5000, 300))
    for block in (ground, picks):
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    together, alone = CoverageShard(ground), CoverageShard(ground)
    gains = np.concatenate([together.add_many(picks[:7]), together.add_many(picks[7:])])
    assert gains.tolist() == pytest.approx([alone.add(pick) for pick in picks], abs=1e-3)
    assert together.n_covered(300).tolist() == alone.n_covered(300).tolist()
    assert together.n_covered(300).sum() == 5000


def weights_of(n, seed=0):
    return np.random.default_rng(seed).exponential(size=n)


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 60), parts=st.integers(1, 5), d=st.integers(1, 9), seed=st.integers(0, 999))
def test_weighted_shards_are_the_weighted_definition(unit_vectors, m, parts, d, seed):
    vectors, weights = unit_vectors(m, d, seed=seed), weights_of(m, seed)
    shards = [
        CoverageShard(part, weights=weight, threads=2)
        for part, weight in zip(
            np.array_split(vectors, parts), np.array_split(weights, parts), strict=True
        )
    ]
    oracle, every, wide = LocalCoverage(shards, vectors), np.arange(m), vectors.astype(np.float64)
    cosines, tolerance = wide @ wide.T.copy(), 1e-6 * (weights.sum() + 1)
    assert oracle.total_weight == pytest.approx(weights.sum(), rel=1e-12)
    np.testing.assert_allclose(oracle.column_sum(), weights @ wide, atol=tolerance)
    terms = weights[:, None] * (cosines + 1)
    np.testing.assert_allclose(oracle.gains(every), terms.sum(axis=0), atol=tolerance)
    gain, squared = oracle.moments(every)
    np.testing.assert_array_equal(gain, oracle.gains(every))
    np.testing.assert_allclose(squared, (terms**2).sum(axis=0), rtol=1e-5, atol=tolerance)
    assert oracle.add(0) == pytest.approx(terms[:, 0].sum(), abs=tolerance)
    left = weights[:, None] * np.maximum(cosines - cosines[:, [0]], 0)
    np.testing.assert_allclose(oracle.gains(every), left.sum(axis=0), atol=tolerance)
    assert oracle.n_covered(1).tolist() == [m]


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 50), a=st.integers(1, 8), seed=st.integers(0, 999), weighted=st.booleans())
def test_gains_count_from_the_vectors_started_from(unit_vectors, m, a, seed, weighted):
    vectors, given = unit_vectors(m, 4, seed=seed), unit_vectors(a, 4, seed=seed + 1)
    weights = weights_of(m, seed) if weighted else None
    u = np.ones(m) if weights is None else weights
    shard = CoverageShard(vectors, weights=weights)
    cover = (vectors.astype(np.float64) @ given.astype(np.float64).T).max(axis=1)
    tolerance = 1e-6 * (u.sum() + 1)
    assert shard.cover_with(given) == pytest.approx((u * (cover + 1)).sum(), abs=tolerance)
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T.copy()
    expected = (u[:, None] * np.maximum(cosines - cover[:, None], 0)).sum(axis=0)
    np.testing.assert_allclose(shard.gains(vectors), expected, atol=tolerance)
    assert shard.n_covered(1).tolist() == [0]
    shard.add(vectors[0])
    # Away from rounding, exactly the points that it covers better than what was given.
    better, even = cosines[:, 0] > cover + 1e-6, np.abs(cosines[:, 0] - cover) <= 1e-6
    assert better.sum() <= shard.n_covered(1)[0] <= better.sum() + even.sum()


def test_an_opposite_point_belongs_to_the_first_pick_unless_vectors_were_given():
    points = np.array([(1, 0), (-1, 0)], dtype=np.float32)
    shard = CoverageShard(points)
    shard.add(points[0])
    assert shard.n_covered(1).tolist() == [2]
    shard.reset()
    assert shard.cover_with(points[[0]]) == 2.0
    shard.add(points[0])
    assert shard.n_covered(1).tolist() == [0]
    shard.reset()
    assert shard.cover_with(np.zeros((0, 2), dtype=np.float32)) == 0.0
    shard.add(points[0])
    assert shard.n_covered(1).tolist() == [2]


def test_starting_from_vectors_after_a_pick_is_refused(unit_vectors):
    vectors = unit_vectors(5, 3)
    shard = CoverageShard(vectors)
    shard.add_many(vectors[:2])
    with pytest.raises(ValueError, match="found 2 picks, wanted none; call reset first"):
        shard.cover_with(vectors)
    shard.reset()
    assert shard.cover_with(vectors) == pytest.approx(10, abs=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
def test_bad_weights_are_refused_by_their_row(unit_vectors, bad):
    with pytest.raises(ValueError, match=r"CoverageShard.weights: 1 of 3 .* row 1;"):
        CoverageShard(unit_vectors(3, 2), weights=np.array([0.0, bad, 1.0]))


@pytest.mark.parametrize("weighted", [False, True])
def test_half_vectors_give_the_numbers_of_their_float32(unit_vectors, weighted):
    halves = unit_vectors(3000, 12).astype(np.float16)
    weights = weights_of(3000) if weighted else None
    found = []
    for stored in (halves, halves.astype(np.float32)):
        oracle = LocalCoverage([CoverageShard(stored, weights=weights)], stored)
        picked = oracle.add_many(np.array([5, 2999, 17]))
        gains, squares = oracle.moments(np.arange(0, 3000, 7))
        found.append([part.tolist() for part in (picked, gains, squares, oracle.column_sum())])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_memory_map_is_read_in_place(unit_vectors, tmp_path, dtype):
    n, d = 30_000, 48
    np.save(tmp_path / "v.npy", unit_vectors(n, d).astype(dtype))
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    candidates = unit_vectors(20, d, seed=1)
    CoverageShard(mapped[:5000]).gains(candidates)  # compiles, and takes the buffers that are kept
    tracemalloc.start()
    shard = CoverageShard(mapped)
    gains = shard.gains(candidates)
    shard.cover_with(candidates[:3])
    shard.add(candidates[4])
    shard.column_sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Cover and owner of every point (12 bytes), and what sums of them take for a moment.
    assert peak < 0.5 * mapped.nbytes + 40 * n
    expected = literal_gains(mapped, np.full(n, -1.0), candidates)
    np.testing.assert_allclose(gains, expected, rtol=1e-6)


def test_many_candidates_are_gathered_block_by_block(unit_vectors):
    vectors = unit_vectors(6000, 4)
    oracle = LocalCoverage([CoverageShard(vectors[:100])], vectors)
    expected = literal_gains(vectors[:100], np.full(100, -1.0), vectors)
    np.testing.assert_allclose(oracle.gains(np.arange(6000)), expected, rtol=1e-6)
    np.testing.assert_allclose(oracle.moments(np.arange(6000))[0], expected, rtol=1e-6)
