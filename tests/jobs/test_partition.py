"""What a part says of its rows: enough to know what a change of them moves."""

from dataclasses import asdict

import pyarrow as pa
import pytest

from jobs.ledger import Ledger, Unit
from jobs.partition import SIDES, PartitionWork, part_stats
from jobs.readers.row_tables import row_schema

ROWS = [
    {"id": "a", "input": "one", "status": "ok", "weight": 1.0, "group": "g"},
    {"id": "b", "input": "two", "status": "ok", "cost": 2.0, "quality": 3.0},
]


def stats(*changes):
    rows = [row | change for row, change in zip(ROWS, changes or ({}, {}), strict=True)]
    table = pa.Table.from_pylist(
        [{"flags": [], "row_hash": str(row)} | row for row in rows], schema=row_schema([])
    )
    return part_stats(table)


@pytest.mark.parametrize(
    ("side", "value"),
    [("weight", 4.0), ("cost", 0.5), ("quality", None), ("group", "h")],
)
def test_a_changed_side_column_shows_in_its_own_digest_and_not_in_that_of_the_texts(side, value):
    before, after = stats(), stats({}, {side: value})
    assert after["texts"] == before["texts"]
    assert after["content"] != before["content"]
    changed = {name for name in SIDES if after["sides"][name] != before["sides"][name]}
    assert changed == {side}


def test_values_that_change_places_show():
    assert (
        stats({"weight": 1.0}, {"weight": 2.0})["sides"]["weight"]
        != stats({"weight": 2.0}, {"weight": 1.0})["sides"]["weight"]
    )


def test_a_column_without_any_value_has_no_digest():
    found = stats({"weight": None, "group": None}, {"cost": None, "quality": None})
    assert found["sides"] == dict.fromkeys(SIDES)


def test_what_a_segment_says_of_earlier_ones_does_not_grow_with_what_they_said(tmp_path):
    ledger, work = Ledger(str(tmp_path)), PartitionWork(str(tmp_path))
    previous, rows = [], []
    for segment in range(6):
        text = f"text {segment}"
        rows.append({"id": str(segment), "input": text, "status": "ok", "flags": []})
        rows[-1] |= {"row_hash": text, "text_hash": text}
        spill = Unit("spills", f"s{segment}", "f")
        table = pa.Table.from_pylist(rows, schema=row_schema([]))
        ledger.commit(spill, table, stats={"groups": [0]})
        payload = {
            "unit": asdict(Unit("corpus", f"part-s{segment:04d}-p00000", str(segment))),
            "rejects": asdict(Unit("rejected", f"r{segment}", "f")),
            "partition": 0,
            "keep": [],
            "on_duplicate_id": "rename",
            "spills": [asdict(spill)],
            "previous": previous,
        }
        marker = work(payload)
        kept = marker.stats["kept"]
        assert [number for number, _ in kept] == list(range(segment))
        assert not any("kept" in plain["stats"] for _, plain in kept)
        previous = [*kept, [segment, marker.as_dict()]]
