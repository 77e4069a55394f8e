"""Import: files of labels become immutable tables in `labels/`, every row with a verdict."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import pyarrow as pa

from inference.tasks import Task
from jobs import manifest
from jobs.annotation.corpus_rows import rows_by_id
from jobs.annotation.finished import held
from jobs.annotation.judge import Answer, Judged, Known, Policy, counts, judged
from jobs.annotation.labels import (
    FOLDER,
    IMPORT_SCHEMA,
    OK,
    STEM,
    Label,
    imports_of,
    input_checksum,
    labels_of,
)
from jobs.annotation.log import append
from jobs.annotation.question import answer_field, answer_of
from jobs.annotation.returned import ReturnedFile, read_returned
from jobs.annotation.sources import SourceBytes, source_bytes
from jobs.nights.batches import batches_of
from jobs.nights.candidate_rows import sent_rows
from jobs.progress import Progress
from jobs.run import Run
from jobs.tasks import task_of

SHOWN = 5


@dataclass(frozen=True)
class Reading:
    """How files are read and judged.

    Attributes:
        format: `csv`, `jsonl`, `label-studio`; None: found out.
        encoding: Of text files; None: UTF-8, or cp1252 where it is not.
        on_conflict: In place of the config's.
        again: Judge files anew that were imported before.
    """

    format: Literal["csv", "jsonl", "label-studio"] | None = None
    encoding: str | None = None
    on_conflict: Policy | None = None
    again: bool = False


def import_labels(
    out: str, files: Sequence[str], *, how: Reading, progress: Progress
) -> dict[str, Any]:
    """Take in the labels of some files; the output's lock is held meanwhile.

    Args:
        out: Output of a run.
        files: Each becomes an import of its own, in this order.
        how: How they are read.
        progress: Where lines and warnings go.

    Returns:
        What `import_files` returns.

    Raises:
        ClusterError: A run is live on the output.
    """
    with held(out, progress=progress) as run:
        return import_files(run, files, how=how)


def import_files(run: Run, files: Sequence[str], *, how: Reading) -> dict[str, Any]:
    """Take in the labels of some files. The caller holds the lock of the output.

    All files are read before the first is taken in: one that cannot be read leaves nothing behind.

    Args:
        run: With corpus, and config.
        files: Each becomes an import of its own, in this order; one that was imported before,
            by its content, is passed over.
        how: How they are read.

    Returns:
        Plain data: `files`, for each its name, its import (None: passed over), rows, counts by
        status, conflicts; and `labels`, how many rows have an imported label by now.

    Raises:
        DataError: A file is empty, has no ids or no labels, or cannot be read.
        ConfigError: A file is not there.
    """
    sources = [source_bytes(name) for name in files]
    read = [
        read_returned(one.data, one.name, format_name=how.format, encoding=how.encoding)
        for one in sources
    ]
    entries = []
    for source, found in zip(sources, read, strict=True):
        entry = _passed_over(run, source) if not how.again else None
        entries.append(entry or _import(run, source, found, how))
        _tell(run, entries[-1])
    return {"files": entries, "labels": len(labels_of(run.ledger))}


def _passed_over(run: Run, source: SourceBytes) -> dict[str, Any] | None:
    """The entry of a file with a content that was imported before; None: it is new."""
    for marker in imports_of(run.ledger):
        if marker.stats["source_checksum"] == _checksum(source.data):
            return {"file": source.name, "import": None, "imported_before": marker.name, "rows": 0}
    return None


def _import(run: Run, source: SourceBytes, found: ReturnedFile, how: Reading) -> dict[str, Any]:
    tasks = [task_of(run, name) for name in sorted({arm.task for arm in run.arms})]
    known = known_rows(run, [row.id for row in found.rows if row.id], tasks)
    policy = how.on_conflict or run.config.file.annotate.on_conflict
    verdicts = judged(found.rows, known.get, tasks, policy=policy)
    stats = {
        "source_file": source.name,
        "source_checksum": _checksum(source.data),
        "encoding": found.encoding,
        "on_conflict": policy,
        "status": dict(counts(verdicts)),
        "conflicts": sum(one.conflicts_with is not None for one in verdicts),
    }
    marker = append(run.ledger, FOLDER, STEM, _table(verdicts, stats), stats)
    problems = [
        {"line": one.row.line, "id": one.id, "status": one.status, "reason": one.reason}
        for one in verdicts
        if one.status not in (OK, "known") or one.conflicts_with is not None
    ]
    return {
        "file": source.name,
        "import": marker.name,
        "table": run.ledger.store.where(marker.table),
        "rows": marker.rows,
        **{name: stats[name] for name in ("encoding", "on_conflict", "status", "conflicts")},
        "problems": problems,
    }


def known_rows(run: Run, ids: Collection[str], tasks: Sequence[Task]) -> dict[str, Known]:
    """What is known of the rows with these ids, by the id as written.

    An id that no row has is looked for without the white space around it, and among the
    candidates without theirs.
    """
    rows = _rows_as_sent(run, ids)
    loose = {i: i.strip() for i in set(ids) - set(rows)}
    if loose:
        stripped = _candidates_by_stripped(run)
        loose = {i: stripped.get(bare, bare) for i, bare in loose.items() if bare}
        rows |= _rows_as_sent(run, list(loose.values()))
    labels = labels_of(run.ledger)
    known = {i: _known(row, labels.get(i), tasks) for i, row in rows.items()}
    return known | {i: known[there] for i, there in loose.items() if there in known}


def _rows_as_sent(run: Run, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Rows by id. A label is about the text that was sent, also where that is gone by now."""
    rows, sent = rows_by_id(run, ids, ["input", "label", "output"]), sent_rows(run, ids)
    gone = {i: one for i, one in sent.items() if rows.get(i, {}).get("input") != one["input"]}
    return rows | gone


