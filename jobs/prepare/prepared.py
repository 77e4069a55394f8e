"""What a preparer hands over, and how it is written: tables, rejected rows, meta.json."""

import json
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inference.status import Status
from jobs.errors import DataError
from jobs.files.places import joined
from jobs.readers.batches import excerpt
from jobs.readers.row_tables import ROW_SCHEMA, rejected_table
from jobs.storage import Store

FIELDS = [
    *(ROW_SCHEMA.field(name) for name in ("id", "input", "output", "label", "group", "tags")),
    pa.field("split", pa.string()),
    pa.field("source", pa.string()),
]
TABLES = {"train": "corpus", "dev": "dev", "test": "queries"}

Row = dict[str, Any]


@dataclass(slots=True)
class Prepared:
    """Rows of all splits, and what did not become one.

    Attributes:
        rows: Dicts with the names of FIELDS (a missing one is null) and of `extra`; `split` is
            `train`, `dev` or `test`.
        extra: Further columns, which are text.
        rejected: Entries of REJECTED_SCHEMA.
        left_out: What is no part of the task, in words, with its number.
        notes: Further counts for meta.json.
        seen: Ids of the rows.
    """

    rows: list[Row] = field(default_factory=list)
    extra: tuple[str, ...] = ()
    rejected: list[tuple[Any, ...]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    seen: set[str] = field(default_factory=set)

    def add(self, row: Row) -> bool:
        """Take a row in, or reject it where it cannot be written; says which."""
        fault = _fault(row, self.seen)
        if fault:
            self.reject(row["id"], *fault, source=row["source"], text=row["input"])
        else:
            self.seen.add(row["id"])
            self.rows.append(row)
        return fault is None

    def reject(
        self,
        row_id: str | None,
        reason: str,
        detail: str,
        *,
        source: str,
        line: int | None = None,
        text: str = "",
    ) -> None:
        """Set a row aside with its reason."""
        detail = detail.encode("utf-8", "backslashreplace").decode()
        entry = (source, line, row_id, reason, detail, excerpt(text), Status.REJECTED.value)
        self.rejected.append(entry)


def write(out: str, made: Prepared, about: dict[str, Any]) -> dict[str, Any]:
    """Write corpus, queries and dev (where it has rows), rejected rows and meta.json.

    Rows stand in an order drawn from their ids, so that the first N are a sample of them.

    Args:
        out: Folder to write to.
        made: The rows, and what was set aside.
        about: What meta.json begins with: the source, and the options.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        DataError: No row for the corpus, or none for the queries.
        ConfigError: The folder cannot be written.
        ClusterError: No room on the disk.
    """
    tables = _tables(made)
    for name in ("corpus", "queries"):
        if not tables[name]:
            raise DataError(
                f"{about['source']}: no row for {name}.parquet ({len(made.rows):,} rows, "
                f"{len(made.rejected):,} rejected: {_reasons(made)}). Look at the source."
            )
    store = Store(out)
    store.create()
    meta = dict(about)
    for name, rows in tables.items():
        meta |= _write_table(store, name, rows, made.extra)
    with store.writing("rejected.parquet") as file:
        pq.write_table(rejected_table(made.rejected), file, compression="zstd")
    meta |= {
        "rejected_rows": len(made.rejected),
        "rejected_reasons": dict(_reasons(made)),
        "left_out": dict(made.left_out),
        "notes": dict(made.notes),
    }
    store.write_bytes("meta.json", (json.dumps(meta, indent=1) + "\n").encode())
    names = [name for name, rows in tables.items() if rows] + ["rejected"]
    return meta | {name: joined(out, f"{name}.parquet") for name in names}


def _reasons(made: Prepared) -> Counter[str]:
    return Counter(entry[3] for entry in made.rejected)


def _tables(made: Prepared) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {name: [] for name in TABLES.values()}
    for row in sorted(made.rows, key=_draw):
        tables[TABLES[row["split"]]].append(row)
    return tables


def _draw(row: Row) -> bytes:
    return blake2b(row["id"].encode(), digest_size=8).digest()


def _fault(row: Row, seen: set[str]) -> tuple[str, str] | None:
    """Reason and detail of a row that cannot be written."""
    if row["id"] in seen:
        return "duplicate_id", "an earlier row has this id"
    try:
        "".join([row["id"], row["input"], row["output"] or ""]).encode()
    except UnicodeEncodeError:
        return "not_unicode", "a lone surrogate, which no UTF-8 output can hold"
    return None


def _write_table(
    store: Store, name: str, rows: list[Row], extra: tuple[str, ...]
) -> dict[str, Any]:
    if not rows:
        store.remove_file(f"{name}.parquet")
        return {}
    schema = pa.schema([*FIELDS, *(pa.field(name, pa.large_string()) for name in extra)])
    with store.writing(f"{name}.parquet") as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file, compression="zstd")
    number = {"queries": "query"}.get(name, name)
    labels = Counter(row.get("label") or "unlabelled" for row in rows)
    counts = {f"{number}_rows": len(rows)}
    return counts | {f"{number}_labels": dict(sorted(labels.items()))}
