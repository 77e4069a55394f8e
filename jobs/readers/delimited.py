"""CSV and TSV, with quoted line breaks, the line number of every record, and no lost line."""

import csv
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from jobs.errors import DataError
from jobs.readers.batches import BadLine, Batch, Blank, Item, ReadOptions, batched, excerpt
from jobs.readers.byte_streams import Readable, split_lines, too_large_detail

DELIMITERS = (",", ";", "\t", "|")
MAX_OPEN_CHARS = 64 << 20
"""A quote open over more than this is taken as never closed (csv holds 4 bytes a character)."""


class _Line(NamedTuple):
    number: int
    text: str
    damage: tuple[str, str] | None = None


class _Lines:
    """Physical lines for `csv.reader`, which remembers those of the record being read.

    They can be given back, so that a quote which is never closed costs one line and not the
    rest of the file.
    """

    def __init__(self, file: Readable, options: ReadOptions, end: bytes) -> None:
        self._lines = split_lines(file, max_bytes=options.max_record_bytes, end=end)
        self._end = end.decode()
        self._encoding = options.encoding
        self._max_bytes = options.max_record_bytes
        self._again: list[_Line] = []
        self.n_chars_again = 0
        self.start_record()

    def start_record(self) -> None:
        """Forget the lines of the last record."""
        self.record: list[_Line] = []
        self.n_chars = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if self.n_chars > MAX_OPEN_CHARS:
            raise StopIteration
        line = self._again.pop() if self._again else self._decoded()
        self.record.append(line)
        self.n_chars += len(line.text)
        return line.text

    def _decoded(self) -> _Line:
        number, raw, length = next(self._lines)
        if length > self._max_bytes:
            detail = too_large_detail(length, self._max_bytes)
            return _Line(number, self._end, ("too_large", detail))
        try:
            return _Line(number, raw.decode(self._encoding) + self._end)
        except UnicodeDecodeError as error:
            detail = (
                f"line {number}, byte {error.start + 1} (0x{raw[error.start]:02X}) is not "
                f"{self._encoding}: {error.reason}"
            )
            text = raw.decode(self._encoding, "replace") + self._end
            return _Line(number, text, ("bad_encoding", detail))

    def give_back(self, keep: int) -> None:
        """Give the lines of this record, but for the first `keep`, once more."""
        back = self.record[keep:]
        self._again.extend(reversed(back))
        self.n_chars_again += sum(len(line.text) for line in back)
        del self.record[keep:]

    def line(self) -> int:
        """Give the number of the first line of this record."""
        return self.record[0].number

    def damage(self) -> tuple[str, str] | None:
        """Give the reason and detail why a line of this record cannot be read."""
        return next((line.damage for line in self.record if line.damage is not None), None)

    def bad(self, reason: str, detail: str) -> BadLine:
        """Report this record."""
        if len(self.record) > 1:
            detail += f" (lines {self.line()} to {self.record[-1].number}, read as one record)"
        return BadLine(self.line(), reason, detail, excerpt(self.record[0].text.rstrip("\r\n")))


def read_delimited(
    file: Readable, name: str, *, options: ReadOptions, delimiter: str | None, end: bytes = b"\n"
) -> Iterator[Batch]:
    """Read records of text fields.

    Args:
        file: Stream of bytes, without a byte order mark.
        name: For messages.
        options: `header`, `quote`, `encoding` and `max_record_bytes` are used.
        delimiter: One character; None: the commonest of `, ; tab |` in the first line.
        end: The line end.

    Raises:
        DataError: No usable header, or quotes that are never closed all over the file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    lines = _Lines(file, options, end)
    first = next(lines, None)
    if first is None:
        return
    lines.give_back(0)
    lines.start_record()
    delimiter = delimiter or _likely_delimiter(first, options.header)
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=options.quote,
        quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
        strict=True,
    )
    columns = _columns(reader, lines, name, options)
    items = _items(reader, lines, columns, name)
    yield from batched(items, notes=Counter(), columns=columns)


def _likely_delimiter(first: str, header: bool | tuple[str, ...]) -> str:
    n_wanted = 0 if isinstance(header, bool) else len(header) - 1
    return max(DELIMITERS, key=lambda mark: (first.count(mark) == n_wanted > 0, first.count(mark)))


def _columns(
    reader: Iterator[list[str]], lines: _Lines, name: str, options: ReadOptions
) -> tuple[str, ...]:
    if not isinstance(options.header, bool):
        return options.header
    try:
        fields = next((record for record in reader if any(map(str.strip, record))), None)
    except csv.Error as error:
        raise DataError(
            f"{name}: the header (line {lines.line()}) is no CSV: {error}. Mend it, or set quote: "
            "null if quotes are ordinary characters here."
        ) from error
    if fields is None:
        return ()
    damage = lines.damage()
    if damage is not None:
        raise DataError(
            f"{name}: the header cannot be read: {damage[1]}. Set the file's encoding, such as "
            "cp1252."
        )
    if options.header is False:
        lines.give_back(0)
        fields = [""] * len(fields)
    return _distinct([field or f"column_{at}" for at, field in enumerate(fields, 1)], name)


def _distinct(fields: list[str], name: str) -> tuple[str, ...]:
    twice = [field for field, n in Counter(fields).items() if n > 1]
    if twice:
        raise DataError(
            f"{name}: the header has {', '.join(map(repr, twice))} more than once. Rename one, "
            "or give the names yourself: header: [...]."
        )
    return tuple(fields)


def _items(
    reader: Iterator[list[str]], lines: _Lines, columns: tuple[str, ...], name: str
) -> Iterator[Item]:
    while True:
        lines.start_record()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield lines.line(), 0, _broken(lines, str(error), name)
            continue
        if fields is None:
            return
        yield lines.line(), lines.n_chars, _judged(fields, columns, lines)


def _judged(
    fields: list[str], columns: tuple[str, ...], lines: _Lines
) -> dict[str, str] | BadLine | Blank:
    damage = lines.damage()
    if damage is not None:
        return lines.bad(*damage)
    if len(fields) == len(columns):
        return dict(zip(columns, fields, strict=True))
    if len(fields) < 2 and not "".join(fields).strip():
        return Blank()
    return lines.bad(
        "wrong_field_count", f"{len(fields)} fields where there are {len(columns)} columns"
    )


def _broken(lines: _Lines, why: str, name: str) -> BadLine:
    """Report the first line of a record that is no CSV; the others are read once more."""
    first, last = lines.line(), lines.record[-1].number
    if lines.damage() is None and first == last:
        return lines.bad("bad_csv", f"{why}; is a quote open, or not doubled?")
    lines.give_back(1)
    if lines.n_chars_again > 4 * MAX_OPEN_CHARS:
        raise DataError(
            f"{name}: quotes that are not closed all over the file, the last on line {first}. If "
            "quotes are ordinary characters in this file, set quote: null."
        )
    reason, detail = lines.damage() or (
        "open_quote",
        f"a quote opened here is not closed properly up to line {last} ({why})",
    )
    return lines.bad(reason, detail)
