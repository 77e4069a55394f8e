"""`log/<run id>.jsonl`: what happened in a run, an event a line, for programs to read.

Objects in S3 cannot be added to, so the file is written whole now and then: what it holds is what
the user saw, a few lines a minute, and so stays small.
"""

import contextlib
import json
import threading
import time
from typing import Any

from jobs.errors import DualdivError
from jobs.redaction import redact_all
from jobs.storage import Store

FLUSH_S = 10.0


class RunLog:
    """Collects events and writes them through the store."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.name = f"log/{run_id}.jsonl"
        self._store, self._lines, self._written = store, list[bytes](), 0
        self._lock, self._last = threading.Lock(), time.monotonic()

    def add(self, event: str, **facts: Any) -> None:
        """Keep an event for the next writing.

        Args:
            event: `run`, `stage`, `line`, `warning`, `stalled` or `end`.
            facts: Plain data.
        """
        milliseconds = f"{time.time() % 1:.3f}"[1:]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + milliseconds + "Z"
        entry = redact_all({"time": stamp, "event": event, **facts})
        with self._lock:
            self._lines.append(json.dumps(entry, ensure_ascii=False, default=str).encode() + b"\n")

    def flush(self, *, now: bool = False) -> None:
        """Write the file whole if there is something new and the last writing was a while ago.

        A log that cannot be written stops nothing: what matters is in the manifest.

        Args:
            now: Whatever the time.
        """
        if not now and time.monotonic() - self._last < FLUSH_S:
            return
        with self._lock:
            if len(self._lines) == self._written:
                return
            data, number = b"".join(self._lines), len(self._lines)
            self._last = time.monotonic()
            with contextlib.suppress(DualdivError, OSError):
                self._store.write_bytes(self.name, data)
                self._written = number
