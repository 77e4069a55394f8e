"""The records of one JSON document: an array of objects, or an object around one."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count
from json import JSONDecodeError
from typing import Any

from jobs.errors import DataError
from jobs.readers.batches import BadLine, Batch, Item, ReadOptions, batched, excerpt
from jobs.readers.byte_streams import CHUNK_BYTES, Readable
from jobs.readers.json_records import decoder, ends_early, json_kind

SPACE = re.compile(r"[ \t\n\r]*")


def read_document(file: Readable, name: str, *, options: ReadOptions) -> Iterator[Batch]:
    """Read the records of one JSON document as a stream; memory holds one record at a time.

    Raises:
        DataError: It is not JSON, ends early, or does not say which array holds the records.
    """
    notes: Counter[str] = Counter()
    document = _Document(file, name, options, notes)
    return batched(_document_items(document, options, notes), notes=notes)


class _Document:
    """A window that moves over the text of a JSON document."""

    def __init__(
        self, file: Readable, name: str, options: ReadOptions, notes: Counter[str]
    ) -> None:
        self.name = name
        self._file = file
        self._encoding = options.encoding
        self._max_chars = options.max_record_bytes
        self._json = decoder(notes)
        self._incremental = codecs.getincrementaldecoder(options.encoding)()
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False

    def _more(self) -> None:
        """Drop what was consumed and at least double the window."""
        self._before += self._at
        self._text, self._at = self._text[self._at :], 0
        raw = self._file.read(max(CHUNK_BYTES, len(self._text)))
        try:
            self._text += self._incremental.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.name}: not {self._encoding} ({error.reason}) after character "
                f"{self._before + len(self._text):,}. Convert it, or set its encoding."
            ) from error
        self._ended = not raw

    def next_char(self) -> str:
        """Give the next character that is no white space, unconsumed; empty at the end."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def take(self, wanted: str) -> str:
        """Consume one of the `wanted` characters."""
        found = self.next_char()
        if not found or found not in wanted:
            raise self.broken(f"expected one of {' '.join(wanted)}")
        self._at += 1
        return found

    def value(self) -> tuple[Any, int]:
        """Consume one value and give it with its length in characters."""
        self.next_char()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except JSONDecodeError as error:
                if self._ended or not ends_early(error, len(self._text), slack=len("-Infinity")):
                    raise self.broken(error.msg, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self.broken(f"{type(error).__name__}: {error}") from error
            else:
                if end < len(self._text) or self._ended:
                    length, self._at = end - self._at, end
                    return value, length
            if len(self._text) - self._at > self._max_chars:
                raise self.broken(f"one value is longer than {self._max_chars:,} characters")
            self._more()

    def broken(self, why: str, pos: int | None = None) -> DataError:
        """Make the error that says where the document is no JSON."""
        at = self._at if pos is None else pos
        if self._ended and at >= len(self._text.rstrip()):
            why = f"the document is truncated: it ends early ({why})"
        return DataError(
            f"{self.name}: not a JSON document: {why} at character {self._before + at + 1:,}, "
            f"near {excerpt(self._text[at : at + 40])!r}. Mend the file, or write one JSON "
            "object a line (.jsonl), where a bad line costs that line only."
        )


def _document_items(
    document: _Document, options: ReadOptions, notes: Counter[str]
) -> Iterator[Item]:
    first = document.next_char()
    if first == "[":
        yield from _array_items(document)
    elif first == "{":
        yield from _wrapped_items(document, options.records_key, notes)
    elif first:
        raise document.broken("expected [ or {")
    if document.next_char():
        raise document.broken("more text after the end")


def _array_items(document: _Document) -> Iterator[Item]:
    document.take("[")
    if document.next_char() == "]":
        document.take("]")
        return
    for number in count(1):
        value, length = document.value()
        if isinstance(value, dict):
            yield number, length, value
        else:
            detail = f"a JSON {json_kind(value)} where an object was expected"
            yield number, 0, BadLine(number, "not_object", detail, excerpt(json.dumps(value)))
        if document.take(",]") == "]":
            return


def _wrapped_items(
    document: _Document, records_key: str | None, notes: Counter[str]
) -> Iterator[Item]:
    keys: list[str] = []
    filled: list[str] = []
    empty: list[str] = []
    for key in _keys(document):
        keys.append(key)
        if document.next_char() != "[":
            document.value()
            continue
        records = _array_items(document)
        if records_key in (None, key):
            head = next(records, None)
            if head is None:
                empty.append(key)
            elif isinstance(head[2], dict) or records_key == key:
                filled.append(key)
                if len(filled) == 1:
                    yield head
                    yield from records
        for _ in records:  # an array that is not wanted, or one too many
            pass
    arrays = filled or empty
    _check_arrays(document.name, arrays, keys, records_key)
    if records_key is None:
        notes[f"records were found under the key {arrays[0]!r}"] += 1


def _keys(document: _Document) -> Iterator[str]:
    """Give each key of an object; the caller consumes its value before the next."""
    document.take("{")
    if document.next_char() == "}":
        document.take("}")
        return
    while True:
        if document.next_char() != '"':
            raise document.broken("expected a key in quotes")
        key, _ = document.value()
        document.take(":")
        yield key
        if document.take(",}") == "}":
            return


def _check_arrays(name: str, arrays: list[str], keys: list[str], records_key: str | None) -> None:
    if len(arrays) == 1:
        return
    listed = ", ".join(repr(key) for key in keys[:20]) or "none"
    if arrays:
        raise DataError(
            f"{name}: {len(arrays)} arrays could hold the records: "
            f"{', '.join(map(repr, arrays))}. Say which: records_key."
        )
    if records_key is not None:
        raise DataError(f"{name}: no array under the key {records_key!r}. The keys are: {listed}.")
    raise DataError(
        f"{name}: one JSON object without an array of objects; its keys are: {listed}. Wanted: "
        "JSON lines, an array, or an object around an array of objects."
    )
