"""The files of annotators, which lie anywhere: read whole, and written whole."""

import os
from typing import NamedTuple

from jobs.errors import ConfigError
from jobs.storage import Store


class SourceBytes(NamedTuple):
    """A file's name and all it holds."""

    name: str
    data: bytes


def source_bytes(name: str) -> SourceBytes:
    """Read a file.

    Raises:
        ConfigError: No such file.
        DataError: It cannot be read.
    """
    folder, base = os.path.split(name)
    store = Store(folder or ".")
    if not base or store.size(base) is None:
        raise ConfigError(f"{name}: no such file. Run from {os.getcwd()}.")
    return SourceBytes(name, store.read_bytes(base))


def write_to(name: str, data: bytes) -> str:
    """Write a file whole, or not at all; gives its absolute name."""
    folder, base = os.path.split(name)
    if not base:
        raise ConfigError(f"--to {name}: names a folder; wanted a file.")
    store = Store(folder or ".")
    store.write_bytes(base, data)
    return store.where(base)
