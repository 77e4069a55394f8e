"""What a path looks like, and what both kinds of files have in common."""

import os
from dataclasses import dataclass

from jobs.config.storage import carries_credentials
from jobs.errors import ConfigError

S3 = "s3://"
ABANDONED_S = 86_400.0


class StorageUnreachable(OSError):
    """An object store kept answering that it cannot answer now."""


@dataclass(frozen=True)
class Stamped:
    """A small file with what is needed to replace it if it is still the same.

    Attributes:
        data: Its content.
        stamp: Differs when the content does.
        age_s: Seconds since it was written, by the clock of the store.
    """

    data: bytes
    stamp: str
    age_s: float


def is_s3(path: str) -> bool:
    """Whether a path is of an object store."""
    return path.startswith(S3)


def plain(path: str, *, key: str) -> str:
    """A local path, or one that begins with s3://.

    Args:
        path: As the user gave it.
        key: What it was given for, for messages.

    Raises:
        ConfigError: Another scheme, no bucket, or credentials in it.
    """
    if carries_credentials(path):
        raise ConfigError(f"{key}: credentials in a path are not taken; use the environment.")
    if is_s3(path):
        if not path[len(S3) :].split("/", 1)[0]:
            raise ConfigError(f"{key} = {path}: no bucket; wanted s3://BUCKET/KEY.")
        return path
    if "://" in path and not path.startswith("file://"):
        raise ConfigError(f"{key} = {path}: wanted a local path or s3://BUCKET/KEY.")
    return path.removeprefix("file://")


def split(url: str) -> tuple[str, str]:
    """Bucket and key of an s3:// path; the key may be empty and begins and ends with no slash."""
    bucket, _, key = url[len(S3) :].partition("/")
    return bucket, key.strip("/")


def absolute(path: str) -> str:
    """The same place from everywhere."""
    return path.rstrip("/") if is_s3(path) else os.path.abspath(path)


def joined(folder: str, name: str) -> str:
    """A name below a folder, written as the folder was."""
    return f"{folder.rstrip('/')}/{name}" if folder.strip("/") else f"{folder}{name}"
