"""First half of ingest: input files to valid rows, sorted by hash partition on disk.

One spill file a group of input files, each holding row groups of single partitions, so that a
partition is read back by seeking, and the number of files does not depend on partitions.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.config.tables import TableConfig
from jobs.files.inputs import open_input
from jobs.ledger import Ledger, Marker, PartWriter, Unit
from jobs.readers.batches import ReadOptions
from jobs.readers.columns import ColumnMap
from jobs.readers.entity_rows import without_bad_entities
from jobs.readers.files import read_rows
from jobs.readers.hashes import partition_of
from jobs.readers.row_tables import REJECTED_SCHEMA, row_schema
from jobs.storage import cannot_read

CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpillWork:
    """Makes one spill file; built in the worker."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Read the payload's files and commit their rows and rejects.

        Args:
            payload: `unit`, `rejects` (both as plain dicts), `table` (its config), `files`,
                `limit`, `entities` (whether outputs are lists of entities).

        Returns:
            The marker of the spill.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        table = TableConfig.model_validate(payload["table"])
        spill = _Spill(table, limit=payload["limit"], entities=payload["entities"])
        stats: dict[str, Any] = {}
        with ledger.writing(unit, row_schema(table.columns.carried()), stats) as writer:
            for path in payload["files"]:
                if not spill.full:
                    spill.read(path, writer)
            spill.flush(writer)
            rejected = pa.concat_tables([REJECTED_SCHEMA.empty_table(), *spill.rejected])
            ledger.commit(Unit(**payload["rejects"]), rejected)
            stats |= {
                "groups": spill.groups,
                "notes": dict(spill.notes),
                "rejects": payload["rejects"],
            }
        marker = ledger.find(unit)
        assert marker is not None
        return marker


class _Spill:
    """Rows on their way into one spill file, at most a chunk of them in memory."""

    def __init__(self, table: TableConfig, *, limit: int | None, entities: bool) -> None:
        self.table = table
        self.entities = entities
        self.left = limit
        self.groups: list[int] = []
        self.notes: Counter[str] = Counter()
        self.rejected: list[pa.Table] = []
        self._rows: list[pa.Table] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.left is not None and self.left <= 0

    def read(self, path: str, writer: PartWriter) -> None:
        """Take in one file, up to the limit."""
        try:
            with open_input(path) as file:
                for made in read_rows(
                    file,
                    path,
                    columns=column_map(self.table),
                    options=read_options(self.table),
                    max_bytes=self.table.max_bytes,
                ):
                    self._take(*(without_bad_entities(made) if self.entities else made))
                    if self._bytes >= CHUNK_BYTES:
                        self.flush(writer)
                    if self.full:
                        return
        except OSError as error:
            raise cannot_read(path, error) from None

    def _take(self, rows: pa.Table, rejected: pa.Table, notes: Counter[str]) -> None:
        if self.left is not None:
            rows = rows.slice(0, self.left)
            self.left -= rows.num_rows
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if rejected.num_rows:
            self.rejected.append(rejected)
        self.notes.update(notes)

    def flush(self, writer: PartWriter) -> None:
        """Write what is held as one row group per partition that has rows."""
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        spec = self.table.partition
        # A renamed duplicate is "<id>~<hash>": what could look like one goes where <id> goes.
        stems = [row_id.rpartition("~")[0] or row_id for row_id in rows.column("id").to_pylist()]
        where = partition_of(stems, count=spec.count, seed=spec.seed)
        for partition in np.unique(where):
            writer.write(rows.take(pa.array(np.flatnonzero(where == partition))))
            self.groups.append(int(partition))
        self._rows, self._bytes = [], 0


def column_map(table: TableConfig) -> ColumnMap:
    """The config's columns in the reader's words."""
    columns = table.columns
    plain = columns.model_dump(exclude={"keep", "wrong_output", "why"})
    keep = (*columns.keep, *columns.contrast().values())
    return ColumnMap(**plain, keep=keep, keep_as=tuple(columns.carried()))


def read_options(table: TableConfig) -> ReadOptions:
    """The config's reading options in the reader's words."""
    header = tuple(table.header) if isinstance(table.header, list) else table.header
    return ReadOptions(
        format=table.format,
        encoding=table.encoding,
        delimiter=table.delimiter,
        quote=table.quote,
        header=header,
        records_key=table.records_key,
    )


def rows_of_partition(ledger: Ledger, spills: list[Marker], partition: int) -> list[pa.Table]:
    """All rows of one partition, in input order."""
    tables = []
    for marker in spills:
        groups = [i for i, owner in enumerate(marker.stats["groups"]) if owner == partition]
        if groups:
            tables.append(ledger.read(marker, groups=groups))
    return tables


def value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    """How often each value occurs; null is left out."""
    counted = pc.value_counts(column.drop_null())
    return {str(item["values"]): int(item["counts"]) for item in counted.to_pylist()}
