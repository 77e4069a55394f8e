"""Which input files a table has: one path, a folder, a glob or a list of these."""

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError, DataError
from jobs.files import inputs
from jobs.files.places import StorageUnreachable, is_s3, plain, split
from jobs.storage import cannot_read

GROUP_BYTES = 64 * 2**20
HIDDEN = (".", "_")


@dataclass(frozen=True)
class SourceFile:
    """An input file as it was when the run began.

    Attributes:
        path: Absolute, for workers may run elsewhere.
        bytes: Size.
        modified_ns: Modification time, nanoseconds.
        etag: Of an object, which differs when its content does; empty for a local file.
    """

    path: str
    bytes: int
    modified_ns: int
    etag: str = ""

    def identity(self) -> dict[str, Any]:
        """What a file is known by from run to run, as plain data."""
        known = {"path": self.path, "bytes": self.bytes, "modified_ns": self.modified_ns}
        return known | ({"etag": self.etag} if self.etag else {})


def find(path: str | list[str], *, key: str) -> list[SourceFile]:
    """The files a table is read from, each once, in the order of their names.

    Args:
        path: File, folder (searched without descending into hidden names), glob, or a list; each
            local or s3://.
        key: Config key, for messages.

    Returns:
        At least one file.

    Raises:
        ConfigError: Nothing there, or it may not be read.
    """
    found: dict[str, SourceFile] = {}
    for entry in [path] if isinstance(path, str) else path:
        for file in _files(plain(entry, key=key), key=key):
            found.setdefault(file.path, file)
    if not found:
        raise ConfigError(f"{key} = {path!r}: names no file.")
    return list(found.values())


def grouped(files: list[SourceFile], *, max_bytes: int = GROUP_BYTES) -> list[list[SourceFile]]:
    """Files in runs of up to `max_bytes`, so that many small ones make few units of work."""
    groups: list[list[SourceFile]] = []
    room = 0
    for file in files:
        if not groups or file.bytes > room:
            groups.append([])
            room = max_bytes
        groups[-1].append(file)
        room -= file.bytes
    return groups


def _files(entry: str, *, key: str) -> list[SourceFile]:
    if not is_s3(entry):
        return [_stat(name, key=key) for name in _names(entry, key=key)]
    try:
        found = _objects(entry)
    except StorageUnreachable as error:
        raise cannot_read(f"{key}: {entry}", error) from None
    except OSError as error:
        raise ConfigError(f"{key} = {entry}: cannot be read: {error.strerror}.") from None
    if not found:
        raise ConfigError(f"{key} = {entry}: no such object, folder or match.")
    return [SourceFile(one.path, one.bytes, one.modified_ns, one.etag) for one in found]


def _objects(url: str) -> list[inputs.InputFile]:
    """An object of this name, else what its glob names, else what lies below it."""
    exact = inputs.object_at(url)
    if exact is not None:
        return [exact]
    if any(sign in url for sign in inputs.SIGNS):
        return inputs.matches(url)
    start = "/".join(split(url)).strip("/") + "/"
    found = inputs.below(url, deep=True)
    return [file for file in found if _shown(file.path.split("://")[1].removeprefix(start))]


def _shown(inner: str) -> bool:
    return not any(part.startswith(HIDDEN) for part in inner.split("/"))


def _names(entry: str, *, key: str) -> list[str]:
    base = Path(entry)
    if base.is_dir():
        return sorted(str(item) for item in base.rglob("*") if _visible(item, base))
    if base.exists():
        return [entry]
    if any(sign in entry for sign in inputs.SIGNS):
        names = sorted(name for name in glob.glob(entry, recursive=True) if os.path.isfile(name))
        if names:
            return names
    raise ConfigError(f"{key} = {entry}: no such file, folder or match. Run from {os.getcwd()}.")


def _visible(item: Path, base: Path) -> bool:
    return item.is_file() and _shown(item.relative_to(base).as_posix())


def _stat(name: str, *, key: str) -> SourceFile:
    try:
        with open(name, "rb"):
            facts = os.stat(name)
    except PermissionError:
        raise ConfigError(f"{key}: {name} may not be read (permission denied).") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}).") from None
    return SourceFile(
        path=os.path.abspath(name), bytes=facts.st_size, modified_ns=facts.st_mtime_ns
    )
