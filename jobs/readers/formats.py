"""From the bytes of one input file to batches of records, whatever its format."""

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from jobs.errors import ConfigError, DataError
from jobs.readers.batches import BadLine, Batch, FormatName, ReadOptions
from jobs.readers.byte_streams import Gunzipped, Readable, Transcoded, peek
from jobs.readers.delimited import read_delimited
from jobs.readers.detection import Format, detect
from jobs.readers.json_document import read_document
from jobs.readers.json_records import read_jsonl
from jobs.readers.parquet_records import read_parquet

__all__ = ["BadLine", "Batch", "Format", "ReadOptions", "detect", "read"]


def read(file: BinaryIO, name: str, *, options: ReadOptions) -> Iterator[Batch]:
    """Read one file as batches of at most 4,096 records or about 8 MiB.

    Args:
        file: The open file; Parquet needs it to be seekable.
        name: Its path, for the format and for messages.
        options: How to read it.

    Raises:
        DataError: The file as a whole cannot be read (truncated gzip, not Parquet, ...). It may
            come after some batches: nothing of the file may then be used.
        ConfigError: An encoding that does not exist.
    """
    try:
        "".encode(options.encoding)
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"encoding {options.encoding!r} is unknown; use one of Python's, such as utf-8, "
            "cp1252 or utf-16."
        ) from error
    head, stream = peek(file)
    found = detect(head, name)
    kind = _agreed_kind(found, name, options)
    if kind == "parquet":
        return read_parquet(file, name, options=options)
    return _read_text(stream, name, kind, found, options)


def _agreed_kind(found: Format, name: str, options: ReadOptions) -> FormatName:
    wanted = "parquet, jsonl, csv, tsv or json"
    if found.other is not None:
        raise DataError(f"{name}: this is {found.other}, which is not read. Wanted: {wanted}.")
    kind = found.kind if options.format == "auto" else options.format
    if kind is None:
        raise DataError(
            f"{name}: neither content nor name tells the format. Set format to {wanted}; where "
            "other files lie beside the data, give path as a glob or a list."
        )
    if (kind == "parquet") != (found.kind == "parquet") and options.format != "auto":
        raise DataError(
            f"{name}: format is set to {options.format}, but the file looks like "
            f"{found.kind or 'none that is read'}. Leave format at auto, or name the right one."
        )
    if kind == "parquet" and found.gzip:
        raise DataError(f"{name}: gzip around Parquet is not read. Decompress the file.")
    return kind


def _read_text(
    stream: Readable, name: str, kind: FormatName, found: Format, options: ReadOptions
) -> Iterator[Batch]:
    head, stream = peek(Gunzipped(stream, name) if found.gzip else stream)
    if found.bom_bytes:
        stream.read(found.bom_bytes)
    encoding = found.encoding or options.encoding.lower().replace("utf-8-sig", "utf-8")
    if "\n".encode(encoding) != b"\n":
        stream, encoding = Transcoded(stream, name, encoding), "utf-8"
    options = replace(options, encoding=encoding)
    if kind == "jsonl":
        return read_jsonl(stream, options=options)
    if kind == "json":
        return read_document(stream, name, options=options)
    delimiter = options.delimiter or ("\t" if kind == "tsv" else None)
    end = b"\r" if b"\r" in head and b"\n" not in head else b"\n"
    return read_delimited(stream, name, options=options, delimiter=delimiter, end=end)
