"""An input ten times the object store: only notes about files travel through it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.driving import STORE_MIB, ended, found, make_project, start

pytestmark = pytest.mark.ray
N_FILES, ROW_BYTES = 8, 256 * 1024
ROWS_A_FILE = 10 * STORE_MIB * 2**20 // ROW_BYTES // N_FILES


def write_corpus(folder):
    """Ten times the store in text, a few MiB on disk."""
    text = ("river lake rain ocean wave stream " * ROW_BYTES)[:ROW_BYTES]
    schema = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("topic", pa.string())])
    for number in range(N_FILES):
        with pq.ParquetWriter(folder / f"{number}.parquet", schema) as writer:
            for start_row in range(0, ROWS_A_FILE, 50):
                ids = [f"{number}-{i}" for i in range(start_row, min(start_row + 50, ROWS_A_FILE))]
                columns = [ids, [f"{name} {text}" for name in ids], ["water"] * len(ids)]
                writer.write_table(pa.table(columns, schema=schema))


def test_an_input_ten_times_the_object_store_passes_and_nothing_is_spilled(nodes, models, tmp_path):
    project = make_project(tmp_path, models)
    (tmp_path / "corpus" / "a.jsonl").unlink()
    write_corpus(tmp_path / "corpus")
    ended(start(project, "ingest", nodes))
    counts = project.manifest["tables"]["corpus"]["counts"]
    assert counts["rows"] == N_FILES * ROWS_A_FILE
    ids = [
        one
        for path in found(project, "corpus/*/part-*.parquet")
        for one in pq.read_table(path, columns=["id"])["id"].to_pylist()
    ]
    assert sorted(ids) == sorted(f"{n}-{i}" for n in range(N_FILES) for i in range(ROWS_A_FILE))
    assert nodes.spilled() == []
