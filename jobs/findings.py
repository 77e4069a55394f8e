"""What is found in the tables once they are in: rejects, overlap, labels, counts."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inference.kinds import ANSWERED_BY_OUTPUT
from jobs.errors import DataError
from jobs.ledger import Marker, fingerprint
from jobs.readers.duplicates import overlap
from jobs.readers.row_tables import REJECTED_SCHEMA
from jobs.run import Run
from jobs.spill import value_counts
from jobs.tasks import label_spellings, task_of

MOST_LISTED = 25
MANY_LABELS = 50


def rejected_rows(run: Run, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Every row of a table that was rejected or labelled on the way in, with file and line."""
    markers = [Marker(**entry) for entry in run.manifest["tables"][name]["rejected"]]
    empty = REJECTED_SCHEMA.empty_table().select(columns or REJECTED_SCHEMA.names)
    return pa.concat_tables([empty, *(run.ledger.read(marker, columns) for marker in markers)])


def check_tables(run: Run) -> None:
    """Refuse a corpus without a usable row; warn of a query table without any.

    Raises:
        DataError: Nothing to choose from.
    """
    corpus = run.tables["corpus"]
    if not corpus.counts("status").get("ok"):
        reasons = value_counts(rejected_rows(run, "corpus", ["reason"]).column(0))
        found = f"set aside: {listed(reasons)}; see rejected/" if reasons else "the files are empty"
        raise DataError(
            f"corpus.path = {run.config.file.corpus.path}: no rows to choose from ({found}). Check "
            "corpus.path and corpus.columns."
        )
    if not run.tables["queries"].n_rows:
        run.progress.warn("queries: no rows; every later table is valid and empty")


def warn_of_overlap(run: Run) -> None:
    """Count queries whose text, normalised, stands in the corpus too."""
    texts = [part.marker.stats["texts"] for name in run.tables for part in run.tables[name].parts]
    mark = fingerprint("overlap", texts)
    if run.manifest.get("overlap", {}).get("mark") != mark:
        run.manifest["overlap"] = {"mark": mark, "queries": _n_shared(run)}
    n_shared = run.manifest["overlap"]["queries"]
    if n_shared:
        run.progress.warn(
            f"{n_shared} of {run.tables['queries'].n_rows} query texts stand in the corpus too "
            "(case, spacing and final punctuation apart); stage2.exclude_same_text keeps a "
            "query's own copy out of its demonstrations"
        )


def _n_shared(run: Run) -> int:
    queries = _text_hashes(run, "queries")
    # The corpus is streamed: only what may be shared is kept.
    wanted = pc.unique(queries)
    shared = [pa.array([], pa.string())]
    for part in run.tables["corpus"].parts if len(queries) else ():
        column = run.ledger.read(part.marker, ["text_hash"]).column(0)
        shared += column.filter(pc.is_in(column, value_set=wanted)).chunks
    return overlap(pa.chunked_array(shared), queries)


def _text_hashes(run: Run, name: str) -> pa.ChunkedArray:
    chunks = [pa.array([], pa.string())]
    for part in run.tables[name].parts:
        chunks += run.ledger.read(part.marker, ["text_hash"]).column(0).chunks
    return pa.chunked_array(chunks)


def tell(run: Run, name: str) -> None:
    """Record and print what was counted; a table found unchanged is told like a new one."""
    table, entry = run.tables[name], run.manifest["tables"][name]
    set_aside = rejected_rows(run, name, ["reason", "status"])
    rejected = value_counts(set_aside.column("reason"))
    statuses = value_counts(set_aside.column("status"))
    entry["counts"] = {
        "rows": table.n_rows,
        "status": table.counts("status"),
        "labels": table.counts("labels"),
        "unlabelled": sum(int(part.marker.stats["n_unlabelled"]) for part in table.parts),
        "flags": table.counts("flags"),
        "rejected": rejected,
        "left_out": statuses.get("rejected", 0),
        "segments": len({part.segment for part in table.parts}),
    }
    for note, number in sorted(entry["notes"].items()):
        if " " in note:
            run.progress.warn(f"{name}: {note}" + (f" ({number:,})" if number > 1 else ""))
    for what, counts in (
        ("rows set aside or marked", rejected),
        ("ids that stand more than once", entry["duplicates"]),
        ("rows changed on the way in", entry["counts"]["flags"]),
    ):
        if counts:
            run.progress.warn(f"{name}: {what}: {listed(counts)}")
    if "bad_encoding" in rejected:
        run.progress.warn(f"{name}: lines that are not {run.encoding(name)}: set {name}.encoding")
    _tell_labels(run, name, entry["counts"]["labels"])


def _tell_labels(run: Run, name: str, counts: dict[str, int]) -> None:
    """Show the labels with their counts, and which mean a label of a task, or none."""
    if counts:
        run.progress.line("ingest", f"{name}: {len(counts)} labels: {listed(counts, most=6)}")
    n_labelled = sum(counts.values())
    if len(counts) > MANY_LABELS and len(counts) > n_labelled / 2:
        run.progress.warn(
            f"{name}: {len(counts):,} labels for {n_labelled:,} rows; is columns.label free text?"
        )
    by_label = any(
        run.config.file.tasks[arm.task].kind not in ANSWERED_BY_OUTPUT for arm in run.arms
    )
    if name == "queries" and run.tables[name].n_rows and not counts and by_label:
        run.progress.warn("queries: no row has a label, so nothing can be scored")
    for task_name in sorted({arm.task for arm in run.arms}) if counts else ():
        task = task_of(run, task_name)
        merged, strange = label_spellings(task, counts)
        if merged:
            run.progress.warn(
                f"{name}: spellings taken for a label of {task_name}: {listed(merged)}"
            )
        if strange:
            run.progress.warn(
                f"{name}: labels that are none of {task_name}'s: {listed(strange)}. These rows are "
                f"no demonstrations and have no gold; add tasks.{task_name}.labels or .aliases."
            )


def listed(counts: Mapping[str, int], *, most: int = MOST_LISTED) -> str:
    """The largest counts of a table, and how many more there are."""
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{key} {number:,}" for key, number in shown[:most])
    return text + (f" and {len(shown) - most} more" if len(shown) > most else "")
