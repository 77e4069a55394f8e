"""Files that annotators gave back, read into records whatever their format and their faults."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.annotation.label_studio import annotations_of, is_task
from jobs.annotation.spreadsheet import restored
from jobs.errors import DataError
from jobs.readers.batches import BadLine, ReadOptions
from jobs.readers.cells import BadCell, id_text, label_text, tag_list
from jobs.readers.formats import detect, read

FORMATS = ("csv", "jsonl", "label-studio")
#: First of these that a file has; Label Studio's own exports have its task number in `id`.
NAMES = {
    "id": ("row_id", "id"),
    "label": ("label",),
    "output": ("output",),
    "tags": ("tags",),
    "annotator": ("annotator", "completed_by"),
    "checksum": ("checksum",),
}
#: What spreadsheets write where they do not write UTF-8.
FALLBACK = "cp1252"


@dataclass(frozen=True)
class Returned:
    """A record of a file, or a line that is none.

    Attributes:
        line: 1-based line (or number of the record in a JSON document).
        id: As written; None where there is none.
        label: As read, text or JSON; None where there is none.
        output: As `label`.
        tags: None where there are none.
        annotator: Who.
        checksum: Of the text that the annotator saw; None where the file does not say.
        cancelled: The annotator skipped it.
        damage: Why the line cannot be read; None: it can.
    """

    line: int
    id: str | None = None
    label: Any = None
    output: Any = None
    tags: tuple[str, ...] | None = None
    annotator: str | None = None
    checksum: str | None = None
    cancelled: bool = False
    damage: str | None = None


@dataclass(frozen=True)
class ReturnedFile:
    """What a file holds.

    Attributes:
        rows: In file order; every record and every line that is none.
        encoding: That it was read with.
        columns: That were found.
    """

    rows: list[Returned]
    encoding: str
    columns: tuple[str, ...]


def read_returned(
    data: bytes, name: str, *, format_name: str | None, encoding: str | None
) -> ReturnedFile:
    """Read a file that came back.

    Args:
        data: All of the file; labels are few and short.
        name: For the format and for messages.
        format_name: One of `FORMATS`; None: found out.
        encoding: Of a text file; None: UTF-8, or cp1252 where it is not.

    Raises:
        DataError: Nothing in it, no column of ids or of labels, or it cannot be read as a whole.
    """
    options = _options(data, name, format_name, encoding)
    found: list[Returned] = []
    seen: dict[str, None] = {}
    for line, record in _records(data, name, options):
        if isinstance(record, BadLine):
            found.append(Returned(line, damage=f"{record.reason}: {record.detail}"))
            continue
        if is_task(record):
            flat = list(annotations_of(record))
        elif format_name == "label-studio" and "row_id" not in record:
            found.append(Returned(line, damage="no task: it has neither data nor row_id"))
            continue
        else:
            flat = [record]
        for one in flat:
            seen |= dict.fromkeys(one)
            found.append(_returned(line, one, spreadsheet=options.format in ("csv", "tsv")))
    _check(found, tuple(seen), name)
    return ReturnedFile(found, options.encoding, tuple(seen))


def _options(data: bytes, name: str, format_name: str | None, encoding: str | None) -> ReadOptions:
    kind = detect(data[: 1 << 20], name).kind
    known = {"label-studio": "json", "jsonl": "jsonl"}
    if format_name == "csv":
        kind = "tsv" if kind == "tsv" else "csv"
    elif format_name is not None and not (format_name == "label-studio" and kind == "jsonl"):
        kind = known[format_name]  # type: ignore[assignment]
    options = ReadOptions(format=kind or "auto", encoding=encoding or "utf-8")
    if encoding is None and kind != "parquet" and not _is_utf8(data):
        options = replace(options, encoding=FALLBACK)
    return options


def _is_utf8(data: bytes) -> bool:
    if detect(data[:4], "").encoding not in (None, "utf-8") or data.startswith(b"\x1f\x8b"):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _records(
    data: bytes, name: str, options: ReadOptions
) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Records and bad lines in the order of the file."""
    for batch in read(io.BytesIO(data), name, options=options):
        records = batch.records
        plain = records if isinstance(records, list) else records.to_pylist()
        both: list[tuple[int, Any]] = [*zip(batch.lines, plain, strict=True)]
        yield from sorted([*both, *((bad.line, bad) for bad in batch.bad)], key=lambda one: one[0])


def _returned(line: int, record: Mapping[str, Any], *, spreadsheet: bool) -> Returned:
    names = {str(name).strip().lower(): name for name in record}
    cells = {
        field: next((record[names[n]] for n in wanted if n in names), None)
        for field, wanted in NAMES.items()
    }
    if spreadsheet:
        cells = {
            name: restored(cell) if isinstance(cell, str) else cell for name, cell in cells.items()
        }
    try:
        tags = tag_list(cells["tags"])
        return Returned(
            line,
            id=id_text(cells["id"]),
            label=cells["label"],
            output=cells["output"],
            tags=None if tags is None else tuple(tags),
            annotator=label_text(cells["annotator"]),
            checksum=label_text(cells["checksum"]),
            cancelled=bool(record.get("cancelled")),
        )
    except BadCell as error:
        return Returned(line, damage=f"{error.reason}: {error.detail}")


def _check(rows: list[Returned], columns: tuple[str, ...], name: str) -> None:
    if not rows:
        raise DataError(f"{name}: holds no row. Give the file that came back from the annotators.")
    there = {column.strip().lower() for column in map(str, columns)}
    for what, wanted in (("ids", NAMES["id"]), ("labels", ("label", "output"))):
        if columns and not there & set(wanted):
            raise DataError(
                f"{name}: no column of {what}; wanted {' or '.join(wanted)}, found: "
                f"{', '.join(map(str, columns))}. Give back the columns of the export; a Label "
                "Studio project needs the interface that export writes, whose control is 'label'."
            )
