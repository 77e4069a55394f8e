"""Rows that kill the whole worker process, found by what it wrote down before it died.

An exception is dealt with inside the engine. A segmentation fault is not: Ray starts the worker
again and hands it the same part, for ever. So before each try the worker notes what it is about to
run; a note found at the start is the trace of a death.
"""

import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from inference.decoding import Decoded
from inference.engine import Completion
from inference.status import Status
from jobs.ledger import Unit
from jobs.storage import Store

EVERYTHING = "*"
DEATHS_BEFORE_SUSPICION = 2
DEATHS_OF_A_ROW = 2

Rows = Sequence[dict[str, Any]]


def crashed() -> Decoded:
    """The answer of a row that took the whole process with it."""
    detail = f"the process died on this prompt alone {DEATHS_OF_A_ROW} times"
    lost = Completion(status=Status.ENGINE_CRASH, detail=detail)
    return Decoded(None, "", Status.ENGINE_CRASH, detail, lost)


class Attempts:
    """The notes of one unit; a context that forgets them when the unit is through."""

    def __init__(self, store: Store, unit: Unit, *, run_id: str | None) -> None:
        """Read what earlier tries of this run left; an earlier run may have been killed on purpose.

        Args:
            store: The output tree.
            unit: What is being made.
            run_id: The run that is making it.
        """
        self._run_id = run_id
        self._store = store
        self._path = f"tmp/attempts/{unit.fingerprint}-{unit.name}.json"
        self.deaths: dict[str, int] = {}
        if store.exists(self._path):
            note = json.loads(store.read_bytes(self._path))
            if note["run_id"] == run_id:
                self.deaths = note["deaths"]
                running = note["running"]
                self.deaths[running] = self.deaths.get(running, 0) + 1

    def __enter__(self) -> "Attempts":
        """Start."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Forget the notes: whatever happened, the process is alive."""
        self._store.remove_file(self._path)

    def run(self, rows: Rows, decode: Callable[[Rows], list[Decoded]]) -> list[Decoded]:
        """Decode all rows together, or one by one once two tries have died.

        Args:
            rows: Prompts, each with its `id`.
            decode: Answers the rows it is given.

        Returns:
            One answer a row; a row that died alone twice is `engine_crash`.
        """
        if self.deaths.get(EVERYTHING, 0) < DEATHS_BEFORE_SUSPICION:
            self._note(EVERYTHING)
            return decode(rows)
        answers: list[Decoded] = []
        for row in rows:
            answers += self._alone(row, decode)
        return answers

    def _alone(self, row: dict[str, Any], decode: Callable[[Rows], list[Decoded]]) -> list[Decoded]:
        if self.deaths.get(row["id"], 0) >= DEATHS_OF_A_ROW:
            return [crashed()]
        self._note(row["id"])
        return decode([row])

    def _note(self, running: str) -> None:
        note = {"run_id": self._run_id, "deaths": self.deaths, "running": running}
        self._store.write_bytes(self._path, json.dumps(note).encode())
