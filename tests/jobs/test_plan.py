"""How many rows there are: counted where a file is small, estimated from its start where not."""

import gzip
import json

import pytest

from jobs import plan
from jobs.config.tables import TableConfig
from jobs.readers.sources import find

N_ROWS = 12_000


def rows_planned(path):
    *_, rows = plan._sample(TableConfig(path=str(path)), find(str(path), key="corpus.path"))
    return rows


def written(path, *, packed):
    lines = "".join(
        json.dumps({"id": f"r{i}", "input": f"{'some words of ' * 6}{i}"}) + "\n"
        for i in range(N_ROWS)
    )
    path.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_read_in_a_few_fetches_is_counted(tmp_path, packed):
    assert rows_planned(written(tmp_path / "a.jsonl", packed=packed)) == N_ROWS


def test_rows_handed_out_belong_to_what_was_fetched_before_the_last_fetch():
    # 300 rows were handed out when the third fetch of 1,000 bytes was made.
    assert plan._rows_a_byte([(0, 0), (100, 1000), (200, 2000), (300, 3000)]) == 0.15
    # All in one fetch.
    assert plan._rows_a_byte([(0, 0), (50, 1000)]) == 0.05
