"""Lists of ids that a config names: inline, as a text file, or as a column of a table."""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import ConfigError, DataError
from jobs.files.inputs import is_file, is_folder, open_input, read_input
from jobs.files.places import StorageUnreachable, plain
from jobs.readers.cells import BadCell, id_text
from jobs.readers.columns import describe
from jobs.storage import cannot_read, reading

SHOWN = 5


@dataclass(frozen=True)
class IdList:
    """Distinct ids in the order they were given.

    Attributes:
        key: Where the config names them, for messages.
        ids: n ids, at least one.
    """

    key: str
    ids: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Fingerprint of the ids and their order, whatever file they came from."""
        return digest_of(self.ids)


def digest_of(ids: Iterable[str]) -> str:
    """Sixteen hex digits that differ when an id or the order does."""
    found = hashlib.blake2b(digest_size=8)
    for row_id in ids:
        data = row_id.encode()
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


def shown(ids: list[str]) -> str:
    """The first ids of a list for a message, and how many more there are."""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(repr, ids[:SHOWN])) + more


def read_ids(source: str | list[str], *, key: str) -> IdList:
    """Take ids as they stand, or read them from a file.

    A file is a Parquet or CSV table with a column `id` (`.parquet`, `.csv`), or else text in UTF-8
    with one id a line. Ids are not trimmed; empty lines are no ids.

    Args:
        source: The ids, or the path of a file.
        key: Where the config names it.

    Returns:
        The ids.

    Raises:
        ConfigError: No such file.
        DataError: The file cannot be read, has no ids, or has one twice.
    """
    if isinstance(source, list):
        return IdList(key, tuple(source))
    path = existing(source, key=key)
    ending = PurePosixPath(path).suffix.lower()
    try:
        ids = _READERS.get(ending, _lines)(path)
    except StorageUnreachable as error:
        raise cannot_read(f"{key}: {path}", error) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{key}: {path}: cannot be read: {error}") from None
    return IdList(key, require_distinct(ids, where=f"{key}: {path}"))


def existing(source: str, *, key: str) -> str:
    """The path of a file that is there, local or s3://.

    Raises:
        ConfigError: It is not.
        ClusterError: The object store cannot be reached.
    """
    path = plain(source, key=key)
    with reading(f"{key}: {path}"):
        if is_file(path):
            return path
        what = "a folder" if is_folder(path) else "no such file"
    raise ConfigError(
        f"{key}: {source}: {what}; wanted a file of ids. Paths are relative to where the command "
        "runs."
    )


def require_distinct(ids: Iterable[str], *, where: str) -> tuple[str, ...]:
    """The ids as a tuple.

    Raises:
        DataError: None, or one of them twice.
    """
    found = tuple(ids)
    if not found:
        raise DataError(f"{where}: no ids there; leave the key out when there are none.")
    twice = [row_id for row_id, times in Counter(found).items() if times > 1]
    if twice:
        raise DataError(f"{where}: ids that are there more than once: {shown(twice)}.")
    return found


def column_ids(values: Iterable[Any], *, where: str) -> list[str]:
    """Ids of a column's cells, as ingest reads them.

    Raises:
        DataError: A cell without an id.
    """
    ids: list[str] = []
    for number, value in enumerate(values, start=1):
        try:
            row_id = id_text(value)
        except BadCell as error:
            raise DataError(f"{where}: row {number}: {error.detail}.") from None
        if row_id is None:
            raise DataError(f"{where}: row {number} has no id.")
        ids.append(row_id)
    return ids


def _lines(path: str) -> list[str]:
    text = read_input(path).decode("utf-8-sig")
    # Not splitlines: an id may hold a form feed or a line separator.
    lines = text.replace("\r\n", "\n").split("\n")
    return [line for line in lines if line]


def _csv(path: str) -> list[str]:
    text = read_input(path).decode("utf-8-sig")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    _require_column(list(rows.fieldnames or []), path)
    return column_ids((row["id"] for row in rows), where=path)


def _parquet(path: str) -> list[str]:
    with open_input(path) as source, pq.ParquetFile(source) as file:
        _require_column(file.schema_arrow.names, path)
        return column_ids(file.read(columns=["id"])["id"].to_pylist(), where=path)


def _require_column(names: list[str], path: str) -> None:
    if "id" not in names:
        raise DataError(f"{path}: no column 'id'. {describe('id', names)}")


_READERS = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv}
