"""The row table: every record of a batch becomes one row, or one rejected row with a reason."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import compress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from inference.status import Status
from jobs.errors import InvariantError
from jobs.readers.batches import Batch, excerpt
from jobs.readers.cells import (
    BadCell,
    any_text,
    cut,
    id_text,
    is_blank,
    is_longer,
    label_text,
    number,
    positive,
    scalar_text,
    tag_list,
)
from jobs.readers.columns import ColumnMap
from jobs.readers.hashes import content_hash, text_hash
from jobs.readers.row_tables import rejected_table, row_schema

MAX_TEXT_BYTES = 16 << 20

CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "id": id_text,
    "input": scalar_text,
    "output": label_text,
    "label": label_text,
    "group": label_text,
    "tags": tag_list,
    "weight": number,
    "cost": number,
    "quality": positive,
}
NUMBERS = {"weight", "cost", "quality"}
COERCED = {name: f"{name}_coerced" for name in ("id", "input", "output", "label", "group")}


class Rows(NamedTuple):
    """What became of one batch.

    Attributes:
        rows: ROW_SCHEMA and the kept columns; statuses ok, empty, too_large.
        rejected: REJECTED_SCHEMA; every line and record that is no row, and every row not ok.
        notes: Counts of flags, of reasons, and of sentences that a person should see.
    """

    rows: pa.Table
    rejected: pa.Table
    notes: Counter[str]


class _Draft:
    """The rows of one batch while they are made."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.n = len(batch)
        self.cells: dict[str, list[Any]] = {}
        self.flags: list[list[str]] = [[] for _ in range(self.n)]
        self.problems: dict[int, tuple[Status, str, str]] = {}

    def reject(self, at: int, reason: str, detail: str) -> None:
        """Take row `at` out; the first reason is the one reported."""
        self.problems.setdefault(at, (Status.REJECTED, reason, detail))

    def convert(self, field: str, source: str, into: Callable[[Any], Any]) -> None:
        """Fill one field from its source column."""
        flag = COERCED.get(field)
        cells: list[Any] = []
        for at, value in enumerate(self.batch.column(source)):
            cell = None
            try:
                cell = None if value is None else into(value)
            except BadCell as error:
                self.reject(at, error.reason, f"column {source!r}: {error.detail}")
            cells.append(cell)
            if flag and cell is not None and not isinstance(value, str | bytes):
                self.flags[at].append(flag)
        self.cells[field] = cells


def to_rows(
    batch: Batch, columns: ColumnMap, *, source_file: str, max_bytes: int = MAX_TEXT_BYTES
) -> Rows:
    """Make rows of the records of a batch.

    Args:
        batch: Records of one file.
        columns: The mapping, in the names this file uses.
        source_file: Its name in the row table.
        max_bytes: A longer text is cut to 4,096 bytes and its row is `too_large`.

    Returns:
        The rows, the rejected, and counts. A record is in `rows` exactly once, or, where it
        cannot be a row at all, in `rejected` with status `rejected`.

    Raises:
        InvariantError: The file's columns are fixed and the mapping was not `resolve`d to them.
    """
    lacking = set(columns.sources()) - set(batch.columns)
    if batch.fixed_columns and lacking:
        raise InvariantError(f"{source_file}: columns {sorted(lacking)} were not resolved")
    draft = _Draft(batch)
    mapped = columns.mapped()
    for field, source in mapped.items():
        draft.convert(field, source, CONVERTERS[field])
    for name, source in zip(columns.keep_as, columns.keep, strict=True):
        draft.convert(name, source, any_text)
    draft.cells.setdefault("id", [None] * draft.n)
    row_hashes = _hashes(draft, ["id", *(name for name in draft.cells if name != "id")])
    _make_up_ids(draft, list(mapped))
    _cut_long(draft, max_bytes)
    _find_empty(draft, columns)
    return _tables(draft, columns, row_hashes, source_file)


def _hashed_text(field: str, cells: list[Any]) -> list[str | None]:
    if field == "tags":
        return [None if cell is None else json.dumps(cell, ensure_ascii=False) for cell in cells]
    if field in NUMBERS:
        return [None if cell is None else repr(cell) for cell in cells]
    return cells


def _hashes(draft: _Draft, fields: list[str]) -> list[str | None]:
    """Hash the fields of each row; a row that is no Unicode is rejected and gets None."""
    texts = [_hashed_text(field, draft.cells[field]) for field in fields]
    hashes = [content_hash(values) for values in zip(*texts, strict=True)]
    for at, found in enumerate(hashes):
        if found is None:
            draft.reject(at, "not_unicode", "a lone surrogate, which no UTF-8 output can hold")
    return hashes


