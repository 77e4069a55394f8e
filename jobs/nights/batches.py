"""The batches that went out to annotators, one a night: they are numbered and never change."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import DataError
from jobs.ledger import Ledger, Marker, Unit
from jobs.vectors import ENCODER_KEY, to_matrix

# What a batch says of a candidate beside its vector; rows are in the order of picking.
BATCH_FIELDS = pa.schema(
    [
        ("night", pa.int64()),
        ("rank", pa.int64()),
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("output", pa.large_string()),
        ("label", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("group", pa.string()),
        ("wrong_output", pa.large_string()),
        ("why", pa.large_string()),
        ("text_hash", pa.string()),
        ("cost", pa.float64()),
        ("gain", pa.float64()),
        ("coverage_gain", pa.float64()),
        ("diversity_gain", pa.float64()),
        ("objective", pa.float64()),
        # The largest cosine to what was annotated or pending then; null where nothing was.
        ("nearest_given", pa.float64()),
        # The first night on which it is not waited for any more.
        ("expires", pa.int64()),
        # 1 the first time; more for one that came back after it expired.
        ("times_proposed", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Batch:
    """One night's candidates.

    Attributes:
        number: Of the night, from 1.
        marker: Where they are; its fingerprint is that of the state they were chosen in.
    """

    number: int
    marker: Marker

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the night: news, counts, expiry."""
        return dict(self.marker.stats["night"])


def batch_unit(number: int, state: str) -> Unit:
    """Where the batch of a night is."""
    return Unit(f"batches/{number:04d}", "candidates", state)


def batches_of(ledger: Ledger, *, at_least: int = 0) -> list[Batch]:
    """Every batch, by number.

    Args:
        ledger: Of the output tree.
        at_least: How many there must be.

    Returns:
        Batches 1, 2, ... up to the last one.

    Raises:
        DataError: One is damaged, or fewer are there: what went out is known nowhere else, so
            nothing is made anew in their place.
    """
    found: list[Batch] = []
    while (marker := _marker(ledger, len(found) + 1)) is not None:
        found.append(Batch(len(found) + 1, marker))
    if len(found) < at_least:
        gone = batch_unit(len(found) + 1, "").done
        raise DataError(
            f"{gone}: is gone from the output: found {len(found)} batches, wanted the {at_least} "
            "of the manifest. Restore the folder batches/ from a copy; what annotators were sent "
            "stands nowhere else."
        )
    return found


def _marker(ledger: Ledger, number: int) -> Marker | None:
    unit = batch_unit(number, "")
    if not ledger.store.exists(unit.done):
        return None
    try:
        marker = Marker(**json.loads(ledger.store.read_bytes(unit.done)))
    except (ValueError, TypeError):
        marker = None
    if marker is None or ledger.store.size(unit.table) != marker.bytes:
        raise DataError(
            f"{unit.table}: batch {number} is damaged: the file is not the one that {unit.done} "
            "tells of. Restore both from a copy; what annotators were sent stands nowhere else."
        )
    return marker


def proposed(ledger: Ledger, batches: Sequence[Batch]) -> pa.Table:
    """Every row that ever went out, as it was when it last did.

    Returns:
        `BATCH_FIELDS`, by night and order of picking; each id once.
    """
    tables = [ledger.read(batch.marker, BATCH_FIELDS.names) for batch in batches]
    rows = pa.concat_tables([BATCH_FIELDS.empty_table(), *_cast(tables)]).combine_chunks()
    last = {row_id: place for place, row_id in enumerate(rows["id"].to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def _cast(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        yield table.replace_schema_metadata(None).cast(BATCH_FIELDS)


def sent_vectors(ledger: Ledger, batches: Sequence[Batch], encoder_id: str) -> dict[str, Any]:
    """The vectors of what went out, where they come from this encoder.

    Returns:
        By id, (d,) float32.
    """
    found: dict[str, Any] = {}
    for batch in batches:
        if not batch.marker.rows:
            continue
        table = ledger.read(batch.marker, ["id", "vector"])
        if (table.schema.metadata or {}).get(ENCODER_KEY) == encoder_id.encode():
            found.update(zip(table["id"].to_pylist(), to_matrix(table["vector"]), strict=True))
    return found


def times_proposed(ledger: Ledger, batches: Sequence[Batch], ids: pa.Array) -> dict[str, int]:
    """How often each of these ids has gone out so far; ids that never did are absent."""
    counts: dict[str, int] = {}
    for batch in batches:
        sent = ledger.read(batch.marker, ["id"])["id"]
        for row_id in sent.filter(pc.is_in(sent, value_set=ids)).to_pylist():
            counts[row_id] = counts.get(row_id, 0) + 1
    return counts
