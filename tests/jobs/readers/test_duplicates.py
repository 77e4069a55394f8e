"""Rows that share an id end with ids of their own, and none is lost in silence."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import DataError
from jobs.readers.batches import Batch
from jobs.readers.columns import ColumnMap
from jobs.readers.duplicates import overlap, resolve_duplicates
from jobs.readers.rows import to_rows

COLUMNS = ColumnMap(input="text", id="id", label="label")


def rows_of(*records):
    batch = Batch([dict(zip(("id", "text", "label"), one, strict=False)) for one in records],
                  list(range(1, len(records) + 1)), ())  # fmt: skip
    return to_rows(batch, COLUMNS, source_file="a.jsonl").rows


def resolve(*records, how="rename"):
    return resolve_duplicates(rows_of(*records), on_duplicate_id=how)


def test_the_first_row_keeps_its_id_and_later_ones_carry_their_content():
    rows = rows_of(("a", "one"), ("b", "two"), ("a", "other"), ("a", "one"), ("a", "one"))
    resolved = resolve_duplicates(rows, on_duplicate_id="rename")
    h = [value[:8] for value in rows["row_hash"].to_pylist()]
    ids = ["a", "b", f"a~{h[2]}", f"a~{h[0]}", f"a~{h[0]}-2"]
    assert resolved.rows["id"].to_pylist() == ids
    assert resolved.rows["flags"].to_pylist() == [
        [],
        [],
        ["duplicate_id"],
        ["duplicate_id", "duplicate_row"],
        ["duplicate_id", "duplicate_row"],
    ]
    assert resolved.counts == {"duplicate_id": 3, "duplicate_row": 2, "duplicate_id_other_text": 1}
    assert resolved.rows.schema == rows.schema
    assert resolved.rows.drop_columns(["id", "flags"]) == rows.drop_columns(["id", "flags"])


def test_the_same_text_with_another_label_is_counted_as_a_conflict():
    counts = resolve(("a", "one", "x"), ("a", "one", "y")).counts
    assert counts == {"duplicate_id": 1, "duplicate_id_other_label": 1}


def test_equal_rows_without_an_id_are_numbered_whatever_is_set():
    for how in ("rename", "reject", "error"):
        resolved = resolve((None, "t"), (None, "u"), (None, "t"), (None, "t"), how=how)
        first, other, second, third = resolved.rows["id"].to_pylist()
        assert [second, third] == [f"{first}-2", f"{first}-3"]
        assert other != first
        assert resolved.counts == {"repeated_without_id": 2}


def test_a_new_id_never_takes_one_that_is_there():
    taken = resolve(("a", "t"), ("a", "u")).rows["id"][1].as_py()
    ids = resolve(("a", "t"), (taken, "v"), ("a", "u")).rows["id"].to_pylist()
    assert ids == ["a", taken, f"{taken}-2"]


def test_later_rows_can_be_rejected():
    resolved = resolve(("a", "t"), ("a", "u"), ("b", "v"), how="reject")
    assert resolved.rows["input"].to_pylist() == ["t", "v"]
    assert resolved.rejected.to_pylist() == [
        {
            "source_file": "a.jsonl",
            "source_line": 2,
            "id": "a",
            "reason": "duplicate_id",
            "detail": "id 'a' was taken by an earlier row",
            "excerpt": "u",
            "status": "rejected",
        }
    ]


def test_later_rows_can_be_refused_with_both_places():
    with pytest.raises(DataError, match=r"id 'a' occurs twice: a\.jsonl:1 and a\.jsonl:3"):
        resolve(("a", "t"), ("b", "u"), ("a", "v"), how="error")


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "a~1", None, 1, "1"]), st.sampled_from("xyz")))
)
@settings(deadline=None)
def test_every_row_stays_and_every_id_is_its_own(records):
    rows = rows_of(*records)
    resolved = resolve_duplicates(rows, on_duplicate_id="rename")
    ids = resolved.rows["id"].to_pylist()
    assert len(set(ids)) == len(records)
    assert resolved.rows["row_hash"] == rows["row_hash"]
    assert resolve_duplicates(resolved.rows, on_duplicate_id="error").counts == Counter()
    rejecting = resolve_duplicates(rows, on_duplicate_id="reject")
    assert rejecting.rows.num_rows + rejecting.rejected.num_rows == len(records)


def test_many_equal_rows_are_numbered_in_linear_time():
    rows = rows_of(*[(None, "t")] * 20_000, *[("a", "t")] * 20_000)
    resolved = resolve_duplicates(rows, on_duplicate_id="rename")
    assert len(set(resolved.rows["id"].to_pylist())) == 40_000


def test_overlap_counts_every_query_and_no_missing_text():
    corpus = pa.chunked_array([["h1", None], ["h2"]], pa.string())
    queries = pa.chunked_array([["h1", "h1", None, "h3"]], pa.string())
    assert overlap(corpus, queries) == 2
    assert overlap(corpus, pa.chunked_array([], pa.string())) == 0
