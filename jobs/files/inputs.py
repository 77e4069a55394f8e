"""Input files, local or in an object store: found, listed, opened."""

import os
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

from jobs.files.places import S3, is_s3, joined, split

SIGNS = "*?["


@dataclass(frozen=True)
class InputFile:
    """An object as it was when it was looked at.

    Attributes:
        path: Its s3:// path.
        bytes: Size.
        modified_ns: Modification time, nanoseconds; stores give seconds.
        etag: Differs when the content does.
    """

    path: str
    bytes: int
    modified_ns: int
    etag: str


def open_input(path: str) -> BinaryIO:
    """Open a file for reading; raises OSError, with the store's words for objects."""
    if is_s3(path):
        from jobs.files.objects import ObjectFiles

        return ObjectFiles(path).open("")
    return open(path, "rb")


def read_input(path: str) -> bytes:
    """All of a small file."""
    with open_input(path) as file:
        return file.read()


def is_file(path: str) -> bool:
    """Whether there is such a file; raises OSError where a store does not say."""
    return object_at(path) is not None if is_s3(path) else os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Whether there is such a folder, or an object below such a prefix."""
    return bool(below(path)) if is_s3(path) else os.path.isdir(path)


def stamps(folder: str) -> list[tuple[str, int, int | str]]:
    """Name, size and time (for objects: content mark) of what lies in a folder, by name."""
    if is_s3(folder):
        return [(file.path.rpartition("/")[2], file.bytes, file.etag) for file in below(folder)]
    found = [(entry.name, entry.stat()) for entry in sorted(os.scandir(folder), key=_name)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]


def object_at(url: str) -> InputFile | None:
    """The object with exactly this path, None where there is none."""
    from jobs.files.objects import ObjectFiles

    bucket, key = split(url)
    if not key:
        return None
    facts = ObjectFiles(url).facts("")
    if facts is None:
        return None
    return _input(f"{S3}{bucket}/{key}", facts | {"Size": facts["ContentLength"]})


def below(url: str, *, deep: bool = False) -> list[InputFile]:
    """The objects below a prefix, in the order of their keys.

    Args:
        url: A folder in the store.
        deep: Those in folders below it, too.
    """
    from jobs.files.objects import listed

    bucket, key = split(url)
    start = f"{S3}{bucket}/{key}/" if key else f"{S3}{bucket}/"
    found = listed(start, **({} if deep else {"Delimiter": "/"}))
    # Some tools mark an empty folder with an object of its name and a slash.
    return [
        _input(f"{S3}{bucket}/{item['Key']}", item)
        for item in found
        if not item["Key"].endswith("/")
    ]


def matches(url: str) -> list[InputFile]:
    """The objects that a glob names; `*` stays in one folder, `**` does not.

    As on disk, no sign stands for a name that begins with a dot.
    """
    from fsspec.utils import glob_translate

    bucket, key = split(url)
    sign = min(key.index(sign) for sign in SIGNS if sign in key)
    folder = joined(f"{S3}{bucket}", key[:sign].rpartition("/")[0])
    pattern = re.compile(glob_translate(f"{bucket}/{key}"))
    return [
        file
        for file in below(folder, deep=True)
        if pattern.match(file.path.removeprefix(S3))
        and not _is_hidden(file.path.removeprefix(folder))
    ]


def _is_hidden(inner: str) -> bool:
    return any(part.startswith(".") for part in inner.split("/"))


def _input(path: str, facts: dict[str, Any]) -> InputFile:
    modified_ns = int(facts["LastModified"].timestamp()) * 10**9
    return InputFile(path, int(facts["Size"]), modified_ns, str(facts["ETag"]))


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
