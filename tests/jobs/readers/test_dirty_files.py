"""Every kind of dirty file comes out as promised: generated here, and from the data folder."""

import io
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.errors import DataError
from jobs.readers.columns import ColumnMap
from jobs.readers.duplicates import overlap, resolve_duplicates
from jobs.readers.files import read_rows
from jobs.readers.formats import ReadOptions
from jobs.readers.row_tables import REJECTED_SCHEMA, row_schema
from jobs.readers.rows import label_counts
from tests.jobs.dirty import GENERATORS

FOLDER = os.environ.get("DUALDIV_DATA_DIR")
TEXT = ColumnMap(input="text", id="id", label="label")


class Outcome(NamedTuple):
    rows: pa.Table
    rejected: pa.Table
    notes: Counter
    raw: bytes
    facts: dict

    def values(self, name):
        return self.rows.column(name).to_pylist()


@pytest.fixture(params=["generated", "real"])
def ingest(request):
    """Read a dirty file by name, from its generator or from the data folder."""
    folder = Path(FOLDER, "dirty") if FOLDER else None
    if request.param == "real" and folder is None:
        pytest.skip("DUALDIV_DATA_DIR is not set: the folder with the real dirty files")

    def run(name, columns=TEXT, **options):
        if request.param == "generated":
            raw, facts = GENERATORS[name]()
        else:
            raw = (folder / name).read_bytes()
            facts = json.loads((folder / "expected.json").read_text())[name]
        return ingest_bytes(raw, name, columns=columns, facts=facts, **options)

    return run


def ingest_bytes(raw, name, *, columns, facts, max_bytes=16 << 20, **options):
    made = list(
        read_rows(
            io.BytesIO(raw),
            name,
            columns=columns,
            options=ReadOptions(**options),
            max_bytes=max_bytes,
        )
    )
    rows = pa.concat_tables([row_schema(columns.keep).empty_table(), *(one.rows for one in made)])
    rejected = [REJECTED_SCHEMA.empty_table(), *(one.rejected for one in made)]
    notes = sum((one.notes for one in made), Counter())
    return Outcome(rows, pa.concat_tables(rejected), notes, raw, facts)


def json_lines(raw):
    """Every line of a file that is a JSON object, parsed by the standard library alone."""
    records = {}
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        records[number] = value
    return records


def test_every_generated_kind_stands_for_a_file_of_the_data_folder():
    if FOLDER is None:
        pytest.skip("DUALDIV_DATA_DIR is not set: the folder with the real dirty files")
    expected = json.loads(Path(FOLDER, "dirty", "expected.json").read_text())
    assert set(GENERATORS) == set(expected)


def test_csv_keeps_inner_line_breaks_and_finds_columns_with_edge_spaces(ingest):
    columns = ColumnMap(input="Sentence", id="ID", label="Label", keep=("Notes",))
    got = ingest("01_bom_crlf_quoted_newlines.csv", columns)
    texts, lines = got.values("input"), got.values("source_line")
    assert got.rows.num_rows == got.facts["records"]
    assert got.rejected.num_rows == 0
    assert sum("\n" in text for text in texts) == got.facts["with_embedded_newline"]
    assert any("\r\n" in text for text in texts)
    assert any("\n" in text and "\r\n" not in text for text in texts)
    assert lines[0] == 2
    for text, line, following in zip(texts, lines, lines[1:], strict=False):
        assert following == line + 1 + text.count("\n")
    assert lines[-1] + texts[-1].count("\n") == got.facts["physical_lines"]
    assert set(label_counts(got.rows)) == {"0", "1", "2"}
    assert not any(value.startswith("\ufeff") for value in got.values("id"))
    assert sum("Sentence" in note for note in got.notes) == 1
    assert any(note and "," in note for note in got.values("Notes"))


def test_csv_names_the_columns_there_are_when_one_is_missing(ingest):
    columns = ColumnMap(input="sentense", id="ID")
    with pytest.raises(DataError, match=r"01_bom.*'sentense'.*'Sentence '.*Did you mean"):
        ingest("01_bom_crlf_quoted_newlines.csv", columns)


