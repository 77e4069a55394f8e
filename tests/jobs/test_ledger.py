import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import ClusterError, ConfigError, DataError
from jobs.ledger import Ledger, Unit, fingerprint
from jobs.storage import Store

UNIT = Unit("stage/abc", "part", "abc")
TABLE = pa.table({"id": pa.array(["a", "b"], pa.string()), "n": [1, 2]})


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "out"))


def files(ledger):
    return sorted(p.name for p in ledger.store.root.rglob("*") if p.is_file())


def test_a_committed_unit_is_found_and_reads_back(ledger):
    marker = ledger.commit(UNIT, TABLE, stats={"x": 1})
    assert ledger.find(UNIT) == marker
    assert ledger.read(marker).equals(TABLE)
    assert (marker.rows, marker.stats) == (2, {"x": 1})


def test_another_fingerprint_is_not_found(ledger):
    ledger.commit(UNIT, TABLE)
    assert ledger.find(Unit(UNIT.folder, UNIT.name, "other")) is None


def test_a_unit_without_its_marker_is_not_found(ledger):
    ledger.commit(UNIT, TABLE)
    ledger.store.path(UNIT.done).unlink()
    assert ledger.find(UNIT) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": 1}', "null"])
def test_a_damaged_marker_means_do_it_again(ledger, content):
    ledger.commit(UNIT, TABLE)
    ledger.store.path(UNIT.done).write_text(content)
    assert ledger.find(UNIT) is None


def test_a_shortened_file_is_found_missing_and_named_when_read(ledger):
    marker = ledger.commit(UNIT, TABLE)
    path = ledger.store.path(UNIT.table)
    path.write_bytes(path.read_bytes()[:-3])
    assert ledger.find(UNIT) is None
    with pytest.raises(DataError, match=r"part\.parquet: found \d+ bytes, wanted"):
        ledger.read(marker)


def test_a_file_of_the_right_size_and_wrong_content_is_named(ledger):
    marker = ledger.commit(UNIT, TABLE)
    ledger.store.path(UNIT.table).write_bytes(b"x" * marker.bytes)
    with pytest.raises(DataError, match=r"part\.parquet: cannot be read"):
        ledger.read(marker)


def test_an_empty_table_keeps_its_schema(ledger):
    marker = ledger.commit(UNIT, TABLE.schema.empty_table())
    assert ledger.read(marker).schema == TABLE.schema
    assert list(ledger.batches(marker, rows=10)) == []


def test_a_writer_that_fails_leaves_nothing(ledger):
    def fail_half_way():
        with ledger.writing(UNIT, TABLE.schema, {}) as writer:
            writer.write(TABLE)
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    assert files(ledger) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_store_that_cannot_write_is_a_cluster_error_and_leaves_nothing(
    ledger, monkeypatch, number
):
    def fail(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ClusterError, match=r"part\.parquet: cannot be written"):
        ledger.commit(UNIT, TABLE)
    assert files(ledger) == []


def test_a_file_size_limit_is_a_cluster_error_and_leaves_nothing(tmp_path):
    code = f"""
        import pyarrow as pa
        from jobs.errors import ClusterError
        from jobs.ledger import Ledger, Unit
        import os
        ledger = Ledger({str(tmp_path)!r})
        table = pa.table({{"x": pa.array([os.urandom(1000) for _ in range(400)])}})
        try:
            ledger.commit(Unit("stage", "part", "f"), table)
        except ClusterError as error:
            print(error)
    """

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "file limit" in done.stdout
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_writer_killed_half_way_leaves_no_unit_and_a_rerun_makes_it_whole(tmp_path):
    code = f"""
        import sys, time, pyarrow as pa
        from jobs.ledger import Ledger, Unit
        table, unit = pa.table({{"n": list(range(1000))}}), Unit("s", "part", "f")
        with Ledger({str(tmp_path)!r}).writing(unit, table.schema, {{}}) as writer:
            writer.write(table)
            print("half", flush=True)
            time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "half\n"
    child.kill()
    child.wait()
    ledger, unit = Ledger(str(tmp_path)), Unit("s", "part", "f")
    assert ledger.find(unit) is None
    table = pa.table({"n": list(range(1000))})
    marker = ledger.commit(unit, table)
    assert ledger.read(marker).column("n").to_pylist() == list(range(1000))


def test_a_commit_over_an_old_result_replaces_it_whole(ledger):
    ledger.commit(UNIT, pa.table({"id": [str(i) for i in range(1000)]}))
    marker = ledger.commit(UNIT, TABLE)
    assert ledger.read(marker).equals(TABLE)


def test_finding_a_finished_unit_changes_no_file(ledger):
    ledger.commit(UNIT, TABLE)
    before = {p: p.stat().st_mtime_ns for p in ledger.store.root.rglob("*")}
    time.sleep(0.01)
    marker = ledger.find(UNIT)
    ledger.read(marker)
    assert {p: p.stat().st_mtime_ns for p in ledger.store.root.rglob("*")} == before


def test_what_a_killed_writer_left_goes_with_the_next_commit_and_a_live_writers_file_stays(ledger):
    ledger.commit(UNIT, TABLE)
    folder = ledger.store.path(UNIT.folder)
    dead, live = folder / ".part.parquet.aaaa.tmp", folder / ".part.parquet.bbbb.tmp"
    for path in (dead, live):
        path.write_bytes(b"half")
    long_ago = time.time() - 3 * 86_400
    os.utime(dead, (long_ago, long_ago))
    ledger.commit(UNIT, TABLE)
    assert not dead.exists()
    assert live.exists()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(plain, plain)
def test_fingerprints_agree_exactly_when_the_json_agrees(a, b):
    same = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert (fingerprint("x", a) == fingerprint("x", b)) == same


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_a_config_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written"):
        Store(str(tmp_path / "out")).create()


def test_a_folder_below_a_file_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Store(str(tmp_path / "file" / "out")).create()


def test_an_output_of_another_scheme_is_a_config_error():
    with pytest.raises(ConfigError, match="wanted a local path or s3://"):
        Store("gs://bucket/run")
