"""Every record becomes one row or one rejected row, and its cells mean what they meant."""

import datetime
import io
import json
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import InvariantError
from jobs.readers.batches import BadLine, Batch
from jobs.readers.columns import ColumnMap
from jobs.readers.files import read_rows
from jobs.readers.formats import ReadOptions
from jobs.readers.row_tables import REJECTED_SCHEMA, row_schema
from jobs.readers.rows import label_counts, to_rows

ALL = ColumnMap(
    input="text",
    id="id",
    output="answer",
    label="label",
    group="doc",
    tags="tags",
    weight="w",
    cost="c",
    quality="q",
    keep=("note",),
)


def make(*records, columns=ALL, **options):
    batch = Batch(list(records), list(range(1, len(records) + 1)), ())
    return to_rows(batch, columns, source_file="a.jsonl", **options)


def one(**record):
    made = make({"id": "i", "text": "t"} | record)
    assert made.rows.num_rows == 1
    return made.rows.to_pylist()[0]


def reason(**record):
    made = make({"id": "i", "text": "t"} | record, {"id": "j", "text": "fine"})
    assert made.rows["id"].to_pylist() == ["j"]
    assert made.rejected["status"].to_pylist() == ["rejected"]
    return made.rejected["reason"][0].as_py()


@pytest.mark.parametrize(
    ("label", "text", "flagged"),
    [
        ("a ", "a ", False),
        (1, "1", True),
        (1.0, "1.0", True),
        (True, "true", True),
        (0, "0", True),
        (["a", "b"], '["a","b"]', True),
        ({"k": "é"}, '{"k":"é"}', True),
        (Decimal("1.50"), "1.50", True),
        (datetime.date(2024, 3, 1), "2024-03-01", True),
        (b"bytes", "bytes", False),
        ("", None, False),
        (" \t", None, False),
        (None, None, False),
        (float("nan"), None, False),
    ],
)
def test_a_label_becomes_text_and_says_so_unless_it_was(label, text, flagged):
    row = one(label=label)
    assert row["label"] == text
    assert ("label_coerced" in row["flags"]) == flagged


def test_labels_of_different_types_are_counted_apart():
    made = make(
        *({"id": str(i), "text": "t", "label": v} for i, v in enumerate([1, 1.0, "1", None]))
    )
    assert label_counts(made.rows) == Counter({"1": 2, "1.0": 1, None: 1})
    assert made.notes["label_coerced"] == 2


@pytest.mark.parametrize(
    ("row_id", "text"), [(1, "1"), ("1", "1"), (" a ", " a "), (1.5, "1.5"), (False, "false")]
)
def test_an_id_is_text_and_untrimmed(row_id, text):
    assert one(id=row_id)["id"] == text


@pytest.mark.parametrize("row_id", [None, "", float("nan")])
def test_a_row_without_an_id_gets_one_from_its_content(row_id):
    row, again, other = one(id=row_id), one(id=row_id), one(id=row_id, label="x")
    assert row["id"] == again["id"] != other["id"]
    assert row["flags"] == ["made_up_id"]
    assert one(id=row_id, note="kept columns do not count")["id"] == row["id"]


@pytest.mark.parametrize(("text", "kept"), [(None, None), ("", ""), (" \n", " \n")])
def test_a_row_without_text_stays_and_is_listed(text, kept):
    made = make({"id": "i", "text": text})
    assert made.rows.to_pylist()[0] | {"status": "empty", "input": kept} == made.rows.to_pylist()[0]
    assert (
        made.rejected.to_pylist()[0] | {"id": "i", "status": "empty"}
        == made.rejected.to_pylist()[0]
    )
    assert made.rows["text_hash"].to_pylist() == [None]


def test_a_number_is_a_text_and_a_list_is_none():
    assert one(text=12)["input"] == "12"
    assert one(text=12)["flags"] == ["input_coerced"]
    assert reason(text=["a"]) == "not_text"
    assert reason(text={"a": 1}) == "not_text"
    assert reason(id=[1]) == "not_text"
    assert reason(text=b"\xff") == "bad_encoding"


@pytest.mark.parametrize(
    ("value", "number"), [(2, 2.0), ("0.5", 0.5), (0, 0.0), ("", None), (None, None)]
)
def test_a_weight_is_a_number_of_zero_or_more(value, number):
    assert one(w=value, c=value)["weight"] == number
    assert one(w=value, c=value)["cost"] == number


@pytest.mark.parametrize(
    "value", ["much", -1, "nan", float("nan"), float("inf"), True, [1], 10**400]
)
def test_what_is_no_such_number_rejects_the_row(value):
    assert reason(w=value) == "bad_number"
    assert reason(c=value) == "bad_number"


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        ("a b", ["a b"]),
        (["a", 1, None, ""], ["a", "1"]),
        ('["a", "b"]', ["a", "b"]),
        ("[broken", ["[broken"]),
        ([], None),
        (None, None),
    ],
)
def test_tags_are_a_list_of_texts(value, tags):
    assert one(tags=value)["tags"] == tags


def test_kept_columns_are_text_whatever_they_were():
    assert one(note={"a": [1]})["note"] == '{"a":[1]}'
    assert one(note=3)["note"] == "3"
    assert one()["note"] is None


@pytest.mark.parametrize("field", ["id", "text", "label", "answer", "doc", "tags", "note"])
def test_a_lone_surrogate_rejects_its_row_only(field):
    assert reason(**{field: "a\ud800b"}) == "not_unicode"


