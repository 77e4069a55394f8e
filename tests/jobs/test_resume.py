"""What a run leaves is enough to go on from, and is what anyone would make again."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.ledger import Ledger

TEXTS = {"input", "output", "prompt", "raw_output", "rendered", "wrong_output", "why"}
MADE = ("corpus", "queries", "embeddings", "candidates", "pool", "demonstrations", "prompts")


def tables(project):
    """Every committed table by its path."""
    paths = sorted(project.out.rglob("*.parquet"))
    return {str(path.relative_to(project.out)): pq.read_table(path) for path in paths}


@pytest.fixture
def assembled(project):
    project.execute("assemble")
    return project


def test_every_part_made_twice_is_the_same_table(assembled):
    first = tables(assembled)
    assert {name.partition("/")[0] for name in first} >= set(MADE)
    for path in assembled.out.rglob("*.done.json"):
        path.unlink()
    (assembled.out / "manifest.json").unlink()
    assembled.execute("assemble")
    second = tables(assembled)
    assert first.keys() == second.keys()
    assert [name for name in first if not first[name].equals(second[name])] == []


def test_only_what_an_unfinished_part_needs_is_opened(assembled, monkeypatch):
    part = sorted(assembled.out.glob("embeddings/*/*/part.done.json"))[0]
    part.unlink()
    opened, real = [], Ledger.opened

    def note(ledger, marker):
        opened.append(marker.table)
        return real(ledger, marker)

    monkeypatch.setattr(Ledger, "opened", note)
    assembled.execute("embed")
    assert len(opened) == 1
    assert opened[0].partition("/")[0] in ("corpus", "queries")
    assembled.execute("embed")
    assert len(opened) == 1


def test_the_state_of_a_run_is_plain_files_beside_its_results(assembled):
    for path in assembled.out.rglob("*"):
        if path.is_file():
            assert path.suffix in (".parquet", ".json", ".jsonl"), path
            if path.suffix == ".json":
                json.loads(path.read_text())
            if path.suffix == ".jsonl":
                assert [json.loads(line) for line in path.read_text().splitlines()]


def test_text_is_large_in_every_table_that_is_written(assembled):
    seen = set()
    for name, table in tables(assembled).items():
        for field in table.schema:
            if field.name in TEXTS:
                seen.add(field.name)
                assert field.type == pa.large_string(), f"{name}: {field}"
    assert seen >= {"input", "prompt", "rendered"}