def test_bad_lines_are_named_and_labels_of_every_type_stay_apart(ingest):
    got = ingest("03_missing_null_int_labels.jsonl")
    defects = got.facts["defects"]
    parsed = json_lines(got.raw)
    rejected = got.rejected.filter(pc.equal(got.rejected["status"], "rejected"))
    bad = rejected.column("source_line").to_pylist()
    assert got.rows.num_rows == got.facts["parseable_records"]
    assert len(bad) == got.facts["bad_lines"]
    assert not set(bad) & set(parsed)
    assert bad == got.facts.get("bad_line_numbers", bad)
    assert Counter(rejected["reason"].to_pylist()) == {"comment": 1, "truncated_line": 2}
    assert got.values("source_line") == sorted(parsed)
    n_empty = defects["text missing"] + defects["text null"] + defects["text blank"]
    assert got.values("status").count("empty") == n_empty
    assert got.rejected["reason"].to_pylist().count("empty") == n_empty
    n_null = defects["label missing"] + defects["label null"] + defects["label empty string"]
    assert label_counts(got.rows)[None] == n_null
    n_coerced = sum(defects[f"label {kind}"] for kind in ("int", "float", "bool", "list"))
    assert got.notes["label_coerced"] == n_coerced
    assert got.notes["json_not_finite_as_null"] == defects["NaN literal"]
    for label, line in zip(got.values("label"), got.values("source_line"), strict=True):
        raw = parsed[line].get("label")
        if isinstance(raw, str) and raw.strip():
            assert label == raw
        elif isinstance(raw, bool | int | float):
            assert label == json.dumps(raw)


def test_rows_that_share_an_id_all_stay_under_ids_of_their_own(ingest):
    columns = ColumnMap(input="text", id="id", label="intent")
    got = ingest("04_duplicate_ids.jsonl", columns)
    defects = got.facts["defects"]
    rows, rejected, counts = resolve_duplicates(got.rows, on_duplicate_id="rename")
    ids = rows.column("id").to_pylist()
    assert len(set(ids)) == len(ids) == got.facts["records"]
    assert rejected.num_rows == 0
    assert pc.count_distinct(rows["input"]).as_py() == got.facts["distinct_texts"]
    number_or_text = defects['id 90 and "90"']
    assert counts["duplicate_row"] == defects["exact duplicate record"] + number_or_text
    assert counts["duplicate_id_other_text"] == defects["same id, other text"]
    assert counts["duplicate_id_other_label"] == defects["same id and text, other label"]
    n_renamed = counts["duplicate_id"]
    assert n_renamed == sum("~" in row_id for row_id in ids)
    assert n_renamed == sum("duplicate_id" in flags for flags in rows["flags"].to_pylist())
    assert got.notes["made_up_id"] == defects["id missing"] + defects["id null"]
    assert sum(row_id != row_id.strip() for row_id in ids) == defects["id with spaces"]


def test_dictionary_columns_are_decoded_and_only_used_labels_are_counted(ingest):
    columns = ColumnMap(input="Text", label="LABEL")
    got = ingest("06_dictionary_strings.parquet", columns)
    labels = label_counts(got.rows)
    assert got.rows.num_rows == got.facts["records"]
    assert labels[None] == got.facts["null_LABEL"]
    assert len(labels) == 4
    assert not any(label and "unused" in label for label in labels)
    assert any("'label' differs" in note for note in got.notes)
    numbers = ingest("06_dictionary_strings.parquet", replace(columns, label="label"))
    assert numbers.notes["label_coerced"] == got.facts["records"]
    with pytest.raises(DataError, match=r"'Label'.*'LABEL', 'label'"):
        ingest("06_dictionary_strings.parquet", replace(columns, label="Label"))


@pytest.mark.parametrize("name", ["07_plain.jsonl.gz", "07_gzip_without_gz_suffix.jsonl"])
def test_gzip_is_known_by_its_content(ingest, name):
    got = ingest(name)
    assert got.rows.num_rows == got.facts["records"]
    assert got.rejected.num_rows == 0


def test_a_truncated_gzip_is_refused_as_truncated(ingest):
    with pytest.raises(DataError, match=r"07_truncated.jsonl.gz.*truncated"):
        ingest("07_truncated.jsonl.gz")


