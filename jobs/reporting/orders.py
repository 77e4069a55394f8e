"""Scores over orders of the same demonstrations: per order, and how far they spread."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from inference.scoring import score
from jobs.reporting.metric_tables import ARM_KEY
from jobs.reporting.metrics import answers_by_id
from jobs.reporting.noise import METRICS, SCORE, column_of, is_below, repeats_near
from jobs.reporting.scores import NAMES
from jobs.reporting.tables import Cell, Table, plain

Row = Mapping[str, Any]
Figures = dict[str, Any]
Scorer = Callable[[pd.DataFrame], Figures]


def label_scorer(labels: Sequence[str]) -> Scorer:
    """Score outputs whose answer is one label: accuracy and macro-F1."""

    def scored(outputs: pd.DataFrame) -> Figures:
        answers = list(answers_by_id(outputs, labels).values())
        if not answers:
            return {"n": 0}
        found = score([gold for gold, _ in answers], [mine for _, mine in answers], labels)
        figures = {name: getattr(found, name) for name in METRICS}
        return {"n": len(answers), **figures, SCORE: found.macro_f1, "metric": "macro_f1"}

    return scored


def order_rows(
    tried: pd.DataFrame, own: pd.DataFrame, *, arm: Row, scorer: Scorer
) -> list[dict[str, Any]]:
    """Score each order of one arm, and the arm's own prompts on the same queries.

    Args:
        tried: Outputs in every order: `id` of the query, `order`, and the columns that the scorer
            reads; every query in every order.
        own: The arm's own outputs of the same queries.
        arm: Its identifying fields.
        scorer: Outputs to figures.

    Returns:
        Rows of `ORDERS_SCHEMA`, orders by name, the arm's own first; none without a scored query.
    """
    key = {name: arm[name] for name in ARM_KEY}
    tables = [("as run", own), *((str(name), table) for name, table in tried.groupby("order"))]
    rows = []
    for at, (name, table) in enumerate(tables):
        figures = scorer(table.reset_index(drop=True))
        if figures["n"]:
            predicted = int(table["prediction"].notna().sum())
            rows.append(key | {"order": name, "own": at == 0, "n_predicted": predicted} | figures)
    return rows


def changed_share(tried: pd.DataFrame) -> float | None:
    """The share of queries that are not answered the same in every order; None without any."""
    kinds = tried.groupby("id")["prediction"].nunique(dropna=False)
    return float((kinds > 1).mean()) if len(kinds) else None


def spread_rows(rows: Sequence[Row], facts: Row, noise: Sequence[Row]) -> list[dict[str, Any]]:
    """How far the scores of one arm's orders spread, a row a metric.

    Args:
        rows: Of `order_rows`.
        facts: `k`, `n_possible`, `n_left_out`, `n_fewer` and `changed`.
        noise: Rows of `noise_rows` of the task, of the same queries as the orders.

    Returns:
        Rows of `ORDER_SPREAD_SCHEMA`; none below two orders. The floor is the range of repeats, and
        `below_floor` whether the range of the orders is no larger. Of many orders a range grows
        with their number; `sd` and `repeats_sd` do not.
    """
    tried = [row for row in rows if not row["own"]]
    if len(tried) < 2:
        return []
    found = []
    key = {name: tried[0][name] for name in ARM_KEY}
    for metric in [*METRICS, SCORE] if tried[0].get(METRICS[0]) is None else METRICS:
        values = np.array([row[metric] for row in tried if row.get(metric) is not None], np.float64)
        if len(values) > 1:
            own = [row[metric] for row in rows if row["own"]]
            name = tried[0]["metric"] if metric == SCORE else metric
            shared = {"metric": name, "n_orders": len(values), "n": tried[0]["n"]}
            found.append(
                {
                    **key,
                    **facts,
                    **shared,
                    **_spread(values, own),
                    **_floor(key, noise, name, values),
                }
            )
    return found


def _spread(values: np.ndarray[Any, np.dtype[np.float64]], own: Sequence[float]) -> Figures:
    found: Figures = {name: float(getattr(np, name)(values)) for name in ("min", "median", "max")}
    found |= {"sd": float(values.std(ddof=1)), "range": float(np.ptp(values))}
    if own:
        below = (values < own[0] - 1e-12).mean() + (np.abs(values - own[0]) <= 1e-12).mean() / 2
        found |= {"own": float(own[0]), "own_rank": float(below)}
    return found


def _floor(
    key: Row, noise: Sequence[Row], metric: str, values: np.ndarray[Any, np.dtype[np.float64]]
) -> Figures:
    arm, engine = key["arm"], key["engine"]
    near = repeats_near([arm], noise, engine)
    repeats = [
        (row[f"{name}_range"], name, row) for row in near if (name := column_of(row, metric))
    ]
    if not repeats:
        return {}
    floor, name, widest = max(repeats, key=lambda found: found[0])
    return {
        "floor": floor,
        "repeats_sd": widest[f"{name}_sd"],
        "n_repeats": widest["n"],
        "below_floor": is_below(float(np.ptp(values)), floor),
    }


# On the page.


def spread_table(rows: Sequence[Row]) -> Table:
    """How far the orders of each arm spread."""
    headings = [
        *("arm", "metric", "k", "orders", "of", "queries", "lowest", "median", "highest", "sd"),
        *("as run", "orders below it", "answers that change", "range", "noise floor (range)"),
        *("below it", "sd of repeats", "fewer than k shown", "left out"),
    ]
    cells = [
        [
            *(Cell(plain(row["arm"])), Cell(_metric(row))),
            *(_number(plain(row[name])) for name in ("k", "n_orders")),
            _number(f"{row['n_possible']:,.0f}"),
            *(_number(plain(row[name])) for name in ("n", "min", "median", "max", "sd", "own")),
            *(_number(_percent(row[name])) for name in ("own_rank", "changed")),
            *(_number(plain(row[name])) for name in ("range", "floor")),
            Cell(plain(row["below_floor"])),
            *(_number(plain(row[name])) for name in ("repeats_sd", "n_fewer", "n_left_out")),
        ]
        for row in rows
    ]
    return Table(headings, cells)


def order_table(rows: Sequence[Row]) -> Table:
    """Every order of every arm, one a row: the numbers behind the picture."""
    names = ("accuracy", "macro_f1", "score")
    headings = ["arm", "order", "queries", "with a prediction", "accuracy", "macro-F1", "score"]
    cells = [
        [
            *(Cell(plain(row[name])) for name in ("arm", "order")),
            *(_number(plain(row[name])) for name in ("n", "n_predicted", *names)),
        ]
        for row in rows
    ]
    return Table(headings, cells)


def violins_of(rows: Sequence[Row], spread: Sequence[Row]) -> dict[str, dict[str, Figures]]:
    """What is drawn: per metric, per arm, the `values` of its orders, its `own` and its `floor`."""
    panels: dict[str, dict[str, Figures]] = {}
    for one in spread:
        column = one["metric"] if one["metric"] in METRICS else SCORE
        values = [row[column] for row in rows if row["arm"] == one["arm"] and not row["own"]]
        drawn = {"values": values, "own": one.get("own"), "floor": one.get("floor")}
        panel = _metric(one)
        panels.setdefault(panel, {})[one["arm"]] = drawn
    return panels


def alt_text(spread: Sequence[Row]) -> str:
    """What the picture shows: lowest, median and highest score of each arm."""
    told = [
        f"{row['arm']} {_metric(row)} {row['min']:.3f}, {row['median']:.3f}, {row['max']:.3f}"
        for row in spread
    ]
    return (
        "Violins of scores over orders of the demonstrations. Lowest, median, highest: "
        f"{'; '.join(told)}."
    )


def caption(spread: Sequence[Row]) -> str:
    """How to read the picture, and what of it is drawn by chance."""
    some = [row["arm"] for row in spread if row["n_orders"] < row["n_possible"]]
    names = ", ".join(dict.fromkeys(some))
    drawn = (
        f" Of {names}, orders are a draw, so the ends are not the worst and the best."
        if some
        else ""
    )
    return (
        "Scores of the same demonstrations in every order, all on the same queries: a dot is an "
        "order, the violin their density, the bar their median, the diamond the arm's own prompts. "
        "The grey band is as wide as the noise floor, where there is one, around the median: what "
        "repeats of one order differ by. A best order found on these queries is overstated for "
        f"others.{drawn}"
    )


def _number(text: str) -> Cell:
    return Cell(text, number=True)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def _metric(row: Row) -> str:
    return NAMES[row["metric"]]
