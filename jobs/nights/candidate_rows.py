"""The rows of candidates, with the labels that are known of them by now."""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.annotation.corpus_rows import rows_by_id
from jobs.annotation.finished import marker_in
from jobs.annotation.labels import labels_of
from jobs.annotation.records import with_imported
from jobs.nights.batches import BATCH_FIELDS, Batch, batches_of, proposed
from jobs.run import Run
from jobs.tasks import task_of

ROW_COLUMNS = ["id", "input", "output", "label", "tags", "group"]
ANSWER_COLUMNS = ["output", "label", "tags"]
CONTRAST_COLUMNS = ["wrong_output", "why"]


def candidate_rows(run: Run, batches: Sequence[Batch], context: Sequence[str] = ()) -> pa.Table:
    """The candidates of this run, or of every night so far, with the labels they have today.

    Args:
        run: After select.
        batches: Of the nights; none where the run is no nightly one.
        context: Columns of the corpus that demonstrations show below their input.

    Returns:
        Rows with `ROW_COLUMNS`, `source`, and the contrast columns that the corpus has; of nights
        also the other `BATCH_FIELDS`, by night and order of picking. Last the context, null of
        rows that are gone from the corpus.
    """
    rows = _proposed(run, batches) if run.config.file.annotate.nightly else _chosen(run)
    labels = labels_of(run.ledger)
    tasks = [task_of(run, name) for name in sorted({arm.task for arm in run.arms}) if labels]
    found = with_imported(rows, labels, tasks)
    if found.stale:
        run.progress.warn(
            f"{len(found.stale)} imported labels are about another text than the row has today "
            f"({found.stale[0]!r} ...); they do not count"
        )
    if found.differing:
        run.progress.warn(
            f"{len(found.differing)} candidates have an imported label that is not the corpus's "
            f"({found.differing[0]!r} ...); the imported one counts"
        )
    return _with_context(run, found.candidates, context) if context else found.candidates


def corpus_rows(run: Run, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """The rows of the corpus that have these ids; those that are gone are left out."""
    schema = pa.schema([BATCH_FIELDS.field(name) for name in columns])
    return pa.Table.from_pylist(list(rows_by_id(run, ids, columns).values()), schema=schema)


def sent_rows(run: Run, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """What annotators were sent under these ids on any night: `id`, `input`, `label`, `output`."""
    if not run.config.file.annotate.nightly:
        return {}
    rows = proposed(run.ledger, batches_of(run.ledger)).select(["id", "input", "label", "output"])
    wanted = pc.is_in(rows["id"], value_set=pa.array(sorted(set(ids)), pa.string()))
    return {row["id"]: row for row in rows.filter(wanted).to_pylist()}


def _chosen(run: Run) -> pa.Table:
    """The rows of all candidates of this run."""
    chosen: set[str] = set()
    for marker in run.candidates.values():
        chosen.update(run.ledger.read(marker, ["id"])["id"].to_pylist())
    return corpus_rows(
        run, list(chosen), [*ROW_COLUMNS, *run.config.file.corpus.columns.contrast()]
    )


def _proposed(run: Run, batches: Sequence[Batch]) -> pa.Table:
    """Every row that went out, as it did, with the answer that is known of it.

    The text stays what annotators were sent, also where the row was changed or removed since; an
    answer that made it into the pool stays until another one comes.
    """
    rows = proposed(run.ledger, batches)
    last = marker_in(run.manifest.get("pool"))
    if last is not None:
        # Imported labels are known of imports, which may have a newer one.
        kept = run.ledger.read(last, ["id", "input", "source", *ANSWER_COLUMNS])
        rows = _answered(rows, kept.filter(pc.equal(kept["source"], "corpus")))
    columns = run.config.file.corpus.columns
    if columns.label is None and columns.output is None:
        return rows
    ids = rows["id"].to_pylist()
    return _answered(rows, corpus_rows(run, ids, ["id", "input", *ANSWER_COLUMNS]))


def _with_context(run: Run, rows: pa.Table, context: Sequence[str]) -> pa.Table:
    there = rows_by_id(run, rows["id"].to_pylist(), ["id", *context])
    for name in context:
        cells = [there.get(row_id, {}).get(name) for row_id in rows["id"].to_pylist()]
        rows = rows.append_column(name, pa.array(cells, pa.large_string()))
    return rows


def _answered(rows: pa.Table, answers: pa.Table) -> pa.Table:
    """The rows with those answers that are given to the same id and text."""
    answers = answers.combine_chunks()
    place = pc.index_in(rows["id"], value_set=answers["id"].combine_chunks())
    same = pc.fill_null(pc.equal(answers["input"].take(place), rows["input"]), False)
    answered = pc.or_(pc.is_valid(answers["label"]), pc.is_valid(answers["output"])).take(place)
    same = pc.and_(same, pc.fill_null(answered, False))
    for name in ANSWER_COLUMNS:
        values = pc.if_else(same, answers[name].take(place), rows[name])
        at, field = rows.schema.get_field_index(name), BATCH_FIELDS.field(name)
        rows = rows.set_column(at, field, values)
    return rows
