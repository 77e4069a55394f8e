"""Partitions on disk as embed and ingest leave them, from vectors and columns made up here."""

import numpy as np
import pyarrow as pa

from jobs.ledger import Unit
from jobs.readers.row_tables import ROW_SCHEMA
from jobs.vectors import to_lists, vector_schema


def unit_rows(n, seed, dimension=8):
    rows = np.random.default_rng(seed).standard_normal((n, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def embed_part(ledger, name, ids, vectors, *, storage="float32", status=None):
    """Commit an embedding part; gives its marker."""
    n, dimension = vectors.shape
    table = pa.table(
        [
            pa.array(ids, pa.string()),
            to_lists(vectors, storage),
            pa.array(np.ones(n, np.int32)),
            pa.array([False] * n, pa.bool_()),
            pa.array(status or ["ok"] * n, pa.string()),
        ],
        schema=vector_schema(dimension, storage),
    )
    return ledger.commit(Unit(f"e/{name}", "part", name), table)


def row_part(ledger, name, ids, **columns):
    """Commit a row part that has these columns; gives its marker."""
    n = len(ids)
    cells = {"id": ids, "status": ["ok"] * n} | columns
    arrays = [
        pa.array(cells[field.name], field.type) if field.name in cells else pa.nulls(n, field.type)
        for field in ROW_SCHEMA
    ]
    return ledger.commit(Unit(f"r/{name}", "part", name), pa.table(arrays, schema=ROW_SCHEMA))
