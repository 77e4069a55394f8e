"""The Ray-free embedding of one part, with a fake encoder; selection never sees a bad vector."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from inference.encoder import Encoded
from inference.status import Status
from jobs.embed import EmbedWork, embed_rows
from jobs.ledger import Ledger, Unit
from jobs.vectors import sample, to_lists, to_matrix, usable, vector_schema


class FakeEncoder:
    """Gives texts that say so a bad or a truncated vector, all others a unit vector."""

    dimension = 4

    def encode(self, texts, *, ids):
        vectors = np.zeros((len(texts), 4), np.float32)
        status = []
        for i, text in enumerate(texts):
            state = Status.EMPTY if not text else Status.NOT_FINITE if "bad" in text else Status.OK
            status.append(state)
            if state is Status.OK:
                vectors[i, len(text) % 4] = 1.0
        truncated = np.array(["long" in text for text in texts], bool)
        return Encoded(vectors, np.full(len(texts), 3, np.int32), truncated, status)


def rows(texts, status=None):
    ids = [f"r{i}" for i in range(len(texts))]
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "input": pa.array(texts, pa.large_string()),
            "status": pa.array(status or ["ok"] * len(texts), pa.string()),
        }
    )


def embedded(ledger, table, name="part"):
    unit = Unit(f"embeddings/e/{name}", "part", name)
    work = EmbedWork(str(ledger.store.root), None, {"document": FakeEncoder()})
    work.spec = type("Spec", (), {"storage": "float32", "batch_size": 32})()
    marker = ledger.commit(Unit(f"rows/{name}", "rows", name), table)
    payload = {"unit": vars(unit), "rows": marker.as_dict(), "role": "document"}
    return work(payload)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path))


def test_rows_without_a_finite_vector_never_reach_selection(ledger):
    marker = embedded(ledger, rows(["one", "bad", "three"]))
    assert ledger.read(marker)["status"].to_pylist() == ["ok", "not_finite", "ok"]
    ids, vectors = usable(ledger, [marker])
    assert ids == ["r0", "r2"]
    assert np.linalg.norm(vectors, axis=1).tolist() == [1.0, 1.0]
    assert marker.stats["status"] == {"ok": 2, "not_finite": 1}


def test_truncated_rows_are_counted(ledger):
    marker = embedded(ledger, rows(["a long one", "short", "long"]))
    assert (marker.stats["n_truncated"], marker.stats["n_tokens"]) == (2, 9)


def test_a_status_given_before_is_kept_and_the_text_not_sent(ledger):
    marker = embedded(ledger, rows(["cut", None, "fine"], ["too_large", "empty", "ok"]))
    assert ledger.read(marker)["status"].to_pylist() == ["too_large", "empty", "ok"]
    assert usable(ledger, [marker])[0] == ["r2"]


@pytest.mark.parametrize("storage", ["float32", "float16"])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_vectors_keep_their_type_for_0_1_and_n_rows(n, storage):
    schema = vector_schema(4, storage)
    table = embed_rows(FakeEncoder(), rows(["x"] * n), storage=storage, schema=schema)
    assert table.schema == schema
    assert to_matrix(table["vector"]).shape == (n, 4)


def test_the_same_part_made_twice_is_the_same_table(ledger):
    first = embedded(ledger, rows(["one", "two"]), name="a")
    second = embedded(ledger, rows(["one", "two"]), name="b")
    assert first.checksum == second.checksum


def test_a_matrix_survives_the_way_through_lists_and_chunks():
    matrix = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    chunked = pa.chunked_array([to_lists(matrix[:4], "float32"), to_lists(matrix[4:], "float32")])
    assert np.array_equal(to_matrix(chunked), matrix)
    assert np.array_equal(to_matrix(chunked.slice(2, 5)), matrix[2:7])


def test_a_sample_reads_whole_partitions_and_is_the_same_every_time(ledger):
    partitions = [[embedded(ledger, named(p), name=f"p{p}")] for p in range(4)]
    ids, vectors = sample(ledger, partitions, size=15, seed=0)
    assert len(set(ids)) == len(vectors) == 15
    assert ids == sorted(ids)
    assert {i[:2] for i in ids} == {"p0", "p1"}
    assert sample(ledger, partitions, size=15, seed=0)[0] == ids
    assert sample(ledger, partitions, size=15, seed=1)[0] != ids
    assert len(sample(ledger, partitions, size=1000, seed=0)[0]) == 40


def named(partition):
    table = rows(["text"] * 10)
    ids = [f"p{partition}-{i}" for i in range(10)]
    return table.set_column(0, "id", pa.array(ids, pa.string()))


PEAK = """
import sys
import numpy as np, pyarrow as pa
from inference.encoder import Encoded
from inference.status import Status
from jobs.embed import EmbedWork
from jobs.ledger import Ledger, Unit

def peak():  # not ru_maxrss, which remembers the process that started this one
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

class Encoder:
    dimension = 384
    def encode(self, texts, *, ids):
        n = len(texts)
        vectors = np.full((n, 384), 384 ** -0.5, np.float32)
        return Encoded(vectors, np.ones(n, np.int32), np.zeros(n, bool), [Status.OK] * n)

n, out = int(sys.argv[1]), sys.argv[2]
ledger = Ledger(out)
with ledger.writing(Unit("rows", "rows", "r"), pa.schema([("id", pa.string()),
        ("input", pa.large_string()), ("status", pa.string())]), {}) as writer:
    for start in range(0, n, 5000):
        ids = [f"r{i}" for i in range(start, start + 5000)]
        writer.write(pa.table([ids, [f"text {i}" for i in ids], ["ok"] * 5000],
                              schema=writer.schema))
rows = ledger.find(Unit("rows", "rows", "r"))
spec = type("Spec", (), {"storage": "float32", "batch_size": 32})()
work = EmbedWork(out, spec, {"document": Encoder()})
unit = {"folder": "e", "name": "part", "fingerprint": "e"}
before = peak()
made = work({"unit": unit, "rows": rows.as_dict(), "role": "document"})
assert made.rows == n
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's /proc")
def test_peak_memory_of_a_part_does_not_grow_with_its_rows(tmp_path):
    grown_kib = [
        int(
            subprocess.run(
                [sys.executable, "-c", PEAK, str(n), str(tmp_path / str(n))],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for n in (10_000, 100_000)
    ]
    # All vectors of the larger part take 150,000 KiB.
    assert grown_kib[1] - grown_kib[0] < 40_000
