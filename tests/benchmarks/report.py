"""What the benchmarks print: Markdown tables, bars, and a file of results that survives a cut."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import describe, hardware


@dataclass(frozen=True)
class Bar:
    """A promise with its number: found must be at least, or at most, wanted; None: not measured."""

    name: str
    found: float | None
    wanted: float
    at_least: bool

    @property
    def holds(self) -> str:
        """yes, NO, or that it was not measured."""
        if self.found is None:
            return "not measured"
        kept = self.found >= self.wanted if self.at_least else self.found <= self.wanted
        return "yes" if kept else "NO"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; floats are shown to four significant digits, None as a dash."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bars(found: Iterable[Bar]) -> str:
    """The bars as a Markdown table."""
    rows = [
        (
            bar.name,
            f"{'at least' if bar.at_least else 'at most'} {shown(bar.wanted)}",
            bar.found,
            bar.holds,
        )
        for bar in found
    ]
    return table(["bar", "wanted", "found", "holds"], rows)


def shown(value: object) -> str:
    """A cell's text."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 1e-3:
        return f"{value:.2e}"
    return f"{value:.5f}" if 0.9 < abs(value) < 1 else f"{value:.4g}"


def mib(n_bytes: float) -> str:
    """Bytes as MiB, whole."""
    return f"{n_bytes / 2**20:,.0f}"


class Results:
    """Measurements as lines of JSON, each written as soon as it is there.

    A measurement whose key stands in the file already is taken from it: a run that was cut goes
    on where it stopped. Delete the file to measure anew, for example after a change of the code.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Any] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._found[_text(entry["key"])] = entry["result"]

    def get(self, key: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """The result of this key, measured now where the file has none."""
        name = _text(key)
        if name not in self._found:
            say(name)
            self._found[name] = measure()
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"key": key, "result": self._found[name]}) + "\n")
        return self._found[name]


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def head(title: str) -> str:
    """Title and machine, above the tables of a program."""
    return f"## {title}\n\n{describe(hardware())}\n"


def say(what: str) -> None:
    """Progress, on stderr: stdout holds the tables only."""
    print(what, file=sys.stderr, flush=True)
