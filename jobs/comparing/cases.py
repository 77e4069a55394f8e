"""What the case study of the report shows, read from outputs, queries and pool."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from inference.kinds import gold_answer
from inference.tasks import Task
from jobs.evaluate import read_outputs
from jobs.ledger import Marker
from jobs.reporting.cases import Answer, Case, Record, cases_of, choose
from jobs.run import Run
from jobs.tasks import task_of


def read_cases(run: Run) -> list[Case]:
    """The cases of every task: those of `report.cases`, or the first on which its arms differ.

    Args:
        run: The run, with outputs.
    """
    wanted = run.config.file.report.cases
    found = []
    for name in dict.fromkeys(arm.task for arm in run.arms):
        task = task_of(run, name)
        right = _right(run, task)
        answers = {arm.name: _answers(run, arm.name, right) for arm in run.arms if arm.task == name}
        ids = choose(answers) if wanted is None else wanted
        shown = {
            one
            for mine in answers.values()
            for id_ in ids
            if id_ in mine
            for one in mine[id_].demonstration_ids
        }
        found += cases_of(
            name,
            ids,
            answers=answers,
            queries=_queries(run, ids),
            records=_records(run, shown, task),
            one_label=task.kind == "classification",
        )
    return found


def _right(run: Run, task: Task) -> dict[tuple[str, str], bool] | None:
    """Which scored answers, by arm and query, have all points; None where the text decides."""
    if task.kind == "classification":
        return None
    table = run.ledger.read(
        Marker(**run.manifest["metrics"]["answers"]), ["task", "arm", "id", "score"]
    )
    table = table.filter(pc.and_(pc.equal(table["task"], task.name), pc.is_valid(table["score"])))
    columns = [table[name].to_pylist() for name in ("arm", "id", "score")]
    return {(arm, id_): score == 1.0 for arm, id_, score in zip(*columns, strict=True)}


def _answers(run: Run, arm: str, right: dict[tuple[str, str], bool] | None) -> dict[str, Answer]:
    def is_right(id_: str, gold: str | None, prediction: str | None) -> bool | None:
        if right is not None:
            return right.get((arm, id_))
        return None if gold is None else gold == prediction

    table = read_outputs(run, arm)
    columns = [table[name] for name in ("id", "gold", "prediction", "status", "demonstration_ids")]
    return {
        str(id_): Answer(
            _text(gold),
            _text(prediction),
            str(status),
            _list(shown),
            is_right(str(id_), _text(gold), _text(prediction)),
        )
        for id_, gold, prediction, status, shown in zip(*columns, strict=True)
    }


def _queries(run: Run, ids: list[str]) -> dict[str, str]:
    wanted = pa.array(ids, pa.string())
    found: dict[str, str] = {}
    for part in run.tables["queries"].parts:
        table = run.ledger.read(part.marker, ["id", "input"])
        table = table.filter(pc.is_in(table["id"], value_set=wanted))
        found.update(zip(table["id"].to_pylist(), table["input"].to_pylist(), strict=True))
    return {id_: text or "" for id_, text in found.items()}


def _records(run: Run, ids: set[str], task: Task) -> dict[str, Record]:
    assert run.pool is not None
    table = run.ledger.read(run.pool, ["id", "input", "output", "label"])
    table = table.filter(pc.is_in(table["id"], value_set=pa.array(sorted(ids), pa.string())))
    rows = table.to_pylist()
    return {row["id"]: Record(row["input"], gold_answer(task, row).value) for row in rows}


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)


def _list(shown: list[str] | None) -> list[str]:
    return [] if shown is None else [str(one) for one in shown]
