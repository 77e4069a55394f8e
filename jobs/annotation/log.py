"""Logs that only grow: tables name-0001, name-0002, ... of a folder, none of which ever changes."""

import json

import pyarrow as pa

from jobs.errors import DataError
from jobs.ledger import Ledger, Marker, Unit, fingerprint


def entry_name(stem: str, number: int) -> str:
    """Name of an entry of a log, without folder and ending."""
    return f"{stem}-{number:04d}"


def entries(ledger: Ledger, folder: str, stem: str) -> list[Marker]:
    """The entries of a log in order, probed for one after the other and never listed.

    Raises:
        DataError: An entry's marker cannot be read.
    """
    found: list[Marker] = []
    while True:
        marker = _marker(ledger, folder, entry_name(stem, len(found) + 1))
        if marker is None:
            return found
        found.append(marker)


def append(
    ledger: Ledger, folder: str, stem: str, table: pa.Table, stats: dict[str, object]
) -> Marker:
    """Write the next entry. The caller holds the lock of the output."""
    number = len(entries(ledger, folder, stem)) + 1
    mark = fingerprint("log", folder, stem, number, stats)
    return ledger.commit(Unit(folder, entry_name(stem, number), mark), table, stats=stats)


def _marker(ledger: Ledger, folder: str, name: str) -> Marker | None:
    done = Unit(folder, name, "").done
    if not ledger.store.exists(done):
        return None
    try:
        return Marker(**json.loads(ledger.store.read_bytes(done)))
    except (ValueError, TypeError):
        # Taking it for absent would write over what it stands for.
        raise DataError(
            f"{ledger.store.where(done)}: is no marker of a finished table. Bring it back from a "
            f"copy, or remove it and its table if {name} may be lost."
        ) from None
