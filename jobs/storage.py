"""The single door to files: atomic writes, reads that name the file they failed on.

Paths are local; nothing outside this file opens, renames or removes anything in an output tree.
"""

import contextlib
import errno
import glob
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jobs.errors import ClusterError, ConfigError, DataError

ABANDONED_S = 86_400.0
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


def _sweep(target: Path) -> None:
    """Remove what a writer of this file left that was killed long ago; a live one is younger."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                left.unlink()


class Store:
    """An output tree below one folder; every path given to it is relative to that folder."""

    def __init__(self, root: str) -> None:
        if "://" in root and not root.startswith("file://"):
            raise ConfigError(f"out = {root}: only local folders can be written; give a path.")
        self.root = Path(root.removeprefix("file://")).absolute()

    def check(self) -> None:
        """Refuse a root that cannot become a folder, without making it.

        Raises:
            ConfigError: A file stands there, or on the way.
        """
        there = next(path for path in (self.root, *self.root.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ConfigError(f"out = {self.root}: cannot be written ({there} is in the way).")

    def create(self) -> None:
        """Make the root and prove that it can be written.

        Raises:
            ConfigError: It cannot.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{uuid.uuid4().hex[:8]}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"out = {self.root}: cannot be written ({error.strerror}). "
                "Give a folder you may write, with --out or the key out."
            ) from None

    def path(self, name: str) -> Path:
        """Absolute path of a file in the tree."""
        return self.root / name

    def exists(self, name: str) -> bool:
        """Whether the file is there (one probe, no listing)."""
        return self.path(name).exists()

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return None

    def read_bytes(self, name: str) -> bytes:
        """All of a small file.

        Raises:
            DataError: Missing or unreadable.
        """
        try:
            return self.path(name).read_bytes()
        except OSError as error:
            raise DataError(f"{self.path(name)}: cannot be read ({error.strerror}).") from None

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[HashingFile]:
        """Open a file that appears under its name whole, or not at all.

        Raises:
            ClusterError: No space, quota or file limit reached, or a failing disk.
        """
        target = self.path(name)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                yield HashingFile(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            _sweep(target)
        except OSError as error:
            what = NO_ROOM.get(error.errno or 0, error.strerror or str(error))
            raise ClusterError(
                f"{target}: cannot be written: {what}. Nothing half-written was kept; make room "
                "and run the same command again."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small file whole, or not at all."""
        with self.writing(name) as file:
            file.write(data)

    def remove_file(self, name: str) -> None:
        """Remove a file of the tree; absent is fine."""
        self.path(name).unlink(missing_ok=True)

    def remove_tree(self, name: str) -> None:
        """Remove a folder of the tree with all it holds; absent is fine."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def remove_others(self, folder: str, keep: set[str]) -> list[str]:
        """Remove the files of a folder that are not named in `keep`; returns what went."""
        base = self.path(folder)
        gone = [item for item in base.iterdir() if item.name not in keep] if base.is_dir() else []
        for item in gone:
            item.unlink(missing_ok=True)
        return sorted(item.name for item in gone)


def absolute_folder(name: str) -> str:
    """A folder by its whole path, because workers may run elsewhere; any other name as it is."""
    return os.path.abspath(name) if os.path.isdir(name) else name
