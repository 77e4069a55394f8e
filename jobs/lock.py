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

from jobs.errors import ClusterError, DualdivError
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
        warn: Told when a dead run's lock is taken over, and when the store cannot keep two runs
            apart that start at the same moment.

    Yields:
        The run id, and whether the lock is still this run's.

    Raises:
        ClusterError: A live run holds it; names run, host and pid.
    """
    hold = Hold(uuid.uuid4().hex[:12])
    claim = _claim(hold.run_id)
    _acquire(store, claim, warn)
    beat = threading.Thread(target=_beat, args=(store, hold, claim), daemon=True)
    beat.start()
    try:
        yield hold
    finally:
        hold.ended.set()
        beat.join()
        with contextlib.suppress(DualdivError):
            found = _read(store)
            if found and found["run_id"] == hold.run_id:
                store.remove_file(NAME)


def holder(store: Store) -> dict[str, Any] | None:
    """Who holds the lock, with `live` added; None when nobody does."""
    found = _read(store)
    if found is None:
        return None
    return {key: value for key, value in found.items() if key != "stamp"} | {"live": _alive(found)}


def _acquire(store: Store, claim: dict[str, Any], warn: Callable[[str], None]) -> None:
    keeps = store.keeps_conditions()
    if not keeps:
        warn(
            f"{store.place}: this object store ignores conditional writes (If-None-Match), so "
            f"{NAME} cannot keep two runs apart that start at the same moment; start one at a time"
        )
    for _ in range(3):
        found = _read(store)
        if found is None:
            created = store.create_exclusive(NAME, _body(claim))
            if created and keeps:
                return
            found = _read(store)
        # Ours: the answer to an earlier try was lost, or nobody wrote after us.
        if found is not None and found["run_id"] == claim["run_id"]:
            return
        if found is None:
            continue
        if _alive(found):
            raise ClusterError(
                f"{store.place}: run {found['run_id']} (pid {found['pid']} on {found['host']}, "
                f"since {found['started']}) is working on this output. Wait for it, stop it, or "
                "give another --out."
            )
        if store.replace_exclusive(NAME, _body(claim), found["stamp"]):
            warn(f"took over the lock of run {found['run_id']} (pid {found['pid']}), which is dead")
            return
    raise ClusterError(f"{store.place}: {NAME} keeps changing hands; is another run starting?")


def _claim(run_id: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "beat": 0,
    }


def _body(claim: dict[str, Any]) -> bytes:
    return json.dumps(claim).encode()


def _beat(store: Store, hold: Hold, claim: dict[str, Any]) -> None:
    beat = 0
    while not hold.ended.wait(HEARTBEAT_S):
        beat += 1
        # A store that cannot be reached now is asked again at the next beat.
        with contextlib.suppress(DualdivError):
            found = _read(store)
            if found and found["run_id"] == hold.run_id:
                # Counted, so that no stamp comes twice: a taker may have read the last one.
                store.renew(NAME, _body(claim | {"beat": beat}), found["stamp"])
            elif found:
                hold.lost.set()


def _read(store: Store) -> dict[str, Any] | None:
    """What the lock says, with its stamp and its age; None when there is none."""
    file = store.stamped(NAME)
    if file is None:
        return None
    try:
        found = json.loads(file.data)
    except ValueError:
        found = {}
    blank = {"run_id": "unknown", "host": "unknown", "pid": 0, "started": "unknown"}
    said = found if isinstance(found, dict) else {}
    return blank | said | {"age_s": file.age_s, "stamp": file.stamp}


def _alive(found: dict[str, Any]) -> bool:
    """By its process where that can be seen from here, else by its heartbeat."""
    here = found["host"] == socket.gethostname()
    if not here or found.get("machine", _machine()) != _machine():
        return bool(found["age_s"] < STALE_S)
    start = _process_start(found["pid"])
    return start is not None and start == found.get("process_start")


def _machine() -> str:
    """Which processes a pid can mean: containers may share a host's name and not its pids."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


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
