import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from jobs import lock
from jobs.errors import ClusterError
from jobs.storage import Store


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def hold_in_child(path):
    code = f"""
        import time
        from jobs import lock
        from jobs.storage import Store
        with lock.held(Store({str(path)!r}), warn=print) as hold:
            print(hold.run_id, flush=True)
            time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    return child, child.stdout.readline().strip()


def test_the_lock_is_gone_after_the_block(store):
    with lock.held(store, warn=print):
        assert store.exists("run.lock")
    assert not store.exists("run.lock")


def test_the_lock_is_gone_after_an_error(store):
    with pytest.raises(RuntimeError), lock.held(store, warn=print):
        raise RuntimeError
    assert not store.exists("run.lock")


def test_a_live_holder_is_refused_by_name_and_a_dead_one_taken_over(store, tmp_path):
    child, run_id = hold_in_child(tmp_path)
    try:
        with pytest.raises(ClusterError) as caught, lock.held(store, warn=print):
            pass
        for word in (run_id, str(child.pid)):
            assert word in str(caught.value)
    finally:
        child.kill()
        child.wait()
    warnings = []
    with lock.held(store, warn=warnings.append) as mine:
        assert lock.holder(store)["run_id"] == mine.run_id
    assert len(warnings) == 1
    assert run_id in warnings[0]


def test_a_pid_used_again_by_another_process_is_no_live_run(store):
    with lock.held(store, warn=print):
        body = json.loads(store.path("run.lock").read_text())
    store.path("run.lock").write_text(json.dumps(body | {"process_start": "1", "run_id": "old"}))
    with lock.held(store, warn=print) as mine:
        assert mine.run_id != "old"


def test_a_holder_on_another_host_lives_by_its_heartbeat(store):
    body = {"run_id": "far", "host": "elsewhere", "pid": 1, "started": "t"}
    path = store.path("run.lock")
    path.write_text(json.dumps(body))
    with pytest.raises(ClusterError, match="elsewhere"), lock.held(store, warn=print):
        pass
    long_ago = time.time() - 2 * lock.STALE_S
    os.utime(path, (long_ago, long_ago))
    with lock.held(store, warn=print):
        pass


def test_a_heartbeat_keeps_the_lock_young(store, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.05)
    with lock.held(store, warn=print):
        path = store.path("run.lock")
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 5
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert path.stat().st_mtime > 0


@pytest.mark.parametrize("content", ["garbage", "[]", ""])
def test_a_lock_that_says_nothing_lives_by_its_heartbeat(store, content):
    path = store.path("run.lock")
    path.write_text(content)
    with pytest.raises(ClusterError, match="unknown"), lock.held(store, warn=print):
        pass
    os.utime(path, (0, 0))
    with lock.held(store, warn=print):
        pass


def test_of_many_starters_one_wins(store):
    code = textwrap.dedent(
        f"""
        import sys
        from jobs import lock
        from jobs.errors import ClusterError
        from jobs.storage import Store
        try:
            with lock.held(Store({str(store.root)!r}), warn=lambda _: None):
                print("won", flush=True)
                sys.stdin.read()
        except ClusterError:
            print("lost", flush=True)
        """
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(4)]
    # The winner holds the lock until all have spoken.
    words = sorted(child.stdout.readline().strip() for child in children)
    for child in children:
        child.communicate()
    assert words == ["lost", "lost", "lost", "won"]


def test_a_lock_that_changed_hands_is_not_taken_from_the_new_holder(store):
    store.write_bytes("run.lock", b"of the dead")
    dead = store.stamped("run.lock")
    store.write_bytes("run.lock", b"of the living")
    assert not store.replace_exclusive("run.lock", b"mine", dead.stamp)
    assert store.read_bytes("run.lock") == b"of the living"


def test_a_run_that_lost_its_lock_is_told(store, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
    with lock.held(store, warn=print) as hold:
        hold.check()
        body = json.loads(store.path("run.lock").read_text())
        store.path("run.lock").write_text(json.dumps(body | {"run_id": "other"}))
        assert hold.lost.wait(5)
        with pytest.raises(ClusterError, match="lost its lock"):
            hold.check()
    assert lock.holder(store)["run_id"] == "other"


def test_a_lock_that_cannot_be_written_is_a_cluster_error(store, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(ClusterError, match="no space left"), lock.held(store, warn=print):
        pass
    assert list(store.root.iterdir()) == []
