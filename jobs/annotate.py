"""Annotate: the candidates that have a label become the pool; pool versions never change."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.tasks import Task, canonical
from jobs.ledger import Marker, Unit, fingerprint
from jobs.run import Run
from jobs.tasks import task_of

VERSION = 1
ROW_COLUMNS = ["id", "input", "output", "label", "tags", "group"]
POOL_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("output", pa.large_string()),
        ("label", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("group", pa.string()),
        ("source", pa.string()),
        ("version", pa.string()),
        ("bad_output", pa.bool_()),
        ("bad_reason", pa.string()),
    ]
)


# What it needs: candidates, with the labels that the corpus already has.


def run_stage(run: Run) -> None:
    """Write the pool version that holds these candidates, or find it."""
    candidates = _all_candidates(run)
    tasks = [task_of(run, name) for name in sorted({arm.task for arm in run.arms})]
    records, n_unlabelled = pool_records(candidates, tasks)
    mark = fingerprint("pool", VERSION, records.select(_content(records)).to_pylist())
    run.pool = _find(run, mark) or _write(run, records, mark)
    bad = [row for row in records.to_pylist() if row["bad_output"]]
    entry = run.pool.as_dict() | {"n_unlabelled": n_unlabelled, "n_bad": len(bad)}
    run.manifest["pool"] = entry
    if n_unlabelled:
        run.progress.warn(f"{n_unlabelled} candidates have no label and are no demonstrations")
    if bad:
        run.progress.warn(
            f"{len(bad)} candidates are no demonstrations: {bad[0]['bad_reason']} ..."
        )


def usable_candidates(run: Run, arm: str, task: Task) -> list[str]:
    """Ids of an arm's candidates that may serve as demonstrations, in the order of picking."""
    return list(usable_labels(run, arm, task))


def usable_labels(run: Run, arm: str, task: Task) -> dict[str, str]:
    """The task's label of each candidate that may serve as a demonstration, in picking order."""
    assert run.pool is not None
    pool = run.ledger.read(run.pool, ["id", "label"])
    labels = dict(zip(pool["id"].to_pylist(), pool["label"].to_pylist(), strict=True))
    ids = run.ledger.read(run.candidates[arm], ["id"])["id"].to_pylist()
    found = {row_id: canonical(task, labels.get(row_id)) for row_id in ids}
    return {row_id: label for row_id, label in found.items() if label is not None}


def shown_records(run: Run, arm: str) -> str:
    """Fingerprint of the texts and labels that an arm's prompts can show."""
    assert run.pool is not None
    ids = run.ledger.read(run.candidates[arm], ["id"])["id"].combine_chunks()
    pool = run.ledger.read(run.pool, ["id", "input", "label"])
    return fingerprint(pool.filter(pc.is_in(pool["id"], value_set=ids)).to_pylist())


# The Ray-free function.


def pool_records(candidates: pa.Table, tasks: list[Task]) -> tuple[pa.Table, int]:
    """The labelled candidates as pool records, sorted by id.

    Args:
        candidates: Rows with id, input, output, label, tags, group; ids distinct.
        tasks: A record is bad when its label belongs to none of them.

    Returns:
        Records without a version yet, and how many candidates had no label.
    """
    labelled = candidates.filter(
        pc.or_(pc.is_valid(candidates["label"]), pc.is_valid(candidates["output"]))
    ).sort_by("id")
    known = [
        any(canonical(task, label) for task in tasks) for label in labelled["label"].to_pylist()
    ]
    reasons = [
        None
        if ok
        else "has no label"
        if label is None
        else f"label {label!r} is none of its task's"
        for ok, label in zip(known, labelled["label"].to_pylist(), strict=True)
    ]
    n = labelled.num_rows
    columns = {name: labelled[name] for name in ROW_COLUMNS}
    columns |= {
        "source": pa.array(["corpus"] * n, pa.string()),
        "version": pa.nulls(n, pa.string()),
        "bad_output": pa.array([not ok for ok in known], pa.bool_()),
        "bad_reason": pa.array(reasons, pa.string()),
    }
    ordered = [columns[name] for name in POOL_SCHEMA.names]
    return pa.table(ordered, names=POOL_SCHEMA.names).cast(POOL_SCHEMA), candidates.num_rows - n


def _content(records: pa.Table) -> list[str]:
    return [name for name in records.column_names if name != "version"]


# Wiring.


def _all_candidates(run: Run) -> pa.Table:
    """The corpus rows of all candidates, with the labels they have today."""
    chosen: set[str] = set()
    for marker in run.candidates.values():
        chosen.update(run.ledger.read(marker, ["id"])["id"].to_pylist())
    wanted = pa.array(sorted(chosen), pa.string())
    tables = [POOL_SCHEMA.empty_table().select(ROW_COLUMNS)]
    for part in run.tables["corpus"].parts if chosen else ():
        ids = run.ledger.read(part.marker, ["id"])["id"]
        if pc.any(pc.is_in(ids, value_set=wanted)).as_py():
            table = run.ledger.read(part.marker, ROW_COLUMNS)
            tables.append(table.filter(pc.is_in(table["id"], value_set=wanted)))
    return pa.concat_tables(tables)


def _unit(version: int, mark: str) -> Unit:
    return Unit(f"pool/v{version:04d}", "pool", mark)


def _find(run: Run, mark: str) -> Marker | None:
    """The pool version with this content, looked for from the first on."""
    version = 1
    while run.ledger.store.exists(_unit(version, mark).done):
        found = run.ledger.find(_unit(version, mark))
        if found is not None:
            return found
        version += 1
    return None


def _write(run: Run, records: pa.Table, mark: str) -> Marker:
    version = 1
    while run.ledger.store.exists(_unit(version, mark).done):
        version += 1
    names = pa.array([f"v{version:04d}"] * records.num_rows, pa.string())
    records = records.set_column(POOL_SCHEMA.get_field_index("version"), "version", names)
    stats: dict[str, Any] = {"version": f"v{version:04d}"}
    run.progress.line("annotate", f"pool {stats['version']}: {records.num_rows} labelled records")
    return run.ledger.commit(_unit(version, mark), records, stats=stats)
