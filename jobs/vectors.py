"""The embedding table: its schema, and the way from Arrow to matrices and back."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger import Ledger, Marker

Matrix = npt.NDArray[np.float32]


def vector_schema(dimension: int, storage: str) -> pa.Schema:
    """Columns of an embedding part; vectors are unit rows, zero where status is not ok."""
    value = pa.float16() if storage == "float16" else pa.float32()
    return pa.schema(
        [
            ("id", pa.string()),
            ("vector", pa.list_(value, dimension)),
            ("n_tokens", pa.int32()),
            ("truncated", pa.bool_()),
            ("status", pa.string()),
        ]
    )


def to_lists(vectors: Matrix, storage: str) -> pa.FixedSizeListArray:
    """A (n, d) float32 matrix as fixed-size lists of the storage type."""
    dtype = np.float16 if storage == "float16" else np.float32
    flat = np.ascontiguousarray(vectors, dtype=dtype).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])


def to_matrix(column: pa.ChunkedArray) -> Matrix:
    """Fixed-size lists as a (n, d) float32 matrix that owns its memory."""
    dimension = column.type.list_size
    out = np.empty((len(column), dimension), np.float32)
    at = 0
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
        out[at : at + len(chunk)] = values
        at += len(chunk)
    return out


def usable(ledger: Ledger, markers: Sequence[Marker]) -> tuple[list[str], Matrix]:
    """Ids and vectors of the rows that may be chosen, in the order of their ids.

    Args:
        ledger: Of the output tree.
        markers: Embedding parts.

    Returns:
        n ids, (n, d) float32; d is 0 when there is no part.
    """
    ids: list[str] = []
    blocks: list[Matrix] = []
    for marker in markers:
        table = ledger.read(marker, ["id", "vector", "status"])
        table = table.filter(pc.equal(table.column("status"), "ok"))
        ids.extend(table.column("id").to_pylist())
        blocks.append(to_matrix(table.column("vector")))
    matrix = np.concatenate(blocks) if blocks else np.zeros((0, 0), np.float32)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return [ids[i] for i in order], matrix[np.array(order, np.int64)]


def random_keys(ids: Sequence[str], seed: int) -> npt.NDArray[np.uint64]:
    """A random number for each id that depends on id and seed alone, (n,) uint64."""
    salt = str(seed).encode()
    digests = [hashlib.blake2b(i.encode(), digest_size=8, key=salt).digest() for i in ids]
    return np.frombuffer(b"".join(digests), np.uint64)


def sample(
    ledger: Ledger, partitions: Sequence[Sequence[Marker]], *, size: int, seed: int
) -> tuple[list[str], Matrix]:
    """A uniform sample of the rows that may be chosen, in the order of their ids.

    Partitions are drawn by hash, so whole partitions are a random sample already: only as many
    are read as hold `size` rows, and of these the rows with the smallest random keys stay.

    Args:
        ledger: Of the output tree.
        partitions: Embedding parts by partition.
        size: Rows wanted.
        seed: Of the keys.

    Returns:
        At most `size` ids and their (n, d) float32 vectors.
    """
    ids: list[str] = []
    blocks: list[Matrix] = []
    for markers in partitions:
        more, block = usable(ledger, markers)
        ids += more
        blocks.append(block)
        if len(ids) >= size:
            break
    vectors = np.concatenate(blocks) if blocks else np.zeros((0, 0), np.float32)
    chosen = np.argsort(random_keys(ids, seed), kind="stable")[:size]
    order = sorted(chosen.tolist(), key=ids.__getitem__)
    return [ids[i] for i in order], vectors[np.array(order, np.int64)]
