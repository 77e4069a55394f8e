"""The schemas of the row table and of the rejected table."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

ROW_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("output", pa.large_string()),
        ("label", pa.string()),
        ("group", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("weight", pa.float64()),
        ("cost", pa.float64()),
        ("quality", pa.float64()),
        ("source_file", pa.string()),
        ("source_line", pa.int64()),
        ("status", pa.string()),
        ("flags", pa.list_(pa.string())),
        ("row_hash", pa.string()),
        ("text_hash", pa.string()),
    ]
)

REJECTED_SCHEMA = pa.schema(
    [
        ("source_file", pa.string()),
        ("source_line", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.large_string()),
        ("excerpt", pa.large_string()),
        ("status", pa.string()),
    ]
)


def row_schema(keep: Iterable[str]) -> pa.Schema:
    """Give ROW_SCHEMA with the kept columns, which are text."""
    return pa.schema([*ROW_SCHEMA, *((name, pa.large_string()) for name in keep)])


def rejected_table(entries: list[tuple[Any, ...]]) -> pa.Table:
    """Make a table of REJECTED_SCHEMA from tuples in its order."""
    columns = zip(*entries, strict=True) if entries else [()] * len(REJECTED_SCHEMA)
    arrays = [
        pa.array(list(values), field.type)
        for values, field in zip(columns, REJECTED_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=REJECTED_SCHEMA)
