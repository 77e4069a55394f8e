"""The watch over a run: who works at what, how fast, and whether anything still moves.

A thread of the driver reads the board, prints the progress line, sets the metrics, writes
`progress.json` for other processes, and gives the run up when nothing moved for too long.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from jobs import manifest
from jobs.errors import ClusterError, DualdivError
from jobs.progress import Progress
from jobs.storage import Store
from jobs.watching.board import board
from jobs.watching.memory import peak_bytes, restart_peak
from jobs.watching.metrics import Meters, quietly
from jobs.watching.pulse import BEAT_S, Report
from jobs.watching.run_log import RunLog
from jobs.watching.stretch import Stretch, stalled

NAME = "progress.json"
LOOK_S = 1.0
STATE_S = 5.0
BOARD_TIMEOUT_S = 10.0
LAST_WARNINGS = 5

# Set by the watch of this process when it gives up; looked at wherever the driver waits for Ray.
_given_up: list[ClusterError] = []


def check() -> None:
    """Stop a run that was given up.

    Raises:
        ClusterError: Nothing moved for `timeouts.stall_s`.
    """
    if _given_up:
        raise _given_up[0]


class Watch:
    """Watches one run; without `begin` it only adds up what it is told."""

    def __init__(self, progress: Progress | None = None, *, stall_s: float | None = None) -> None:
        """Know where lines go and how long nothing may move.

        Args:
            progress: Takes the lines; None: nobody.
            stall_s: Seconds; None: for ever.
        """
        self.progress = progress or Progress(quiet=True)
        self.stall_s = stall_s
        self.stage: str | None = None
        self._stretch: Stretch | None = None
        self._workers_peak = 0
        self._past: list[dict[str, Any]] = []
        self._store: Store | None = None
        self._log: RunLog | None = None
        self._meters: Meters | None = None
        self._run_id = ""
        self._written = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # The driver's side.

    @contextlib.contextmanager
    def begun(self, store: Store, run_id: str) -> Iterator[None]:
        """Watch for the length of the block.

        Args:
            store: Of the output tree.
            run_id: Of the run.
        """
        _given_up.clear()
        self._store, self._run_id, self._meters = store, run_id, Meters(run_id)
        self._log = RunLog(store, run_id)
        self.progress.log = self._log.add
        self._log.add("run", run_id=run_id)
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()
        try:
            yield
            self.log("done")
        except BaseException as error:
            self.log("failed", error=type(error).__name__, text=str(error))
            raise
        finally:
            self._ended.set()
            self._thread.join()
            self._thread = self.progress.log = None
            self._log.flush(now=True)
            # What it says is of a run that lives; the lock, which is gone too, says which does.
            with contextlib.suppress(DualdivError, OSError):
                store.remove_file(NAME)
            _given_up.clear()

    def enter(self, stage: str) -> None:
        """A stage of the pipeline begins."""
        restart_peak()
        self.stage, self._workers_peak, self._past = stage, 0, []
        self.log("stage", stage=stage)

    def left(self) -> dict[str, Any]:
        """What is known of the stage when it ends: peaks, and the stretches of work out on Ray."""
        return {**self.peaks(), "stretches": self._past}

    def peaks(self) -> dict[str, int]:
        """Most memory that the driver, and one worker, had resident in this stage."""
        return {"driver_peak_bytes": peak_bytes(), "worker_peak_bytes": self._workers_peak}

    def log(self, event: str, **facts: Any) -> None:
        """Put an event into the run's log."""
        if self._log is not None:
            self._log.add(event, **facts)

    @contextlib.contextmanager
    def stretch(
        self, stage: str, *, pending: Sequence[str] = (), n_there: int = 0, asked: str = ""
    ) -> Iterator[Stretch]:
        """Have work out on Ray for the length of the block.

        Args:
            stage: As on the progress line.
            pending: Names of units to be made.
            n_there: Units that were there already.
            asked: Resources of a worker in words.
        """
        stretch = Stretch(stage, asked, dict.fromkeys(pending), n_there)
        if self._thread is not None:
            stretch.board = board()
            stretch.beat_s = self._often(BEAT_S)
        self._stretch = stretch
        try:
            yield stretch
        finally:
            self._workers_peak = max(self._workers_peak, stretch.peak_bytes)
            self._stretch = None
            self._past.append(stretch.summary())
            if self._meters is not None:
                quietly(self._meters.end, stretch)

    def finished(self, name: str, rows: int) -> None:
        """A unit of the stretch was made."""
        if self._stretch is not None:
            self._stretch.finished(name, rows)
            self.progress.tick(self._stretch.stage, self._stretch.line())

    def hear(self, report: Report | None) -> None:
        """What a worker says of itself, with its result."""
        if self._stretch is not None and report is not None:
            self._stretch.hear([report])

    def heard(self) -> list[Report]:
        """The last report of every worker of the stretch, if one is out."""
        stretch = self._stretch
        return [] if stretch is None else list(stretch.reports.values())

    def note(self, text: str) -> None:
        """What a stage without units says of itself; a sign of work."""
        if self._stretch is not None:
            self._stretch.note, self._stretch.moved = text, time.monotonic()

    def saw_peak(self, n_bytes: int) -> None:
        """A worker's peak that was asked for apart."""
        self._workers_peak = max(self._workers_peak, n_bytes)

    # The thread's side.

    def _look_on(self) -> None:
        while not self._ended.wait(self._often(LOOK_S)):
            stretch = self._stretch
            if stretch is not None:
                quietly(self._look, stretch)
            if time.monotonic() - self._written >= self._often(STATE_S):
                self._write(stretch)
            if self._log is not None:
                self._log.flush()

    def _often(self, seconds: float) -> float:
        """Several times in what would be a stall, at least."""
        return seconds if self.stall_s is None else min(seconds, self.stall_s / 4)

    def _look(self, stretch: Stretch) -> None:
        if stretch.board is not None:
            quietly(self._read, stretch)
        self.progress.tick(stretch.stage, stretch.line())
        if self._meters is not None:
            quietly(self._meters.update, stretch)
        if self.stall_s is None or not stretch.waiting or stretch.idle_s < self.stall_s:
            return
        if not _given_up:
            text = stalled(stretch, stall_s=self.stall_s, free=_free())
            self.log("stalled", **stretch.as_dict())
            _given_up.append(ClusterError(text))

    def _read(self, stretch: Stretch) -> None:
        import ray

        stretch.hear(ray.get(stretch.board.read.remote(stretch.token), timeout=BOARD_TIMEOUT_S))

    def _write(self, stretch: Stretch | None) -> None:
        assert self._store is not None
        self._written = time.monotonic()
        state = {
            "run_id": self._run_id,
            "written": manifest.now(),
            "written_s": time.time(),
            "working_on": self.stage,
            "stall_s": self.stall_s,
            **self.peaks(),
            "warnings": self.progress.warnings[-LAST_WARNINGS:],
            "stretch": None if stretch is None else stretch.as_dict(),
        }
        # Another process's view is not worth a run.
        with contextlib.suppress(DualdivError, OSError, RuntimeError):
            self._store.write_bytes(NAME, json.dumps(state, ensure_ascii=False).encode())


def _free() -> str:
    """What the cluster has, in words."""
    import ray

    try:
        have, free = ray.cluster_resources(), ray.available_resources()
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    except Exception as error:  # Ray itself may be what is gone.
        return f"what the cluster has is not known ({type(error).__name__})"
    parts = [f"{free.get(k, 0.0):g} of {have.get(k, 0.0):g} {k}s" for k in ("CPU", "GPU")]
    return f"free: {' and '.join(parts)} on {nodes} nodes"
