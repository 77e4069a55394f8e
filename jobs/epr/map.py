"""The file of a learned map: its weights, and in its schema what it was learned from."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import ConfigError, DataError
from jobs.files.inputs import is_file, open_input
from jobs.files.places import StorageUnreachable, plain
from jobs.ledger import Ledger, Marker
from jobs.storage import cannot_read, reading
from jobs.vectors import Matrix, to_lists, to_matrix

MAP_KEY = b"dualdiv.epr"
WEIGHTS = "weights"
# Whom a map is of; without these nobody can say whether it fits.
BOUND = ("encoder_id", "llm", "engine")


def map_table(weights: Matrix, facts: Mapping[str, Any]) -> pa.Table:
    """A map as a table, one row a row of W, that says what it was learned from."""
    table = pa.table({WEIGHTS: to_lists(weights, "float32")})
    return table.replace_schema_metadata({MAP_KEY: json.dumps(facts).encode()})


def load_weights(ledger: Ledger, marker: Mapping[str, Any] | None) -> Matrix | None:
    """W of a committed map, (r, d) float32; None where there is none."""
    if marker is None:
        return None
    return to_matrix(ledger.read(Marker(**marker), [WEIGHTS])[WEIGHTS])


def read_map(path: str, *, key: str) -> tuple[pa.Table, dict[str, Any]]:
    """Read a map that an earlier run trained, and its facts.

    Args:
        path: Of a Parquet file as `map_table` makes it.
        key: Where the config names it.

    Raises:
        ConfigError: No such file.
        DataError: The file is no map, or its weights are not finite.
    """
    with reading(f"{key} = {path}"):
        there = is_file(plain(path, key=key))
    if not there:
        raise ConfigError(
            f"{key} = {path}: no such file; wanted the epr/<fp>/map.parquet of an earlier run. "
            "Paths are relative to where the command runs."
        )
    try:
        with open_input(plain(path, key=key)) as file:
            table = pq.ParquetFile(file).read()
        facts = json.loads((table.schema.metadata or {})[MAP_KEY])
        _ = [facts[name] for name in BOUND]
        weights = to_matrix(table[WEIGHTS])
    except StorageUnreachable as error:
        raise cannot_read(f"{key} = {path}", error) from None
    except (pa.ArrowException, OSError, KeyError, ValueError, AttributeError) as error:
        raise DataError(
            f"{key} = {path}: is no learned map ({error}); wanted the epr/<fp>/map.parquet of an "
            "earlier run."
        ) from None
    if not np.isfinite(weights).all():
        raise DataError(f"{key} = {path}: its weights are not finite; train it anew.")
    return table, facts


def require_bound(
    facts: Mapping[str, Any], *, where: str, encoder_id: str, engine: str, llm: str
) -> None:
    """Refuse a map of another encoder, or one that another LLM's scores taught.

    Args:
        facts: Of the map.
        where: Arm, key and path, for the message.
        encoder_id: Of the arm.
        engine: The arm's engine.
        llm: Revision of its weights.

    Raises:
        ConfigError: Names what the map is of, and what the arm has.
    """
    wrong = []
    if facts["encoder_id"] != encoder_id:
        wrong.append(
            f"it maps vectors of encoder {facts['encoder_id']}, this arm's are of {encoder_id}"
        )
    if facts["llm"] != llm:
        wrong.append(
            f"it was learned from LLM revision {facts['llm']} (engine {facts['engine']}), engine "
            f"{engine} is revision {llm}"
        )
    if wrong:
        raise ConfigError(
            f"{where}: {', and '.join(wrong)}. What helps one need not help the other: leave "
            "stage2.epr.map out to train anew, or give a map of these two."
        )
