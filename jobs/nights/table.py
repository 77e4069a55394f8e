"""The table of a night's batch, and what is said of the night."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger import Marker
from jobs.nights.batches import BATCH_FIELDS, Batch, times_proposed
from jobs.nights.candidate_rows import CONTRAST_COLUMNS, ROW_COLUMNS, corpus_rows
from jobs.nights.known import Known
from jobs.nights.standing import nearest, worth_sending
from jobs.run import Run
from jobs.vectors import Matrix, to_matrix, with_encoder


def batch_table(
    run: Run, encoder: str, known: Known, marker: Marker | None
) -> tuple[pa.Table, int]:
    """The batch, and how many picks are copies and no part of it."""
    encoder_id = run.encoder_ids[encoder]
    if marker is None:
        empty = BATCH_FIELDS.empty_table()
        vector = pa.nulls(0, pa.list_(pa.float32(), max(1, known.vectors.shape[1])))
        return with_encoder(empty.append_column("vector", vector), encoder_id), 0
    chosen = run.ledger.read(marker)
    vectors = to_matrix(chosen["vector"])
    sent = worth_sending(
        chosen["text_hash"].to_pylist(),
        vectors,
        known_texts=known.texts,
        known=known.vectors,
        max_cosine=run.config.file.annotate.max_cosine,
    )
    chosen = chosen.append_column("nearest_given", _nearest(vectors, known.vectors))
    chosen = _with_rows(run, chosen.filter(pa.array(sent)).combine_chunks(), known)
    columns = {name: chosen[name] for name in BATCH_FIELDS.names}
    table = pa.table(columns).cast(BATCH_FIELDS).append_column("vector", chosen["vector"])
    return with_encoder(table, encoder_id), int((~sent).sum())


def _nearest(vectors: Matrix, known: Matrix) -> pa.Array:
    found = nearest(vectors, known)
    return pa.array(found, pa.float64(), mask=~np.isfinite(found))


def _with_rows(run: Run, chosen: pa.Table, known: Known) -> pa.Table:
    """The candidates with what their rows say, the night, and how often they have gone out."""
    ids, n = chosen["id"].to_pylist(), chosen.num_rows
    contrast = [*run.config.file.corpus.columns.contrast()]
    rows = corpus_rows(run, ids, [*ROW_COLUMNS, *contrast]).combine_chunks()
    place = pc.index_in(chosen["id"], value_set=rows["id"].combine_chunks())
    for name in ("output", "label", "tags", "group", *CONTRAST_COLUMNS):
        there = name in rows.column_names
        values = rows[name].take(place) if there else pa.nulls(n, BATCH_FIELDS.field(name).type)
        chosen = chosen.append_column(name, values)
    earlier = times_proposed(run.ledger, known.batches, pa.array(ids, pa.string()))
    expires = known.night + run.config.file.annotate.expire_nights + 1
    for name, numbers in (
        ("night", [known.night] * n),
        ("expires", [expires] * n),
        ("times_proposed", [earlier.get(row_id, 0) + 1 for row_id in ids]),
    ):
        chosen = chosen.append_column(name, pa.array(numbers, pa.int64()))
    return chosen


def night_facts(run: Run, known: Known, table: pa.Table) -> dict[str, Any]:
    """Counts of the night, for its batch, the manifest and the next night."""
    stand = known.standing
    segments: dict[str, int] = {}
    for part in run.tables["corpus"].parts:
        key = str(part.segment)
        segments[key] = segments.get(key, 0) + part.marker.rows
    last = known.batches[-1].facts if known.batches else {}
    before: dict[str, int] = last.get("segments", {})
    n_rows, n_new = (
        sum(segments.values()),
        sum(rows for key, rows in segments.items() if key not in before),
    )
    gone = sum(before.values()) + n_new - n_rows
    if gone < 0:
        # Other columns or partitions: all rows were taken in anew, as the first segment.
        n_new, gone = n_new - gone, 0
    answered = pc.or_(pc.is_valid(known.rows["label"]), pc.is_valid(known.rows["output"]))
    n_answered = pc.sum(answered).as_py() or 0
    back = pc.sum(pc.greater(table["times_proposed"], 1)).as_py() or 0
    return {
        "number": known.night,
        "expires": known.night + run.config.file.annotate.expire_nights + 1,
        "n_candidates": table.num_rows,
        "n_returned": int(back),
        "new_rows": n_new,
        "gone_rows": gone,
        "new_labels": n_answered - last.get("n_answered", 0),
        "n_expired": stand.just_expired,
        "n_answered": n_answered,
        "annotated": len(stand.annotated),
        "pending": len(stand.pending),
        "retired": len(stand.retired),
        "given": len(known.given),
        "segments": segments,
    }


def night_line(batch: Batch, *, new: bool) -> str:
    """The night in one line, as the user sees it."""
    facts = batch.facts
    if not new:
        return f"nothing new since night {batch.number}: no rows, no labels; no batch was made"
    gone = f", {facts['gone_rows']:,} gone" if facts["gone_rows"] else ""
    back = f" ({facts['n_returned']:,} for another time)" if facts["n_returned"] else ""
    why = f": {facts['reason']}" if facts["reason"] else ""
    return (
        f"{batch.number}: {facts['new_rows']:,} new rows{gone}, {facts['new_labels']:,} labels "
        f"came back, {facts['n_expired']:,} expired; given {facts['given']:,} rows "
        f"({facts['annotated']:,} annotated, {facts['pending']:,} pending) "
        f"{facts['n_candidates']:,} candidates{back} in {batch.marker.folder}{why}"
    )
