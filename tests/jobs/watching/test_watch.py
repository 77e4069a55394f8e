"""The watch: a worker that waits is a stall, one that computes is none; what others can read."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pytest
import ray

from jobs.config.cluster import WorkersConfig
from jobs.errors import ClusterError
from jobs.ledger import Ledger, Unit
from jobs.progress import Progress
from jobs.selecting.workers import _got
from jobs.storage import Store
from jobs.units import asked, run_units
from jobs.watching import pulse
from jobs.watching import watch as watching
from jobs.watching.board import board
from jobs.watching.metrics import Meters
from jobs.watching.pulse import BEAT_S, count
from jobs.watching.stretch import Stretch, stalled
from jobs.watching.watch import Watch

STALL_S = 3.0


@dataclass
class Work:
    """Makes five rows, and may wait for what does not come."""

    out: str

    def __call__(self, payload):
        count(rows=5, batches=2)
        time.sleep(payload["sleeps_s"])
        return Ledger(self.out).commit(Unit(**payload["unit"]), pa.table({"n": [1] * 5}))


def payload(name, *, sleeps_s=0.0):
    unit = {"folder": "made", "name": name, "fingerprint": name}
    return {"unit": unit, "sleeps_s": sleeps_s}


def scraped(words, *, within_s=25.0):
    """What the node's metrics endpoint says once it says these words."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        lines = urllib.request.urlopen(url, timeout=5).read().decode().splitlines()
        found = [line for line in lines if all(word in line for word in words)]
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{url} does not say {words}")


def watched(store, watch, payloads):
    """Make units under a watch; yields each marker's name."""
    names = [f"made/{one['unit']['name']}.parquet" for one in payloads]
    with (
        watch.begun(store, "run7"),
        watch.stretch("embed", pending=names, asked="1 CPUs and 0 GPUs") as stretch,
        stretch.wait(),
    ):
        stretch.beat_s = STALL_S / 4
        units = run_units(
            Work(str(store.root)),
            payloads,
            workers=WorkersConfig(actors=1),
            stateful=True,
            stretch=stretch,
        )
        for marker in units:
            watch.finished(marker.table, marker.rows)
            yield marker.name


def in_a_hurry(store, watch, at, seen):
    """Once a worker is at this unit, and not before: that takes as long as the machine is busy."""
    while not any(one["at"] == at for one in watch.heard()):
        time.sleep(0.05)
    watch.stall_s = STALL_S
    while not store.exists(watching.NAME):
        time.sleep(0.05)
    seen.append(json.loads(store.read_bytes(watching.NAME)))


@pytest.mark.ray
def test_a_worker_that_sleeps_is_a_stall_and_is_named(tmp_path, embedded_ray):
    store, seen = Store(str(tmp_path)), []
    watch = Watch(Progress(quiet=True), stall_s=60.0)
    ray.get(board().read.remote("nobody"))  # it is up, however busy the machine
    hurry = threading.Thread(
        target=in_a_hurry, args=(store, watch, "made/stuck", seen), daemon=True
    )
    hurry.start()
    with pytest.raises(ClusterError) as told:
        list(watched(store, watch, [payload("stuck", sleeps_s=30)]))
    hurry.join(timeout=10)
    text = str(told.value)
    assert "embed: no progress for 3 s (timeouts.stall_s). Pending: 1: made/stuck.parquet." in text
    assert "at made/stuck for" in text
    assert "asks for 1 CPUs and 0 GPUs; free: 1 of 2 CPUs and 0 of 0 GPUs on 1 nodes" in text
    # What another process could read meanwhile.
    (state,) = seen
    assert state["stretch"]["pending"] == ["made/stuck.parquet"]
    assert not store.exists(watching.NAME)
    # What is left when it is over.
    events = [json.loads(line) for line in store.read_bytes("log/run7.jsonl").splitlines()]
    events = [event for event in events if event["event"] != "line"]
    assert [event["event"] for event in events] == ["run", "stalled", "failed"]
    assert events[1]["pending"] == ["made/stuck.parquet"]
    assert events[2]["text"] == text


