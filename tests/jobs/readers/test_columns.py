"""Columns are found by their exact names, and a missing one is named with those that exist."""

import io
import json

import pytest

from jobs.errors import ConfigError, DataError
from jobs.readers.columns import ColumnMap, resolve
from jobs.readers.files import read_rows
from jobs.readers.formats import ReadOptions


def found(columns, **mapping):
    return resolve(columns, ColumnMap(**mapping), name="a.csv")


def test_an_exact_name_wins_over_one_with_edge_white_space():
    resolved, notes = found(["text ", "text"], input="text")
    assert resolved.input == "text"
    assert "'text ' differs" in notes[0]


def test_a_name_is_found_behind_edge_white_space_and_the_note_says_so():
    resolved, notes = found(["\ttext "], input="text", keep=("text",))
    assert resolved.input == "\ttext "
    assert (resolved.keep, resolved.keep_as) == (("\ttext ",), ("text",))
    assert notes == ["a.csv: column 'text' was found as '\\ttext '"]


def test_two_names_that_differ_by_white_space_only_are_ambiguous():
    with pytest.raises(DataError, match=r"could be ' text' or 'text '"):
        found([" text", "text "], input="text")


def test_case_matters_and_a_twin_in_another_case_is_noted():
    resolved, notes = found(["LABEL", "label", "t"], input="t", label="LABEL")
    assert resolved.label == "LABEL"
    assert "'label' differs from it only by case" in notes[0]
    with pytest.raises(
        DataError, match=r"no column 'Label'.*Did you mean 'label'.*with their case"
    ):
        found(["LABEL", "label", "t"], input="t", label="Label")


def test_a_missing_column_is_named_with_those_that_exist():
    with pytest.raises(
        DataError, match=r"a\.csv: no column 'texd'. It has: 'id', 'text'.*'text'\?"
    ):
        found(["id", "text"], input="texd")
    with pytest.raises(DataError, match=r"'c29' and 70 more"):
        found([f"c{i}" for i in range(100)], input="text")


def test_a_missing_id_column_is_noted_and_ids_are_made_up():
    resolved, notes = found(["ID", "text"], input="text", id="id")
    assert resolved.id is None
    assert "ids are made up" in notes[0]
    assert "Did you mean 'ID'" in notes[0]


def test_a_kept_column_may_not_hide_a_field_of_the_row():
    with pytest.raises(ConfigError, match=r"columns\.keep: 'label' would hide"):
        ColumnMap(input="text", keep=("doc", "label"))


def rows_of(records, **mapping):
    raw = "\n".join(map(json.dumps, records)).encode()
    options = ReadOptions()
    return list(
        read_rows(io.BytesIO(raw), "a.jsonl", columns=ColumnMap(**mapping), options=options)
    )


def test_a_key_that_json_records_lack_here_and_there_is_null():
    made = rows_of([{"text": "a"}, {"text": "b", "label": "x"}], input="text", label="label")
    assert made[0].rows["label"].to_pylist() == [None, "x"]
    assert not any("label" in note for note in made[0].notes)


def test_a_text_key_that_no_json_record_has_is_refused_with_the_keys_seen():
    with pytest.raises(DataError, match=r"a\.jsonl: no column 'body'. It has: 'text', 'label'"):
        rows_of([{"text": "a"}, {"label": "x"}], input="body")


def test_any_other_key_that_no_json_record_has_is_noted():
    made = rows_of([{"text": "a"}], input="text", label="label", id="id")
    notes = [note for one in made for note in one.notes]
    assert any("no record has 'label'" in note for note in notes)
    assert any("no column 'id': ids are made up" in note for note in notes)
