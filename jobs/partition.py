"""Second half of ingest: the spilled rows of one hash partition become its segments."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import DataError
from jobs.ledger import Ledger, Marker, Unit
from jobs.readers.duplicates import resolve_duplicates
from jobs.readers.row_tables import row_schema
from jobs.spill import rows_of_partition, value_counts

SIDES = ("weight", "group", "cost", "quality")


@dataclass(frozen=True)
class PartitionWork:
    """Turns the spilled rows of one partition into its segments."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Resolve duplicate ids, keep what earlier segments hold, write the rest as a new one.

        Args:
            payload: `unit`, `rejects`, `partition`, `keep`, `on_duplicate_id`, `spills`,
                `previous` ([segment, marker]).

        Returns:
            Marker of the new segment; its `stats.kept` lists the earlier ones.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        spills = [_there(ledger, Unit(**spill)) for spill in payload["spills"]]
        empty = row_schema(payload["keep"]).empty_table()
        rows = pa.concat_tables([empty, *rows_of_partition(ledger, spills, payload["partition"])])
        rows, rejected, counts = resolve_duplicates(
            rows, on_duplicate_id=payload["on_duplicate_id"]
        )
        rows = rows.sort_by("id")
        kept, rows = _divide(ledger, rows, payload)
        if rejected.num_rows:
            ledger.commit(Unit(**payload["rejects"]), rejected)
        stats = part_stats(rows) | {"kept": kept, "duplicates": dict(counts)}
        stats["n_rejected"] = rejected.num_rows
        return ledger.commit(unit, rows, stats=stats)


def _there(ledger: Ledger, unit: Unit) -> Marker:
    marker = ledger.find(unit)
    if marker is None:
        raise DataError(f"{ledger.store.where(unit.table)}: is gone or changed; run again.")
    return marker


def part_stats(rows: pa.Table) -> dict[str, Any]:
    """What is counted of a part, with the fingerprints of its rows and of their texts alone."""
    flags = Counter(flag for flags in rows.column("flags").to_pylist() for flag in flags or ())
    return {
        "content": _digest(rows, ("id", "row_hash", "status")),
        # A label that arrives later changes the row, but not what there is to embed.
        "texts": _digest(rows, ("id", "input", "status")),
        # What Stage 1 may be asked to heed: a new weight moves the choice, not the vectors.
        "sides": {name: _side_digest(rows, name) for name in SIDES},
        "status": value_counts(rows.column("status")),
        "labels": value_counts(rows.column("label")),
        "n_unlabelled": rows.column("label").null_count,
        "flags": dict(flags),
    }


def _side_digest(rows: pa.Table, name: str) -> str | None:
    return _digest(rows, (name,)) if rows.column(name).null_count < len(rows) else None


def _digest(rows: pa.Table, columns: tuple[str, ...]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for column in columns:
        for value in rows.column(column).to_pylist():
            data = ("" if value is None else str(value)).encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _divide(
    ledger: Ledger, rows: pa.Table, payload: dict[str, Any]
) -> tuple[list[list[Any]], pa.Table]:
    """Give each earlier segment the texts it already holds; what is left is new."""
    kept: list[list[Any]] = []
    keys = pa.array(_keys(rows), pa.string())
    for segment, plain in payload["previous"]:
        marker = Marker(**plain)
        old = ledger.read(marker, ["id", "input", "row_hash"])
        here = pc.is_in(keys, value_set=pa.array(_keys(old), pa.string()))
        held = rows.filter(here)
        if not held.column("row_hash").equals(old.column("row_hash")):
            # Rows were changed or removed in the input: the segment follows.
            name = f"part-s{segment:04d}-p{payload['partition']:05d}"
            unit = Unit(payload["unit"]["folder"], name, payload["unit"]["fingerprint"])
            marker = ledger.commit(unit, held, stats=part_stats(held))
        # What it kept when it was new is old news; nested, it would double with every segment.
        facts = {name: value for name, value in marker.stats.items() if name != "kept"}
        kept.append([segment, marker.as_dict() | {"stats": facts}])
        rows, keys = rows.filter(pc.invert(here)), keys.filter(pc.invert(here))
    return kept, rows


def _keys(rows: pa.Table) -> list[str]:
    """Id and exact text of every row, short."""
    pairs = zip(rows.column("id").to_pylist(), rows.column("input").to_pylist(), strict=True)
    return [
        f"{hashlib.blake2b((text or '').encode(), digest_size=8).hexdigest()}{i}"
        for i, text in pairs
    ]
