"""The sentences of the report: which arm is best, and how sure that is."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from jobs.reporting.metric_tables import MAJORITY

Row = Mapping[str, Any]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain mappings, every kind of missing value as None."""
    return [
        {key: None if _missing(value) else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def with_interval(row: Row, name: str) -> str:
    """A figure with its interval: `0.470 [0.410, 0.540]`; a dash where there is none."""
    if row[name] is None:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


def best_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The arm of highest macro-F1, then accuracy, then the first; None if no arm was scored."""
    scored = [row for row in rows if row["macro_f1"] is not None]
    return max(scored, key=lambda row: (row["macro_f1"], row["accuracy"]), default=None)


def headline(rows: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> list[str]:
    """Say what the figures of one task allow to say, and no more.

    Args:
        rows: Summary rows of the task.
        comparisons: Comparison rows of the task.

    Returns:
        Sentences, each complete in itself.
    """
    best = best_of(rows)
    if best is None:
        return ["No arm was scored: no query has a gold label of the task."]
    mine = [row for row in comparisons if row["arm"] == best["arm"]]
    against_arms = [row for row in mine if row["against"] != MAJORITY]
    sentences = [_first(best, rows), *_runner_up(best, rows)]
    sentences += [_majority(row, best) for row in mine if row["against"] == MAJORITY]
    sentences += [_opponent(row) for row in against_arms]
    if any(row["against"] == best["arm"] for row in comparisons):
        sentences.append(
            "The best arm itself selects at random: on these queries no other selection was better."
        )
    if len(rows) > 1:
        sentences.append(
            "The best arm was named after seeing these results, so its lead is likely to be "
            "somewhat overstated; a second set of queries would tell."
        )
    return sentences


def _first(best: Row, rows: list[dict[str, Any]]) -> str:
    rank = f"has the highest macro-F1 of {len(rows)} arms" if len(rows) > 1 else "is the only arm"
    return (
        f"{best['arm']} {rank}: macro-F1 {with_interval(best, 'macro_f1')}, accuracy "
        f"{with_interval(best, 'accuracy')}, over {best['n_scored']:,} scored queries."
    )


def _runner_up(best: Row, rows: list[dict[str, Any]]) -> list[str]:
    second = best_of([row for row in rows if row["arm"] != best["arm"]])
    if second is None:
        return []
    apart = best["macro_f1_low"] > second["macro_f1_high"]
    overlap = "the two intervals do not overlap" if apart else "the two intervals overlap"
    return [
        f"Next comes {second['arm']} with macro-F1 {with_interval(second, 'macro_f1')}: {overlap}."
    ]


def _majority(row: Row, best: Row) -> str:
    constant = (
        f"Always answering the majority label ({best['majority_label']}) gives macro-F1 "
        f"{best['majority_macro_f1']:.3f} and accuracy {best['majority_accuracy']:.3f}; "
    )
    return constant + f"{best['arm']} differs from that by {_differences(row)}"


def _opponent(row: Row) -> str:
    return (
        f"Against random selection ({row['against']}), on the {row['n']:,} queries scored for "
        f"both, the difference is {_differences(row)}"
    )


def _differences(row: Row) -> str:
    macro_f1, accuracy = (_difference(row, name) for name in ("macro_f1", "accuracy"))
    return f"{macro_f1} in macro-F1 and {accuracy} in accuracy: {_verdict(row)}."


def _difference(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[f'{name}_difference']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _verdict(row: Row) -> str:
    """Judge by macro-F1, the figure that names the best arm."""
    if row["macro_f1_low"] > 0:
        return "better in macro-F1, the 95% interval lies above 0"
    if row["macro_f1_high"] < 0:
        return "worse in macro-F1, the 95% interval lies below 0"
    return "the 95% interval in macro-F1 contains 0, so these queries do not tell the two apart"