def _make_up_ids(draft: _Draft, fields: list[str]) -> None:
    """Give a row without an id the hash of its mapped fields; equal rows get equal ids here."""
    ids = draft.cells["id"]
    without = [at for at, row_id in enumerate(ids) if row_id is None]
    if without:
        texts = [_hashed_text(field, draft.cells[field]) for field in fields if field != "id"]
        for at in without:
            ids[at] = content_hash([cells[at] for cells in texts])
            draft.flags[at].append("made_up_id")


def _cut_long(draft: _Draft, max_bytes: int) -> None:
    for field, cells in draft.cells.items():
        if field in {"tags", *NUMBERS}:
            continue
        for at, cell in enumerate(cells):
            if cell is not None and is_longer(cell, max_bytes):
                n_bytes = len(cell.encode("utf-8", "surrogatepass"))
                detail = f"{field} has {n_bytes:,} bytes, more than {max_bytes:,}; cut to 4,096"
                draft.problems.setdefault(at, (Status.TOO_LARGE, "too_large", detail))
                cells[at] = cut(cell)


def _find_empty(draft: _Draft, columns: ColumnMap) -> None:
    for at, text in enumerate(draft.cells["input"]):
        if text is None or is_blank(text):
            what = "is missing or null" if text is None else "is blank"
            detail = f"the text (column {columns.input!r}) {what}"
            draft.problems.setdefault(at, (Status.EMPTY, "empty", detail))


def _tables(
    draft: _Draft, columns: ColumnMap, row_hashes: list[str | None], source_file: str
) -> Rows:
    status = [Status.OK.value] * draft.n
    for at, (found, _reason, _detail) in draft.problems.items():
        status[at] = found.value
    inputs = draft.cells["input"]
    cells: dict[str, list[Any]] = {
        **draft.cells,
        "source_file": [source_file] * draft.n,
        "source_line": draft.batch.lines,
        "status": status,
        "flags": draft.flags,
        "row_hash": row_hashes,
        "text_hash": [
            None if state in _UNHASHED else text_hash(text)
            for text, state in zip(inputs, status, strict=True)
        ],
    }
    rejected = _rejected_table(draft, source_file)
    if Status.REJECTED in status:
        kept = [state != Status.REJECTED for state in status]
        cells = {name: list(compress(values, kept)) for name, values in cells.items()}
    schema = row_schema(columns.keep_as)
    n_rows = len(cells["status"])
    arrays = [
        pa.array(cells[field.name], field.type)
        if field.name in cells
        else pa.nulls(n_rows, field.type)
        for field in schema
    ]
    rows = pa.Table.from_arrays(arrays, schema=schema)
    return Rows(rows, rejected, _counts(draft, cells["flags"], rejected))


_UNHASHED = {Status.EMPTY.value, Status.REJECTED.value}


def _rejected_table(draft: _Draft, source_file: str) -> pa.Table:
    entries: list[tuple[Any, ...]] = [
        (bad.line, None, bad.reason, bad.detail, bad.excerpt, _bad_status(bad.reason))
        for bad in draft.batch.bad
    ]
    for at, (status, reason, detail) in draft.problems.items():
        row_id, text = draft.cells["id"][at], draft.cells["input"][at] or ""
        shown_id = None if row_id is None else excerpt(row_id)
        line = draft.batch.lines[at]
        entries.append((line, shown_id, reason, detail, excerpt(text), status.value))
    entries.sort(key=lambda entry: entry[0])
    return rejected_table([(source_file, *entry) for entry in entries])


def _bad_status(reason: str) -> str:
    return (Status.TOO_LARGE if reason == "too_large" else Status.REJECTED).value


def _counts(draft: _Draft, flags: list[list[str]], rejected: pa.Table) -> Counter[str]:
    notes = Counter(draft.batch.notes)
    notes.update(flag for row_flags in flags for flag in row_flags)
    notes.update(rejected.column("reason").to_pylist())
    return notes


def label_counts(rows: pa.Table) -> Counter[str | None]:
    """Count the labels of a row table; None: unlabelled."""
    counted = pc.value_counts(rows.column("label")).to_pylist()
    return Counter({entry["values"]: entry["counts"] for entry in counted})
