"""What became of the queries that an LLM wrote: right, with another result, or why they failed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from inference.status import Status
from jobs.reporting.tables import Cell, Table

# In the order in which they are shown.
RIGHT, OTHER_RESULT = "right", "another result"
OUTCOMES = (
    *(RIGHT, "right but for the order of rows", OTHER_RESULT),
    *("no such column", "no such table", "syntax error", "not allowed", "another error"),
    *("took too long", "no query written"),
)
_SYNTAX = ("syntax error", "incomplete input", "unrecognized token")

Row = Mapping[str, Any]


def outcome_of(row: Row) -> str | None:
    """Name what became of one query.

    Args:
        row: `status`, `score` and `detail` of `ANSWERS_SCHEMA`.

    Returns:
        One of `OUTCOMES`; None where nothing is scored.
    """
    if row["score"] is None:
        return None
    if row["status"] == Status.TIMEOUT:
        return "took too long"
    if row["status"] == Status.SQL_ERROR:
        return _error(row["detail"] or "")
    if row["status"] != Status.OK:
        return "no query written"
    return RIGHT if row["score"] == 1 else OTHER_RESULT


def outcome_counts(answers: Sequence[Row], scores: Sequence[Row]) -> dict[str, Counter[str]]:
    """Count what became of the queries of each arm.

    Args:
        answers: Rows of `ANSWERS_SCHEMA` of one task of kind `sql`.
        scores: Its rows of `SCORES_SCHEMA`, which know what is right in another order.

    Returns:
        By arm, in their order.
    """
    found: dict[str, Counter[str]] = {}
    for row in answers:
        counts, name = found.setdefault(row["arm"], Counter()), outcome_of(row)
        if name is not None:
            counts[name] += 1
    for row in scores:
        if row["metric"] == "execution_accuracy_unordered" and not row["against"]:
            counts = found.get(row["arm"], Counter())
            disordered = round(row["value"] * row["n"]) - counts[RIGHT]
            counts[OUTCOMES[1]] += disordered
            counts[OTHER_RESULT] -= disordered
    return found


def outcome_table(counts: Mapping[str, Mapping[str, int]]) -> Table:
    """One row an arm, one column an outcome that occurs."""
    shown = [name for name in OUTCOMES if any(one.get(name) for one in counts.values())]
    rows = [
        [Cell(arm), *(Cell(f"{one.get(name, 0):,}", number=True) for name in shown)]
        for arm, one in counts.items()
    ]
    return Table(["arm", *shown], rows)


def _error(detail: str) -> str:
    if any(words in detail for words in _SYNTAX):
        return "syntax error"
    return next((name for name in OUTCOMES if detail.startswith(name)), "another error")
