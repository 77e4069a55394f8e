"""Samples: their size, their shares, and that they depend on ids and seed alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import vectors
from jobs.vectors import drawn, random_keys, shares


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 600))
def test_shares_add_up_and_no_partition_gives_more_than_it_has(counts, total):
    found = shares(counts, total)
    assert sum(found) == min(total, sum(counts))
    for share, count in zip(found, counts, strict=True):
        assert 0 <= share <= count
        if sum(counts):
            assert abs(share - min(total, sum(counts)) * count / sum(counts)) < 1


@pytest.mark.parametrize("size", [1, 3, 100])
def test_keys_do_not_depend_on_how_many_ids_are_hashed_at_a_time(size, monkeypatch):
    ids = [f"id {i} é" for i in range(17)]
    expected = random_keys(ids, 5)
    monkeypatch.setattr(vectors, "KEYS_AT_A_TIME", size)
    assert random_keys(pa.array(ids), 5).tolist() == expected.tolist()
    assert random_keys(ids, 6).tolist() != expected.tolist()


def test_those_with_the_smallest_keys_are_drawn():
    keys = np.array([5, 1, 9, 0, 7], np.uint64)
    assert drawn(keys, 3).tolist() == [0, 1, 3]
    assert drawn(keys, 0).tolist() == []
    assert drawn(keys, 9).tolist() == [0, 1, 2, 3, 4]
