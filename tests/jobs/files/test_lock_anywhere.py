"""The lock of an output, on disk and in an object store; what only a disk has is in test_lock."""

import json
import threading
import time

import pytest

from jobs import lock
from jobs.errors import ClusterError
from tests.jobs.files.fault_hooks import Refusals, ignore_conditions


@pytest.fixture(autouse=True)
def _made(store):
    store.create()


def write(store, **body):
    store.write_bytes("run.lock", json.dumps(body).encode())


FAR = {"run_id": "far", "host": "elsewhere", "pid": 1, "started": "then"}


def test_the_lock_is_there_in_the_block_and_gone_after_it(store):
    with lock.held(store, warn=print) as hold:
        assert lock.holder(store)["run_id"] == hold.run_id
        assert lock.holder(store)["live"]
    assert lock.holder(store) is None


def test_a_live_run_is_refused_by_name(store):
    with (
        lock.held(store, warn=print) as first,
        pytest.raises(ClusterError, match=first.run_id),
        lock.held(store, warn=print),
    ):
        pass


def test_of_many_starters_one_wins(store):
    start, words = threading.Barrier(4), []

    def begin():
        start.wait()
        try:
            with lock.held(store, warn=print):
                words.append("won")
                start.wait()
        except ClusterError:
            words.append("lost")
            start.wait()

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(words) == ["lost", "lost", "lost", "won"]


def test_a_dead_process_of_this_machine_is_taken_over_at_once(store):
    with lock.held(store, warn=print):
        body = json.loads(store.read_bytes("run.lock"))
    write(store, **(body | {"process_start": "1", "run_id": "old"}))
    warnings = []
    with lock.held(store, warn=warnings.append) as mine:
        assert lock.holder(store)["run_id"] == mine.run_id
    assert warnings == [f"took over the lock of run old (pid {body['pid']}), which is dead"]


def test_a_namesake_of_this_host_with_other_pids_lives_by_its_heartbeat(store, monkeypatch):
    with lock.held(store, warn=print):
        body = json.loads(store.read_bytes("run.lock"))
    write(store, **(body | {"process_start": "1", "machine": "another container"}))
    with pytest.raises(ClusterError, match="is working"), lock.held(store, warn=print):
        pass


def test_a_run_elsewhere_lives_by_its_heartbeat_and_a_stale_one_is_taken_over(store, monkeypatch):
    write(store, **FAR)
    with pytest.raises(ClusterError, match="elsewhere"), lock.held(store, warn=print):
        pass
    monkeypatch.setattr(lock, "STALE_S", -1.0)
    with lock.held(store, warn=print) as mine:
        assert lock.holder(store)["run_id"] == mine.run_id


def test_a_beat_between_look_and_takeover_keeps_the_lock(store):
    write(store, **FAR, beat=1)
    seen = store.stamped("run.lock")
    write(store, **FAR, beat=2)
    assert not store.replace_exclusive("run.lock", b"mine", seen.stamp)


def test_each_beat_makes_the_lock_another_one_in_an_object_store(s3_store, fast_beat):
    with lock.held(s3_store, warn=print):
        first = s3_store.stamped("run.lock").stamp
        deadline = time.monotonic() + 5
        while s3_store.stamped("run.lock").stamp == first and time.monotonic() < deadline:
            time.sleep(0.02)
        assert s3_store.stamped("run.lock").stamp != first
        assert json.loads(s3_store.read_bytes("run.lock"))["beat"] >= 1


def test_a_run_that_lost_its_lock_is_told(store, fast_beat):
    with lock.held(store, warn=print) as hold:
        write(store, **FAR)
        assert hold.lost.wait(5)
        with pytest.raises(ClusterError, match="lost its lock"):
            hold.check()
    assert lock.holder(store)["run_id"] == "far"


def test_a_lock_whose_answer_was_lost_is_ours(s3, s3_store, no_waiting):
    """The write succeeds, its answer does not arrive, and the second try meets our own lock."""
    put, lost = Refusals(s3, times=0), []

    def lose(response_dict, **_):
        if put.seen[-1][1].endswith("run.lock") and not lost:
            lost.append(True)
            response_dict["status_code"] = 500
            response_dict["body"] = b"<Error><Code>InternalError</Code><Message>x</Message></Error>"

    s3.meta.events.register("before-parse.s3.PutObject", lose)
    with lock.held(s3_store, warn=print) as hold:
        assert lost
        assert lock.holder(s3_store)["run_id"] == hold.run_id


def test_a_store_that_ignores_conditions_is_found_out_and_said(s3, s3_store):
    store, warnings = s3_store, []
    ignore_conditions(s3)
    with lock.held(store, warn=warnings.append):
        assert len(warnings) == 1
        assert "ignores conditional writes" in warnings[0]
        with pytest.raises(ClusterError, match="is working"), lock.held(store, warn=print):
            pass


def test_a_store_that_knows_no_conditions_is_found_out_and_said(s3, s3_store):
    def refuse(request, **_):
        if request.headers.get("If-None-Match") or request.headers.get("If-Match"):
            return Refusals.answer(request, 501, "NotImplemented")
        return None

    warnings = []
    s3.meta.events.register("before-send.s3", refuse)
    with lock.held(s3_store, warn=warnings.append) as hold:
        assert "ignores conditional writes" in warnings[0]
        assert lock.holder(s3_store)["run_id"] == hold.run_id
