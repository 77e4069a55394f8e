"""What every reader yields: a bounded batch of records, and the lines that are none."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 8 << 20
EXCERPT_CHARS = 200

FormatName = Literal["parquet", "jsonl", "csv", "tsv", "json"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is to be read; the defaults find it out.

    Attributes:
        format: One of the formats, or `auto`: by content, then by name.
        encoding: Of the text formats; a byte order mark overrules it.
        delimiter: Of CSV/TSV; None: tab for TSV, else the commonest of `, ; tab |` in the header.
        quote: Quote character of CSV/TSV; None: quotes are ordinary characters.
        header: True: the first record names the columns; a list: these names, no header line;
            False: no header line, names column_1, column_2, ...
        records_key: Key of the record array in a wrapped JSON document; None: found out.
        columns: Columns of a Parquet file that are read; None: all.
        max_record_bytes: A longer line or record is reported as `too_large`, never held.
    """

    format: Literal["auto"] | FormatName = "auto"
    encoding: str = "utf-8"
    delimiter: str | None = None
    quote: str | None = '"'
    header: bool | tuple[str, ...] = True
    records_key: str | None = None
    columns: tuple[str, ...] | None = None
    max_record_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no record.

    Attributes:
        line: 1-based number of its first physical line (of the record, for Parquet and JSON).
        reason: A short word that can be counted, such as `not_json`.
        detail: A sentence for a person.
        excerpt: At most 200 characters of it, printable as UTF-8.
    """

    line: int
    reason: str
    detail: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one file, with the bad lines met between them.

    Attributes:
        records: A list of dicts, or an Arrow table.
        lines: 1-based number of the first line (or record) of each record.
        columns: For a table: every column the file has; for dicts: the keys seen in this batch.
        bad: Lines that are no records.
        notes: What was changed or assumed on the way, with counts.
        n_blank: Blank lines skipped.
        fixed_columns: Whether every record of the file has the same columns (CSV, Parquet).
    """

    records: list[dict[str, Any]] | pa.Table
    lines: list[int]
    columns: tuple[str, ...]
    bad: list[BadLine] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    n_blank: int = 0
    fixed_columns: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[Any]:
        """Give one column as Python values; None where a record lacks it.

        Text of an Arrow column that is not UTF-8 comes as bytes, for the caller to judge.
        """
        if not self.lines:
            return []
        if isinstance(self.records, list):
            return [record.get(name) for record in self.records]
        values = self.records.column(name)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            cells: list[Any] = values.to_pylist()
        except UnicodeDecodeError:
            cells = values.cast(pa.large_binary()).to_pylist()
        return cells


def excerpt(raw: bytes | str) -> str:
    """Cut to 200 characters that any UTF-8 output can hold; other bytes become escapes."""
    if isinstance(raw, bytes):
        return raw[: 4 * EXCERPT_CHARS].decode("utf-8", "backslashreplace")[:EXCERPT_CHARS]
    return raw[:EXCERPT_CHARS].encode("utf-8", "backslashreplace").decode()[:EXCERPT_CHARS]


@dataclass(slots=True)
class Blank:
    """A blank line."""


Item = tuple[int, int, dict[str, Any] | BadLine | Blank]


def batched(
    items: Iterable[Item],
    *,
    notes: Counter[str],
    columns: tuple[str, ...] | None = None,
) -> Iterator[Batch]:
    """Group what a reader finds into batches of at most 4,096 records or about 8 MiB.

    Args:
        items: (line number, bytes, record or bad line or blank), in file order.
        notes: Counter the reader adds to while it runs; emptied into each batch.
        columns: The columns of a file whose records all have the same; None: keys as seen.

    Yields:
        Batches; at least one where `columns` is given, so that they can be checked.
    """
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    n_bytes = n_blank = n_batches = 0

    def flush() -> Batch:
        nonlocal records, lines, bad, n_bytes, n_blank, n_batches
        keys = dict.fromkeys(key for record in records for key in record)
        batch = Batch(
            records,
            lines,
            tuple(keys) if columns is None else columns,
            bad,
            Counter(notes),
            n_blank,
            fixed_columns=columns is not None,
        )
        notes.clear()
        records, lines, bad = [], [], []
        n_bytes = n_blank = 0
        n_batches += 1
        return batch

    for line, size, item in items:
        if isinstance(item, dict):
            records.append(item)
            lines.append(line)
            n_bytes += size
        elif isinstance(item, BadLine):
            bad.append(item)
        else:
            n_blank += 1
        if n_bytes >= MAX_BATCH_BYTES or len(records) + len(bad) >= MAX_BATCH_ROWS:
            yield flush()
    if records or bad or n_blank or notes or (columns is not None and n_batches == 0):
        yield flush()
