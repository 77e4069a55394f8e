"""The files of a distribution, from a folder or a zip, each under the name its user knows."""

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobs.errors import ConfigError, DataError


class Member(NamedTuple):
    """A file of a distribution.

    Attributes:
        name: Its path, for messages.
        inner: Its path inside the folder or zip, with `/`.
        raw: Its bytes.
    """

    name: str
    inner: str
    raw: bytes


def existing(source: str | Path | None, *, wanted: str) -> Path:
    """The path of a distribution.

    Args:
        source: What the user gave.
        wanted: What it should be, in words.

    Raises:
        ConfigError: Nothing was given, or nothing is there.
    """
    if source is None:
        raise ConfigError(f"--source is missing: give {wanted}.")
    path = Path(source)
    if not path.exists():
        raise ConfigError(f"--source {source}: no such file or folder; wanted {wanted}.")
    return path


def read_members(source: Path, *, suffix: str, wanted: str) -> list[Member]:
    """Read every file of a folder or zip whose name ends with `suffix`, sorted by name.

    What macOS leaves behind (`__MACOSX`, `._NAME`) is no file of a distribution.

    Raises:
        DataError: Neither a folder nor a whole zip, or no such file in it.
    """
    members = list(_from_folder(source, suffix) if source.is_dir() else _from_zip(source, suffix))
    if not members:
        zips = sorted(path.name for path in source.glob("*.zip")) if source.is_dir() else []
        hint = f" It holds {', '.join(zips)}: give that." if zips else ""
        raise DataError(f"{source}: no *{suffix} in it; wanted {wanted}.{hint}")
    return sorted(members, key=lambda member: member.inner)


def _is_wanted(inner: str, suffix: str) -> bool:
    parts = inner.split("/")
    return inner.endswith(suffix) and not (parts[-1].startswith("._") or "__MACOSX" in parts)


def _from_folder(folder: Path, suffix: str) -> Iterator[Member]:
    for path in sorted(folder.rglob(f"*{suffix}")):
        inner = path.relative_to(folder).as_posix()
        if path.is_file() and _is_wanted(inner, suffix):
            yield Member(str(path), inner, read_file(path))


def _from_zip(source: Path, suffix: str) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(source) as archive:
            for inner in archive.namelist():
                if _is_wanted(inner, suffix):
                    yield Member(f"{source}:{inner}", inner, archive.read(inner))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(
            f"{source} ({source.stat().st_size:,} bytes): no whole zip file ({error}). "
            "Was it cut short? Fetch or copy it again; nothing of it was used."
        ) from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror}).") from None


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        DataError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def decoded(name: str, raw: bytes) -> str:
    """The text of a UTF-8 file, without its byte order mark.

    Raises:
        DataError: Not UTF-8; names line and byte.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}, line {line:,}: byte 0x{raw[error.start]:02X} is not UTF-8. Write the file "
            "again as UTF-8 (for example: iconv -f latin1 -t utf-8)."
        ) from None


def records(name: str, raw: bytes) -> list[Any]:
    """The entries of a JSON array.

    Raises:
        DataError: Not JSON (names line and column), or no array.
    """
    try:
        value = json.loads(decoded(name, raw))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f", line {error.lineno:,}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(
            f"{name}{where}: no JSON ({error}). Was it cut short? Fetch it again."
        ) from None
    if not isinstance(value, list):
        raise DataError(f"{name}: found a JSON {type(value).__name__}, wanted an array of records.")
    return value
