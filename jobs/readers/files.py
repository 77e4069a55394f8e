"""One input file as rows: read, find its columns, make rows; and what it lacks as a whole."""

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from jobs.readers.batches import Batch, ReadOptions
from jobs.readers.columns import ColumnMap, describe, missing, no_id, resolve
from jobs.readers.formats import read
from jobs.readers.rows import MAX_TEXT_BYTES, Rows, to_rows


def read_rows(
    file: BinaryIO,
    name: str,
    *,
    columns: ColumnMap,
    options: ReadOptions,
    max_bytes: int = MAX_TEXT_BYTES,
) -> Iterator[Rows]:
    """Read one file as rows, in bounded memory and in file order.

    Args:
        file: The open file.
        name: Its path: for messages, the format and `source_file`.
        columns: The columns asked for.
        options: How to read it; only the columns asked for are read from Parquet.
        max_bytes: A longer text makes its row `too_large`.

    Yields:
        What became of each batch.

    Raises:
        DataError: The file cannot be read, or lacks a column. It may come after some rows: then
            nothing of this file may be used.
    """
    options = replace(options, columns=columns.sources())
    resolved: ColumnMap | None = None
    seen: dict[str, None] = {}
    n_records = 0
    for batch in read(file, name, options=options):
        notes: list[str] = []
        if batch.fixed_columns and resolved is None:
            resolved, notes = resolve(batch.columns, columns, name=name)
        seen.update(dict.fromkeys(batch.columns))
        n_records += len(batch)
        made = to_rows(batch, resolved or columns, source_file=name, max_bytes=max_bytes)
        made.notes.update(notes)
        yield made
    if resolved is None and n_records:
        yield from _absent_keys(tuple(seen), columns, name)


def _absent_keys(seen: tuple[str, ...], columns: ColumnMap, name: str) -> Iterator[Rows]:
    """Judge JSON keys that no record of the file has: without text, the file is no corpus."""
    if columns.input not in seen:
        raise missing(columns.input, seen, name)
    absent = [source for source in columns.sources() if source not in seen]
    if absent:
        empty = to_rows(Batch([], [], ()), columns, source_file=name)
        empty.notes.update(
            no_id(one, seen, name)
            if one == columns.id
            else f"{name}: no record has {one!r}. {describe(one, seen)}"
            for one in absent
        )
        yield empty
