"""What a file is: by its content first, by its name where the content leaves it open."""

import codecs
import json
import zlib
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import PurePosixPath

from jobs.readers.batches import FormatName

GZIP = b"\x1f\x8b"
BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"ARROW1": "an Arrow file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"SQLite format 3": "a SQLite database",
    b"%PDF": "a PDF",
}
SUFFIXES: dict[str, FormatName] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
}


@dataclass(frozen=True, slots=True)
class Format:
    """What a file was found to be.

    Attributes:
        kind: Its format; None where neither content nor name tells.
        gzip: Whether gzip lies around it.
        encoding: As its byte order mark says; None without one.
        bom_bytes: Length of that mark.
        other: What it is, where that is something which is not read.
    """

    kind: FormatName | None
    gzip: bool = False
    encoding: str | None = None
    bom_bytes: int = 0
    other: str | None = None


def detect(head: bytes, name: str) -> Format:
    """Say what a file is, by its content and then by its name.

    Args:
        head: Its first bytes, best about 1 MiB; all of them where it is shorter.
        name: Its name or path; `.gz` at the end is no matter.
    """
    if head.startswith(GZIP):
        inner = _gunzip_head(head)
        if inner.startswith(GZIP):
            return Format(None, gzip=True, other="gzip inside gzip")
        return replace(detect(inner, name), gzip=True)
    if head.startswith(b"PAR1"):
        return Format("parquet")
    other = next((what for magic, what in OTHER_MAGIC.items() if head.startswith(magic)), None)
    if other is not None and not _is_text(head, other):
        return Format(None, other=other)
    mark, encoding = next((bom for bom in BOMS if head.startswith(bom[0])), (b"", None))
    text = head[len(mark) :].decode(encoding or "utf-8", "replace")
    kind = _text_kind(text, _kind_by_name(name))
    return Format(kind, encoding=encoding, bom_bytes=len(mark))


def _is_text(head: bytes, other: str) -> bool:
    """Whether a short magic word is only how a text begins ("ORC...", "BZh...")."""
    return other in {"bzip2", "an ORC file"} and head[:512].isascii() and b"\0" not in head[:512]


def _gunzip_head(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, len(head))
    except zlib.error:
        return b""


def _kind_by_name(name: str) -> FormatName | None:
    path = PurePosixPath(name.lower())
    if path.suffix in {".gz", ".gzip"}:
        path = path.with_suffix("")
    return SUFFIXES.get(path.suffix)


def _text_kind(text: str, by_name: FormatName | None) -> FormatName | None:
    text = text.lstrip()
    if not text:
        return by_name or "jsonl"
    if by_name in {"csv", "tsv"}:
        is_json = text.startswith("{") and _is_object(text.partition("\n")[0])
        return "jsonl" if is_json else by_name
    if text.startswith("[") and (by_name != "jsonl" or not _is_lines_of_arrays(text)):
        return "json"
    if text.startswith("{"):
        return _object_kind(text, by_name)
    first = text.partition("\n")[0]
    if by_name is None and "\0" not in text and any(mark in first for mark in ",;\t|"):
        return "csv"
    # A document begins with a bracket, so this is JSON lines with a bad first one.
    return "jsonl" if by_name == "json" else by_name


def _is_lines_of_arrays(text: str) -> bool:
    first, _, rest = text.partition("\n")
    return bool(rest.strip()) and _parses(first)


def _parses(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_object(line: str) -> bool:
    return line.lstrip().startswith("{") and _parses(line)


def _object_kind(text: str, by_name: FormatName | None) -> FormatName:
    """Tell JSON lines from a document that begins with `{`."""
    first, _, rest = text.partition("\n")
    if _is_object(first):
        wrapped = by_name == "json" and not rest.strip() and _has_array_of_objects(first)
        return "json" if wrapped else "jsonl"
    second = rest.lstrip()
    if not second:  # one line, longer than the head, or cut
        return "json" if by_name == "json" else "jsonl"
    try:
        json.JSONDecoder().raw_decode(text)
    except JSONDecodeError as error:
        if _is_object(second.partition("\n")[0]):
            return "jsonl"
        reached_second_line = error.pos > len(text) - len(second)
        return "json" if reached_second_line or by_name == "json" else "jsonl"
    except (ValueError, RecursionError):
        return "jsonl"
    return "json"


def _has_array_of_objects(line: str) -> bool:
    values = json.loads(line).values()
    return any(isinstance(value, list) and value and isinstance(value[0], dict) for value in values)
