"""The single door to an output tree: files appear whole or not at all, errors say which file.

The tree is below a local folder or an `s3://` prefix; `jobs.files` holds both kinds. Nothing
outside writes, renames or removes anything in it.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jobs.errors import ClusterError, DataError, DualdivError, InvariantError
from jobs.files.local import LocalFiles
from jobs.files.places import Stamped, StorageUnreachable, is_s3, plain

NO_ROOM = {errno.ENOSPC: "no space left", errno.EDQUOT: "quota used up", errno.EFBIG: "file limit"}


class HashingFile:
    """A binary file that counts and hashes what passes; Arrow writes into it as into any file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=16)
        self.n_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self.n_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.n_bytes

    def flush(self) -> None:
        """Pass on what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """Closed by the store, not by the writer on top."""

    def writable(self) -> bool:
        """Always; Arrow asks."""
        return True

    def readable(self) -> bool:
        """Never; Arrow asks."""
        return False

    def seekable(self) -> bool:
        """Never; Arrow asks."""
        return False

    @property
    def checksum(self) -> str:
        """BLAKE2b-128 of the bytes so far, in hex."""
        return self._hash.hexdigest()


def files_at(root: str) -> Any:
    """The files below a folder or prefix: `LocalFiles` or `ObjectFiles`.

    Raises:
        ConfigError: The path is neither.
    """
    root = plain(root, key="out")
    if is_s3(root):
        # botocore costs a third of a second to import.
        from jobs.files.objects import ObjectFiles

        return ObjectFiles(root)
    return LocalFiles(root)


class Store:
    """An output tree; every name given to it is relative to its root.

    It holds no connection, and may be sent to a worker.
    """

    def __init__(self, root: str) -> None:
        self._files = files_at(root)

    @property
    def place(self) -> str:
        """The root: an absolute path, or s3://BUCKET/PREFIX."""
        return str(self._files.place)

    def where(self, name: str) -> str:
        """Full path of a file, for messages and for users."""
        return str(self._files.where(name))

    @property
    def root(self) -> Path:
        """The root of a local tree."""
        if not isinstance(self._files, LocalFiles):
            raise InvariantError(f"{self.place} is no local folder")
        return self._files.root

    def path(self, name: str) -> Path:
        """Path of a file in a local tree."""
        return self.root / name

    def check(self) -> None:
        """Refuse a root that cannot be written, as far as that is known without writing.

        Raises:
            ConfigError: A file is in the way, or there is no such bucket.
        """
        self._files.check()

    def create(self) -> None:
        """Make the root and prove that it can be written.

        Raises:
            ConfigError: It cannot.
        """
        self._files.create()

    def exists(self, name: str) -> bool:
        """Whether the file is there (one probe, no listing)."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        with reading(self.where(name)):
            found: int | None = self._files.size(name)
            return found

    def read_bytes(self, name: str) -> bytes:
        """All of a small file.

        Raises:
            DataError: Missing or unreadable.
            ClusterError: The object store cannot be reached.
        """
        with reading(self.where(name)):
            return bytes(self._files.read_bytes(name))

    def read_if_there(self, name: str) -> bytes | None:
        """All of a small file, None where there is none; one request."""
        with reading(self.where(name)):
            try:
                return bytes(self._files.read_bytes(name))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def arrow_source(self, name: str) -> Any:
        """What Arrow opens to read a file: a path or a seekable file; raises OSError."""
        return self._files.arrow_source(name)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[HashingFile]:
        """Open a file that appears under its name whole, or not at all.

        Raises:
            ClusterError: No space, quota or file limit reached, a failing disk or object store.
        """
        try:
            with self._files.writing(name) as file:
                yield HashingFile(file)
        except OSError as error:
            raise cannot_write(self.where(name), error) from error

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small file whole, or not at all."""
        with self.writing(name) as file:
            file.write(data)

    def remove_file(self, name: str) -> None:
        """Remove a file of the tree; absent is fine."""
        with changing(self.where(name)):
            self._files.remove_file(name)

    def remove_tree(self, name: str) -> None:
        """Remove a folder of the tree with all it holds; absent is fine."""
        self._files.remove_tree(name)

    def remove_others(self, folder: str, keep: set[str]) -> list[str]:
        """Remove the files of a folder that are not named in `keep`; returns what went."""
        with changing(self.where(folder)):
            gone: list[str] = self._files.remove_others(folder, keep)
            return gone

    # What a lock needs.

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Write a file only where none is; says whether."""
        with changing(self.where(name)):
            return bool(self._files.create_exclusive(name, data))

    def replace_exclusive(self, name: str, data: bytes, stamp: str) -> bool:
        """Replace a file only if it is still the stamped one; says whether."""
        with changing(self.where(name)):
            return bool(self._files.replace_exclusive(name, data, stamp))

    def renew(self, name: str, data: bytes, stamp: str) -> bool:
        """Make the stamped file young again, with this content where age comes from writing."""
        with changing(self.where(name)):
            return bool(self._files.renew(name, data, stamp))

    def stamped(self, name: str) -> Stamped | None:
        """A small file, its stamp and its age; None where there is none."""
        with reading(self.where(name)):
            found: Stamped | None = self._files.stamped(name)
            return found

    def keeps_conditions(self) -> bool:
        """Whether writes that depend on what is there are refused when they should be."""
        with changing(self.place):
            return bool(self._files.keeps_conditions())


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn an OSError of the block into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise cannot_read(where, error) from None


@contextlib.contextmanager
def changing(where: str) -> Iterator[None]:
    """The same for writing."""
    try:
        yield
    except OSError as error:
        raise cannot_write(where, error) from error


def cannot_read(where: str, error: OSError) -> DualdivError:
    """What to tell of a file that cannot be read."""
    if isinstance(error, StorageUnreachable):
        return ClusterError(
            f"{where}: cannot be read: {error.strerror}. What is finished is kept; run the same "
            "command again when the object store answers."
        )
    return DataError(f"{where}: cannot be read ({error.strerror or error}).")


def cannot_write(where: str, error: OSError) -> ClusterError:
    """What to tell of a file that cannot be written."""
    what = NO_ROOM.get(error.errno or 0, error.strerror or str(error))
    remedy = "make room and run the same command again"
    if is_s3(where):
        remedy = "run the same command again when the object store takes it"
    return ClusterError(
        f"{where}: cannot be written: {what}. Nothing half-written was kept; {remedy}."
    )


def absolute_folder(name: str) -> str:
    """A folder by its whole path, because workers may run elsewhere; any other name as it is."""
    return os.path.abspath(name) if os.path.isdir(name) else name