@pytest.mark.ray
def test_what_was_counted_can_be_scraped_from_the_node(embedded_ray):
    meters, stretch = Meters("run8"), Stretch("embed")
    stretch.hear([report(1, rows=1234, token=stretch.token)])
    meters.end(stretch)
    assert scraped(["dualdiv_rows", 'run="run8"', 'stage="embed"', " 1234.0"])


@pytest.fixture
def told_to(monkeypatch):
    """A process at a unit, and what its board was told."""
    told = []
    beat = SimpleNamespace(remote=told.append)
    process = pulse._Process(token="t", at="made/x", beat_s=5.0, board=SimpleNamespace(beat=beat))
    monkeypatch.setattr(pulse, "_process", process)
    return process, told


@pytest.mark.parametrize(
    ("used_s", "read_bytes", "works"),
    [(0.05, 0, False), (2.0, 0, True), (0.0, 50 << 20, True), (0.05, 1000, False)],
)
def test_computing_and_reading_are_signs_of_work_and_waiting_is_none(
    told_to, used_s, read_bytes, works
):
    _, told = told_to
    pulse._one_beat((10.0, 100), (10.0 + used_s, 100 + read_bytes), was_idle=False)
    stretch = Stretch("embed", token="t")
    stretch.hear([one | {"busy": 0, "age_s": 0.0} for one in told])
    stretch.moved = time.monotonic() - 100
    stretch.hear(told)
    assert (stretch.idle_s < 50) == works


def test_what_a_process_started_computes_for_it(monkeypatch):
    still = SimpleNamespace(process_time=lambda: 0.0, thread_time=lambda: 0.0)
    monkeypatch.setattr(pulse, "time", still)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            before, _ = pulse._spent()
            until = time.monotonic() + 30
            while pulse._spent()[0] < before + 0.2 and time.monotonic() < until:
                time.sleep(0.1)
            assert pulse._spent()[0] >= before + 0.2
        finally:
            child.kill()


def test_what_is_fetched_to_a_disk_is_a_sign_of_work(tmp_path):
    _, before = pulse._spent()
    (tmp_path / "weights").write_bytes(bytes(4 * pulse.BUSY_BYTES))
    assert pulse._spent()[1] - before > 4 * pulse.BUSY_BYTES


def test_a_worker_asks_for_memory_and_own_resources_in_words_too():
    assert asked(WorkersConfig(cpus=2)) == "2 CPUs and 0 GPUs"
    large = WorkersConfig(gpus=0.5, memory="4GiB", resources={"tpu": 1.0})
    assert asked(large) == "1 CPUs and 0.5 GPUs, 1 tpu, 4.0 GiB of memory"


def test_an_idle_worker_says_so_once(told_to):
    process, told = told_to
    process.at, spent = None, (0.0, 0)
    _, idle = pulse._one_beat(spent, (9.0, 0), was_idle=False)
    assert idle
    assert [(one["at"], one["busy"]) for one in told] == [(None, 0)]
    pulse._one_beat(spent, (9.0, 0), was_idle=True)
    assert len(told) == 1


def test_a_process_counts_anew_in_another_stretch(told_to):
    process, _ = told_to
    for token, rows in (("a", 3), ("a", 7), ("b", 4)):
        with pulse.Teller(None, token, "embed").working("made/y"):
            assert process.at == "made/y"
            count(rows=4 if token == "b" else 3 if rows == 3 else 4)
            assert pulse.counted("rows") == rows
        assert process.at is None


def test_a_wait_for_select_actors_ends_when_the_run_is_given_up(monkeypatch):
    never = SimpleNamespace(wait=lambda refs, **_: ([], refs))
    monkeypatch.setitem(__import__("sys").modules, "ray", never)
    monkeypatch.setattr(watching, "_given_up", [ClusterError("select: no progress")])
    with pytest.raises(ClusterError, match="select: no progress"):
        _got("a reference")


