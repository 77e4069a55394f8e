"""A mapped partition holds the usable rows, by id, bit for bit, and leaves nothing behind."""

import errno
import os
import tempfile

import numpy as np
import pyarrow as pa
import pytest

from jobs.errors import ClusterError, DataError, InvariantError
from jobs.ledger import Ledger
from jobs.selecting import mapped
from jobs.selecting.mapped import map_vectors
from jobs.vectors import usable
from tests.jobs.selecting.embedded_parts import embed_part, unit_rows


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "out"))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_rows_of_all_parts_come_by_id_in_the_type_they_are_stored_in(ledger, storage, monkeypatch):
    monkeypatch.setattr(mapped, "BATCH_ROWS", 7)
    first, second = unit_rows(20, 1), unit_rows(11, 2)
    parts = [
        embed_part(ledger, "a", [f"{i:02d}" for i in range(0, 40, 2)], first, storage=storage),
        embed_part(ledger, "b", [f"{i:02d}" for i in range(1, 23, 2)], second, storage=storage),
    ]
    rows = map_vectors(ledger, parts)
    ids, vectors = usable(ledger, parts)
    assert rows.ids.to_pylist() == ids == sorted(ids)
    assert rows.vectors.dtype == np.dtype(storage)
    assert rows.rows(slice(None)).tobytes() == vectors.tobytes()
    assert rows.rows(np.array([3, 0])).tobytes() == vectors[[3, 0]].tobytes()
    assert rows.dim == 8
    assert not rows.vectors.flags.writeable


def test_ids_beyond_ascii_are_in_the_order_python_gives_them(ledger):
    ids = ["é", "z", "\U0001f600", "￿", " a", "", "a"]
    rows = map_vectors(ledger, [embed_part(ledger, "a", ids, unit_rows(7, 1))])
    assert rows.ids.to_pylist() == sorted(ids)


def test_rows_without_a_vector_are_left_out_and_counted(ledger):
    vectors = unit_rows(5, 1)
    vectors[[1, 4]] = 0.0
    status = ["ok", "empty", "ok", "ok", "not_finite"]
    part = embed_part(ledger, "a", list("edcba"), vectors, status=status)
    rows = map_vectors(ledger, [part])
    assert rows.ids.to_pylist() == ["b", "c", "e"]
    assert rows.vectors.tolist() == vectors[[3, 2, 0]].tolist()
    assert rows.excluded == {"empty": 1, "not_finite": 1}


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 3.0])
def test_a_bad_vector_under_status_ok_names_file_and_row(ledger, value):
    vectors = unit_rows(4, 1)
    vectors[2] = value
    part = embed_part(ledger, "a", list("abcd"), vectors)
    with pytest.raises(DataError, match=r"e/a/part\.parquet: row 'c' .*done\.json"):
        map_vectors(ledger, [part])


def test_an_id_twice_is_our_bug(ledger):
    parts = [embed_part(ledger, name, ["x", "y"], unit_rows(2, 1)) for name in "ab"]
    with pytest.raises(InvariantError, match="'x' is there twice"):
        map_vectors(ledger, parts)


def test_a_partition_without_rows_or_without_parts_is_empty(ledger):
    empty = map_vectors(ledger, [embed_part(ledger, "a", [], unit_rows(0, 1), storage="float16")])
    assert (len(empty), empty.vectors.shape, empty.vectors.dtype) == (0, (0, 8), np.float16)
    none = map_vectors(ledger, [])
    assert (len(none), none.dim) == (0, 0)
    assert none.find(pa.array(["a"])).tolist() == [-1]


def test_ids_are_found_or_not(ledger):
    rows = map_vectors(ledger, [embed_part(ledger, "a", list("dbca"), unit_rows(4, 1))])
    assert rows.find(pa.array(["c", "x", "a", "d"])).tolist() == [2, -1, 0, 3]
    assert rows.find(pa.array([], pa.string())).tolist() == []


def test_the_scratch_file_has_no_name_while_it_is_used(ledger, scratch):
    rows = map_vectors(ledger, [embed_part(ledger, "a", list("dbca"), unit_rows(4, 1))])
    assert len(rows) == 4
    assert list(scratch.iterdir()) == []


def test_no_room_for_scratch_says_how_much_was_wanted_and_where(ledger, scratch, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    part = embed_part(ledger, "a", list("dbca"), unit_rows(4, 1))
    with pytest.raises(ClusterError, match=rf"{scratch}.*GiB of scratch.*are free.*TMPDIR"):
        map_vectors(ledger, [part])
