"""Metric rows of the kinds whose answer is more than one label: sets, entities, queries."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from inference.kinds import RIGHT_OR_WRONG, TESTED
from inference.scorers import Answer, Scored, Verdict, score_answers
from inference.status import Status
from inference.tallies import Counts, difference, estimate
from inference.tasks import Task
from jobs.reporting.metric_tables import ARM_KEY, SUMMARY_SCHEMA
from jobs.reporting.metrics import ArmMetrics, check, costs, count_statuses
from jobs.reporting.paired import Contest


@dataclass(frozen=True)
class AnswerYardstick:
    """What all arms of one task are measured with.

    Attributes:
        task: The task; of any kind but `classification`.
        databases: Folder of the SQLite files, for `sql`.
        seed: Seed of the bootstrap.
        n_resamples: Resamples of the bootstrap.
    """

    task: Task
    databases: Path | None = None
    seed: int = 0
    n_resamples: int = 1000


@dataclass(frozen=True)
class Measured:
    """One arm, measured, and its counts by query for paired comparisons."""

    metrics: ArmMetrics
    scored: Scored
    ids: Sequence[str] = field(default_factory=list)

    @cached_property
    def points(self) -> dict[str, float]:
        """The score of each query by itself, from 0 to 1."""
        verdicts = (self.scored.verdicts[at] for at in self.scored.kept)
        return {i: one.score or 0.0 for i, one in zip(self.ids, verdicts, strict=True)}

    @cached_property
    def _place(self) -> dict[str, int]:
        return {row_id: at for at, row_id in enumerate(self.ids)}

    def counts_of(self, ids: Sequence[str]) -> Counts:
        """What scored queries add to the scores, a row each."""
        return self.scored.counts[[self._place[row_id] for row_id in ids]]


def summarise_answers(
    outputs: pd.DataFrame,
    *,
    arm: Mapping[str, Any],
    yardstick: AnswerYardstick,
    wall: Mapping[str, float | None] | None = None,
) -> Measured:
    """Measure one arm.

    Args:
        outputs: The arm's output table with `input` and `database`, one row per query.
        arm: Values of `ARM_FIELDS`.
        yardstick: Of the arm's task.
        wall: `rows_per_s` and `tokens_per_s`, measured by the caller.

    Returns:
        The arm's metric rows. A query that fails has the status `sql_error` or `timeout` there,
        whatever the output table says, which knows only that the LLM has written one.

    Raises:
        InvariantError: An id twice, a status outside the closed set, an unknown arm field.
    """
    check(outputs, arm)
    with_gold = outputs[outputs["gold"].notna()].reset_index(drop=True)
    scored = score_answers(
        yardstick.task, [_answer(row) for row in _rows(with_gold)], databases=yardstick.databases
    )
    verdicts = dict(zip(with_gold["id"], scored.verdicts, strict=True))
    judged = outputs.assign(status=[_status(row, verdicts) for row in _rows(outputs)])
    key = {name: arm.get(name) for name in ARM_KEY}
    summary = dict.fromkeys(SUMMARY_SCHEMA.names) | dict(arm)
    summary |= count_statuses(judged, n_scored=len(scored.kept)) | costs(outputs)
    summary |= {name: (wall or {}).get(name) for name in ("rows_per_s", "tokens_per_s")}
    summary |= {"metric": scored.headline, "notes": _notes(outputs, scored)}
    scores = _scores(key, scored, yardstick)
    for row in scores:
        if row["metric"] == scored.headline:
            summary |= {
                "score": row["value"],
                "score_low": row["low"],
                "score_high": row["high"],
            }
    metrics = ArmMetrics(
        summary=summary,
        slices=_slices(key, scored),
        confusion=[],
        scores=scores,
        answers=[_judged_row(key, row, verdicts.get(row["id"])) for row in _rows(judged)],
    )
    return Measured(metrics, scored, [with_gold["id"][at] for at in scored.kept])


def compare_answers(
    measured: Mapping[str, Measured],
    *,
    pairs: Sequence[tuple[str, str]],
    yardstick: AnswerYardstick,
) -> list[dict[str, Any]]:
    """Paired differences of arms, for every score.

    Args:
        measured: Arms of one task.
        pairs: (arm, against), each a comparison.
        yardstick: Of the task.

    Returns:
        Rows of `SCORES_SCHEMA` with `against`: arm minus against, over the rows scored for both.
    """
    rows = []
    for name, other in pairs:
        mine, theirs = measured[name], measured[other]
        ids = shared_ids(mine, theirs)
        if not ids:
            continue
        statistics = {k: difference(one) for k, one in mine.scored.statistics.items()}
        key = {field: mine.metrics.summary[field] for field in ARM_KEY}
        counts = np.hstack([mine.counts_of(ids), theirs.counts_of(ids)])
        rows += _estimates(key | {"against": other}, counts, statistics, yardstick)
    return rows


def shared_ids(first: Measured, second: Measured) -> list[str]:
    """The queries that are scored for both arms, in the order of the first."""
    there = set(second.ids)
    return [row_id for row_id in first.ids if row_id in there]


def contest_of(measured: Mapping[str, Measured], task: Task) -> Contest:
    """The arms of one task as the paired tests see them."""
    some = next(iter(measured.values())).scored.statistics
    statistics = {name: some[name] for name in TESTED[task.kind]}

    def gap(first: str, second: str, ids: Sequence[str]) -> dict[str, float]:
        sums = [
            measured[arm].counts_of(ids).sum(axis=0).astype(np.float64) for arm in (first, second)
        ]
        return {name: float(one(sums[0]) - one(sums[1])) for name, one in statistics.items()}

    def right(arm: str, ids: Sequence[str]) -> list[bool]:
        return [measured[arm].points[row_id] == 1 for row_id in ids]

    return Contest(
        ids={name: one.ids for name, one in measured.items()},
        strata={row_id: "" for one in measured.values() for row_id in one.ids},
        gap=gap,
        right=right,
        judged_by=next((name for name in statistics if name in RIGHT_OR_WRONG), None),
    )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(k): None if isinstance(v, float) and pd.isna(v) else v for k, v in row.items()}
        for row in table.to_dict("records")
    ]


def _answer(row: Mapping[str, Any]) -> Answer:
    return Answer(row["input"] or "", row["gold"], row["prediction"], row["database"])


def _status(row: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> str:
    verdict = verdicts.get(row["id"])
    if verdict is None or row["status"] != Status.OK:
        return str(row["status"])
    return str(verdict.status)


def _judged_row(
    key: Mapping[str, Any], row: Mapping[str, Any], verdict: Verdict | None
) -> dict[str, Any]:
    verdict = verdict or Verdict(None, detail="has no gold answer")
    told = {"score": verdict.score, "detail": verdict.detail or None}
    return {**key, "id": row["id"], "status": row["status"], **told}


def _notes(outputs: pd.DataFrame, scored: Scored) -> list[str]:
    """What is not in the scores, and what they leave out."""
    if not len(outputs):
        return ["The arm has no output rows."]
    notes = []
    n_without = int(outputs["gold"].isna().sum())
    if n_without:
        notes.append(f"{n_without} rows have no gold answer of the task: not scored.")
    reasons = Counter(one.detail for one in scored.verdicts if one.score is None)
    notes += [f"{n} rows are not scored: {reason}." for reason, n in reasons.most_common(5)]
    failed = [one for one in scored.verdicts if one.status is not Status.OK]
    if failed:
        notes.append(f"{len(failed)} queries failed and count as wrong, first: {failed[0].detail}.")
    n_noted = sum(bool(one.detail) and one.status is Status.OK for one in scored.verdicts)
    n_noted -= sum(reasons.values())
    if n_noted > 0:
        notes.append(
            f"Answers that name entities which their text lacks, or name one again: {n_noted}."
        )
    return notes


def _scores(
    key: Mapping[str, Any], scored: Scored, yardstick: AnswerYardstick
) -> list[dict[str, Any]]:
    if not scored.kept:
        return []
    return _estimates(key, scored.counts, scored.statistics, yardstick)


def _estimates(
    key: Mapping[str, Any], counts: Any, statistics: Mapping[str, Any], yardstick: AnswerYardstick
) -> list[dict[str, Any]]:
    found = estimate(counts, statistics, n_resamples=yardstick.n_resamples, seed=yardstick.seed)
    return [
        {
            **key,
            "metric": name,
            "n": len(counts),
            "value": one.value,
            "low": one.interval.low,
            "high": one.interval.high,
        }
        for name, one in found.items()
    ]


def _slices(key: Mapping[str, Any], scored: Scored) -> list[dict[str, Any]]:
    if not scored.kept:
        return []
    sums = scored.counts.sum(axis=0).astype(np.float64)
    rows = []
    for name, figures_of in scored.by_class.items():
        figures = figures_of(sums)
        rows += [
            {**key, "slice": name, "value": one}
            | {figure: float(values[at]) for figure, values in figures.items()}
            | {"support": int(figures["support"][at])}
            for at, one in enumerate(scored.classes)
        ]
    return rows
