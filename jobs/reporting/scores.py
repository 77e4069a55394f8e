"""Scores of tasks whose answer is more than one label: sentences and a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.reporting.tables import Cell, Table, plain
from jobs.reporting.words import UNSCORED, floor_text, interval_text, rank_text, tested

NAMES = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "exact_match": "exact match",
    "strict_micro_f1": "strict span micro-F1",
    "strict_macro_f1": "strict span macro-F1",
    "strict_precision": "strict span precision",
    "strict_recall": "strict span recall",
    "relaxed_micro_f1": "relaxed span micro-F1",
    "relaxed_macro_f1": "relaxed span macro-F1",
    "relaxed_precision": "relaxed span precision",
    "relaxed_recall": "relaxed span recall",
    "token_accuracy": "token accuracy (BIO)",
    "execution_accuracy": "execution accuracy",
    "execution_accuracy_unordered": "execution accuracy, any order of rows",
}

Row = Mapping[str, Any]


def goes_by_scores(rows: Sequence[Row]) -> bool:
    """Whether a task is judged by other scores than accuracy and macro-F1 of labels.

    Such a task has its metric also where nothing is scored.
    """
    return any(row["metric"] is not None and row["accuracy"] is None for row in rows)


def score_headline(
    rows: Sequence[Row], scores: Sequence[Row], tests: Sequence[Row] = ()
) -> list[str]:
    """Say which arm is best by the score that decides, and how it compares with the baselines.

    Args:
        rows: Summary rows of one task.
        scores: Score rows of the same task.
        tests: Its paired tests; a pair without one is judged by its bootstrap interval.

    Returns:
        Sentences, each complete in itself.
    """
    scored = [row for row in rows if row["score"] is not None]
    if not scored:
        return [UNSCORED]
    best = max(scored, key=lambda row: row["score"])
    name = NAMES[best["metric"]]
    score = interval_text(best["score"], best["score_low"], best["score_high"])
    rank = rank_text(best, scored, "score", name)
    judged = {
        row["arm_b"]: row
        for row in tests
        if (row["arm_a"], row["metric"]) == (best["arm"], best["metric"])
    }
    sentences = [f"{best['arm']} {rank}: {score}, over {best['n_scored']:,} scored queries."]
    for row in scores:
        if (row["arm"], row["metric"]) == (best["arm"], best["metric"]) and row["against"]:
            gap = interval_text(row["value"], row["low"], row["high"], sign="+")
            sentences.append(
                f"Against {row['against']}, on the {row['n']:,} queries scored for both, the "
                f"difference is {gap}: {_verdict(row, judged.get(row['against']), name)}."
            )
    return sentences


def _verdict(row: Row, test: Row | None, name: str) -> str:
    told = row["low"] > 0 or row["high"] < 0
    verdict = f"the 95% interval {'excludes' if told else 'contains'} 0"
    if test is None:
        return verdict
    if test["p_holm"] is not None:
        verdict = tested(test, name)
    return verdict + (floor_text(name, test["floor"]) if test["below_floor"] else "")


def score_table(scores: Sequence[Row]) -> Table:
    """Every score of every arm with its interval, one row a score."""
    own = [row for row in scores if not row["against"]]
    arms = list(dict.fromkeys(row["arm"] for row in own))
    found = {(row["metric"], row["arm"]): row for row in own}
    cells = []
    for metric in dict.fromkeys(row["metric"] for row in own):
        rows = [found.get((metric, arm)) for arm in arms]
        figures = [interval_text(r["value"], r["low"], r["high"]) if r else "-" for r in rows]
        cells.append([Cell(NAMES[metric]), *(Cell(text, number=True) for text in figures)])
    return Table(["score [95%]", *arms], cells)


def difference_table(scores: Sequence[Row]) -> Table:
    """Every paired difference to a baseline with its interval, one row a score."""
    headings = ["arm", "against", "score", "queries", "difference [95%]", "leaves out 0"]
    cells = [
        [
            *(Cell(text) for text in (row["arm"], row["against"], NAMES[row["metric"]])),
            Cell(plain(row["n"]), number=True),
            Cell(interval_text(row["value"], row["low"], row["high"], sign="+"), number=True),
            Cell(plain(bool(row["low"] > 0 or row["high"] < 0))),
        ]
        for row in scores
        if row["against"]
    ]
    return Table(headings, cells)


def type_table(slices: Sequence[Row]) -> Table:
    """Precision, recall and F1 of each class, or type by way of matching, and arm."""
    headings = ["arm", "by", "class", "in gold", "precision", "recall", "F1"]
    cells = [
        [
            *(Cell(plain(row[name])) for name in ("arm", "slice", "value")),
            *(Cell(plain(row[name]), number=True) for name in ("support", "precision", "recall")),
            Cell(plain(row["f1"]), number=True, shade=row["f1"]),
        ]
        for row in slices
        if row["support"] is not None
    ]
    return Table(headings, cells)