def test_nothing_can_stall_while_the_driver_itself_computes():
    watch = Watch(stall_s=0.01)
    with watch.stretch("select") as stretch:
        time.sleep(0.02)
        watch._look(stretch)
        assert not watching._given_up
        with stretch.wait(["local-00003 on actor 1"]):
            watch._look(stretch)
            assert not watching._given_up


def report(pid, *, rows, busy=0, at="embeddings/part-1", token=None, **more):
    counts = {"rows": rows, **more}
    one = {"token": token, "host": "n1", "pid": pid, "units": 0, "busy": busy, "counts": counts}
    return one | {"at": at, "at_s": 40.0, "age_s": 2.0, "peak_bytes": pid * 100}


def test_rows_counted_inside_a_unit_show_and_are_not_counted_twice():
    stretch = Stretch("embed", pending=dict.fromkeys("abc"), n_there=1)
    stretch.hear([report(1, rows=30, token=stretch.token, truncated=3)])
    stretch.hear([report(2, rows=10, token=stretch.token)])
    assert stretch.rows == 40
    stretch.finished("a", 30)
    assert stretch.rows == 40
    assert stretch.line().startswith("2/4 parts  40 rows  ")
    assert stretch.line().endswith("truncated 7.5%")
    assert stretch.peak_bytes == 200


def test_an_older_report_does_not_take_back_a_newer_one():
    stretch = Stretch("embed")
    for rows in (10, 40, 25):
        stretch.hear([report(1, rows=rows, token=stretch.token)])
    assert stretch.rows == 40


def test_only_what_grows_is_a_sign_of_work():
    stretch = Stretch("embed")
    stretch.hear([report(1, rows=30, token=stretch.token)])
    for again, moves in ((30, False), (31, True)):
        stretch.moved = time.monotonic() - 100
        stretch.hear([report(1, rows=again, token=stretch.token)])
        assert (stretch.idle_s < 50) == moves
    stretch.moved = time.monotonic() - 100
    stretch.hear([report(9, rows=99, token="another stage")])
    assert stretch.idle_s > 50
    stretch.hear([report(1, rows=31, busy=1, token=stretch.token)])
    assert stretch.idle_s < 50


def test_a_stall_names_what_is_pending_where_and_what_was_asked():
    stretch = Stretch("generate", "4 CPUs and 1 GPUs", dict.fromkeys(["p0", "p1"]))
    stretch.hear([report(17, rows=0, at="outputs/p0", token=stretch.token)])
    text = stalled(stretch, stall_s=60, free="free: 0 of 8 CPUs and 0 of 1 GPUs on 2 nodes")
    assert "Pending: 2: p0, p1." in text
    assert "n1 process 17 at outputs/p0 for 42 s" in text
    assert "asks for 4 CPUs and 1 GPUs; free: 0 of 8 CPUs" in text
    stretch.reports.clear()
    assert "no worker has begun one of them" in stalled(stretch, stall_s=60, free="")


class Told:
    """Stands for `ray.util.metrics.Counter` and `Gauge`."""

    def __init__(self, name, description, tag_keys):
        self.name, self.heard = name, []
        ALL[name] = self

    def inc(self, value, *, tags):
        self.heard.append((value, tags["stage"]))

    set = inc


ALL = {}


def test_metrics_add_up_to_what_was_counted_and_the_pace_ends_at_0():
    meters = Meters("run7", kinds=SimpleNamespace(Counter=Told, Gauge=Told))
    stretch = Stretch("embed")
    for rows in (10, 10, 25):
        stretch.hear([report(1, rows=rows, token=stretch.token, truncated=1, rejected=2)])
        meters.update(stretch)
    meters.end(stretch)
    assert ALL["dualdiv_rows"].heard == [(10, "embed"), (15, "embed")]
    assert ALL["dualdiv_truncated"].heard == [(1, "embed")]
    assert ALL["dualdiv_rejected"].heard == [(2, "embed")]
    assert ALL["dualdiv_rows_per_second"].heard[-1] == (0.0, "embed")
    assert BEAT_S < 60
