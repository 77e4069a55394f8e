"""States of pool records: staged, active, retired; a log of changes that only grows."""

from collections.abc import Iterable, Mapping
from typing import Literal

import pyarrow as pa

from jobs import manifest
from jobs.annotation.log import append, entries
from jobs.ledger import Ledger, Marker

State = Literal["staged", "active", "retired"]
FOLDER, STEM = "pool", "changes"
CHANGE_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("state", pa.string()),
        ("reason", pa.large_string()),
        ("changed_at", pa.string()),
    ]
)


def changes_of(ledger: Ledger) -> dict[str, State]:
    """The state that each record was last given by hand; records never touched are absent."""
    found: dict[str, State] = {}
    for marker in entries(ledger, FOLDER, STEM):
        table = ledger.read(marker, ["id", "state"])
        found.update(zip(table["id"].to_pylist(), table["state"].to_pylist(), strict=True))
    return found


def retired_ids(ledger: Ledger) -> list[str]:
    """Ids that are retired, sorted: never to be shown, exported or proposed again."""
    return sorted(i for i, state in changes_of(ledger).items() if state == "retired")


def states(
    ids: Iterable[str], changes: Mapping[str, State], *, promote: Literal["auto", "manual"]
) -> list[State]:
    """The state of each record.

    Args:
        ids: Of the records.
        changes: What was said by hand, as `changes_of`.
        promote: `auto`: a record that nobody has touched is active; `manual`: staged.
    """
    untouched: State = "active" if promote == "auto" else "staged"
    return [changes.get(i, untouched) for i in ids]


def pool_states(ledger: Ledger, pool: Marker) -> dict[str, State]:
    """The states that a version of the pool was written with, by id."""
    table = ledger.read(pool, ["id", "state"])
    ids = table["id"].to_pylist()
    if "state" not in table.column_names:
        # Written before there were states: all of it was shown.
        return dict.fromkeys(ids, "active")
    return dict(zip(ids, table["state"].to_pylist(), strict=True))


def record_change(
    ledger: Ledger, ids: Iterable[str], state: State, *, reason: str | None
) -> Marker | None:
    """Append a change for the records that are not in this state by an earlier change.

    Returns:
        The new entry of the log; None where nothing changes. The caller holds the lock.
    """
    before = changes_of(ledger)
    new = sorted({i for i in ids if before.get(i) != state})
    if not new:
        return None
    rows = {"id": new, "state": [state] * len(new), "reason": [reason] * len(new)}
    table = pa.table(rows | {"changed_at": [manifest.now()] * len(new)}, schema=CHANGE_SCHEMA)
    stats: dict[str, object] = {"state": state, "n": len(new), "at": manifest.now()}
    return append(ledger, FOLDER, STEM, table, stats)
