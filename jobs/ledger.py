"""How a result is found, committed and reused: fingerprints and done-markers.

The unit of reuse is one stage on one partition. Its table and a `.done.json` beside it, written
last, are found by name (probed, never listed) and trusted only when fingerprint and size agree.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import DataError, InvariantError
from jobs.files.places import StorageUnreachable
from jobs.storage import Store, cannot_read

COMPRESSION = "zstd"
# Probes in flight: one takes tens of milliseconds in an object store, and a run has thousands.
PROBES = 16


def fingerprint(*parts: Any) -> str:
    """Sixteen hex digits that differ when any part differs; parts are plain JSON data."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Unit:
    """A result to be made or found.

    Attributes:
        folder: Folder in the output tree.
        name: File name without ending.
        fingerprint: Of everything the result depends on.
    """

    folder: str
    name: str
    fingerprint: str

    @property
    def table(self) -> str:
        """Path of the table."""
        return f"{self.folder}/{self.name}.parquet"

    @property
    def done(self) -> str:
        """Path of the marker."""
        return f"{self.folder}/{self.name}.done.json"


@dataclass(frozen=True)
class Marker:
    """What a `.done.json` says of a finished unit.

    Attributes:
        folder: Of the unit.
        name: Of the unit.
        fingerprint: Of the unit.
        rows: Rows in the table.
        bytes: Size of the table file.
        checksum: BLAKE2b-128 of the table file.
        stats: What the stage counted; plain data.
    """

    folder: str
    name: str
    fingerprint: str
    rows: int
    bytes: int
    checksum: str
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Path of the table."""
        return f"{self.folder}/{self.name}.parquet"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as stored."""
        return asdict(self)


def sum_counts(markers: Sequence[Marker], key: str) -> dict[str, int]:
    """A dict of counts kept in each marker's stats, added up."""
    total: dict[str, int] = {}
    for marker in markers:
        for name, number in marker.stats.get(key, {}).items():
            total[name] = total.get(name, 0) + number
    return total


def _worth_a_dictionary(schema: pa.Schema) -> bool | list[str]:
    """Columns with values that repeat: a dictionary of vector elements only slows reading down."""
    vectors = [field for field in schema if pa.types.is_fixed_size_list(field.type)]
    return [field.name for field in schema if field not in vectors] if vectors else True


class PartWriter:
    """Writes one unit's table in pieces, in bounded memory."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression=COMPRESSION,
            write_page_checksum=True,
            use_dictionary=_worth_a_dictionary(schema),
        )
        self.schema = schema
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Append rows as one row group; a table of another schema is our bug."""
        if table.schema.names != self.schema.names:
            raise InvariantError(f"columns {table.schema.names} are not {self.schema.names}")
        self._writer.write_table(table.cast(self.schema), row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class Ledger:
    """Finds, commits and reads the results in one output tree."""

    def __init__(self, root: str) -> None:
        self.store = Store(root)

    def find(self, unit: Unit) -> Marker | None:
        """The marker of a finished unit, None when it must be (re)done."""
        said = self.store.read_if_there(unit.done)
        if said is None:
            return None
        try:
            marker = Marker(**json.loads(said))
        except (ValueError, TypeError):
            return None
        fresh = marker.fingerprint == unit.fingerprint
        return marker if fresh and self.store.size(unit.table) == marker.bytes else None

    def find_all(self, units: Iterable[Unit]) -> dict[Unit, Marker | None]:
        """`find` for many units, several at a time."""
        wanted = list(dict.fromkeys(units))
        with ThreadPoolExecutor(PROBES) as threads:
            return dict(zip(wanted, threads.map(self.find, wanted), strict=True))

    def unseen(self, markers: Sequence[Marker]) -> list[str]:
        """Tables that are not there with the size that was committed."""
        with ThreadPoolExecutor(PROBES) as threads:
            sizes = list(threads.map(self.store.size, [marker.table for marker in markers]))
        return [m.table for m, size in zip(markers, sizes, strict=True) if size != m.bytes]

    @contextlib.contextmanager
    def writing(self, unit: Unit, schema: pa.Schema, stats: dict[str, Any]) -> Iterator[PartWriter]:
        """Write a unit piece by piece; marker and name appear at the end, or nothing does.

        Args:
            unit: What is written.
            schema: Of the table.
            stats: Filled by the caller until the block ends.

        Yields:
            A writer for tables of that schema.
        """
        with self.store.writing(unit.table) as file:
            writer = PartWriter(file, schema)
            try:
                yield writer
            finally:
                writer.close()
        marker = Marker(
            folder=unit.folder,
            name=unit.name,
            fingerprint=unit.fingerprint,
            rows=writer.rows,
            bytes=file.n_bytes,
            checksum=file.checksum,
            stats=stats,
        )
        self.store.write_bytes(unit.done, json.dumps(marker.as_dict(), indent=1).encode())

    def commit(
        self,
        unit: Unit,
        table: pa.Table,
        *,
        stats: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Marker:
        """Write a unit in one go.

        Args:
            unit: What is written.
            table: Its rows.
            stats: What the stage counted.
            files: Further files of the unit's folder, written before the marker.

        Returns:
            The marker.
        """
        for name, data in (files or {}).items():
            self.store.write_bytes(f"{unit.folder}/{name}", data)
        with self.writing(unit, table.schema, dict(stats or {})) as writer:
            writer.write(table)
        marker = self.find(unit)
        if marker is None:
            raise InvariantError(f"{unit.table} was committed and is not there")
        return marker

    def read(
        self, marker: Marker, columns: Sequence[str] | None = None, *, groups: Any = None
    ) -> pa.Table:
        """Read a committed table (or some of its columns and row groups).

        Raises:
            DataError: The file is not the one that was committed; names it.
        """
        with self.opened(marker) as file:
            names = list(columns) if columns is not None else None
            if groups is None:
                return file.read(columns=names)
            return file.read_row_groups(list(groups), columns=names)

    def batches(
        self, marker: Marker, columns: Sequence[str] | None = None, *, rows: int
    ) -> Iterator[pa.Table]:
        """Read a committed table in pieces of `rows` rows, in order."""
        with self.opened(marker) as file:
            names = list(columns) if columns is not None else None
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield pa.Table.from_batches([batch])

    @contextlib.contextmanager
    def opened(self, marker: Marker) -> Iterator[pq.ParquetFile]:
        """Open a committed table after checking its size and row count."""
        where = self.store.where(marker.table)
        remedy = f"Remove {marker.folder}/{marker.name}.done.json and run again to make it anew."
        found = self.store.size(marker.table)
        if found != marker.bytes:
            raise DataError(
                f"{where}: found {found} bytes, wanted the {marker.bytes} that were committed. "
                f"{remedy}"
            )
        try:
            source = self.store.arrow_source(marker.table)
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                if file.metadata.num_rows != marker.rows:
                    raise DataError(
                        f"{where}: found {file.metadata.num_rows} rows, wanted {marker.rows}. "
                        f"{remedy}"
                    )
                yield file
        except StorageUnreachable as error:
            raise cannot_read(where, error) from None
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{where}: cannot be read ({error}). {remedy}") from None
