"""Embed: rows to unit vectors, one part at a time, in batches that depend on the rows alone."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from inference.encoder import Encoder, EncoderSpec, encoder_id, pinned
from inference.models import OutOfReach
from inference.presets import PRESETS
from inference.status import Status
from jobs.config.models import EncoderConfig, rules_of
from jobs.errors import ConfigError, ModelOutOfReach
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.run import Part, Run
from jobs.spill import value_counts
from jobs.storage import absolute_folder
from jobs.units import finish, threads, with_gpus
from jobs.vectors import to_lists, vector_schema
from jobs.watching import pulse

VERSION = 1
# Rows tokenised and sorted together: large enough for full batches of like length, small enough
# that memory does not grow with the partition.
CHUNK_ROWS = 4096
ROLES: dict[str, Literal["document", "query"]] = {"corpus": "document", "queries": "query"}


# What it needs: rows, and the encoders the arms name.


def run_stage(run: Run) -> None:
    """Embed corpus and queries with every encoder in use."""
    entries = {}
    for name in sorted({arm.encoder for arm in run.arms}):
        spec = encoder_spec(run.config.file.encoders[name], key=f"encoders.{name}")
        run.encoder_ids[name] = identify(name, spec)
        entries[name] = _embed(run, name, pinned(spec))
    run.manifest["embeddings"] = entries
    _warn_of_losses(run)


def encoder_spec(config: EncoderConfig, *, key: str) -> EncoderSpec:
    """The preset with the config's changes.

    Raises:
        ConfigError: No such preset.
    """
    changes = config.model_dump(exclude={"preset", "mask"}, exclude_none=True)
    if config.mask is not None:
        changes["mask"] = rules_of(config.mask)
    for side in {"model", "query_model"} & set(changes):
        changes[side] = absolute_folder(changes[side])
    if config.preset is None:
        return EncoderSpec(**changes)
    if config.preset not in PRESETS:
        known = ", ".join(sorted(PRESETS))
        raise ConfigError(f"{key}.preset: {config.preset!r} is none of {known}.")
    return replace(PRESETS[config.preset], **changes)


def identify(name: str, spec: EncoderSpec) -> str:
    """The encoder's id, which names its model's revision; the model must be there.

    Raises:
        ConfigError: It is not.
        ModelOutOfReach: There is no copy of it, and the hub gives no answer.
    """
    try:
        return encoder_id(name, spec)
    except OutOfReach as error:
        raise ModelOutOfReach(f"encoders.{name}: {error}") from None
    except (LookupError, OSError, ValueError) as error:
        raise ConfigError(f"encoders.{name}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """What an error of a model says, without the name of its class."""
    return str(error.args[0]) if error.args else str(error)


# The Ray-free function on one part.


@dataclass
class EmbedWork:
    """Embeds one part at a time with models that are loaded once."""

    out: str
    spec: EncoderSpec
    encoders: dict[str, Encoder] = field(default_factory=dict)
    n_threads: int = 1

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Embed the rows of a part.

        Args:
            payload: `unit`, `rows` (marker of the part), `role`.

        Returns:
            Marker of the vectors; its stats count tokens, truncated rows and statuses.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        role = payload["role"]
        if role not in self.encoders:
            with pulse.loading():
                self.encoders[role] = self._load(role)
        encoder = self.encoders[role]
        schema = vector_schema(encoder.dimension, self.spec.storage)
        stats: dict[str, Any] = {"status": {}, "n_tokens": 0, "n_truncated": 0}
        with ledger.writing(unit, schema, stats) as writer:
            rows = Marker(**payload["rows"])
            for chunk in ledger.batches(rows, ["id", "input", "status"], rows=CHUNK_ROWS):
                table = embed_rows(encoder, chunk, storage=self.spec.storage, schema=schema)
                writer.write(table)
                count_status(stats, table)
                stats["n_tokens"] += int(table.column("n_tokens").to_numpy().sum())
                pulse.count(rows=len(table), batches=-(-len(table) // self.spec.batch_size))
        marker = ledger.find(unit)
        assert marker is not None
        return marker

    def _load(self, role: Literal["document", "query"]) -> Encoder:
        try:
            return Encoder(self.spec, role=role, n_threads=self.n_threads)
        except (LookupError, OSError, ValueError) as error:
            raise ConfigError(f"encoder {self.spec.model}: {reason(error)}") from error


def embed_rows(encoder: Encoder, rows: pa.Table, *, storage: str, schema: pa.Schema) -> pa.Table:
    """Embed the rows that can be; the others keep their status and get a zero vector."""
    before = rows.column("status").to_pylist()
    encoded = encoder.encode(usable_texts(rows, before), ids=rows.column("id").to_pylist())
    columns = [
        rows.column("id"),
        to_lists(encoded.vectors, storage),
        pa.array(np.asarray(encoded.n_tokens, np.int32)),
        pa.array(np.asarray(encoded.truncated, bool)),
        pa.array(status_after(before, encoded.status), pa.string()),
    ]
    return pa.table(columns, schema=schema)


def usable_texts(rows: pa.Table, status: Sequence[str]) -> list[str]:
    """The texts that an encoder is given: of rows that are not ok the empty one."""
    return [
        text if was == Status.OK and text is not None else ""
        for text, was in zip(rows.column("input").to_pylist(), status, strict=True)
    ]


def status_after(before: Sequence[str], encoded: Sequence[Status]) -> list[str]:
    """The status of rows that an encoder has seen: its own where they were ok before."""
    return [
        str(after) if was == Status.OK else was for was, after in zip(before, encoded, strict=True)
    ]


def count_status(stats: dict[str, Any], table: pa.Table) -> None:
    """Add a table's statuses and truncated rows to the counts of its unit."""
    for status, number in value_counts(table.column("status")).items():
        stats["status"][status] = stats["status"].get(status, 0) + number
    stats["n_truncated"] += int(table.column("truncated").to_numpy().sum())


