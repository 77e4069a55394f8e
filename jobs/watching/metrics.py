"""Metrics for the Ray dashboard and whatever scrapes Ray: counts and pace of every stage."""

import contextlib
from typing import Any

from jobs.watching.stretch import Stretch

COUNTED = {
    "rows": "Rows made.",
    "batches": "Batches that went through a model.",
    "truncated": "Rows cut to fit the encoder.",
    "rejected": "Rows set aside or marked.",
}


class Meters:
    """The counters and gauges of one driver, each with the tags `stage` and `run`."""

    def __init__(self, run_id: str, *, kinds: Any = None) -> None:
        """Make none yet: Ray must be there.

        Args:
            run_id: Of the run.
            kinds: Has `Counter` and `Gauge`; None: `ray.util.metrics`.
        """
        self._run_id, self._kinds = run_id, kinds
        self._counters: dict[str, Any] = {}
        self._pace: Any = None
        self._told: dict[tuple[str, str], int] = {}

    def update(self, stretch: Stretch) -> None:
        """Add what a stretch counted since the last call, and set its pace."""
        self._open()
        tags = {"stage": stretch.stage, "run": self._run_id}
        now = stretch.counts | {"rows": stretch.rows}
        for name, counter in self._counters.items():
            more = now.get(name, 0) - self._told.get((stretch.token, name), 0)
            if more > 0:
                counter.inc(more, tags=tags)
                self._told[stretch.token, name] = now[name]
        self._pace.set(stretch.rows / stretch.seconds, tags=tags)

    def end(self, stretch: Stretch) -> None:
        """Count what is left of a stretch; its pace is 0 from now on."""
        self.update(stretch)
        self._pace.set(0.0, tags={"stage": stretch.stage, "run": self._run_id})

    def _open(self) -> None:
        if self._pace is not None:
            return
        kinds = self._kinds
        if kinds is None:
            from ray.util import metrics as kinds
        keys = ("stage", "run")
        self._counters = {
            name: kinds.Counter(f"dualdiv_{name}", description=text, tag_keys=keys)
            for name, text in COUNTED.items()
        }
        self._pace = kinds.Gauge(
            "dualdiv_rows_per_second", description="Rows a second, stage so far.", tag_keys=keys
        )


def quietly(act: Any, *args: Any) -> None:
    """Do what must never stop a run."""
    with contextlib.suppress(Exception):
        act(*args)
