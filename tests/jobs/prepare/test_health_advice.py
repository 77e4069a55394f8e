"""HealthAdvice: every sentence once, a split that keeps repetitions together."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from jobs.errors import ConfigError, DataError
from jobs.prepare import prepare
from tests.jobs.prepare.originals import health_file, health_records


def made(tmp_path, records, **options):
    source = str(health_file(tmp_path / "advice.json", records))
    meta = prepare("health-advice", source=source, out=str(tmp_path / "out"), **options)
    return meta, rows_of(tmp_path / "out")


def rows_of(folder, names=("corpus", "queries", "rejected")):
    return {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in names}


def test_every_record_is_a_row_of_one_of_three_classes(tmp_path):
    meta, tables = made(tmp_path, health_records())
    rows = tables["corpus"] + tables["queries"]
    assert len({row["id"] for row in rows}) == len(rows) == 66
    assert Counter(row["label"] for row in rows) == {
        "no advice": 34,
        "weak advice": 22,
        "strong advice": 10,
    }
    assert {(row["label"], row["output"]) for row in rows} == {
        ("no advice", "This is no advice"),
        ("weak advice", "This is a weak advice"),
        ("strong advice", "This is a strong advice"),
    }
    assert all(row["input"] == row["input"].strip() for row in rows)
    assert meta["notes"] == {
        "rows with white space around them": 66,
        "repeated rows": 6,
        "sentences with two labels": 0,
    }


def test_repeated_sentences_stay_on_one_side_and_classes_keep_their_shares(tmp_path):
    meta, tables = made(tmp_path, health_records(300), test_share=0.25, seed=3)
    sides = [{row["group"] for row in tables[name]} for name in ("corpus", "queries")]
    assert not sides[0] & sides[1]
    for name, number in {"no advice": 170, "weak advice": 110, "strong advice": 50}.items():
        assert abs(meta["query_labels"][name] - number / 4) <= 1


def test_another_seed_splits_otherwise_and_the_same_seed_writes_the_same_bytes(tmp_path):
    whole = [], []
    for at, seed in enumerate((5, 5, 6)):
        (tmp_path / str(at)).mkdir()
        made(tmp_path / str(at), health_records(), seed=seed)
        folder = tmp_path / str(at) / "out"
        whole[0].append((folder / "queries.parquet").read_bytes())
        whole[1].append((folder / "meta.json").read_bytes())
    assert whole[0][0] == whole[0][1] != whole[0][2]
    assert whole[1][0] == whole[1][1]


def test_the_first_rows_written_are_a_sample_of_all(tmp_path):
    _, tables = made(tmp_path, health_records(600))
    numbers = [int(row["id"].split("-")[-1]) for row in tables["corpus"]][:100]
    assert numbers != sorted(numbers)
    assert min(numbers) < 150 < 450 < max(numbers)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("a sentence", "not_a_record"),
        ({"input": "No answer."}, "not_a_record"),
        ({"input": 5, "output": "This is no advice"}, "not_a_record"),
        ({"input": " \n", "output": "This is no advice"}, "empty"),
        ({"input": "Rest.", "output": "This is advice"}, "unknown_label"),
        ({"input": "Rest \ud800.", "output": "This is no advice"}, "not_unicode"),
        ({"input": "Rest.", "output": "\ud800"}, "unknown_label"),
    ],
)
def test_a_record_that_is_no_row_is_rejected_with_its_reason(tmp_path, record, reason):
    meta, tables = made(tmp_path, [*health_records(), record])
    assert meta["rejected_reasons"] == {reason: 1}
    assert tables["rejected"][0]["id"] == "health-advice-00067"
    assert len(tables["corpus"]) + len(tables["queries"]) == 66


def test_spellings_of_an_answer_that_differ_in_case_and_stop_are_one_class(tmp_path):
    records = health_records(12)
    records[0]["output"] = " this is NO advice. "
    meta, _ = made(tmp_path, records)
    assert meta["rejected_rows"] == 0


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'[{"input": "a",\n "output": ', r"advice.json, line 2: no JSON"),
        (b"", r"advice.json, line 1: no JSON"),
        (b'{"data": []}', r"advice.json: found a JSON dict, wanted an array"),
        (b'[\n"caf\xe9"]', r"advice.json, line 2: byte 0xE9 is not UTF-8"),
        (b"[]", r"no row for corpus.parquet"),
    ],
)
def test_a_file_that_is_no_array_of_records_is_named(tmp_path, raw, message):
    (tmp_path / "advice.json").write_bytes(raw)
    with pytest.raises(DataError, match=message):
        prepare("health-advice", source=str(tmp_path / "advice.json"), out=str(tmp_path / "o"))


def test_a_folder_or_a_bad_share_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        prepare("health-advice", source=str(tmp_path), out=str(tmp_path / "o"))
    with pytest.raises(ConfigError, match=r"--test-share 1.5: wanted a part"):
        made(tmp_path, health_records(), test_share=1.5)


def test_the_real_file_has_its_8676_rows(real, tmp_path):
    source = real("originals/medical_meadow_health_advice.json")
    meta = prepare("health-advice", source=str(source), out=str(tmp_path), dev_share=0.1)
    tables = rows_of(tmp_path, ("corpus", "dev", "queries"))
    labels = Counter(row["label"] for rows in tables.values() for row in rows)
    assert labels == {"no advice": 6477, "weak advice": 1338, "strong advice": 861}
    assert labels.total() == len(json.loads(source.read_text())) == 8676
    for name, number in labels.items():
        assert abs(meta["query_labels"][name] - number / 5) <= 1
    sides = Counter(group for rows in tables.values() for group in {row["group"] for row in rows})
    assert set(sides.values()) == {1}
    assert meta["notes"]["sentences with two labels"] == 2
    assert meta["rejected_rows"] == 0
