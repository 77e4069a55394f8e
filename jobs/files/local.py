"""An output tree on a local disk, or on a file system that all nodes mount."""

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
from typing import BinaryIO

from jobs.errors import ConfigError
from jobs.files.places import ABANDONED_S, Stamped


class LocalFiles:
    """Files below one folder."""

    def __init__(self, place: str) -> None:
        self.root = Path(place).absolute()
        self.place = str(self.root)

    def where(self, name: str) -> str:
        """Absolute path of a file."""
        return str(self.root / name)

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

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        try:
            return (self.root / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_bytes(self, name: str) -> bytes:
        """All of a small file."""
        return (self.root / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        """A seekable file."""
        return (self.root / name).open("rb")

    def arrow_source(self, name: str) -> str:
        """What Arrow opens: the path, which it reads faster than a Python file."""
        return self.where(name)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Open a file that appears whole when the block ends well, or not at all."""
        target = self.root / name
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            _sweep(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def remove_file(self, name: str) -> None:
        """Remove a file; absent is fine."""
        (self.root / name).unlink(missing_ok=True)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all it holds; absent is fine."""
        shutil.rmtree(self.root / name, ignore_errors=True)

    def remove_others(self, folder: str, keep: set[str]) -> list[str]:
        """Remove the files of a folder that are not named in `keep`; returns what went."""
        base = self.root / folder
        gone = [item for item in base.iterdir() if item.name not in keep] if base.is_dir() else []
        for item in gone:
            item.unlink(missing_ok=True)
        return sorted(item.name for item in gone)

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Write a file only where none is; says whether."""
        # A hard link makes a file appear with its content, and fails if one is there.
        draft = self.root / f".{name}.{uuid.uuid4().hex[:8]}.new"
        try:
            draft.write_bytes(data)
            os.link(draft, self.root / name)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP):
                error.strerror = f"{error.strerror} (wanted a file system with hard links)"
            raise
        finally:
            draft.unlink(missing_ok=True)
        return True

    def replace_exclusive(self, name: str, data: bytes, stamp: str) -> bool:
        """Replace a file only if it is still the stamped one; says whether."""
        corpse = self.root / f".{name}.{uuid.uuid4().hex[:8]}.dead"
        with contextlib.suppress(FileNotFoundError):
            (self.root / name).rename(corpse)
            same = _stamp(corpse.read_bytes()) == stamp
            if not same:
                # It changed hands since it was read: give it back.
                with contextlib.suppress(FileExistsError):
                    os.link(corpse, self.root / name)
            corpse.unlink()
            return same and self.create_exclusive(name, data)
        return False

    def renew(self, name: str, data: bytes, stamp: str) -> bool:
        """Make the stamped file young again; its content stays. Says whether it was still that."""
        found = self.stamped(name)
        if found is None or found.stamp != stamp:
            return False
        os.utime(self.root / name)
        return True

    def stamped(self, name: str) -> Stamped | None:
        """A small file, its stamp and its age; None where there is none."""
        path = self.root / name
        try:
            age_s = time.time() - path.stat().st_mtime
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stamped(data, _stamp(data), age_s)

    def keeps_conditions(self) -> bool:
        """Always: a hard link is made once."""
        return True


def _stamp(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _sweep(target: Path) -> None:
    """Remove what a writer of this file left that was killed long ago; a live one is younger."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                left.unlink()
