import numpy as np
import pytest

from jobs.errors import InvariantError
from jobs.reporting.projection import N_NEIGHBORS, _nearest, project


def groups(n_groups, size, d=24, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_groups, d))
    vectors = np.repeat(centres, size, axis=0) + 0.15 * rng.normal(size=(n_groups * size, d))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_rows_of_one_group_lie_together_and_groups_lie_apart():
    projected = project(groups(3, 60), seed=0)
    assert (projected.method, projected.note) == ("UMAP", "")
    assert projected.points.shape == (180, 2)
    parts = projected.points.reshape(3, 60, 2)
    centres = parts.mean(axis=1)
    spread = np.linalg.norm(parts - centres[:, None], axis=2).max()
    apart = min(np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert apart > spread


def test_equal_vectors_and_seeds_give_equal_points():
    vectors = groups(2, 40)
    first, second = project(vectors, seed=5), project(vectors, seed=5)
    np.testing.assert_array_equal(first.points, second.points)


@pytest.mark.parametrize("n", [1, 2, 5, N_NEIGHBORS])
def test_few_rows_are_laid_flat_by_pca_which_says_so(n):
    projected = project(groups(1, n), seed=0)
    assert projected.method == "PCA"
    assert f"{n} rows are too few" in projected.note
    assert projected.points.shape == (n, 2)
    assert np.isfinite(projected.points).all()


@pytest.mark.parametrize(
    "vectors",
    [
        np.tile(np.ones(8, dtype=np.float32), (40, 1)),
        np.zeros((40, 8), dtype=np.float32),
        np.repeat(np.eye(4, dtype=np.float32), 30, axis=0),
        np.linspace(-1, 1, 40, dtype=np.float32)[:, None],
    ],
    ids=["all-identical", "all-zero", "four-texts", "one-dimension"],
)
def test_degenerate_vectors_still_give_a_finite_point_each(vectors):
    projected = project(vectors, seed=0)
    assert projected.points.shape == (len(vectors), 2)
    assert np.isfinite(projected.points).all()


def test_vectors_that_are_not_finite_are_refused_with_their_number():
    vectors = groups(1, 30)
    vectors[3, 2] = np.nan
    with pytest.raises(InvariantError, match="1 of 30 vectors"):
        project(vectors, seed=0)


def test_the_neighbours_are_those_of_brute_force_whatever_the_block():
    vectors = groups(4, 25, seed=3)
    distances = 1 - vectors @ vectors.T
    np.fill_diagonal(distances, -1)
    expected = np.sort(distances, axis=1)[:, :10].clip(0)
    for block in (7, 100, 512):
        indices, found = _nearest(vectors, 10, block=block)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_array_equal(indices[:, 0], np.arange(100))


def test_a_row_stands_first_among_its_own_duplicates():
    indices, _ = _nearest(np.ones((20, 4), dtype=np.float32) / 2, 5, block=6)
    np.testing.assert_array_equal(indices[:, 0], np.arange(20))
