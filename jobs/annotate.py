"""Annotate: the candidates that have a label become the pool; pool versions never change."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.kinds import gold_answer, stratum
from inference.tasks import Task
from jobs.annotation.records import with_states
from jobs.annotation.states import changes_of
from jobs.generating.engines import engine_spec
from jobs.ledger import Marker, Unit, fingerprint
from jobs.nights.batches import batches_of
from jobs.nights.candidate_rows import CONTRAST_COLUMNS, ROW_COLUMNS, candidate_rows
from jobs.nights.nightly import serve_pool
from jobs.prompting.pool_texts import SHOWN_COLUMNS, Renderer, Shown, same_answer
from jobs.run import Run
from jobs.tasks import task_of

VERSION = 3
POOL_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("output", pa.large_string()),
        ("label", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("group", pa.string()),
        ("wrong_output", pa.large_string()),
        ("why", pa.large_string()),
        ("context", pa.large_string()),
        ("rendered", pa.large_string()),
        ("rendered_for", pa.string()),
        ("n_tokens", pa.int64()),
        ("source", pa.string()),
        ("version", pa.string()),
        ("bad_output", pa.bool_()),
        ("bad_reason", pa.string()),
        ("state", pa.string()),
    ]
)


# What it needs: candidates, with the labels that the corpus already has.


def run_stage(run: Run) -> None:
    """Write the pool version that holds these candidates, or find it."""
    nightly = run.config.file.annotate.nightly
    batches = batches_of(run.ledger) if nightly else []
    tasks = [task_of(run, name) for name in sorted({arm.task for arm in run.arms})]
    candidates = candidate_rows(run, batches, context_columns(tasks))
    records, n_unlabelled = pool_records(candidates, tasks)
    changes, promote = changes_of(run.ledger), run.config.file.annotate.promote
    records = with_states(records, changes, promote=promote)
    records = with_texts(records, _renderers(run) if records.num_rows else [])
    mark = fingerprint("pool", VERSION, records.select(_content(records)).to_pylist())
    run.pool = _find(run, mark) or _write(run, records, mark)
    if nightly:
        serve_pool(run, batches)
    n_same = sum(same_answer(tasks, row) for row in records.select(SHOWN_COLUMNS).to_pylist())
    if n_same:
        run.progress.warn(
            f"{n_same} candidates have a wrong_output that is their label; they are shown without"
        )
    bad = [row for row in records.to_pylist() if row["bad_output"]]
    entry = run.pool.as_dict() | {"n_unlabelled": n_unlabelled, "n_bad": len(bad)}
    run.manifest["pool"] = entry
    if n_unlabelled and not nightly:
        run.progress.warn(f"{n_unlabelled} candidates have no label and are no demonstrations")
    if bad:
        run.progress.warn(
            f"{len(bad)} candidates are no demonstrations: {bad[0]['bad_reason']} ..."
        )


def usable_candidates(run: Run, arm: str, task: Task) -> list[str]:
    """Ids of an arm's candidates that may serve as demonstrations, in the order of picking."""
    return list(usable_labels(run, arm, task))


def usable_labels(run: Run, arm: str, task: Task) -> dict[str, str]:
    """The class of each candidate that may serve as a demonstration, in the order of picking."""
    assert run.pool is not None
    pool = run.ledger.read(run.pool, ["id", "input", "output", "label", "state"])
    rows = {row["id"]: row for row in pool.to_pylist() if row["state"] == "active"}
    ids = run.ledger.read(run.candidates[arm], ["id"])["id"].to_pylist()
    found = {i: gold_answer(task, rows[i]).value for i in ids if i in rows}
    return {i: stratum(task, rows[i], gold) for i, gold in found.items() if gold is not None}


def pool_labels(run: Run) -> dict[str, str | None]:
    """The label of each record of the pool, as written."""
    assert run.pool is not None
    table = run.ledger.read(run.pool, ["id", "label"])
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def shown_records(run: Run, arm: str) -> str:
    """Fingerprint of the texts and labels that an arm's prompts can show."""
    assert run.pool is not None
    ids = run.ledger.read(run.candidates[arm], ["id"])["id"].combine_chunks()
    pool = run.ledger.read(run.pool, [*SHOWN_COLUMNS, "state"])
    active = pc.and_(pc.equal(pool["state"], "active"), pc.is_in(pool["id"], value_set=ids))
    return fingerprint(pool.filter(active).select(SHOWN_COLUMNS).to_pylist())


