"""Parquet, streamed a few thousand rows at a time."""

from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import DataError
from jobs.readers.batches import MAX_BATCH_BYTES, MAX_BATCH_ROWS, Batch, ReadOptions


def read_parquet(file: BinaryIO, name: str, *, options: ReadOptions) -> Iterator[Batch]:
    """Read the wanted columns of a Parquet file; lines are record numbers.

    Args:
        file: Seekable file.
        name: For messages.
        options: `columns` is used.

    Raises:
        DataError: It is not Parquet, is cut off or damaged, or has a column name twice.
    """
    try:
        yield from _batches(file, name, options.columns)
    except pa.ArrowInvalid as error:
        raise _damaged(name, error) from error
    except OSError as error:
        # Arrow gives damage as an OSError without a number; a network fault is not damage.
        if error.errno is not None or "AWS Error" in str(error):
            raise
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: not a whole Parquet file, or damaged: {str(error).splitlines()[0]} Write or "
        "copy it again; nothing of it was used."
    )


def _batches(file: BinaryIO, name: str, wanted: tuple[str, ...] | None) -> Iterator[Batch]:
    file.seek(0)
    parquet = pq.ParquetFile(file)
    columns = tuple(parquet.schema_arrow.names)
    twice = [column for column, n in Counter(columns).items() if n > 1]
    if twice:
        raise DataError(f"{name}: has {', '.join(map(repr, twice))} more than once. Rename one.")
    selected = _selected(columns, wanted)
    if parquet.metadata.num_rows == 0 or not selected:
        yield Batch(pa.table({}), [], columns, fixed_columns=True)
        return
    line = 1
    size = _batch_rows(parquet.metadata, set(selected))
    for part in parquet.iter_batches(batch_size=size, columns=selected, use_threads=False):
        lines = list(range(line, line + part.num_rows))
        line += part.num_rows
        yield Batch(pa.Table.from_batches([part]), lines, columns, fixed_columns=True)


def _selected(columns: tuple[str, ...], wanted: tuple[str, ...] | None) -> list[str]:
    """Give the wanted columns, and those that differ from one only by edge white space."""
    if wanted is None:
        return list(columns)
    names = {name.strip() for name in wanted}
    return [column for column in columns if column.strip() in names]


def _batch_rows(metadata: pq.FileMetaData, selected: set[str]) -> int:
    """Give the rows of about 8 MiB of the selected columns, 16 to 4,096."""
    n_bytes = 0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.path_in_schema.split(".")[0] in selected or chunk.path_in_schema in selected:
                n_bytes += chunk.total_uncompressed_size
    per_row = max(1, n_bytes // int(metadata.num_rows))
    return min(MAX_BATCH_ROWS, max(16, MAX_BATCH_BYTES // per_row))
