"""Streams under the readers: look ahead, gunzip, transcode, split into lines on line feeds."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from jobs.errors import DataError

HEAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20


class Readable(Protocol):
    """Anything that gives bytes in order; empty at the end."""

    def read(self, size: int = -1, /) -> bytes:
        """Give at most `size` bytes."""
        ...


class Peeked:
    """A stream whose first bytes were looked at and are given again."""

    def __init__(self, file: Readable, head: bytes) -> None:
        self._file = file
        self._head = head

    def read(self, size: int = -1, /) -> bytes:
        """Give at most `size` bytes; the head first."""
        if not self._head:
            return self._file.read(size)
        if size < 0:
            size = max(CHUNK_BYTES, len(self._head))
        part, self._head = self._head[:size], self._head[size:]
        return part


def peek(file: Readable, size: int = HEAD_BYTES) -> tuple[bytes, Peeked]:
    """Read the first bytes of a stream, and give them with the stream as it was."""
    parts: list[bytes] = []
    n_bytes = 0
    while n_bytes < size and (part := file.read(size - n_bytes)):
        parts.append(part)
        n_bytes += len(part)
    head = b"".join(parts)
    return head, Peeked(file, head)


class Gunzipped:
    """The content of a gzip stream; damage is a `DataError` that names the file."""

    def __init__(self, file: Readable, name: str) -> None:
        self._gzip = gzip.GzipFile(fileobj=_as_binary(file), mode="rb")
        self._name = name
        self._n_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        """Give at most `size` bytes.

        Raises:
            DataError: The stream ends early or is damaged.
        """
        try:
            part = self._gzip.read1(CHUNK_BYTES if size < 0 else size)
        except EOFError as error:
            raise DataError(
                f"{self._name}: the gzip stream is truncated: it ends after {self._n_bytes:,} "
                "bytes of content, before its end marker. Copy the file again; nothing of it "
                "was used."
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"{self._name}: the gzip stream is damaged after {self._n_bytes:,} bytes of "
                f"content ({error}). Copy the file again; nothing of it was used."
            ) from error
        self._n_bytes += len(part)
        return part


def _as_binary(file: Readable) -> BinaryIO:
    return file  # type: ignore[return-value]  # GzipFile only reads forward


class Transcoded:
    """UTF-16 or UTF-32 text as UTF-8, so that lines can be split on the byte of a line feed."""

    def __init__(self, file: Readable, name: str, encoding: str) -> None:
        self._file = file
        self._name = name
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._n_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        """Give some bytes; possibly more than `size`, as texts differ in length.

        Raises:
            DataError: The bytes are not text in this encoding.
        """
        while True:
            raw = self._file.read(CHUNK_BYTES if size < 0 else size)
            try:
                text = self._decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self._name}: not {self._encoding} near byte "
                    f"{self._n_bytes + error.start:,} ({error.reason}). Convert the file to "
                    "UTF-8, or set its encoding."
                ) from error
            self._n_bytes += len(raw)
            if text or not raw:
                return text.encode("utf-8", "surrogatepass")


def split_lines(
    file: Readable, *, max_bytes: int, end: bytes = b"\n"
) -> Iterator[tuple[int, bytes, int]]:
    r"""Split a stream on line feeds only (never on \x85, U+2028 or a form feed).

    Args:
        file: Stream of bytes.
        max_bytes: A longer line is cut to an excerpt, so that memory stays bounded.
        end: The line end.

    Yields:
        (1-based number, bytes without the line feed, true length in bytes).
    """
    number = 0
    parts: list[bytes] = []
    n_bytes = 0
    while chunk := file.read(CHUNK_BYTES):
        *whole, rest = chunk.split(end)
        for piece in whole:
            number += 1
            if n_bytes:
                parts.append(piece)
                n_bytes += len(piece)
                piece, parts = b"".join(parts), []
                length, n_bytes = n_bytes, 0
            else:
                length = len(piece)
            yield number, piece if length <= max_bytes else piece[:4096], length
        if rest:
            n_bytes += len(rest)
            if n_bytes <= max_bytes or not parts:
                parts.append(rest)
    if n_bytes:
        line = b"".join(parts)
        yield number + 1, line if n_bytes <= max_bytes else line[:4096], n_bytes


def too_large_detail(n_bytes: int, max_bytes: int) -> str:
    """Say why a line was not read."""
    return f"{n_bytes:,} bytes, more than the {max_bytes:,} that one record may have"
