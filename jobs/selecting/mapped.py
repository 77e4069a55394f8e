"""The vectors of one partition as a memory-mapped array: they need disk, not memory."""

import errno
import mmap
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inference.status import Status
from jobs.errors import ClusterError, DataError, InvariantError
from jobs.files.scratch import scratch
from jobs.ledger import Ledger, Marker
from jobs.vectors import Matrix, list_values
from selection.arrays import MAX_SQUARED_NORM, rows_of

# Rows decoded at a time: 12 MiB of float32 at 384 dimensions.
BATCH_ROWS = 8192
# float32 or float16.
Stored = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Mapped:
    """The rows of one partition that may be chosen, in ascending order of their ids.

    Attributes:
        ids: n ids.
        vectors: (n, d) read-only, float32 or float16 as stored; d is 0 when there is no part.
        excluded: Rows left out, by status.
    """

    ids: pa.StringArray
    vectors: Stored
    excluded: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self.vectors.shape[1])

    def rows(self, indices: npt.NDArray[np.int64] | slice) -> Matrix:
        """These rows as float32; a view where they are a slice of float32."""
        return rows_of(self.vectors, indices)

    def find(self, wanted: pa.StringArray) -> npt.NDArray[np.int64]:
        """The row of each of these distinct ids, -1 where it is not here; O(n) time.

        Args:
            wanted: m ids.

        Returns:
            (m,) int64.
        """
        # The small side is hashed, not the n ids.
        place = pc.index_in(self.ids, value_set=wanted)
        here = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
        found = np.full(len(wanted), -1, np.int64)
        found[place.drop_null().to_numpy()] = here
        return found


def map_vectors(
    ledger: Ledger, markers: Sequence[Marker], *, barred: pa.StringArray | None = None
) -> Mapped:
    """Copy the usable vectors of a partition into scratch space and map it.

    The scratch file lies in `storage.scratch` and has no name: whatever ends the process, nothing
    stays.

    Args:
        ledger: Of the output tree.
        markers: The embedding parts of the partition.
        barred: Ids of rows that are taken as not there; None: none.

    Returns:
        The rows with status ok, by id.

    Raises:
        DataError: A part is damaged, or holds a vector that is no unit vector under status ok.
        ClusterError: The scratch space has no room.
    """
    ids, excluded = _ids(ledger, markers, barred)
    order = pc.array_sort_indices(ids).to_numpy()
    ids = ids.take(pa.array(order))
    _require_distinct(ids)
    row_of = np.empty(len(ids), np.int64)
    row_of[order] = np.arange(len(ids))
    vectors = _empty(len(ids), *_kind(ledger, markers))
    at = 0
    for marker in markers:
        for block in _blocks(ledger, marker, barred):
            vectors[row_of[at : at + len(block)]] = block
            at += len(block)
    vectors.flags.writeable = False
    return Mapped(ids, vectors, excluded)


def _ids(
    ledger: Ledger, markers: Sequence[Marker], barred: pa.StringArray | None
) -> tuple[pa.StringArray, dict[str, int]]:
    """Ids of the usable rows in the order of the parts, and the count of all others."""
    found: list[pa.Array] = [pa.array([], pa.string())]
    excluded: Counter[str] = Counter()
    for marker in markers:
        table = ledger.read(marker, ["id", "status"])
        ok = pc.equal(table["status"], Status.OK.value)
        excluded.update(table.filter(pc.invert(ok))["status"].to_pylist())
        found += table.filter(_usable(table, barred))["id"].chunks
    return pa.concat_arrays(found), dict(excluded)


def _usable(table: pa.Table, barred: pa.StringArray | None) -> pa.ChunkedArray:
    """Whether each row has a vector and may be taken."""
    ok = pc.equal(table["status"], Status.OK.value)
    if barred is None:
        return ok
    return pc.and_(ok, pc.invert(pc.is_in(table["id"], value_set=barred)))


def _require_distinct(ids: pa.StringArray) -> None:
    same = pc.equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1)))
    if pc.any(same).as_py():
        raise InvariantError(f"id {ids[pc.index(same, True).as_py()].as_py()!r} is there twice")


def _kind(ledger: Ledger, markers: Sequence[Marker]) -> tuple[int, npt.DTypeLike]:
    """Dimension and dtype of the stored vectors."""
    if not markers:
        return 0, np.float32
    with ledger.opened(markers[0]) as file:
        kind = file.schema_arrow.field("vector").type
    return kind.list_size, kind.value_type.to_pandas_dtype()


def _empty(n: int, dimension: int, dtype: npt.DTypeLike) -> Stored:
    shape, n_bytes = (n, dimension), n * dimension * np.dtype(dtype).itemsize
    if not n_bytes:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=scratch()) as file:
            # Reserved now: a page that finds no room when it is written kills the process.
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            mapping = mmap.mmap(file.fileno(), n_bytes)
    except OSError as error:
        raise _no_room(error, n_bytes) from error
    return np.frombuffer(mapping, dtype).reshape(shape)


def _no_room(error: OSError, n_bytes: int) -> ClusterError:
    where = scratch()
    what = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = f"{shutil.disk_usage(where).free / 2**30:.2f} GiB are free"
    return ClusterError(
        f"{where}: the vectors of a partition need {n_bytes / 2**30:.2f} GiB of scratch space: "
        f"{what}. Set storage.scratch, or TMPDIR before Ray starts, to a folder on a larger local "
        "disk, or free space; what is done is kept."
    )


def _blocks(ledger: Ledger, marker: Marker, barred: pa.StringArray | None) -> Iterator[Stored]:
    """The usable vectors of a part, piece by piece, each checked."""
    for table in ledger.batches(marker, ["id", "vector", "status"], rows=BATCH_ROWS):
        ok = table.filter(_usable(table, barred))
        for chunk, ids in zip(ok["vector"].chunks, ok["id"].chunks, strict=True):
            block = list_values(chunk)
            _require_unit(ledger, marker, block, ids)
            yield block


def _require_unit(ledger: Ledger, marker: Marker, block: Stored, ids: pa.StringArray) -> None:
    wide = block.astype(np.float32, copy=False)
    squared = np.einsum("ij,ij->i", wide, wide)
    bad = np.flatnonzero(~((squared > 0) & (squared <= MAX_SQUARED_NORM)))
    if bad.size:
        raise DataError(
            f"{ledger.store.where(marker.table)}: row {ids[int(bad[0])].as_py()!r} has status ok "
            f"and a vector of norm {float(squared[bad[0]]) ** 0.5:g} ({bad.size} such rows in one "
            f"batch); wanted norm 1. Remove {marker.folder}/{marker.name}.done.json and run again "
            "to make it anew."
        )
