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
    with pytest.raises(ValueError, match="float16"):
        shard.gains(unit_vectors(2, 3).astype(np.float16))
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
