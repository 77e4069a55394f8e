"""JSON lines: one object a line."""

import json
from collections import Counter
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

from jobs.readers.batches import BadLine, Batch, Blank, Item, ReadOptions, batched, excerpt
from jobs.readers.byte_streams import Readable, split_lines, too_large_detail

NOT_FINITE_NOTE = "json_not_finite_as_null"


def decoder(notes: Counter[str]) -> json.JSONDecoder:
    """Make a decoder that reads NaN and Infinity (which JSON lacks) as null, and counts them."""

    def as_null(_literal: str) -> None:
        notes[NOT_FINITE_NOTE] += 1

    return json.JSONDecoder(parse_constant=as_null)


def read_jsonl(file: Readable, *, options: ReadOptions) -> Iterator[Batch]:
    """Read one JSON object a line; a line that is none costs that line only."""
    notes: Counter[str] = Counter()
    return batched(_jsonl_items(file, options, decoder(notes)), notes=notes)


def _jsonl_items(file: Readable, options: ReadOptions, decode: json.JSONDecoder) -> Iterator[Item]:
    max_bytes = options.max_record_bytes
    for number, raw, length in split_lines(file, max_bytes=max_bytes):
        if length > max_bytes:
            detail = too_large_detail(length, max_bytes)
            yield number, 0, BadLine(number, "too_large", detail, excerpt(raw))
        elif not raw or raw.isspace():
            yield number, 0, Blank()
        else:
            found = parse_line(raw, encoding=options.encoding, decode=decode)
            if isinstance(found, dict):
                yield number, length, found
            else:
                yield number, 0, BadLine(number, *found, excerpt(raw))


def parse_line(
    raw: bytes, *, encoding: str, decode: json.JSONDecoder
) -> dict[str, Any] | tuple[str, str]:
    """Parse one line; give the record, or the reason and detail why there is none."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        return "bad_encoding", (
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02X}) is not {encoding}: "
            f"{error.reason}"
        )
    try:
        value = decode.decode(text)
    except JSONDecodeError as error:
        return _why_not_json(text, error)
    except (ValueError, RecursionError) as error:
        return "not_json", f"{type(error).__name__}: {error}"
    if isinstance(value, dict):
        return value
    return "not_object", f"a JSON {json_kind(value)} where an object was expected"


def json_kind(value: object) -> str:
    """Name the kind of a JSON value that is no object."""
    kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _why_not_json(text: str, error: JSONDecodeError) -> tuple[str, str]:
    stripped = text.strip()
    if stripped.startswith(("#", "//")):
        return "comment", "JSON lines have no comments"
    if stripped.startswith("{") and ends_early(error, len(text.rstrip()), slack=0):
        return "truncated_line", f"the line ends inside its object ({error.msg})"
    return "not_json", f"{error.msg} at character {error.pos + 1}"


def ends_early(error: JSONDecodeError, end: int, *, slack: int) -> bool:
    """Whether more text could still have made it JSON."""
    return error.pos >= end - slack or error.msg.startswith("Unterminated string")