def _candidates_by_stripped(run: Run) -> dict[str, str]:
    """Ids of candidates by what they are without white space around them, where that is one."""
    found: dict[str, set[str]] = {}
    nightly = run.config.file.annotate.nightly
    batches = [one.marker for one in batches_of(run.ledger)] if nightly else []
    markers = {marker.checksum: marker for marker in (*run.candidates.values(), *batches)}
    for marker in markers.values():
        for i in run.ledger.read(marker, ["id"])["id"].to_pylist():
            found.setdefault(i.strip(), set()).add(i)
    return {bare: next(iter(ids)) for bare, ids in found.items() if len(ids) == 1}


def _known(row: Mapping[str, Any], label: Label | None, tasks: Sequence[Task]) -> Known:
    checksum = input_checksum(row["input"])
    if label is not None and label.input_checksum != checksum:
        label = None
    answers: dict[bool, Answer] = {}
    for by_output, field in ((False, "label"), (True, "output")):
        mine = [task for task in tasks if answer_field(task) == field]
        said = None if label is None else getattr(label, field)
        source = "the corpus" if label is None or said is None else label.source
        now = dict(row) if said is None else {**row, field: said}
        # Read anew: the tasks may have other labels by now than when it was imported.
        if (answer := answer_of(mine, now)) is not None:
            answers[by_output] = Answer(answer, source)
    return Known(row["id"], row["input"] or "", checksum, answers)


def _table(verdicts: Sequence[Judged], stats: Mapping[str, Any]) -> pa.Table:
    imported_at = manifest.now()
    rows = [
        {
            "id": one.id,
            "label": None if one.as_output else one.answer,
            "output": one.answer if one.as_output else None,
            "tags": None if one.row.tags is None else list(one.row.tags),
            "annotator": one.row.annotator,
            "imported_at": imported_at,
            "source_file": stats["source_file"],
            "source_checksum": stats["source_checksum"],
            "source_line": one.row.line,
            "input_checksum": one.checksum,
            "written": one.written,
            "conflicts_with": one.conflicts_with,
            "status": one.status,
            "reason": one.reason,
        }
        for one in verdicts
    ]
    return pa.Table.from_pylist(rows, schema=IMPORT_SCHEMA)


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _tell(run: Run, entry: Mapping[str, Any]) -> None:
    if entry["import"] is None:
        text = f"{entry['file']}: imported before, as {entry['imported_before']}; nothing changes"
        run.progress.line("import", text)
        return
    told = ", ".join(f"{number:,} {name}" for name, number in entry["status"].items())
    run.progress.line(
        "import", f"{entry['import']}  {entry['file']}: {entry['rows']:,} rows: {told}"
    )
    if entry["encoding"] not in ("utf-8", "auto"):
        run.progress.warn(f"{entry['file']}: not UTF-8; read as {entry['encoding']}")
    for one in entry["problems"][:SHOWN]:
        run.progress.line(
            "", f"line {one['line']}, id {one['id']!r}: {one['status']}: {one['reason'] or ''}"
        )
    if len(entry["problems"]) > SHOWN:
        run.progress.line("", f"and {len(entry['problems']) - SHOWN} more, in {entry['table']}")
