"""The audit of demonstrations: how queries fared that saw a record, beside those that did not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from inference.significance import wilson
from jobs.reporting.metric_tables import ARM_KEY
from jobs.reporting.metrics import answers_by_id

# An interval of fewer answers is too wide to blame a record for.
LEAST_SCORED = 10


def audit(
    outputs: pd.DataFrame,
    *,
    arm: Mapping[str, Any],
    labels: Sequence[str],
    record_labels: Mapping[str, str | None],
) -> list[dict[str, Any]]:
    """Measure every demonstration of one arm by the queries that saw it.

    Args:
        outputs: The arm's output table.
        arm: Its identifying fields.
        labels: The labels of the task.
        record_labels: Label of each pool record, by id.

    Returns:
        Rows of `AUDIT_SCHEMA`, the worst first: by the upper end of the Wilson interval of the
        accuracy. `suspect` says that this end lies below the accuracy of the arm's other queries,
        which is how a wrong record looks, and a right one in a difficult place. None where
        fewer than 10 scored queries saw the record or none did not. O(q k) time.
    """
    answers = answers_by_id(outputs, labels)
    shown: Counter[str] = Counter()
    scored: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for id_, demonstrations in zip(outputs["id"], outputs["demonstration_ids"], strict=True):
        seen = set() if demonstrations is None else set(demonstrations)
        shown.update(seen)
        if str(id_) in answers:
            gold, predicted = answers[str(id_)]
            scored.update(seen)
            right.update(seen if gold == predicted else ())
    total = (len(answers), sum(gold == predicted for gold, predicted in answers.values()))
    key = {name: arm.get(name) for name in ARM_KEY}
    rows = [
        {
            **key,
            "demonstration_id": record,
            "label": record_labels.get(record),
            "n_shown": shown[record],
            **_figures(scored[record], right[record], total),
        }
        for record in shown
    ]
    return sorted(rows, key=lambda row: (row["high"], -row["n_scored"], row["demonstration_id"]))


def _figures(n: int, n_right: int, total: tuple[int, int]) -> dict[str, Any]:
    low, high = wilson(n_right, n)
    others = total[0] - n
    otherwise = (total[1] - n_right) / others if others else None
    judged = n >= LEAST_SCORED and otherwise is not None
    return {
        **{"n_scored": n, "n_right": n_right, "accuracy": n_right / n if n else None},
        **{"low": low, "high": high, "n_otherwise": others, "accuracy_otherwise": otherwise},
        "suspect": bool(high < otherwise) if judged and otherwise is not None else None,
    }
