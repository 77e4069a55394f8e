"""Rows and vectors of an output by id, read from the partitions that can hold them."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import DataError
from jobs.ledger import Marker
from jobs.readers.hashes import partition_of
from jobs.run import Part, Run
from jobs.vectors import Matrix, to_matrix

BATCH_ROWS = 16_384


def rows_by_id(
    run: Run, ids: Collection[str], columns: Collection[str]
) -> dict[str, dict[str, Any]]:
    """The rows of the corpus that have these ids.

    Args:
        run: Has the corpus.
        ids: Ids; those the corpus does not have are absent from the result.
        columns: Columns of the row table, `id` with them or not.
    """
    found: dict[str, dict[str, Any]] = {}
    wanted = pa.array(sorted(set(ids)), pa.string())
    names = ["id", *(name for name in columns if name != "id")]
    for part in _parts(run, wanted):
        there = run.ledger.read(part.marker, ["id"])["id"]
        if pc.any(pc.is_in(there, value_set=wanted)).as_py():
            table = run.ledger.read(part.marker, names)
            rows = table.filter(pc.is_in(table["id"], value_set=wanted)).to_pylist()
            found |= {row["id"]: row for row in rows}
    return found


def vectors_by_id(run: Run, encoder: str, ids: Collection[str]) -> tuple[list[str], Matrix]:
    """Vectors of corpus rows, in the order of their ids.

    Args:
        run: Has the embedding tables.
        encoder: Its name in the config.
        ids: Wanted; rows without a usable vector are left out.

    Returns:
        n ids, (n, d) float32 unit rows; d is 0 where none was found.
    """
    found: list[str] = []
    blocks: list[Matrix] = []
    wanted = pa.array(sorted(set(ids)), pa.string())
    parts = {part.name for part in _parts(run, wanted)}
    for part, marker in embedded_parts(run, encoder):
        if part.name in parts:
            for some, block in vector_batches(run, marker, wanted=wanted):
                found += some
                blocks.append(block)
    if not blocks:
        return [], np.zeros((0, 0), np.float32)
    order = sorted(range(len(found)), key=found.__getitem__)
    return [found[i] for i in order], np.concatenate(blocks)[np.array(order, np.int64)]


def embedded_parts(run: Run, encoder: str) -> list[tuple[Part, Marker]]:
    """The parts of the corpus, each with its vectors.

    Raises:
        DataError: The last run took rows in and did not come to embed them.
    """
    parts, markers = run.tables["corpus"].parts, run.vectors.get((encoder, "corpus"), [])
    if len(parts) != len(markers):
        raise DataError(
            f"{run.out}: the corpus has {len(parts)} parts, and encoder {encoder} has vectors of "
            f"{len(markers)}: the last run ended in between. Run `dualdiv select` again."
        )
    return list(zip(parts, markers, strict=True))


def vector_batches(
    run: Run, marker: Marker, *, wanted: pa.Array | None = None
) -> Iterator[tuple[list[str], Matrix]]:
    """The usable vectors of an embedding part, some rows at a time.

    Args:
        run: Has the ledger.
        marker: The part.
        wanted: Only these ids; None: all.

    Yields:
        n ids with (n, d) float32, n at least 1.
    """
    for table in run.ledger.batches(marker, ["id", "vector", "status"], rows=BATCH_ROWS):
        keep = pc.equal(table["status"], "ok")
        if wanted is not None:
            keep = pc.and_(keep, pc.is_in(table["id"], value_set=wanted))
        some = table.filter(keep)
        if some.num_rows:
            yield some["id"].to_pylist(), to_matrix(some["vector"])


def _parts(run: Run, ids: pa.Array) -> list[Part]:
    """The parts of the corpus that can hold these ids."""
    corpus, spec = run.tables["corpus"], run.config.file.corpus.partition
    # A renamed duplicate "<id>~<hash>" lies where <id> lies.
    stems = [i.rpartition("~")[0] or i for i in ids.to_pylist()]
    if not stems:
        return []
    where = set(partition_of(stems, count=spec.count, seed=spec.seed).tolist())
    return [part for part in corpus.parts if part.partition in where]