def test_a_text_above_the_limit_is_cut_at_a_character_and_labelled():
    made = make({"id": "i", "text": "é" * 3000}, max_bytes=5999)
    row = made.rows.to_pylist()[0]
    assert row["status"] == "too_large"
    assert row["input"] == "é" * 2048
    assert made.rejected["detail"].to_pylist() == [
        "input has 6,000 bytes, more than 5,999; cut to 4,096"
    ]
    assert make({"id": "i", "text": "é" * 3000}, max_bytes=6000).rows["status"][0].as_py() == "ok"
    long_answer = make({"id": "i", "text": "t", "answer": "x" * 6000}, max_bytes=5000)
    assert long_answer.rows["status"].to_pylist() == ["too_large"]


def test_a_text_of_200_mb_does_not_stop_the_rows_around_it():
    raw = b'{"text": "a"}\n{"text": "' + b"x" * 200_000_000 + b'"}\n{"text": "b"}\n'
    made = read_rows(
        io.BytesIO(raw), "a.jsonl", columns=ColumnMap(input="text"), options=ReadOptions()
    )
    rows = pa.concat_tables([part.rows for part in made])
    assert rows["status"].to_pylist() == ["ok", "too_large", "ok"]
    assert len(rows["input"][1].as_py()) == 4096


def test_bad_lines_and_rejected_records_are_listed_in_file_order():
    bad = [BadLine(2, "not_json", "why", "x"), BadLine(9, "too_large", "long", "y")]
    batch = Batch([{"id": 1, "text": "\ud800"}, {"id": 2, "text": " "}], [1, 3], (), bad)
    made = to_rows(batch, ALL, source_file="a.jsonl")
    assert made.rejected.schema == REJECTED_SCHEMA
    listed = [made.rejected[name].to_pylist() for name in ("source_line", "reason", "status")]
    assert listed == [
        [1, 2, 3, 9],
        ["not_unicode", "not_json", "empty", "too_large"],
        ["rejected", "rejected", "empty", "too_large"],
    ]
    assert set(made.rejected["source_file"].to_pylist()) == {"a.jsonl"}


def test_no_records_give_empty_tables_of_the_schemas():
    made = make()
    assert made.rows.schema == row_schema(("note",))
    assert made.rows.num_rows == made.rejected.num_rows == 0
    assert made.rejected.schema == REJECTED_SCHEMA


def test_the_row_hash_covers_every_column_and_not_the_place():
    plain = one()["row_hash"]
    changed = [
        one(**{field: value})["row_hash"]
        for field, value in [
            ("id", "k"), ("text", "u"), ("answer", "a"), ("label", "a"), ("doc", "a"),
            ("tags", "a"), ("w", 1), ("c", 1), ("q", 1), ("note", "a"),
        ]
    ]  # fmt: skip
    assert len({plain, *changed}) == 11
    batch = Batch([{"id": "i", "text": "t"}], [77], ())
    assert to_rows(batch, ALL, source_file="b.jsonl").rows["row_hash"][0].as_py() == plain


def test_parquet_text_that_is_not_utf8_is_rejected_by_record_number():
    raw = pa.array([b"fine", b"caf\xe9", b"too"], pa.binary()).view(pa.string())
    batch = Batch(pa.table({"text": raw}), [1, 2, 3], ("text",), fixed_columns=True)
    made = to_rows(batch, ColumnMap(input="text"), source_file="a.parquet")
    assert made.rows["input"].to_pylist() == ["fine", "too"]
    assert made.rejected["source_line"].to_pylist() == [2]


def test_a_mapping_that_was_not_resolved_never_passes_for_missing_text():
    batch = Batch([{"Text ": "a"}], [2], ("Text ",), fixed_columns=True)
    with pytest.raises(InvariantError, match=r"a\.csv: columns \['Text'\] were not resolved"):
        to_rows(batch, ColumnMap(input="Text"), source_file="a.csv")


def test_making_rows_twice_gives_equal_tables():
    records = [{"id": None, "text": "t", "label": 1}, {"id": "i", "text": "\ud800"}, {"text": ""}]
    first, second = make(*records), make(*records)
    assert first == second


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
FIELDS = ["id", "text", "answer", "label", "doc", "tags", "w", "c", "q", "note"]


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=6))
@settings(deadline=None)
def test_any_record_is_a_row_once_or_rejected_with_a_reason(records):
    made = make(*records)
    rejected = [
        row["source_line"] for row in made.rejected.to_pylist() if row["status"] == "rejected"
    ]
    places = made.rows["source_line"].to_pylist() + rejected
    assert sorted(places) == list(range(1, len(records) + 1))
    assert None not in made.rows["id"].to_pylist()
    made.rows.validate(full=True)


@given(st.integers(1, 9))
@settings(deadline=None, max_examples=9)
def test_the_same_lines_in_more_files_give_the_same_rows(n_files):
    records = [{"id": i if i % 3 else None, "text": f"text {i}", "label": i % 2} for i in range(30)]
    lines = [json.dumps(record) for record in records]
    lines[7:7] = ["", "# a comment", '{"text": "cut']
    made = []
    for at in range(n_files):
        raw = "\n".join(lines[at * len(lines) // n_files : (at + 1) * len(lines) // n_files])
        options = ReadOptions(format="jsonl")
        columns = ColumnMap(input="text", id="id", label="label")
        made += read_rows(io.BytesIO(raw.encode()), f"{at}.jsonl", columns=columns, options=options)
    rows = pa.concat_tables([part.rows for part in made]).drop_columns(
        ["source_file", "source_line"]
    )
    whole = make(*records, columns=ColumnMap(input="text", id="id", label="label")).rows
    assert rows.equals(whole.drop_columns(["source_file", "source_line"]))
    assert sum(part.rejected.num_rows for part in made) == 2