# The Ray wiring.


def _embed(run: Run, name: str, spec: EncoderSpec) -> dict[str, Any]:
    units = {
        table: [_unit(run.encoder_ids[name], part, table) for part in run.tables[table].parts]
        for table in ROLES
    }
    markers = finish(
        run,
        [unit for table in ROLES for unit in units[table]],
        EmbedWork(run.out, spec, n_threads=threads(run.config.file.cluster.embed)),
        stage="embed",
        workers=with_gpus(run.config.file.cluster.embed, 1),
        stateful=True,
    )
    entry: dict[str, Any] = {"encoder_id": run.encoder_ids[name]}
    for table in ROLES:
        mine, markers = markers[: len(units[table])], markers[len(units[table]) :]
        run.vectors[name, table] = mine
        entry[table] = _entry(mine)
    return entry


def _entry(markers: list[Marker]) -> dict[str, Any]:
    n_rows = sum(marker.rows for marker in markers)
    n_truncated = sum(marker.stats["n_truncated"] for marker in markers)
    return {
        "parts": [marker.as_dict() for marker in markers],
        "truncated_share": n_truncated / n_rows if n_rows else 0.0,
        "n_tokens": sum(marker.stats["n_tokens"] for marker in markers),
        "status": sum_counts(markers, "status"),
    }


def _unit(encoder: str, part: Part, table: str) -> tuple[Unit, dict[str, Any]]:
    mark = fingerprint("embed", VERSION, encoder, ROLES[table], part.marker.stats["texts"])
    unit = Unit(f"embeddings/{encoder}/{mark}", "part", mark)
    payload = {"unit": asdict(unit), "rows": part.marker.as_dict(), "role": ROLES[table]}
    return unit, payload


def _warn_of_losses(run: Run) -> None:
    for (name, table), markers in run.vectors.items():
        bad = {k: v for k, v in sum_counts(markers, "status").items() if k != Status.OK}
        if bad:
            what = ", ".join(f"{number} {status}" for status, number in sorted(bad.items()))
            run.progress.warn(f"{table} with {name}: rows without a vector: {what}")
        n_truncated = sum(marker.stats["n_truncated"] for marker in markers)
        if n_truncated:
            run.progress.warn(f"{table} with {name}: {n_truncated} rows truncated to fit the model")
