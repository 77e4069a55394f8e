"""One live run per output: `run.lock`, created exclusively, with a heartbeat."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import ClusterError
from jobs.storage import Store

NAME = "run.lock"
HEARTBEAT_S = 5.0
STALE_S = 60.0


@dataclass
class Hold:
    """A lock that is held.

    Attributes:
        run_id: Of this run.
        ended: Set when the block is left.
        lost: Set when another run was found to hold the lock.
    """

    run_id: str
    ended: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Stop a run whose lock was taken from it.

        Raises:
            ClusterError: Another run holds the lock.
        """
        if self.lost.is_set():
            raise ClusterError(
                f"run {self.run_id} lost its lock to another run (was this machine asleep, or the "
                "file system away?). What it finished is kept; run the same command again."
            )


@contextlib.contextmanager
def held(store: Store, *, warn: Callable[[str], None]) -> Iterator[Hold]:
    """Hold the output's lock for the length of the block.

    Args:
        store: The output tree.
        warn: Told when a dead run's lock is taken over.

    Yields:
        The run id, and whether the lock is still this run's.

    Raises:
        ClusterError: A live run holds it; names run, host and pid.
    """
    hold = Hold(uuid.uuid4().hex[:12])
    _acquire(store, hold.run_id, warn)
    beat = threading.Thread(target=_beat, args=(store, hold), daemon=True)
    beat.start()
    try:
        yield hold
    finally:
        hold.ended.set()
        beat.join()
        found = _read(store)
        if found and found.get("run_id") == hold.run_id:
            store.path(NAME).unlink(missing_ok=True)


def holder(store: Store) -> dict[str, Any] | None:
    """Who holds the lock, with `live` added; None when nobody does."""
    found = _read(store)
    return None if found is None else found | {"live": _alive(found)}


def _acquire(store: Store, run_id: str, warn: Callable[[str], None]) -> None:
    for _ in range(3):
        if _create(store, run_id):
            return
        found = _read(store)
        if found is None:
            continue
        if _alive(found):
            raise ClusterError(
                f"{store.root}: run {found['run_id']} (pid {found['pid']} on {found['host']}, "
                f"since {found['started']}) is working on this output. Wait for it, stop it, or "
                "give another --out."
            )
        warn(f"took over the lock of run {found['run_id']} (pid {found['pid']}), which is dead")
        _bury(store, found["run_id"])
    raise ClusterError(f"{store.root}: {NAME} keeps changing hands; is another run starting?")


def _bury(store: Store, dead: str) -> None:
    """Remove a dead run's lock, and nobody else's: it may have changed hands since it was read."""
    corpse = store.path(f".{NAME}.{uuid.uuid4().hex[:8]}.dead")
    with contextlib.suppress(FileNotFoundError):
        store.path(NAME).rename(corpse)
        with contextlib.suppress(ValueError, FileExistsError):
            body = json.loads(corpse.read_text())
            if isinstance(body, dict) and body.get("run_id", "unknown") != dead:
                os.link(corpse, store.path(NAME))
        corpse.unlink()


def _create(store: Store, run_id: str) -> bool:
    body = {
        "run_id": run_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    # A hard link makes a lock appear with its content, and fails if one is there.
    draft = store.path(f".{NAME}.{run_id}.new")
    try:
        draft.write_text(json.dumps(body))
        os.link(draft, store.path(NAME))
    except FileExistsError:
        return False
    except OSError as error:
        raise ClusterError(
            f"{store.path(NAME)}: cannot be written ({error.strerror}). The output needs room, and "
            "a file system with hard links."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return True


def _beat(store: Store, hold: Hold) -> None:
    while not hold.ended.wait(HEARTBEAT_S):
        found = _read(store)
        if found and found.get("run_id") == hold.run_id:
            with contextlib.suppress(OSError):
                os.utime(store.path(NAME))
        elif found:
            hold.lost.set()


def _read(store: Store) -> dict[str, Any] | None:
    path = store.path(NAME)
    try:
        age_s = time.time() - path.stat().st_mtime
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        found = {}
    blank = {"run_id": "unknown", "host": "unknown", "pid": 0, "started": "unknown"}
    return blank | (found if isinstance(found, dict) else {}) | {"age_s": age_s}


def _alive(found: dict[str, Any]) -> bool:
    if found["host"] != socket.gethostname():
        return bool(found["age_s"] < STALE_S)
    start = _process_start(found["pid"])
    return start is not None and start == found.get("process_start")


def _process_start(pid: int) -> str | None:
    """When a process began, so that a reused pid is not taken for the run; None: no such one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return _exists(pid)
    return None if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> str | None:
    if os.path.exists("/proc/self/stat") or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"
