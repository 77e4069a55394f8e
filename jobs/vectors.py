"""The embedding tables: their schemas, and the way from Arrow to matrices and back."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from jobs.ledger import Ledger, Marker

Matrix = npt.NDArray[np.float32]
KEYS_AT_A_TIME = 65_536
ENCODER_KEY = b"dualdiv.encoder_id"
# A row is empty where status is not ok.
SPARSE_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("terms", pa.list_(pa.int32())),
        ("weights", pa.list_(pa.float32())),
        ("truncated", pa.bool_()),
        ("status", pa.string()),
    ]
)


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


def with_encoder(table: pa.Table, encoder_id: str) -> pa.Table:
    """The same table, saying which encoder its column `vector` comes from."""
    metadata = dict(table.schema.metadata or {}) | {ENCODER_KEY: encoder_id.encode()}
    return table.replace_schema_metadata(metadata)


def to_lists(vectors: Matrix, storage: str) -> pa.FixedSizeListArray:
    """A (n, d) float32 matrix as fixed-size lists of the storage type."""
    dtype = np.float16 if storage == "float16" else np.float32
    flat = np.ascontiguousarray(vectors, dtype=dtype).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])


def list_values(chunk: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    """A chunk of fixed-size lists as (n, d) of its own value type, without a copy if possible."""
    flat = chunk.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(chunk), chunk.type.list_size)


def to_matrix(column: pa.ChunkedArray) -> Matrix:
    """Fixed-size lists as a (n, d) float32 matrix that owns its memory."""
    dimension = column.type.list_size
    out = np.empty((len(column), dimension), np.float32)
    at = 0
    for chunk in column.chunks:
        out[at : at + len(chunk)] = list_values(chunk)
        at += len(chunk)
    return out


def to_sparse_lists(rows: sp.csr_array) -> tuple[pa.ListArray, pa.ListArray]:
    """The terms of each row of a (n, v) CSR matrix, and their weights."""
    ends = pa.array(rows.indptr.astype(np.int32))
    terms = pa.array(rows.indices.astype(np.int32))
    weights = pa.array(rows.data.astype(np.float32))
    return pa.ListArray.from_arrays(ends, terms), pa.ListArray.from_arrays(ends, weights)


def to_csr(table: pa.Table, dimension: int) -> sp.csr_array:
    """The columns `terms` and `weights` as a (n, dimension) float32 CSR matrix."""
    ends = np.zeros(table.num_rows + 1, np.int64)
    np.cumsum(pc.list_value_length(table.column("terms")).to_numpy(), out=ends[1:])
    terms = pc.list_flatten(table.column("terms")).to_numpy()
    weights = pc.list_flatten(table.column("weights")).to_numpy()
    return sp.csr_array((weights, terms, ends), shape=(table.num_rows, dimension))


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


def random_keys(ids: Sequence[str] | pa.StringArray, seed: int) -> npt.NDArray[np.uint64]:
    """A random number for each id that depends on id and seed alone, (n,) uint64."""
    salt = str(seed).encode()
    keys = np.empty(len(ids), np.uint64)
    # A few ids at a time become Python strings.
    for start in range(0, len(ids), KEYS_AT_A_TIME):
        part = ids[start : start + KEYS_AT_A_TIME]
        texts = part.to_pylist() if isinstance(part, pa.Array) else part
        digests = [hashlib.blake2b(i.encode(), digest_size=8, key=salt).digest() for i in texts]
        keys[start : start + len(texts)] = np.frombuffer(b"".join(digests), np.uint64)
    return keys


def shares(counts: Sequence[int], total: int) -> list[int]:
    """Split a sample over partitions in proportion to their rows, by cumulative rounding.

    Args:
        counts: Rows of each partition.
        total: Rows of the sample.

    Returns:
        Rows to draw from each partition, none more than it has; they add up to `total`, or to all
        rows where that is less.
    """
    n_rows = sum(counts)
    total = min(total, n_rows)
    ends = [total * end // max(1, n_rows) for end in itertools.accumulate(counts, initial=0)]
    return [end - start for start, end in itertools.pairwise(ends)]


def drawn(keys: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.int64]:
    """Rows with the `size` smallest keys, ascending."""
    return np.sort(np.argsort(keys, kind="stable")[:size])


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
