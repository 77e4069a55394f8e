"""Embed for recall: texts to vectors of a learned sparse encoder, one unit a table of texts.

They are made when ranking, because only then the pool is known: once for each part of the queries
and for each pool, whatever the number of arms that recall by them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from inference.encoder_spec import Role
from inference.sparse_encoder import (
    SparseEncoder,
    SparseSpec,
    require_sparse,
    sparse_encoder_id,
    sparse_pinned,
)
from inference.status import Status
from jobs.config.models import SparseEncoderConfig, rules_of
from jobs.embed import CHUNK_ROWS, count_status, reason, status_after, usable_texts
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.run import Run
from jobs.storage import absolute_folder
from jobs.units import finish, threads, with_gpus
from jobs.vectors import SPARSE_SCHEMA, to_sparse_lists

VERSION = 1


# What it needs: a model that is there, query parts, pools.


def sparse_spec(config: SparseEncoderConfig) -> SparseSpec:
    """The config's sparse encoder in the words of `inference`."""
    plain = config.model_dump(exclude={"mask"}) | {"model": absolute_folder(config.model)}
    return SparseSpec(**plain, mask=rules_of(config.mask))


def identify_sparse(name: str, config: SparseEncoderConfig) -> str:
    """The encoder's id, which names its model's revision; the model must be there and be sparse.

    Raises:
        ConfigError: It is not.
    """
    try:
        spec = sparse_spec(config)
        require_sparse(spec)
        return sparse_encoder_id(name, spec)
    except (LookupError, OSError, ValueError) as error:
        raise ConfigError(f"sparse_encoders.{name}: {reason(error)}") from None


# The Ray-free function on one part.


@dataclass
class SparseWork:
    """Encodes one part of the queries, or one pool, with models that are loaded once."""

    out: str
    spec: SparseSpec
    encoders: dict[Role, SparseEncoder] = field(default_factory=dict)
    n_threads: int = 1

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Encode the rows of a table.

        Args:
            payload: `unit`, `rows` (marker of a query part or a pool), `role`.

        Returns:
            Marker of the vectors; its stats have their dimension and count statuses and truncated
            rows.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        role: Role = payload["role"]
        if role not in self.encoders:
            self.encoders[role] = self._load(role)
        encoder = self.encoders[role]
        stats: dict[str, Any] = {"dimension": encoder.dimension, "status": {}, "n_truncated": 0}
        # A pool holds only rows that have a vector, and so no status.
        columns = ["id", "input", "status"] if role == "query" else ["id", "input"]
        with ledger.writing(unit, SPARSE_SCHEMA, stats) as writer:
            for chunk in ledger.batches(Marker(**payload["rows"]), columns, rows=CHUNK_ROWS):
                table = encode_rows(encoder, chunk)
                writer.write(table)
                count_status(stats, table)
        marker = ledger.find(unit)
        assert marker is not None
        return marker

    def _load(self, role: Role) -> SparseEncoder:
        try:
            return SparseEncoder(self.spec, role, n_threads=self.n_threads)
        except (LookupError, OSError, ValueError) as error:
            raise ConfigError(f"sparse encoder {self.spec.model}: {reason(error)}") from error


def encode_rows(encoder: SparseEncoder, rows: pa.Table) -> pa.Table:
    """Encode the rows that can be; the others keep their status and have no terms."""
    before = [str(Status.OK)] * rows.num_rows
    if "status" in rows.column_names:
        before = rows.column("status").to_pylist()
    encoded = encoder.encode(usable_texts(rows, before))
    columns = [
        rows.column("id"),
        *to_sparse_lists(encoded.rows),
        pa.array(np.asarray(encoded.truncated, bool)),
        pa.array(status_after(before, encoded.status), pa.string()),
    ]
    return pa.table(columns, schema=SPARSE_SCHEMA)


# The Ray wiring.


def sparse_vectors(
    run: Run, name: str, pools: Sequence[Marker]
) -> tuple[list[Marker], list[Marker]]:
    """Find or make the vectors of all query parts and of some pools.

    Args:
        run: Its config has the encoder.
        name: Of the sparse encoder.
        pools: Tables with `id` and `input`; equal ones share their vectors.

    Returns:
        A marker a query part, and one a pool.

    Raises:
        ConfigError: The model is not there, or does not take the settings.
    """
    config = run.config.file.sparse_encoders[name]
    encoder_id, workers = identify_sparse(name, config), run.config.file.cluster.embed
    parts = [part.marker for part in run.tables["queries"].parts]
    units = [_unit(encoder_id, "query", part, part.stats["texts"]) for part in parts]
    units += [_unit(encoder_id, "document", pool, pool.checksum) for pool in pools]
    unique = dict(units)
    made = finish(
        run,
        list(unique.items()),
        SparseWork(run.out, sparse_pinned(sparse_spec(config)), n_threads=threads(workers)),
        stage="sparse",
        workers=with_gpus(workers, 1),
        stateful=True,
    )
    found = dict(zip(unique, made, strict=True))
    queries = [found[unit] for unit, _ in units[: len(parts)]]
    records = [found[unit] for unit, _ in units[len(parts) :]]
    entry: dict[str, Any] = {"sparse_encoder_id": encoder_id}
    for table, markers in (("queries", queries), ("pool", records)):
        once = list({marker.table: marker for marker in markers}.values())
        entry[table] = [marker.as_dict() for marker in once]
        _warn_of_losses(run, f"{table} with {name}", once)
    run.manifest.setdefault("sparse", {})[name] = entry
    return queries, records


def _unit(encoder_id: str, role: Role, rows: Marker, content: str) -> tuple[Unit, dict[str, Any]]:
    mark = fingerprint("sparse", VERSION, encoder_id, role, content)
    unit = Unit(f"sparse/{encoder_id}/{mark}", "part", mark)
    return unit, {"unit": asdict(unit), "rows": rows.as_dict(), "role": role}


def _warn_of_losses(run: Run, what: str, markers: Sequence[Marker]) -> None:
    bad = {k: v for k, v in sum_counts(markers, "status").items() if k != Status.OK}
    if bad:
        counts = ", ".join(f"{number} {status}" for status, number in sorted(bad.items()))
        run.progress.warn(f"{what}: rows without a sparse vector: {counts}")
    n_truncated = sum(marker.stats["n_truncated"] for marker in markers)
    if n_truncated:
        run.progress.warn(f"{what}: {n_truncated} rows truncated to fit the sparse model")
