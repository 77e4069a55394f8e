"""The worker's side of watching: what it is at, what it counted, and that it lives.

A thread of the worker tells the board every few seconds. What counts as a sign of work: rows
counted, units finished, and processor time, reading or writing of this process at a unit, with
the processor time of what it started: on a GPU vLLM computes in a process of its own. A model that
loads or is fetched, and a long choice in one partition, are thus no stall; a process that waits for
something that never comes is one.
"""

import contextlib
import glob
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobs.ledger import Marker
from jobs.watching.memory import peak_bytes, restart_peak

BEAT_S = 5.0
# Of an interval: an idle Ray worker uses some hundredths of a slow core.
BUSY_SHARE = 0.1
BUSY_BYTES = 2**20

Report = dict[str, Any]


@dataclass
class _Process:
    """What this process knows of itself; there is one."""

    token: str | None = None
    stage: str = ""
    at: str | None = None
    since: float = 0.0
    units: int = 0
    busy: int = 0
    beat_s: float = BEAT_S
    board: Any = None
    thread: threading.Thread | None = None


_process = _Process()
_counts: Counter[str] = Counter()


def count(**numbers: int) -> None:
    """Add to what this process has counted in its stage; `rows` and `batches` show on the line.

    Args:
        numbers: What was done since the last call.
    """
    _counts.update(numbers)


def counted(name: str) -> int:
    """What this process has counted so far under a name."""
    return _counts[name]


@dataclass(frozen=True)
class Teller:
    """Sent along with the work: where to tell, and of which stage.

    Attributes:
        board: Handle of the actor that keeps reports; None: tell nobody, only count.
        token: Of one stretch of a stage; counts begin anew with another.
        stage: Its name.
        beat_s: Seconds between two reports.
    """

    board: Any
    token: str
    stage: str
    beat_s: float = BEAT_S

    @contextlib.contextmanager
    def working(self, at: str) -> Iterator[None]:
        """Be at a unit, for the length of the block.

        Args:
            at: Its name.
        """
        self._begin()
        _process.at, _process.since = at, time.monotonic()
        try:
            yield
        finally:
            _process.at = None

    def _begin(self) -> None:
        if _process.token != self.token:
            restart_peak()
            _counts.clear()
            _process.token, _process.stage = self.token, self.stage
            _process.units = _process.busy = 0
        _process.board, _process.beat_s = self.board, self.beat_s
        if self.board is not None and _process.thread is None:
            _process.thread = threading.Thread(target=_beat, daemon=True)
            _process.thread.start()


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load a model in the block: time that a worker spends once, told apart from its work."""
    started = time.monotonic()
    try:
        yield
    finally:
        count(load_ms=round(1000 * (time.monotonic() - started)))


def finished(marker: Marker, *, rows: int) -> None:
    """Count a unit as finished, with what its marker counts.

    Args:
        marker: Of the unit.
        rows: Its rows that were not counted on the way.
    """
    _process.units += 1
    lost = {name: marker.stats.get(f"n_{name}", 0) for name in ("truncated", "rejected")}
    count(rows=max(0, rows), **lost)


def report() -> Report:
    """What the board is told: plain data."""
    at = _process.at
    return {
        "token": _process.token,
        "stage": _process.stage,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "at": at,
        "at_s": time.monotonic() - _process.since if at else 0.0,
        "units": _process.units,
        "busy": _process.busy,
        "counts": dict(_counts),
        "peak_bytes": peak_bytes(),
    }


def _beat() -> None:
    before, was_idle = _spent(), True
    while True:
        time.sleep(_process.beat_s)
        before, was_idle = _one_beat(before, _spent(), was_idle=was_idle)


def _one_beat(
    before: tuple[float, int], now: tuple[float, int], *, was_idle: bool
) -> tuple[tuple[float, int], bool]:
    """Tell the board, unless nothing was to be told last time either.

    Args:
        before: Processor seconds, and bytes read and written, at the last beat.
        now: The same now.
        was_idle: Whether the process was at no unit then.

    Returns:
        `now`, and whether it is at none.
    """
    idle = _process.at is None
    used, moved = now[0] - before[0], now[1] - before[1]
    if not idle and (used > BUSY_SHARE * _process.beat_s or moved > BUSY_BYTES):
        _process.busy += 1
    if not (idle and was_idle):
        with contextlib.suppress(Exception):  # Ray is going down, or the board is being replaced.
            _process.board.beat.remote(report())
    return now, idle


def _spent() -> tuple[float, int]:
    """Processor seconds, less those of this thread, and bytes read and written, of this process.

    Seconds of processes that it started and that still live count as its own.
    """
    n_bytes = 0
    with contextlib.suppress(OSError), open("/proc/self/io", encoding="ascii") as file:
        # What comes over a network is counted where it is written: a model that is fetched.
        n_bytes = sum(int(file.readline().split()[1]) for _ in ("rchar", "wchar"))
    return time.process_time() - time.thread_time() + _seconds_below(os.getpid()), n_bytes


def _seconds_below(pid: int) -> float:
    """Processor seconds of the living descendants of a process."""
    total = 0.0
    for thread in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # A thread or a process that has just ended.
            with open(thread, encoding="ascii") as file:
                children = file.read().split()
            for child in children:
                with open(f"/proc/{child}/stat", encoding="utf-8", errors="replace") as file:
                    # The name in brackets may hold anything; what follows it is the third field.
                    fields = file.read().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                total += _seconds_below(int(child))
    return total
