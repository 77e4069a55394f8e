import numpy as np
import pytest

from selection.arrays import require_vectors, require_weights, rows_of, squared_norms, widen

EVERY_HALF = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(64, 1024)


def test_every_half_is_widened_exactly():
    wide = np.full(EVERY_HALF.shape, np.nan, dtype=np.float32)
    widen(EVERY_HALF.view(np.int16), wide)
    expected, finite = EVERY_HALF.astype(np.float32), np.isfinite(EVERY_HALF)
    assert (wide.view(np.uint32)[finite] == expected.view(np.uint32)[finite]).all()
    np.testing.assert_array_equal(wide, expected)


def test_rows_of_halves_are_their_float32_and_float32_is_not_copied(unit_vectors):
    vectors = unit_vectors(9, 4)
    halves, some = vectors.astype(np.float16), np.array([8, 0, 8])
    np.testing.assert_array_equal(rows_of(halves, some), halves[some].astype(np.float32))
    np.testing.assert_array_equal(rows_of(halves[:, ::2], some), halves[some, ::2])
    np.testing.assert_array_equal(rows_of(vectors, some), vectors[some])
    assert np.shares_memory(rows_of(vectors, slice(2, 5)), vectors)


def test_vectors_that_are_fit_are_handed_back_uncopied(unit_vectors):
    for stored in (unit_vectors(5, 3), unit_vectors(5, 3).astype(np.float16)):
        assert np.shares_memory(require_vectors("here", stored), stored)
    turned = np.asfortranarray(unit_vectors(5, 3))
    assert require_vectors("here", turned).flags.c_contiguous


def test_unaligned_vectors_are_mended(unit_vectors):
    vectors = unit_vectors(5, 3)
    memory = np.zeros(vectors.nbytes + 1, dtype=np.uint8)
    shifted = memory[1:].view(np.float32).reshape(5, 3)
    shifted[:] = vectors
    mended = require_vectors("here", shifted)
    assert mended.flags.aligned
    np.testing.assert_array_equal(mended, vectors)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_named_also_beyond_the_first_block(unit_vectors, dtype, bad):
    vectors = unit_vectors(3000, 3).astype(dtype)
    vectors[2222, 1] = bad
    with pytest.raises(ValueError, match=r"here: 1 of 3000 rows are not finite.* row 2222"):
        require_vectors("here", vectors)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_row_longer_than_one_is_named_with_its_norm(unit_vectors, dtype):
    vectors = unit_vectors(3000, 3).astype(dtype)
    vectors[1500] = (2, 0, 0)
    with pytest.raises(ValueError, match=r"longer than 1, the first is row 1500 with norm 2 "):
        require_vectors("here", vectors)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_another_dtype_is_refused(dtype):
    with pytest.raises(ValueError, match=rf"shape \(2, 2\) of {np.dtype(dtype)}, wanted"):
        require_vectors("here", np.zeros((2, 2), dtype=dtype))


def test_squared_norms_of_halves_are_their_true_ones(unit_vectors):
    halves = unit_vectors(1500, 7).astype(np.float16)
    expected = (halves.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(squared_norms(halves), expected, rtol=1e-12)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_bad_weight_is_refused_by_its_row(bad):
    with pytest.raises(ValueError, match=r"here: 1 of 3 weights .* of row 2"):
        require_weights("here", np.array([0.0, 1.0, bad]), 3)
    with pytest.raises(ValueError, match=r"found shape \(3,\), wanted \(4,\)"):
        require_weights("here", np.ones(3), 4)
