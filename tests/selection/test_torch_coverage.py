import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.coverage import CoverageShard, LocalCoverage
from selection.torch_coverage import TorchShard, exact_float32

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def weights_of(n, seed=0):
    return np.random.default_rng(seed).exponential(size=n)


@pytest.mark.parametrize("device", DEVICES)
@settings(deadline=None, max_examples=30)
@given(
    m=st.integers(0, 70),
    c=st.integers(1, 30),
    d=st.integers(1, 9),
    seed=st.integers(0, 1000),
    half=st.booleans(),
    weighted=st.booleans(),
    start=st.integers(0, 2),
)
def test_it_says_what_the_cpu_shard_says(
    unit_vectors, device, m, c, d, seed, half, weighted, start
):
    vectors = unit_vectors(m, d, seed=seed).astype(np.float16 if half else np.float32)
    candidates = unit_vectors(c, d, seed=seed + 1)
    weights = weights_of(m, seed) if weighted else None
    ours = TorchShard(vectors, weights=weights, device=device)
    theirs = CoverageShard(vectors, weights=weights)
    close = {"rtol": 1e-6, "atol": 1e-6 * (theirs.total_weight + 1)}
    assert (ours.n_points, ours.dim) == (theirs.n_points, theirs.dim)
    assert ours.total_weight == pytest.approx(theirs.total_weight, rel=1e-12)
    np.testing.assert_allclose(ours.column_sum(), theirs.column_sum(), **close)
    if start:
        given_vectors = unit_vectors(start, d, seed=seed + 2)
        found, wanted = ours.cover_with(given_vectors), theirs.cover_with(given_vectors)
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    for picks in (candidates[:1], candidates[1:4]):
        for one, other in zip(ours.moments(candidates), theirs.moments(candidates), strict=True):
            np.testing.assert_allclose(one, other, **close)
        np.testing.assert_allclose(ours.add_many(picks), theirs.add_many(picks), **close)
    np.testing.assert_allclose(ours.gains(candidates), theirs.gains(candidates), **close)
    assert np.abs(ours.n_covered(4) - theirs.n_covered(4)).sum() <= 2  # rounding, near a tie


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_agree_to_one_in_a_million(unit_vectors, device):
    vectors, candidates = unit_vectors(3000, 24), unit_vectors(300, 24, seed=1)
    weights = weights_of(3000)
    ours = TorchShard(vectors, weights=weights, device=device)
    theirs = CoverageShard(vectors, weights=weights)
    np.testing.assert_allclose(ours.gains(candidates), theirs.gains(candidates), rtol=1e-6)
    picks = candidates[:280]
    np.testing.assert_allclose(ours.add_many(picks)[:20], theirs.add_many(picks)[:20], rtol=1e-6)
    assert ours.n_covered(280).sum() == theirs.n_covered(280).sum() == 3000


def test_more_than_one_tile_on_the_device(unit_vectors, monkeypatch):
    monkeypatch.setattr("selection.torch_coverage._GROUND_TILE", 64)
    vectors, candidates = unit_vectors(500, 5), unit_vectors(600, 5, seed=1)
    ours, theirs = TorchShard(vectors, device="cpu"), CoverageShard(vectors)
    np.testing.assert_allclose(ours.gains(candidates), theirs.gains(candidates), rtol=1e-6)
    ours.add_many(candidates)
    theirs.add_many(candidates)
    assert np.abs(ours.n_covered(600) - theirs.n_covered(600)).sum() <= 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", [False, True])
def test_a_copy_of_a_pick_gains_exactly_nothing_beside_itself(unit_vectors, device, half):
    vectors = unit_vectors(700, 64).astype(np.float16 if half else np.float32)
    shard, pick = TorchShard(vectors, device=device), unit_vectors(1, 64, seed=1)
    shard.add(pick[0])
    assert shard.gains(pick)[0] == 0


@pytest.mark.parametrize("device", DEVICES)
def test_each_point_is_owned_by_its_nearest_pick_the_earlier_on_a_tie(device):
    points = np.array([(1, 0), (0.8, 0.6), (0, 1), (0, -1)], dtype=np.float32)
    shard = TorchShard(points, device=device)
    shard.add_many(points[[0, 2, 2]])
    assert shard.n_covered(3).tolist() == [3, 1, 0]
    shard.reset()
    opposite = np.array([(0, 1)], dtype=np.float32)
    shard.add(opposite[0])
    assert shard.n_covered(1).tolist() == [4]
    shard.reset()
    shard.cover_with(opposite)
    shard.add(opposite[0])
    assert shard.n_covered(1).tolist() == [0]


def test_it_stands_among_the_shards_of_a_local_oracle(unit_vectors):
    vectors = unit_vectors(90, 5)
    shards = [TorchShard(part, device="cpu") for part in np.array_split(vectors, 3)]
    mixed, plain = LocalCoverage(shards, vectors), LocalCoverage([CoverageShard(vectors)], vectors)
    assert mixed.add(3) == pytest.approx(plain.add(3), rel=1e-6)
    every = np.arange(90)
    np.testing.assert_allclose(mixed.gains(every), plain.gains(every), rtol=1e-6, atol=1e-5)


def test_vectors_are_kept_in_the_dtype_they_have_and_left_alone(unit_vectors):
    halves = unit_vectors(30, 4).astype(np.float16)
    halves.flags.writeable = False
    shard = TorchShard(halves, device="cpu")
    assert shard._ground.dtype == torch.float16
    shard.add(unit_vectors(1, 4)[0])
    assert shard.n_points == 30


def test_less_than_float32_is_not_allowed_inside_and_restored_outside():
    settings_ = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
    before = [one.fp32_precision for one in settings_]
    try:
        for one in settings_:
            one.fp32_precision = "tf32"
        with exact_float32():
            assert [one.fp32_precision for one in settings_] == ["ieee", "ieee"]
        assert [one.fp32_precision for one in settings_] == ["tf32", "tf32"]
        with pytest.raises(KeyError), exact_float32():
            raise KeyError
        assert [one.fp32_precision for one in settings_] == ["tf32", "tf32"]
    finally:
        for one, precision in zip(settings_, before, strict=True):
            one.fp32_precision = precision


@pytest.mark.skipif(torch.cuda.device_count() > 99, reason="that device is there")
def test_a_device_that_is_not_there_is_named(unit_vectors):
    with pytest.raises(RuntimeError, match=r"found 'cuda:99', but torch .* or use device cpu"):
        TorchShard(unit_vectors(2, 3), device="cuda:99")
    with pytest.raises(ValueError, match="found 'no-such', wanted cpu, cuda"):
        TorchShard(unit_vectors(2, 3), device="no-such")


def test_bad_vectors_weights_and_steps_are_refused(unit_vectors):
    vectors = unit_vectors(3, 2)
    with pytest.raises(ValueError, match=r"TorchShard.weights: 1 of 3 .* row 0;"):
        TorchShard(vectors, weights=np.array([-1.0, 1, 1]), device="cpu")
    shard = TorchShard(vectors, device="cpu")
    with pytest.raises(ValueError, match=r"TorchShard.gains.candidates: found shape \(1, 3\)"):
        shard.gains(unit_vectors(1, 3))
    shard.add(vectors[0])
    with pytest.raises(ValueError, match=r"TorchShard.cover_with: found 1 picks, wanted none"):
        shard.cover_with(vectors)


def test_torch_is_not_imported_before_a_shard_is_made():
    code = "import sys, selection.torch_coverage; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
