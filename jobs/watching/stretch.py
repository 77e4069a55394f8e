"""One stretch of a stage: work that is out on Ray, how far it is, and what it still waits for."""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.watching.pulse import BEAT_S, Report, Teller

MOST_NAMED = 20


@dataclass
class Stretch:
    """Units of one stage that are being made, or the calls of its actors.

    Attributes:
        stage: As on the progress line.
        asked: Resources of a worker in words.
        pending: Names of the units that are not there yet.
        n_there: Units that were there before.
        token: Tells its reports from others'.
        board: Where its workers report; None: nowhere.
        beat_s: Seconds between two reports of a worker.
        n_made: Units made in it.
        note: What the stage says of itself, where it has no units.
        reports: The last of every worker, by host and process.
        waiting: Whether the driver waits for Ray, and so whether it can stall.
        moved: When something last showed that work goes on (monotonic).
    """

    stage: str
    asked: str = ""
    pending: dict[str, None] = field(default_factory=dict)
    n_there: int = 0
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    board: Any = None
    beat_s: float = BEAT_S
    n_made: int = 0
    note: str | None = None
    reports: dict[tuple[str, int], Report] = field(default_factory=dict)
    waiting: bool = False
    started: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    rows_of_units: int = 0
    _sign: tuple[int, ...] = ()

    @property
    def teller(self) -> Teller:
        """What its workers are given."""
        return Teller(self.board, self.token, self.stage, self.beat_s)

    @contextlib.contextmanager
    def wait(self, names: Sequence[str] = ()) -> Iterator[None]:
        """Wait for Ray for the length of the block.

        Args:
            names: What is waited for, where that is no unit.
        """
        self.pending |= dict.fromkeys(names)
        self.moved, self.waiting = time.monotonic(), True
        try:
            yield
        finally:
            self.waiting = False
            for name in names:
                self.pending.pop(name, None)

    def finished(self, name: str, rows: int) -> None:
        """A unit was made.

        Args:
            name: Of the unit.
            rows: Its rows.
        """
        self.pending.pop(name, None)
        self.n_made += 1
        self.rows_of_units += rows
        self.moved = time.monotonic()

    def hear(self, reports: Sequence[Report]) -> None:
        """Take in what workers say; anything that grew is a sign of work."""
        for one in reports:
            key = one["host"], one["pid"]
            # What came with a result may be newer than what the board was told last.
            if one["token"] == self.token and _age(one) >= _age(self.reports.get(key, one)):
                self.reports[key] = {"age_s": 0.0} | one
        sums = [(one["units"], one["busy"], _age(one)) for one in self._heard]
        sign = (self.n_made, len(sums), *map(sum, zip(*sums, strict=True)))
        if sign != self._sign:
            self._sign, self.moved = sign, time.monotonic()

    @property
    def _heard(self) -> list[Report]:
        """A copy: the watch's thread looks while the driver's adds."""
        return list(self.reports.values())

    @property
    def idle_s(self) -> float:
        """Seconds without a sign of work."""
        return time.monotonic() - self.moved

    @property
    def seconds(self) -> float:
        """Since it began."""
        return max(1e-9, time.monotonic() - self.started)

    @property
    def counts(self) -> Counter[str]:
        """What all its workers counted."""
        return sum((Counter(one["counts"]) for one in self._heard), Counter())

    @property
    def rows(self) -> int:
        """Rows made so far, those of unfinished units among them where workers count them."""
        return max(self.rows_of_units, self.counts["rows"])

    @property
    def peak_bytes(self) -> int:
        """Most memory one of its workers had resident."""
        return max((one["peak_bytes"] for one in self._heard), default=0)

    @property
    def eta_s(self) -> float | None:
        """Seconds that the units left will take at the pace so far; None: nobody knows yet."""
        if not self.n_made:
            return None
        return self.seconds / self.n_made * len(self.pending)

    def line(self) -> str:
        """How far it is, for the progress line."""
        if self.note is not None:
            return self.note
        total = self.n_there + self.n_made + len(self.pending)
        text = (
            f"{self.n_there + self.n_made}/{total} parts  {self.rows:,} rows  "
            f"{self.rows / self.seconds:,.0f} rows/s"
        )
        text += "" if self.eta_s is None else f"  eta {self.eta_s:,.0f} s"
        lost = self.counts["truncated"]
        return text + (f"  truncated {lost / max(1, self.rows):.1%}" if lost else "")

    def summary(self) -> dict[str, Any]:
        """What the manifest keeps of it: plain data."""
        return {
            "stage": self.stage,
            "parts": self.n_made,
            "parts_there": self.n_there,
            "seconds": round(self.seconds, 3),
            "workers": len(self.reports),
            "worker_peak_bytes": self.peak_bytes,
            "worker_seconds": round(self.counts["unit_ms"] / 1000, 3),
            "load_seconds": round(self.counts["load_ms"] / 1000, 3),
            "rows": self.rows,
        }

    def as_dict(self) -> dict[str, Any]:
        """How far it is, as plain data; of many units and workers the first few."""
        workers = [
            {
                **{key: one[key] for key in ("host", "pid", "at", "peak_bytes")},
                "at_s": round(one["at_s"] + one["age_s"], 1) if one["at"] else None,
                "age_s": round(one["age_s"], 1),
                "rows": one["counts"].get("rows", 0),
            }
            for one in self._heard[:MOST_NAMED]
        ]
        pending = list(self.pending)
        return {
            "stage": self.stage,
            "note": self.note,
            "parts_done": self.n_there + self.n_made,
            "parts": self.n_there + self.n_made + len(pending),
            "rows": self.rows,
            "rows_per_s": round(self.rows / self.seconds, 2),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "counts": {name: n for name, n in self.counts.items() if not name.endswith("_ms")},
            "n_pending": len(pending),
            "pending": pending[:MOST_NAMED],
            "n_workers": len(self.reports),
            "workers": workers,
            "idle_s": round(self.idle_s, 1),
            "seconds": round(self.seconds, 1),
        }


def _age(report: Report) -> int:
    """Grows with all that a process counts; of two reports of one, the larger is the later."""
    return int(report["units"] + report["busy"] + sum(report["counts"].values()))


def stalled(stretch: Stretch, *, stall_s: float, free: str) -> str:
    """What to say of a stretch in which nothing moves.

    Args:
        stretch: The stretch.
        stall_s: How long nothing moved.
        free: What the cluster has, in words.
    """
    pending = list(stretch.pending)
    shown = ", ".join(pending[:MOST_NAMED]) + (" and more" if len(pending) > MOST_NAMED else "")
    at = [
        f"{one['host']} process {one['pid']} at {one['at']} for {one['at_s'] + one['age_s']:,.0f} s"
        + (f", last heard {one['age_s']:,.0f} s ago" if one["age_s"] > 60 else "")
        for one in list(stretch.reports.values())[:MOST_NAMED]
        if one["at"]
    ]
    where = "; ".join(at) or "no worker has begun one of them"
    return (
        f"{stretch.stage}: no progress for {stall_s:g} s (timeouts.stall_s). Pending: "
        f"{len(pending)}: {shown}. Where: {where}. A worker asks for {stretch.asked}; {free}. What "
        "is finished is kept: see to these nodes (`ray status`, `ray stack`) and run the same "
        "command again, or raise timeouts.stall_s if a unit may take so long without using a "
        "processor."
    )
