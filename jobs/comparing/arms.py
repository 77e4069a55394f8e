"""What evaluate says of the arms of one task beside each arm's own scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jobs.annotate import pool_labels
from jobs.comparing.baselines import pairs_of, repeats_of
from jobs.comparing.query_facts import QueryFacts, nearest_shown, read_facts
from jobs.reporting.audit import audit
from jobs.reporting.metrics import Yardstick, answers_by_id, compare
from jobs.reporting.noise import noise_rows, with_floors
from jobs.reporting.paired import Design, paired_tests
from jobs.reporting.slices import (
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
    report = run.config.file.report
    pairs = pairs_of(arms, report.baselines)
    noise = noise_rows(summary, [[arm.name for arm in group] for group in repeats_of(arms)])
    # Of one encoder, so that all arms are sliced alike.
    facts = read_facts(run, arms[0].encoder)
    compared = compare(outputs, task=arms[0].task, pairs=pairs, yardstick=yardstick)
    fields = {row["arm"]: row for row in summary}
    design = Design(
        pairs=pairs,
        labels=yardstick.labels,
        groups=facts.groups,
        n_folds=report.folds,
        seed=yardstick.seed,
        noise=noise,
        dealt=None if run.folds is None else run.folds.of_query,
    )
    records = pool_labels(run)
    return {
        "comparisons": with_floors(compared, noise, {arm.name: arm.engine for arm in arms}),
        "paired_tests": paired_tests(outputs, arms=fields, design=design),
        "noise": noise,
        "audit": [
            row
            for name, table in outputs.items()
            for row in audit(
                table, arm=fields[name], labels=yardstick.labels, record_labels=records
            )
        ],
        **_sliced(run, outputs, facts, pairs=pairs, labels=yardstick.labels),
    }


def _sliced(
    run: Run,
    outputs: Mapping[str, pd.DataFrame],
    facts: QueryFacts,
    *,
    pairs: Sequence[tuple[str, str]],
    labels: Sequence[str],
) -> Rows:
    answers = {name: answers_by_id(table, labels) for name, table in outputs.items()}
    shared = [by_length(facts.n_tokens), *(by_column(*item) for item in facts.columns.items())]
    found: Rows = {"slices": [], "slice_differences": []}
    for arm in run.arms:
        if arm.name not in answers:
            continue
        key = {"task": arm.task, "encoder": arm.encoder, "engine": arm.engine, "arm": arm.name}
        mine = answers[arm.name]
        slicings = [*shared, by_nearest(nearest_shown(run, arm))]
        for one in slicings:
            found["slices"] += slice_rows(mine, one, arm=key, labels=labels)
        for against in [other for name, other in pairs if name == arm.name]:
            for one in [by_label(mine, labels), *slicings]:
                found["slice_differences"] += slice_differences(
                    (mine, answers[against]), one, arm=key, against=against
                )
    return found