def test_lines_that_are_not_utf8_are_rejected_by_number(ingest):
    got = ingest("08_non_utf8_bytes.jsonl")
    bad = []
    for number, line in enumerate(got.raw.split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            bad.append(number)
    assert got.rejected["source_line"].to_pylist() == bad
    assert set(got.rejected["reason"].to_pylist()) == {"bad_encoding"}
    assert len(bad) == got.facts["lines_not_utf8"]
    assert got.rows.num_rows == got.facts["records"] - len(bad)


def test_flawed_text_passes_byte_for_byte(ingest):
    got = ingest("09_mojibake_entities.jsonl")
    assert got.values("input") == [one["text"] for one in json_lines(got.raw).values()]
    assert got.rows.num_rows == got.facts["records"]
    assert any("\x80" <= char <= "\x9f" for text in got.values("input") for char in text)


def test_long_texts_stay_whole_up_to_the_limit_and_are_labelled_above_it(ingest):
    got = ingest("10_very_long_documents.jsonl")
    assert [len(text) for text in got.values("input")] == got.facts["chars"]
    assert set(got.values("status")) == {"ok"}
    got = ingest("10_very_long_documents.jsonl", max_bytes=20_000)
    n_long = sum(length > 20_000 for length in got.facts["chars"])
    assert got.values("status").count("too_large") == n_long
    assert got.rejected["reason"].to_pylist() == ["too_large"] * n_long
    assert got.rows.num_rows == got.facts["records"]
    too_large = got.rows.filter(pc.equal(got.rows["status"], "too_large"))
    assert 4000 < max(len(text.encode()) for text in too_large["input"].to_pylist()) <= 4096


def test_unicode_is_kept_and_only_line_feeds_end_a_line(ingest):
    columns = replace(TEXT, keep=("kind",))
    got = ingest("11_emoji_rtl_zero_width.jsonl", columns)
    parsed = json_lines(got.raw)
    assert got.rows.num_rows + got.rejected.num_rows == got.facts["records"] == len(parsed)
    assert got.rejected["reason"].to_pylist() == ["not_unicode"]
    for text, line in zip(got.values("input"), got.values("source_line"), strict=True):
        assert text == parsed[line]["text"]
    joined = "".join(got.values("input"))
    assert all(char in joined for char in "\x00\u2028\u2029\u0085\u200b\u202e")
    hashes = {}
    for kind, text_hash in zip(got.values("kind"), got.values("text_hash"), strict=True):
        hashes.setdefault(kind, set()).add(text_hash)
    for copy in ("zero-width copy", "nbsp copy", "bidi override", "full-width copy"):
        assert hashes[copy] == hashes["plain"]


@pytest.mark.parametrize(
    "name", ["13_empty.jsonl", "13_header_only.csv", "13_blank_lines.jsonl", "13_zero_rows.parquet"]
)
def test_a_file_without_records_gives_an_empty_table_of_the_schema(ingest, name):
    got = ingest(name)
    assert got.rows.num_rows == got.rejected.num_rows == got.facts["records"] == 0
    assert got.rows.schema == row_schema(())


def test_one_row_without_a_final_line_feed_is_read(ingest):
    got = ingest("13_one_row.jsonl")
    assert got.rows.num_rows == got.facts["records"] == 1
    assert got.values("status") == ["ok"]


def test_identical_texts_stay_rows_of_their_own(ingest):
    got = ingest("14_all_identical.jsonl")
    assert got.rows.num_rows == got.facts["records"]
    assert len(set(got.values("text_hash"))) == got.facts["distinct_texts"]
    assert len(set(got.values("row_hash"))) == got.facts["records"]


def test_nearly_identical_texts_are_not_taken_for_one(ingest):
    got = ingest("14_near_identical_ddi.jsonl")
    assert len(set(got.values("input"))) == got.facts["records"]
    assert len(set(got.values("text_hash"))) == got.facts["records"]


@pytest.mark.parametrize("name", ["16_array.json", "16_array.jsonl"])
def test_a_json_array_is_known_by_its_content(ingest, name):
    got = ingest("16_array.json")
    again = ingest_bytes(got.raw, name, columns=TEXT, facts=got.facts)
    assert again.rows.num_rows == got.facts["records"]
    assert again.values("source_line") == list(range(1, got.facts["records"] + 1))


def test_a_wrapped_array_is_found_and_its_key_is_named(ingest):
    columns = ColumnMap(input="input", output="output", label="output")
    got = ingest("16_wrapped_alpaca.json", columns)
    assert got.rows.num_rows == got.facts["records"]
    assert any("'data'" in note for note in got.notes)
    assert all(" " in label for label in got.values("label"))
    with pytest.raises(DataError, match=r"'rows'.*'version', 'data'"):
        ingest("16_wrapped_alpaca.json", columns, records_key="rows")


def test_every_spelling_of_a_label_is_counted_and_none_is_merged(ingest):
    got = ingest("17_label_variants.csv", ColumnMap(input="text", label="label", keep=("gold",)))
    counts = label_counts(got.rows)
    assert len(counts) == got.facts["distinct_labels"]
    assert sum(counts.values()) == got.facts["records"]
    assert any(label != label.strip() for label in counts)
    assert {"0", "0.0"} <= set(counts)


def test_overlap_is_found_by_normalised_text(ingest):
    train, test = ingest("19_leak_train.jsonl"), ingest("19_leak_test.jsonl")
    assert train.rows.num_rows == train.facts["records"]
    assert test.rows.num_rows == test.facts["records"]
    leaked = test.facts["leaked"]
    assert overlap(train.rows["text_hash"], test.rows["text_hash"]) == sum(leaked.values())
    by_raw_text = overlap(train.rows["input"], test.rows["input"])
    assert leaked["exact"] <= by_raw_text < sum(leaked.values())
