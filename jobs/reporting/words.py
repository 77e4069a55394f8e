"""The sentences of the report: which arm is best, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jobs.reporting.metric_tables import MAJORITY

Row = Mapping[str, Any]
LEVEL = 0.05
UNSCORED = "No arm was scored: no query has a gold answer of the task that could be compared."


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain mappings, every kind of missing value as None."""
    return [
        {str(key): None if _missing(value) else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def with_interval(row: Row, name: str) -> str:
    """A figure with its interval: `0.470 [0.410, 0.540]`; a dash where there is none."""
    if row[name] is None:
        return "-"
    return interval_text(row[name], row[f"{name}_low"], row[f"{name}_high"])


def interval_text(value: float, low: float, high: float, *, sign: str = "") -> str:
    """A figure and its interval; `sign` "+" writes the sign of a positive one too."""
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def p_text(p: float | None) -> str:
    """A p value in four decimals, never as 0; a dash where there is none."""
    if p is None:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def best_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The arm of highest macro-F1, then accuracy, then the first; None if no arm was scored."""
    scored = [row for row in rows if row["macro_f1"] is not None]
    return max(scored, key=lambda row: (row["macro_f1"], row["accuracy"]), default=None)


def headline(
    rows: list[dict[str, Any]],
    comparisons: list[dict[str, Any]],
    tests: Sequence[dict[str, Any]] = (),
) -> list[str]:
    """Say what the figures of one task allow to say, and no more.

    Args:
        rows: Summary rows of the task.
        comparisons: Comparison rows of the task.
        tests: Its paired tests; a pair without one is judged by its bootstrap interval.

    Returns:
        Sentences, each complete in itself.
    """
    best = best_of(rows)
    if best is None:
        return [UNSCORED]
    mine = [row for row in comparisons if row["arm"] == best["arm"]]
    opponents = [row for row in mine if row["against"] != MAJORITY]
    judged: dict[str, dict[str, Row]] = {}
    for row in tests:
        if row["arm_a"] == best["arm"]:
            judged.setdefault(row["arm_b"], {})[row["metric"]] = row
    sentences = [_first(best, rows), *_runner_up(best, rows)]
    sentences += [_majority(row, best) for row in mine if row["against"] == MAJORITY]
    sentences += [_opponent(row, judged.get(row["against"], {})) for row in opponents]
    if opponents and all(row.get("macro_f1_floor") is None for row in opponents):
        sentences.append(
            "Neither the best arm nor those it is compared with were repeated, so it is unknown "
            "how far apart two runs of one setting are: that takes arms that differ in seed or "
            "repeat alone."
        )
    if any(row["against"] == best["arm"] for row in comparisons):
        sentences.append(_is_baseline(best))
    if len(rows) > 1:
        sentences.append(
            "The best arm was named after seeing these results, so its lead is likely to be "
            "somewhat overstated; a second set of queries would tell."
        )
    return sentences


def rank_text(best: Row, rows: Sequence[Row], key: str, name: str) -> str:
    """Where the best of some arms stands: above all others, or level with some.

    Args:
        best: Its row.
        rows: The rows of all that were scored.
        key: Column of the score.
        name: The score in words.
    """
    if len(rows) == 1:
        return f"is the only arm, by {name}"
    level = sum(row[key] == best[key] for row in rows) - 1
    if not level:
        return f"has the highest {name} of {len(rows)} arms"
    if level == len(rows) - 1:
        return f"and all other arms have the same {name}"
    return f"and {level} other of {len(rows)} arms have the highest {name}"


def _first(best: Row, rows: list[dict[str, Any]]) -> str:
    scored = [row for row in rows if row["macro_f1"] is not None]
    rank = rank_text(best, scored, "macro_f1", "macro-F1")
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
    return constant + f"{best['arm']} differs from that by {_differences(row)}: {_verdict(row)}."


def _is_baseline(best: Row) -> str:
    if best.get("stage1") == "random":
        return "The best arm itself selects at random: on these queries no other was better."
    return "The best arm is one that others are compared with: on these queries none was better."


def _opponent(row: Row, tests: Mapping[str, Row]) -> str:
    test = tests.get("macro_f1")
    verdict = _verdict(row) if test is None or test["p_holm"] is None else tested(test, "macro-F1")
    verdict += _accuracy(tests["accuracy"]) if "accuracy" in tests else ""
    return (
        f"Against {row['against']}, on the {row['n']:,} queries scored for both, the difference "
        f"is {_differences(row)}: {verdict}{_floor(row)}."
    )


def tested(test: Row, name: str) -> str:
    """Judge a score by its paired test, as corrected for all that were made."""
    kind = "paired t-test" if test["t"] is not None else "sign-flip test"
    how = (
        f"{kind} over {test['n_folds']} {test['folds']}, p {p_text(test['p'])}, after Holm's "
        f"correction for {test['n_tests']} tests {p_text(test['p_holm'])}"
    )
    if test["p_holm"] >= LEVEL:
        return f"not told apart in {name} ({how})"
    whole, mean = test["difference"], test["mean_difference"]
    if whole * mean <= 0:
        return (
            f"not told apart in {name}, because the folds ({mean:+.3f} on average) and all queries "
            f"together ({whole:+.3f}) disagree: folds differ in size, or lack labels ({how})"
        )
    return f"{'better' if test['mean_difference'] > 0 else 'worse'} in {name} ({how})"


def _accuracy(test: Row) -> str:
    return f"; in accuracy, McNemar's test gives p {p_text(test['mcnemar_p_holm'])} after Holm"


def _floor(row: Row) -> str:
    if not row.get("macro_f1_below_floor"):
        return ""
    return floor_text("macro-F1", row["macro_f1_floor"])


def floor_text(name: str, floor: float) -> str:
    """What is to be said of a difference that is not above its noise floor."""
    return (
        f"; in {name} it is not above the noise floor of {floor:.3f}, by which "
        "repeats of one setting differ among themselves, so it is no reason to prefer either"
    )


def _differences(row: Row) -> str:
    macro_f1, accuracy = (_difference(row, name) for name in ("macro_f1", "accuracy"))
    return f"{macro_f1} in macro-F1 and {accuracy} in accuracy"


def _difference(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return interval_text(row[f"{name}_difference"], low, high, sign="+")


def _verdict(row: Row) -> str:
    """Judge by macro-F1, the figure that names the best arm."""
    if row["macro_f1_low"] > 0:
        return "better in macro-F1, the 95% interval lies above 0"
    if row["macro_f1_high"] < 0:
        return "worse in macro-F1, the 95% interval lies below 0"
    return "the 95% interval in macro-F1 contains 0, so these queries do not tell the two apart"
