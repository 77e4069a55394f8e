"""The audit of demonstrations: how queries fared that saw a record, beside those that did not."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from inference.significance import wilson
from jobs.reporting.metric_tables import ARM_KEY
from jobs.reporting.metrics import Answers

# An interval of fewer answers is too wide to blame a record for.
LEAST_SCORED = 10


def audit(
    outputs: pd.DataFrame,
    *,
    arm: Mapping[str, Any],
    points: Mapping[str, float],
    record_labels: Mapping[str, str | None],
) -> list[dict[str, Any]]:
    """Measure every demonstration of one arm by the queries that saw it.

    Args:
        outputs: The arm's output table.
        arm: Its identifying fields.
        points: The score of each scored query by itself: 1 right, 0 wrong, between for an answer
            that is partly right.
        record_labels: Label of each pool record, by id.

    Returns:
        Rows of `AUDIT_SCHEMA`, the worst first: by the upper end of the Wilson interval of the
        accuracy, the mean of the points. (Of points between 0 and 1 it is too wide: they vary less
        than zeros and ones of the same mean.) `suspect` says that this end lies below the accuracy
        of the arm's other queries, which is how a wrong record looks, and a right one in a
        difficult place. None where fewer than 10 scored queries saw the record or none did not.
        O(q k) time.
    """
    shown: Counter[str] = Counter()
    scored: defaultdict[str, list[float]] = defaultdict(list)
    for id_, demonstrations in zip(outputs["id"], outputs["demonstration_ids"], strict=True):
        seen = set() if demonstrations is None else set(demonstrations)
        shown.update(seen)
        if str(id_) in points:
            for record in seen:
                scored[record].append(points[str(id_)])
    total = (len(points), math.fsum(points.values()))
    key = {name: arm.get(name) for name in ARM_KEY}
    rows = [
        {
            **key,
            "demonstration_id": record,
            "label": record_labels.get(record),
            "n_shown": shown[record],
            **_figures(scored[record], total),
        }
        for record in shown
    ]
    return sorted(rows, key=lambda row: (row["high"], -row["n_scored"], row["demonstration_id"]))


def points_of(answers: Answers) -> dict[str, float]:
    """1 for each query whose label is right, 0 for the others."""
    return {id_: float(gold == predicted) for id_, (gold, predicted) in answers.items()}


def _figures(points: Sequence[float], total: tuple[int, float]) -> dict[str, Any]:
    n, mine = len(points), math.fsum(points)
    low, high = wilson(mine, n)
    others = total[0] - n
    otherwise = (total[1] - mine) / others if others else None
    judged = n >= LEAST_SCORED and otherwise is not None
    return {
        **{"n_scored": n, "n_right": sum(one == 1 for one in points)},
        **{"accuracy": mine / n if n else None, "low": low, "high": high},
        **{"n_otherwise": others, "accuracy_otherwise": otherwise},
        "suspect": bool(high < otherwise) if judged and otherwise is not None else None,
    }
