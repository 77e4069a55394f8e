from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.kcenter import SAME_COSINE
from tests.selection.own_rules import awkward, chosen, on_circle


def radius(vectors, picks):
    """Largest Euclidean distance of a row to its nearest pick."""
    rows = vectors.astype(np.float64)
    apart = np.linalg.norm(rows[:, None] - rows[None, list(picks)], axis=2)
    return apart.min(axis=1).max()


def test_a_case_by_hand():
    # Their mean points to 71 degrees, nearest to 100. Then 0 is 100 away from it, 170 is 70 away
    # and 40 is 40 away from its nearest.
    vectors = on_circle(0, 40, 100, 170)
    assert chosen("kcenter", vectors, 4).picks.tolist() == [2, 0, 3, 1]


def test_given_rows_are_centres_and_ties_go_by_rank():
    vectors = on_circle(0, 90, 270, 10)
    assert chosen("kcenter", vectors, 2, given=on_circle(0)).picks.tolist() == [1, 2]
    ranks = np.array([3, 2, 1, 0])
    swapped = chosen("kcenter", vectors, 2, given=on_circle(0), tie_rank=ranks)
    assert swapped.picks.tolist() == [2, 1]


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 80), k=st.integers(1, 20), d=st.integers(2, 9), seed=st.integers(0, 999))
def test_each_pick_is_the_farthest_as_a_literal_loop_finds_it(unit_vectors, n, k, d, seed):
    vectors = unit_vectors(n, d, seed=seed)
    picks = chosen("kcenter", vectors, min(k, n)).picks.tolist()
    rows = vectors.astype(np.float64)
    for step in range(1, len(picks)):
        nearest = (rows @ rows[picks[:step]].T).max(axis=1)
        # Cosines that differ by less than their rounding tie, and the first of these is picked.
        tied = np.flatnonzero(nearest <= nearest.min() + 2 * SAME_COSINE)
        assert picks[step] in tied
        if nearest[tied].max() <= nearest.min() + SAME_COSINE / 2:
            assert picks[step] == tied[0]


@settings(deadline=None, max_examples=25)
@given(n=st.integers(4, 11), k=st.integers(1, 4), seed=st.integers(0, 999))
def test_the_radius_is_at_most_twice_the_smallest_there_is(unit_vectors, n, k, seed):
    vectors = unit_vectors(n, 3, seed=seed)
    best = min(radius(vectors, some) for some in combinations(range(n), k))
    assert radius(vectors, chosen("kcenter", vectors, k).picks) <= 2 * best + 1e-5


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999), k=st.integers(1, 4))
def test_the_radius_after_a_merge_is_at_most_four_times_the_smallest(unit_vectors, seed, k):
    vectors = unit_vectors(15, 3, seed=seed)
    union = np.concatenate(
        [rows[chosen("kcenter", vectors[rows], k).picks] for rows in np.split(np.arange(15), 3)]
    )
    merged = union[chosen("kcenter", vectors[union], k).picks]
    best = min(radius(vectors, some) for some in combinations(range(15), k))
    assert radius(vectors, merged) <= 4 * best + 1e-5


@pytest.mark.parametrize("name", ["copies by the thousand", "one text"])
def test_of_copies_the_first_by_rank_is_taken(name):
    vectors = awkward()[name]
    found = chosen("kcenter", vectors, 4).picks
    texts, code = np.unique(vectors.round(4), axis=0, return_inverse=True)
    firsts = [int(np.flatnonzero(code.ravel() == i)[0]) for i in range(len(texts))]
    assert set(firsts) <= set(found.tolist())
