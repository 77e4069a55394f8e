"""`status` of a run that is still at work, read from what it writes; and its log."""

import json

import pytest

from jobs import lock
from jobs.progress import Progress
from jobs.status import status
from jobs.storage import Store
from jobs.watching import watch
from jobs.watching.run_log import FLUSH_S, RunLog
from jobs.watching.stretch import Stretch
from jobs.watching.watch import Watch


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.create()
    return store


def at_work(store, run_id):
    """What a run writes that has made one of three units, and truncated some rows."""
    progress = Progress(quiet=True)
    progress.warn("12 rows look odd")
    running = Watch(progress, stall_s=1800)
    running._store, running._run_id, running.stage = store, run_id, "embed"
    stretch = Stretch("embed", pending=dict.fromkeys(["e/a.parquet", "e/b.parquet", "e/c.parquet"]))
    stretch.started -= 10
    counts = {"rows": 400, "unit_ms": 7}
    worker = {"token": stretch.token, "host": "n1", "pid": 17, "units": 1, "busy": 2}
    worker |= {"counts": counts, "at": "e/b", "at_s": 3.0, "age_s": 2.0, "peak_bytes": 2**29}
    stretch.hear([worker])
    stretch.finished("e/a.parquet", 300)
    running._write(stretch)


def test_another_process_reads_stage_pace_pending_units_and_who_works(store, capsys):
    with lock.held(store, warn=print) as hold:
        at_work(store, hold.run_id)
        answer = status(str(store.root), quiet=False)
    stretch = answer["now"]["stretch"]
    assert answer["now"]["working_on"] == "embed"
    assert (stretch["parts_done"], stretch["parts"], stretch["rows"]) == (1, 3, 400)
    assert stretch["rows_per_s"] == pytest.approx(40, rel=0.1)
    assert stretch["eta_s"] == pytest.approx(20, rel=0.1)
    assert stretch["counts"] == {"rows": 400}
    assert answer["warnings"] == ["12 rows look odd"]
    told = capsys.readouterr().out
    assert f"run {hold.run_id}, pid " in told
    assert "live, heartbeat 0 s ago" in told
    assert "embed     1/3 parts  400 rows  40 rows/s  eta 20 s" in told
    assert "pending 2: e/b.parquet, e/c.parquet" in told
    assert "n1 process 17: at e/b for 5 s, 400 rows, peak 512 MiB" in told
    assert "warning   12 rows look odd" in told


def test_what_a_dead_or_another_run_wrote_is_not_taken_for_now(store):
    with lock.held(store, warn=print):
        at_work(store, "another")
        assert status(str(store.root), quiet=True)["now"] is None
        store.write_bytes(watch.NAME, b"{")
        assert status(str(store.root), quiet=True)["now"] is None
    at_work(store, "gone")
    store.write_bytes("manifest.json", b'{"result": "running", "stage": "ingest"}')
    assert status(str(store.root), quiet=True)["now"] is None


def test_the_log_holds_every_line_once_and_is_written_whole(store, monkeypatch):
    log, progress = RunLog(store, "r1"), Progress(quiet=True)
    progress.log = log.add
    progress.line("embed", "3 parts")
    log.flush()
    assert not store.exists(log.name)
    log._last -= FLUSH_S
    log.flush()
    progress.warn("odd: ü")
    progress.warn("odd: ü")
    log.flush(now=True)
    events = [json.loads(line) for line in store.read_bytes("log/r1.jsonl").splitlines()]
    assert [(one["event"], one["stage"], one["text"]) for one in events] == [
        ("line", "embed", "3 parts"),
        ("line", "warning", "odd: ü"),
    ]
    assert all(one["time"].endswith("Z") for one in events)
    # Nothing new: nothing is written.
    store.remove_file(log.name)
    log.flush(now=True)
    assert not store.exists(log.name)


def test_a_log_that_cannot_be_written_stops_nothing(store, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left")

    log = RunLog(store, "r1")
    log.add("run")
    with monkeypatch.context() as patched:
        patched.setattr(store, "write_bytes", full)
        log.flush(now=True)
    log.flush(now=True)
    assert store.exists(log.name)