# The Ray-free function.


def pool_records(candidates: pa.Table, tasks: list[Task]) -> tuple[pa.Table, int]:
    """The labelled candidates as pool records, sorted by id.

    Args:
        candidates: Rows with id, input, output, label, tags, group, and `wrong_output` and `why`
            where the corpus has them; `source` where labels were imported; what the tasks show as
            context; ids distinct.
        tasks: A record is bad when it has an answer of none of them.

    Returns:
        Records without texts and version yet, all active, and how many candidates had no label.
    """
    labelled = candidates.filter(
        pc.or_(pc.is_valid(candidates["label"]), pc.is_valid(candidates["output"]))
    ).sort_by("id")
    rows = labelled.select(["input", "output", "label"]).to_pylist()
    golds = [[gold_answer(task, row) for task in tasks] for row in rows]
    known = [any(gold.value is not None for gold in found) for found in golds]
    reasons = [
        None if ok else found[0].reason if found else "no task"
        for ok, found in zip(known, golds, strict=True)
    ]
    n = labelled.num_rows
    columns = {name: labelled[name] for name in ROW_COLUMNS}
    columns |= {
        name: labelled[name] if name in labelled.column_names else pa.nulls(n, pa.large_string())
        for name in CONTRAST_COLUMNS
    }
    columns["context"] = _context(labelled, tasks)
    columns |= {
        "rendered": pa.nulls(n, pa.large_string()),
        "rendered_for": pa.nulls(n, pa.string()),
        "n_tokens": pa.nulls(n, pa.int64()),
        "source": labelled["source"] if "source" in labelled.column_names else ["corpus"] * n,
        "version": pa.nulls(n, pa.string()),
        "bad_output": pa.array([not ok for ok in known], pa.bool_()),
        "bad_reason": pa.array(reasons, pa.string()),
        "state": pa.array(["active"] * n, pa.string()),
    }
    ordered = [columns[name] for name in POOL_SCHEMA.names]
    return pa.table(ordered, names=POOL_SCHEMA.names).cast(POOL_SCHEMA), candidates.num_rows - n


def context_columns(tasks: Iterable[Task]) -> list[str]:
    """Columns of the corpus that are shown below the inputs of demonstrations."""
    shown = (task.context for task in tasks if task.context_in_demonstrations)
    return list(dict.fromkeys(column for columns in shown for column in columns))


def with_texts(records: pa.Table, renderers: Sequence[Renderer]) -> pa.Table:
    """Fill in how each record is shown, by the first renderer whose task has its label.

    Args:
        records: As `pool_records` made them.
        renderers: In the order of the arms.

    Returns:
        The records with `rendered`, `rendered_for` and `n_tokens`; null where none has the label.
    """
    shown = [
        next(filter(None, (render(record) for render in renderers)), Shown())
        for record in records.select(SHOWN_COLUMNS).to_pylist()
    ]
    made = {
        "rendered": [one.text for one in shown],
        "rendered_for": [one.made_for for one in shown],
        "n_tokens": [one.n_tokens for one in shown],
    }
    for name, values in made.items():
        at = records.schema.get_field_index(name)
        records = records.set_column(at, name, pa.array(values, POOL_SCHEMA.field(name).type))
    return records


def _context(rows: pa.Table, tasks: Iterable[Task]) -> pa.Array:
    """A JSON object of each row's context; null where no task shows any."""
    names = context_columns(tasks)
    kept = rows.select(names).to_pylist() if names else [None] * rows.num_rows
    cells = [row and json.dumps(row, ensure_ascii=False) for row in kept]
    return pa.array(cells, pa.large_string())


def _content(records: pa.Table) -> list[str]:
    return [name for name in records.column_names if name != "version"]


# Wiring.


def _renderers(run: Run) -> list[Renderer]:
    """One a task, engine and format of the arms, in their order."""
    found: dict[tuple[str, str, str], Renderer] = {}
    for arm in run.arms:
        key = (arm.task, arm.engine, arm.prompt.format)
        if key not in found:
            engine = engine_spec(run.config.file.engines[arm.engine], key=f"engines.{arm.engine}")
            made_for = f"task {arm.task}, engine {arm.engine}, {arm.prompt.format}"
            found[key] = Renderer(task_of(run, arm.task), engine, arm.prompt, made_for=made_for)
    return list(found.values())


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
