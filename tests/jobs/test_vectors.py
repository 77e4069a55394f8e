"""Samples: their size, their shares, and that they depend on ids and seed alone."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import vectors
from jobs.vectors import SPARSE_SCHEMA, drawn, random_keys, shares, to_csr, to_sparse_lists


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


def sparse_table(rows):
    terms, weights = to_sparse_lists(rows)
    n = rows.shape[0]
    ids = pa.array([f"r{i}" for i in range(n)], pa.string())
    flags, status = pa.array([False] * n, pa.bool_()), pa.array(["ok"] * n, pa.string())
    return pa.table([ids, terms, weights, flags, status], schema=SPARSE_SCHEMA)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_sparse_rows_survive_the_way_through_lists_slices_and_chunks(n):
    dense = np.random.default_rng(n).integers(0, 3, (n, 5)).astype(np.float32)
    dense[n // 2 : n // 2 + 1] = 0  # a row without a term
    table = sparse_table(sp.csr_array(dense))
    chunked = pa.concat_tables([table[:4], table[4:]])
    assert np.array_equal(to_csr(chunked, 5).toarray(), dense)
    assert np.array_equal(to_csr(chunked.slice(2, 4), 5).toarray(), dense[2:6])
    assert to_csr(table, 5).dtype == np.float32
