"""What the user sees while a run works: one line per stage and event, on standard error."""

import sys
import time
from collections.abc import Callable

from jobs.redaction import redact

EVERY_S = 30.0


class Progress:
    """Prints stage lines; at most two a minute for each stage besides its last.

    What is said is also handed to `log`, quiet or not: a function of an event and its facts.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.warnings: list[str] = []
        self.log: Callable[..., None] | None = None
        self._last: dict[str, float] = {}

    def line(self, stage: str, text: str) -> None:
        """Print a line that is always wanted."""
        if self.log is not None:
            self.log("line", stage=stage, text=text)
        if not self.quiet:
            print(f"{stage:<9}{redact(text)}", file=sys.stderr, flush=True)

    def tick(self, stage: str, text: str) -> None:
        """Print a line if the stage has said nothing for a while."""
        now = time.monotonic()
        if now - self._last.setdefault(stage, now) >= EVERY_S:
            self._last[stage] = now
            self.line(stage, text)

    def warn(self, text: str) -> None:
        """Print a warning once and keep it for manifest and report."""
        text = redact(text)
        if text not in self.warnings:
            self.warnings.append(text)
            self.line("warning", text)
