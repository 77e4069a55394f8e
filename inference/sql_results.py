"""Execution accuracy: does a query return what the gold query returns?"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

from inference.parsing_sql import orders_rows
from inference.sql_sandbox import ResultRow, Sandbox, Value
from inference.status import Status

_DIGITS = 10


class Verdict(NamedTuple):
    """How a predicted query compares with the gold query.

    Attributes:
        status: `ok`, or why the predicted query has no result: `sql_error`, `timeout`.
        detail: The reason where status is not ok.
        same: Equal results, in order where the gold query orders its rows.
        same_unordered: Equal results as multisets of rows.
    """

    status: Status
    detail: str
    same: bool
    same_unordered: bool


class Gold(NamedTuple):
    """What a gold query returns; `rows` None and a reason where it does not run."""

    rows: list[ResultRow] | None
    ordered: bool
    detail: str


def run_gold(sandbox: Sandbox, query: str) -> Gold:
    """Run a gold query under the same fences as any other."""
    result = sandbox.run(query)
    return Gold(result.rows, orders_rows(query), result.detail)


def judge(sandbox: Sandbox, query: str, gold: Gold) -> Verdict:
    """Run a predicted query and compare its rows with those of the gold query.

    Args:
        sandbox: The database of the row.
        query: The prediction.
        gold: `run_gold` of the same database, with rows.

    Returns:
        The verdict; a query that does not run is wrong by both figures.
    """
    result = sandbox.run(query)
    if result.rows is None or gold.rows is None:
        return Verdict(result.status, result.detail, False, False)
    unordered = same_rows(result.rows, gold.rows, ordered=False)
    same = unordered and (not gold.ordered or same_rows(result.rows, gold.rows, ordered=True))
    return Verdict(Status.OK, "", same, unordered)


def same_rows(first: Sequence[ResultRow], second: Sequence[ResultRow], *, ordered: bool) -> bool:
    """Compare two results.

    Columns are compared by place, whatever their names. 2 equals 2.0, numbers are compared by 10
    significant digits in a column where one is a float, and a text never equals a number.

    Args:
        first: Rows.
        second: Rows.
        ordered: Whether the order of rows counts; without it, how often each row occurs counts.

    Returns:
        Whether they are the same. O(n) time.
    """
    if len(first) != len(second):
        return False
    # A whole number is exact, an id say, unless its column has numbers that are not.
    inexact = {at for row in (*first, *second) for at, v in enumerate(row) if isinstance(v, float)}
    mine, theirs = ([_comparable(row, inexact) for row in rows] for rows in (first, second))
    return mine == theirs if ordered else Counter(mine) == Counter(theirs)


def _comparable(row: ResultRow, inexact: Set[int]) -> tuple[Value, ...]:
    return tuple(
        float(f"{value:.{_DIGITS}g}")
        if at in inexact and isinstance(value, (int, float))
        else value
        for at, value in enumerate(row)
    )
