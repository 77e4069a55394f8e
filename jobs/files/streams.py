"""An object as a file: read by ranges, written in parts."""

import base64
import contextlib
import hashlib
import io
import uuid
from collections.abc import Callable
from typing import Any

from jobs.files.client import tried

READ_AHEAD_BYTES = 2**20
MOST_READ_AHEAD_BYTES = 8 * 2**20
PART_BYTES = 16 * 2**20
# S3 takes 10,000 parts: they double in size so that no file of a sane size has more.
PARTS_OF_A_SIZE = 1_000


class ObjectReader(io.RawIOBase):
    """A seekable file over ranged reads; reading on reads ahead, further each time."""

    def __init__(self, fetch: Callable[[int, int], bytes], n_bytes: int) -> None:
        """Start at the beginning.

        Args:
            fetch: Gives the bytes from a start to before an end.
            n_bytes: Size of the object.
        """
        self._fetch = fetch
        self.n_bytes = n_bytes
        self._at = 0
        self._block = b""
        self._start = 0
        self._ahead = READ_AHEAD_BYTES

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.n_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Give `size` bytes, fewer only at the end."""
        left = max(0, self.n_bytes - self._at)
        size = left if size is None or size < 0 else min(size, left)
        if not size:
            return b""
        if not self._start <= self._at <= self._at + size <= self._start + len(self._block):
            self._load(size)
        offset = self._at - self._start
        self._at += size
        return self._block[offset : offset + size]

    def readall(self) -> bytes:
        """Give the rest."""
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, as far as there are bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _load(self, size: int) -> None:
        """Have the next `size` bytes in the block; what it has of them is not fetched again."""
        end = self._start + len(self._block)
        kept = self._block[self._at - self._start :] if self._start <= self._at < end else b""
        on = self._start < end and self._start <= self._at <= end
        self._ahead = min(2 * self._ahead, MOST_READ_AHEAD_BYTES) if on else READ_AHEAD_BYTES
        begin = self._at + len(kept)
        until = min(self.n_bytes, max(self._at + size, begin + self._ahead))
        self._block = kept + self._fetch(begin, until)
        self._start = self._at


def md5(data: bytes) -> str:
    """What S3 compares a body with that it received."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


class Upload:
    """A file that is written in parts and appears when it is finished; at most a part in memory."""

    def __init__(self, bucket: str, key: str, *, name: str) -> None:
        self._where = {"Bucket": bucket, "Key": key}
        self._name = name
        self._buffer = bytearray()
        self._id: str | None = None
        self._nonce = uuid.uuid4().hex
        self._parts: list[dict[str, Any]] = []

    def write(self, data: Any) -> int:
        """Take bytes; full parts are sent at once."""
        self._buffer += data
        size = PART_BYTES * 2 ** (len(self._parts) // PARTS_OF_A_SIZE)
        while len(self._buffer) >= size:
            self._send(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return len(data)

    def flush(self) -> None:
        """Nothing can be sent before a part is full."""

    def finish(self) -> None:
        """Let the file appear."""
        data = bytes(self._buffer)
        if not self._parts:
            put(self._where, data, name=self._name)
            return
        if data:
            self._send(data)
        tried(self._complete, name=self._name)

    def give_up(self) -> None:
        """Let nothing appear, and leave nothing."""
        if self._id is not None:
            with contextlib.suppress(OSError):
                tried(
                    lambda s3: s3.abort_multipart_upload(**self._where, UploadId=self._id),
                    name=self._name,
                )

    def _send(self, data: bytes) -> None:
        if self._id is None:
            made = tried(
                lambda s3: s3.create_multipart_upload(
                    **self._where, Metadata={"upload": self._nonce}
                ),
                name=self._name,
            )
            self._id = made["UploadId"]
        number = len(self._parts) + 1
        sent = tried(
            lambda s3: s3.upload_part(
                **self._where,
                PartNumber=number,
                UploadId=self._id,
                Body=data,
                ContentMD5=md5(data),
            ),
            name=self._name,
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    def _complete(self, s3: Any) -> None:
        parts = {"Parts": self._parts}
        try:
            s3.complete_multipart_upload(**self._where, UploadId=self._id, MultipartUpload=parts)
        except s3.exceptions.ClientError as error:
            # The answer to an earlier try may have been lost after it had succeeded.
            if error.response.get("Error", {}).get("Code") != "NoSuchUpload":
                raise
            if s3.head_object(**self._where)["Metadata"].get("upload") != self._nonce:
                raise


def put(where: dict[str, str], data: bytes, *, name: str, **conditions: str) -> None:
    """Write an object in one request.

    Args:
        where: Bucket and key.
        data: Its content.
        name: Its s3:// path, for messages.
        conditions: `IfMatch` or `IfNoneMatch`.

    Raises:
        OSError: As `tried`; errno is ESTALE where a condition does not hold.
    """
    tried(
        lambda s3: s3.put_object(**where, Body=data, ContentMD5=md5(data), **conditions),
        name=name,
    )
