"""Scores over orders: each order on the same queries, their spread beside that of repeats."""

import pandas as pd
import pytest

from jobs.reporting.noise import noise_rows
from jobs.reporting.orders import (
    alt_text,
    caption,
    changed_share,
    label_scorer,
    order_rows,
    order_table,
    spread_rows,
    spread_table,
    violins_of,
)
from jobs.reporting.violins import violins
from tests.jobs.reporting.test_charts import pixels

ARM = {"task": "t", "encoder": "e", "engine": "llm", "arm": "knn", "k": 2}
GOLD = {"q0": "x", "q1": "x", "q2": "y", "q3": "y"}
# Right answers: all four; three; three; one. The arm itself: two.
ANSWERS = {"1-2": "xxyy", "2-1": "xxyx", "3-1": "xyyy", "1-3": "yyxy"}
FACTS = {"k": 2, "n_possible": 24.0, "n_left_out": 0, "n_fewer": 1, "changed": 0.75}


def outputs(predictions, **more):
    rows = [
        {"id": id_, "gold": gold, "prediction": p, **more}
        for (id_, gold), p in zip(GOLD.items(), predictions, strict=True)
    ]
    return pd.DataFrame(rows)


def tried():
    return pd.concat([outputs(said, order=name) for name, said in ANSWERS.items()])


def rows_of(own="xyyx"):
    return order_rows(tried(), outputs(own), arm=ARM, scorer=label_scorer(["x", "y"]))


def test_every_order_is_scored_on_its_own_and_the_arm_itself_beside_them():
    rows = rows_of()
    assert [(row["order"], row["own"], row["accuracy"]) for row in rows] == [
        ("as run", True, 0.5),
        ("1-2", False, 1.0),
        ("1-3", False, 0.25),
        ("2-1", False, 0.75),
        ("3-1", False, 0.75),
    ]
    assert {(row["n"], row["n_predicted"]) for row in rows} == {(4, 4)}
    # Of x: precision 2/3, recall 1; of y: 1 and 1/2.
    assert rows[3]["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)


def test_a_query_answered_alike_in_every_order_does_not_change():
    # q3 is y, x, y, y; q0 is x, x, x, y; all four change in one order.
    assert changed_share(tried()) == 1.0
    assert changed_share(tried()[lambda table: table["order"] != "1-3"]) == 0.5
    assert changed_share(tried().iloc[:0]) is None


def test_the_spread_is_that_of_the_orders_and_repeats_stand_beside_it():
    noise = [
        {"arms": ["knn", "again"], "varies": "repeat", "engine": "llm", "n": 2}
        | {f"{m}_{part}": 0.5 for m in ("accuracy", "macro_f1") for part in ("range", "sd")},
        {"arms": ["other"], "varies": "seed", "engine": "llm", "n": 3}
        | {f"{m}_{part}": 0.9 for m in ("accuracy", "macro_f1") for part in ("range", "sd")},
    ]
    accuracy, macro_f1 = spread_rows(rows_of(), FACTS, noise)
    assert [accuracy[name] for name in ("min", "median", "max", "range")] == [0.25, 0.75, 1, 0.75]
    # Deviations from .6875: .3125, -.4375, .0625, .0625.
    assert accuracy["sd"] == pytest.approx((0.296875 / 3) ** 0.5)
    assert (accuracy["own"], accuracy["own_rank"]) == (0.5, 0.25)
    assert (accuracy["floor"], accuracy["n_repeats"], accuracy["below_floor"]) == (0.5, 2, False)
    assert macro_f1["metric"] == "macro_f1"
    assert spread_rows(rows_of(), FACTS, [noise[1]])[0].get("floor") is None
    assert spread_rows(rows_of()[:2], FACTS, []) == []


def test_other_scores_have_their_floor_and_their_name_in_words():
    rows = [
        {k: v for k, v in row.items() if k not in ("accuracy", "macro_f1")}
        | {"metric": "strict_micro_f1"}
        for row in rows_of()
    ]
    summary = [{**ARM, "arm": name, "repeat": i} for i, name in enumerate(("knn", "again"))]
    scores = [{"score": x, "metric": "strict_micro_f1"} for x in (0.25, 0.5)]
    pairs = zip(summary, scores, strict=True)
    noise = noise_rows([one | two for one, two in pairs], [["knn", "again"]])
    (row,) = spread_rows(rows, FACTS, noise)
    assert (row["metric"], row["floor"], row["below_floor"]) == ("strict_micro_f1", 0.25, False)
    ((_, name, *_),) = spread_table([row]).rows
    assert name.text == "strict span micro-F1"


def test_an_order_as_good_as_the_arm_itself_counts_half():
    accuracy, _ = spread_rows(rows_of(own="xxyx"), FACTS, [])
    assert accuracy["own_rank"] == 0.25 + 0.25


def test_tables_and_words_hold_the_numbers():
    rows, spread = rows_of(), spread_rows(rows_of(), FACTS, [])
    blank = dict.fromkeys(("floor", "repeats_sd", "n_repeats", "below_floor", "score"))
    spread = [blank | row for row in spread]
    (first, _) = spread_table(spread).rows
    assert [cell.text for cell in first[:10]] == [
        *("knn", "accuracy", "2", "4", "24", "4", "0.250", "0.750", "1.000", "0.315")
    ]
    assert len(order_table([{"score": None} | row for row in rows]).rows) == 5
    assert "knn accuracy 0.250, 0.750, 1.000" in alt_text(spread)
    assert "Of knn, orders are a draw" in caption(spread)
    whole = [row | {"n_possible": 4.0} for row in spread]
    assert "draw" not in caption(whole)


def test_every_arm_has_its_violin_and_equal_scores_none():
    spread = spread_rows(rows_of(), FACTS, [])
    panels = violins_of(rows_of(), spread)
    assert panels["accuracy"]["knn"]["values"] == [1.0, 0.25, 0.75, 0.75]
    one = pixels(violins(panels)).shape
    for panel in panels.values():
        panel["same"] = {"values": [0.5] * 3, "own": None, "floor": 0.1}
    more = pixels(violins(panels)).shape
    assert more[0] > one[0]
    assert more[1] == one[1]
