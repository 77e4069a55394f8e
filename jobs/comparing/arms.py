"""What evaluate says of the arms of one task beside each arm's own scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from jobs.annotate import pool_labels
from jobs.comparing.baselines import pairs_of, repeats_of
from jobs.comparing.query_facts import QueryFacts, nearest_shown, read_facts
from jobs.config.schema import Arm
from jobs.reporting.answer_metrics import AnswerYardstick, Measured, compare_answers, contest_of
from jobs.reporting.answer_slices import score_slice_differences, score_slices
from jobs.reporting.audit import audit, points_of
from jobs.reporting.metrics import Answers, Yardstick, answers_by_id, compare
from jobs.reporting.noise import noise_rows, with_floors
from jobs.reporting.paired import Design, contest_tests, paired_tests
from jobs.reporting.slices import (
    Slicing,
    by_column,
    by_label,
    by_length,
    by_nearest,
    slice_differences,
    slice_rows,
)
from jobs.run import Run

Rows = dict[str, list[dict[str, Any]]]


def compare_task(
    run: Run,
    outputs: Mapping[str, pd.DataFrame],
    *,
    summary: Sequence[Mapping[str, Any]],
    yardstick: Yardstick,
) -> Rows:
    """Compare the arms of one task.

    Args:
        run: The run, with outputs.
        outputs: Output table of each arm of the task.
        summary: Their summary rows.
        yardstick: Labels and bootstrap settings of the task.

    Returns:
        Rows of the tables comparisons, paired_tests, noise, slices (all but those by label),
        slice_differences and audit.
    """
    arms = [arm for arm in run.arms if arm.name in outputs]
    facts, design = _planned(run, arms, summary)
    design = replace(design, labels=yardstick.labels)
    pairs, noise = design.pairs, design.noise
    compared = compare(outputs, task=arms[0].task, pairs=pairs, yardstick=yardstick)
    fields = {row["arm"]: row for row in summary}
    records = pool_labels(run)
    answers = {name: answers_by_id(table, yardstick.labels) for name, table in outputs.items()}
    return {
        "comparisons": with_floors(compared, noise, {arm.name: arm.engine for arm in arms}),
        "paired_tests": paired_tests(outputs, arms=fields, design=design),
        "noise": [dict(row) for row in noise],
        "audit": [
            row
            for name, table in outputs.items()
            for row in audit(
                table,
                arm=fields[name],
                points=points_of(answers[name]),
                record_labels=records,
            )
        ],
        **_sliced(run, answers, facts, pairs=pairs, labels=yardstick.labels),
    }


def compare_measured(
    run: Run,
    outputs: Mapping[str, pd.DataFrame],
    *,
    measured: Mapping[str, Measured],
    yardstick: AnswerYardstick,
) -> Rows:
    """Compare the arms of one task whose answer is more than one label.

    Args:
        run: The run, with outputs.
        outputs: Output table of each arm of the task.
        measured: The same, measured.
        yardstick: Of the task.

    Returns:
        Rows of the tables scores (those of differences), paired_tests, noise, slices (all but
        those by class), slice_differences and audit.
    """
    arms = [arm for arm in run.arms if arm.name in outputs]
    fields = {name: one.metrics.summary for name, one in measured.items()}
    facts, design = _planned(run, arms, list(fields.values()))
    records = pool_labels(run)
    found: Rows = {
        "scores": compare_answers(measured, pairs=design.pairs, yardstick=yardstick),
        "paired_tests": contest_tests(
            contest_of(measured, yardstick.task), arms=fields, design=design
        ),
        "noise": [dict(row) for row in design.noise],
        "audit": [
            row
            for name, table in outputs.items()
            for row in audit(
                table, arm=fields[name], points=measured[name].points, record_labels=records
            )
        ],
        **{"slices": [], "slice_differences": []},
    }
    for arm in arms:
        key, mine = fields[arm.name], measured[arm.name]
        for one in _slicings(run, arm, facts):
            found["slices"] += score_slices(mine, one, arm=key, yardstick=yardstick)
            for against in [other for name, other in design.pairs if name == arm.name]:
                found["slice_differences"] += score_slice_differences(
                    (mine, measured[against]), one, arm=key, against=against, yardstick=yardstick
                )
    return found


def _planned(
    run: Run, arms: Sequence[Arm], summary: Sequence[Mapping[str, Any]]
) -> tuple[QueryFacts, Design]:
    """What is known of the queries, and which arms of a task are tested how."""
    report = run.config.file.report
    # Of one encoder, so that all arms are sliced alike.
    facts = read_facts(run, arms[0].encoder)
    return facts, Design(
        pairs=pairs_of(arms, report.baselines),
        labels=(),
        groups=facts.groups,
        n_folds=report.folds,
        seed=run.config.file.seed,
        noise=noise_rows(summary, [[arm.name for arm in group] for group in repeats_of(arms)]),
        dealt=None if run.folds is None else run.folds.of_query,
    )


def _slicings(run: Run, arm: Arm, facts: QueryFacts) -> list[Slicing]:
    """All but those by label."""
    columns = (by_column(*item) for item in facts.columns.items())
    return [by_length(facts.n_tokens), *columns, by_nearest(nearest_shown(run, arm))]


def _sliced(
    run: Run,
    answers: Mapping[str, Answers],
    facts: QueryFacts,
    *,
    pairs: Sequence[tuple[str, str]],
    labels: Sequence[str],
) -> Rows:
    found: Rows = {"slices": [], "slice_differences": []}
    for arm in run.arms:
        if arm.name not in answers:
            continue
        key = {"task": arm.task, "encoder": arm.encoder, "engine": arm.engine, "arm": arm.name}
        mine = answers[arm.name]
        slicings = _slicings(run, arm, facts)
        for one in slicings:
            found["slices"] += slice_rows(mine, one, arm=key, labels=labels)
        for against in [other for name, other in pairs if name == arm.name]:
            for one in [by_label(mine, labels), *slicings]:
                found["slice_differences"] += slice_differences(
                    (mine, answers[against]), one, arm=key, against=against
                )
    return found
