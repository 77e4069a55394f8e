"""Which input files a table has: one path, a folder, a glob or a list of these."""

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import ConfigError, DataError

GROUP_BYTES = 64 * 2**20
HIDDEN = (".", "_")


@dataclass(frozen=True)
class SourceFile:
    """An input file as it was when the run began.

    Attributes:
        path: Absolute, for workers may run elsewhere.
        bytes: Size.
        modified_ns: Modification time, nanoseconds.
    """

    path: str
    bytes: int
    modified_ns: int


def find(path: str | list[str], *, key: str) -> list[SourceFile]:
    """The files a table is read from, each once, in the order of their names.

    Args:
        path: File, folder (searched without descending into hidden names), glob, or a list.
        key: Config key, for messages.

    Returns:
        At least one file.

    Raises:
        ConfigError: Nothing there, or it may not be read.
    """
    found: dict[str, SourceFile] = {}
    for entry in [path] if isinstance(path, str) else path:
        for name in _names(entry, key=key):
            found.setdefault(os.path.abspath(name), _stat(name, key=key))
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


def _names(entry: str, *, key: str) -> list[str]:
    if "://" in entry and not entry.startswith("file://"):
        raise ConfigError(f"{key} = {entry}: only local paths can be read.")
    entry = entry.removeprefix("file://")
    base = Path(entry)
    if base.is_dir():
        return sorted(str(item) for item in base.rglob("*") if _visible(item, base))
    if base.exists():
        return [entry]
    if any(sign in entry for sign in "*?["):
        names = sorted(name for name in glob.glob(entry, recursive=True) if os.path.isfile(name))
        if names:
            return names
    raise ConfigError(f"{key} = {entry}: no such file, folder or match. Run from {os.getcwd()}.")


def _visible(item: Path, base: Path) -> bool:
    parts = item.relative_to(base).parts
    return item.is_file() and not any(part.startswith(HIDDEN) for part in parts)


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
