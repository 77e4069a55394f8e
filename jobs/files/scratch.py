"""Temporary space on a local disk of the node, for what needs a path of its own."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jobs.config.storage import current
from jobs.errors import ClusterError, ConfigError
from jobs.files.inputs import InputFile, below, open_input
from jobs.files.places import is_s3

CHUNK_BYTES = 8 * 2**20


def scratch() -> str:
    """The folder for temporary files on this node.

    Raises:
        ConfigError: `storage.scratch` cannot be made or written here.
    """
    folder = current().scratch
    if folder is None:
        return tempfile.gettempdir()
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"storage.scratch = {folder}: cannot be made on this node ({error.strerror})."
        ) from None
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"storage.scratch = {folder}: may not be written on this node.")
    return folder


@contextlib.contextmanager
def local_folder(path: str) -> Iterator[Path]:
    """A folder as one on the local disk: itself, or a copy for the length of the block.

    Args:
        path: A local folder, or an s3:// prefix of which the files right below are copied.

    Raises:
        ClusterError: The copy does not fit, or did not arrive whole.
    """
    if not is_s3(path):
        yield Path(path)
        return
    files = below(path)
    where = scratch()
    _require_room(files, path, where)
    with tempfile.TemporaryDirectory(prefix="dualdiv-", dir=where) as folder:
        for file in files:
            _copy(file, Path(folder) / file.path.rpartition("/")[2])
        yield Path(folder)


def _require_room(files: list[InputFile], path: str, where: str) -> None:
    wanted, free = sum(file.bytes for file in files), shutil.disk_usage(where).free
    if wanted > free:
        raise ClusterError(
            f"{where}: a copy of {path} needs {wanted / 2**20:,.1f} MiB of scratch space, "
            f"{free / 2**20:,.1f} MiB are free. Set storage.scratch to a larger local disk."
        )


def _copy(file: InputFile, target: Path) -> None:
    try:
        with open_input(file.path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, CHUNK_BYTES)
    except OSError as error:
        raise ClusterError(
            f"{file.path}: cannot be copied to {target.parent} ({error.strerror or error})."
        ) from None
    if target.stat().st_size != file.bytes:
        raise ClusterError(
            f"{file.path}: {target.stat().st_size:,} bytes arrived, wanted {file.bytes:,}; it was "
            "changed while it was copied. Run again."
        )
