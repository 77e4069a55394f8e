"""Evaluate: output tables to metric tables, every figure beside the majority baseline."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

from inference.kinds import gold_answer
from inference.tasks import canonical
from jobs.comparing.arms import compare_measured, compare_task
from jobs.comparing.candidates import candidate_rows
from jobs.config.schema import Arm
from jobs.config.stage1 import NO_STAGE1
from jobs.embed import ROLES
from jobs.files.inputs import stamps
from jobs.files.scratch import local_folder
from jobs.ledger import Marker, Unit, fingerprint
from jobs.orders.scores import answer_scorer, order_tables
from jobs.rank import shows_nothing
from jobs.reporting.answer_metrics import (
    AnswerYardstick,
    summarise_answers,
)
from jobs.reporting.metric_tables import (
    ANSWERS_SCHEMA,
    AUDIT_SCHEMA,
    CANDIDATES_SCHEMA,
    COMPARISON_SCHEMA,
    CONFUSION_SCHEMA,
    NOISE_SCHEMA,
    ORDER_SPREAD_SCHEMA,
    ORDERS_SCHEMA,
    PAIRED_TESTS_SCHEMA,
    SCORES_SCHEMA,
    SLICE_DIFFERENCES_SCHEMA,
    SLICES_SCHEMA,
    SUMMARY_SCHEMA,
    to_arrow,
)
from jobs.reporting.metrics import ArmMetrics, Yardstick, summarise
from jobs.reporting.orders import label_scorer
from jobs.run import Part, Run
from jobs.storage import reading
from jobs.tasks import plain_task, task_of

VERSION = 6

Rows = dict[str, list[dict[str, Any]]]
Outputs = dict[str, pd.DataFrame]
COLUMNS = [
    "id",
    "demonstration_ids",
    "prompt_tokens",
    "cached_tokens",
    "prediction",
    "status",
    "engine_s",
    "queue_s",
]
TABLES = {
    "summary": SUMMARY_SCHEMA,
    "slices": SLICES_SCHEMA,
    "confusion": CONFUSION_SCHEMA,
    "comparisons": COMPARISON_SCHEMA,
    "paired_tests": PAIRED_TESTS_SCHEMA,
    "noise": NOISE_SCHEMA,
    "slice_differences": SLICE_DIFFERENCES_SCHEMA,
    "audit": AUDIT_SCHEMA,
    "scores": SCORES_SCHEMA,
    "answers": ANSWERS_SCHEMA,
    "candidates": CANDIDATES_SCHEMA,
    "orders": ORDERS_SCHEMA,
    "order_spread": ORDER_SPREAD_SCHEMA,
}
IN_JSON = ("summary", "scores", "comparisons", "paired_tests", "noise", "order_spread")


# What it needs: the outputs of every arm.


def run_stage(run: Run) -> None:
    """Measure every arm, or find that nothing has changed since it was measured."""
    mark = _mark(run)
    units = {name: Unit("metrics", name, mark) for name in TABLES}
    there = {name: run.ledger.find(unit) for name, unit in units.items()}
    found = {name: marker for name, marker in there.items() if marker}
    if len(found) < len(units):
        found = _measure(run, units)
    run.metrics = found["summary"]
    run.manifest["metrics"] = {name: marker.as_dict() for name, marker in found.items()}
    for row in run.ledger.read(found["summary"]).to_pylist():
        run.progress.line("evaluate", _line(row))


def _mark(run: Run) -> str:
    outputs = [
        {name: [marker.checksum for marker in markers] for name, markers in made.items()}
        for made in (run.outputs, run.order_outputs)
    ]
    tasks = {a.task: plain_task(task_of(run, a.task)) for a in run.arms}
    labels = run.tables["corpus"].counts("labels")
    gold = [part.content for part in run.tables["queries"].parts]
    vectors = {
        name: [marker.checksum for role in ROLES for marker in run.vectors[name, role]]
        for name in sorted({arm.encoder for arm in run.arms})
    }
    shown = {name: marker.checksum for name, marker in run.candidates.items()}
    report = run.config.file.report.model_dump(exclude={"map_rows", "samples_per_arm", "cases"})
    settings = [run.config.file.seed, report, vectors, shown, run.pool and run.pool.checksum]
    arms = [arm.model_dump(mode="json", by_alias=True) for arm in run.arms]
    mine = {a.task: run.config.file.tasks[a.task] for a in run.arms}
    databases = {
        name: [task.databases, task.database_column, _files(task.databases)]
        for name, task in mine.items()
        if task.databases is not None
    }
    return fingerprint("evaluate", VERSION, outputs, tasks, labels, gold, settings, arms, databases)


def _files(folder: str) -> list[tuple[str, int, int | str]]:
    """Names, sizes and times of the databases, which scores depend on."""
    with reading(folder):
        return stamps(folder)


# The functions on one arm and one task are in `jobs.reporting.metrics`.


def _measure(run: Run, units: dict[str, Unit]) -> dict[str, Marker]:
    rows: Rows = {name: [] for name in TABLES}
    for task in dict.fromkeys(arm.task for arm in run.arms):
        arms = [arm for arm in run.arms if arm.task == task]
        outputs = {arm.name: read_outputs(run, arm.name) for arm in arms}
        one_label = run.config.file.tasks[task].kind == "classification"
        measured = (_measure_labels if one_label else _measure_answers)(run, task, arms, outputs)
        for name, some in measured.items():
            rows[name] += some
    order = {arm.name: at for at, arm in enumerate(run.arms)}
    rows["summary"].sort(key=lambda row: order[row["arm"]])
    yardsticks = {arm.task: _yardstick(run, arm.task) for arm in run.arms}
    rows["candidates"] = candidate_rows(run, yardsticks)
    text = json.dumps({name: rows[name] for name in IN_JSON}, indent=1)
    markers = {}
    for name, schema in TABLES.items():
        files = {"metrics.json": text.encode()} if name == "summary" else {}
        markers[name] = run.ledger.commit(units[name], to_arrow(rows[name], schema), files=files)
    return markers


def _measure_labels(run: Run, task: str, arms: list[Arm], outputs: Outputs) -> Rows:
    yardstick = _yardstick(run, task)
    metrics = [
        summarise(
            outputs[arm.name],
            arm=arm_fields(arm),
            yardstick=yardstick,
            wall=_wall(run.outputs[arm.name]),
        )
        for arm in arms
    ]
    rows = _rows_of(metrics)
    compared = compare_task(run, outputs, summary=rows["summary"], yardstick=yardstick)
    for name, found in compared.items():
        rows[name] = rows.get(name, []) + found
    scorer = label_scorer(yardstick.labels)
    return rows | order_tables(run, arms, outputs, scorer=scorer, fields=arm_fields)


def _measure_answers(run: Run, task: str, arms: list[Arm], outputs: Outputs) -> Rows:
    with _answer_yardstick(run, task) as yardstick:
        return _measure_by(yardstick, run, arms, outputs)


def _measure_by(yardstick: AnswerYardstick, run: Run, arms: list[Arm], outputs: Outputs) -> Rows:
    measured = {
        arm.name: summarise_answers(
            outputs[arm.name],
            arm=arm_fields(arm),
            yardstick=yardstick,
            wall=_wall(run.outputs[arm.name]),
        )
        for arm in arms
    }
    rows = _rows_of([one.metrics for one in measured.values()])
    compared = compare_measured(run, outputs, measured=measured, yardstick=yardstick)
    for name, found in compared.items():
        rows[name] = rows.get(name, []) + found
    scorer = answer_scorer(yardstick)
    return rows | order_tables(run, arms, outputs, scorer=scorer, fields=arm_fields)


def _rows_of(metrics: list[ArmMetrics]) -> Rows:
    names = ("slices", "confusion", "scores", "answers")
    rows = {name: [row for one in metrics for row in getattr(one, name)] for name in names}
    return rows | {"summary": [one.summary for one in metrics]}


def read_outputs(run: Run, arm: str) -> pd.DataFrame:
    """What is measured of an arm's output rows, with today's gold labels."""
    tables = []
    for marker, part in zip(run.outputs[arm], run.tables["queries"].parts, strict=True):
        table = run.ledger.read(marker, COLUMNS)
        for name, values in _asked(run, arm, part).items():
            table = table.append_column(name, pa.array(values, pa.large_string()))
        tables.append(table)
    return pa.concat_tables(tables).to_pandas()


def _asked(run: Run, arm: str, part: Part) -> dict[str, list[str | None]]:
    """The answers of the queries as they are today, and what it takes to score them."""
    name = next(one.task for one in run.arms if one.name == arm)
    task, database = task_of(run, name), run.config.file.tasks[name].database_column
    columns = ["input", "output", "label", *{database} - {"label"}]
    rows = run.ledger.read(part.marker, columns).to_pylist()
    found = {"gold": [gold_answer(task, row).value for row in rows]}
    if task.kind != "classification":
        found |= {"input": [row["input"] for row in rows]}
        found |= {"database": [row[database] for row in rows]}
    return found


@contextlib.contextmanager
def _answer_yardstick(run: Run, task: str) -> Iterator[AnswerYardstick]:
    folder = run.config.file.tasks[task].databases
    # SQLite opens local files only.
    with contextlib.nullcontext() if folder is None else local_folder(folder) as databases:
        yield AnswerYardstick(
            task=task_of(run, task),
            databases=databases,
            seed=run.config.file.seed,
            n_resamples=run.config.file.report.bootstrap,
        )


def arm_fields(arm: Arm) -> dict[str, Any]:
    """What names an arm in the metric tables."""
    return {
        "task": arm.task,
        "encoder": arm.encoder,
        "engine": arm.engine,
        "arm": arm.name,
        "stage1": arm.stage1.method,
        "stage2": arm.stage2.method,
        "k1": arm.stage1.k1 if arm.stage1.method != NO_STAGE1 else None,
        "k": 0 if shows_nothing(arm.stage2) else arm.stage2.k,
        "order": arm.prompt.order,
        "layout": arm.prompt.layout,
        "decoder": arm.generate.decoder,
        "seed": arm.seed,
        "repeat": arm.repeat,
    }


def _yardstick(run: Run, task: str) -> Yardstick:
    built, counts = task_of(run, task), Counter[str]()
    for raw, number in run.tables["corpus"].counts("labels").items():
        label = canonical(built, raw)
        if label is not None:
            counts[label] += number
    return Yardstick(
        labels=built.labels,
        corpus_counts=counts,
        seed=run.config.file.seed,
        n_resamples=run.config.file.report.bootstrap,
    )


def _wall(markers: list[Marker]) -> dict[str, float | None]:
    """Rates over the seconds the engines worked on this arm, parts one after another."""
    seconds = sum(float(marker.stats["wall_s"]) for marker in markers)
    tokens = sum(int(marker.stats["n_tokens"]) for marker in markers)
    rows = sum(marker.rows for marker in markers)
    if seconds <= 0:
        return {"rows_per_s": None, "tokens_per_s": None}
    return {"rows_per_s": rows / seconds, "tokens_per_s": tokens / seconds}


def _line(row: dict[str, Any]) -> str:
    if row["score"] is not None and row["accuracy"] is None:
        interval = f"{row['score_low']:.3f} to {row['score_high']:.3f}"
        return f"{row['arm']}: {row['metric']} {row['score']:.3f} ({interval})"
    if row["accuracy"] is None:
        return f"{row['arm']}: nothing to score in {row['n']} rows"
    return (
        f"{row['arm']}: accuracy {row['accuracy']:.3f} (majority {row['majority_accuracy']:.3f})  "
        f"macro-F1 {row['macro_f1']:.3f} ({row['macro_f1_low']:.3f} to {row['macro_f1_high']:.3f})"
    )
