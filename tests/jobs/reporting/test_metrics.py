import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.scoring import score
from inference.status import Status
from jobs.errors import InvariantError
from jobs.reporting.metric_tables import (
    ARM_FIELDS,
    COMPARISON_SCHEMA,
    CONFUSION_SCHEMA,
    MAJORITY,
    SLICES_SCHEMA,
    SUMMARY_SCHEMA,
    to_arrow,
)
from jobs.reporting.metrics import Yardstick, compare, summarise

LABELS = ["a", "b", "c"]
ARM = {"task": "t", "encoder": "e", "engine": "g", "arm": "one"}
YARDSTICK = Yardstick(LABELS, {"a": 10, "b": 90}, seed=0, n_resamples=200)


def outputs(rows):
    """Rows of (gold, prediction, status); the rest is filled with round numbers."""
    n = len(rows)
    return pd.DataFrame(
        {
            "id": pd.Series([f"q{i}" for i in range(n)], dtype=object),
            "demonstration_ids": pd.Series([["x"] * (i % 3) for i in range(n)], dtype=object),
            "prompt_tokens": pd.Series([100 + i for i in range(n)], dtype="Int64"),
            "cached_tokens": pd.Series([50] * n, dtype="Int64"),
            "prediction": pd.Series([p for _, p, _ in rows], dtype=object),
            "gold": pd.Series([g for g, _, _ in rows], dtype=object),
            "status": pd.Series([str(s) for *_, s in rows], dtype=object),
            "engine_s": pd.Series([float(i) for i in range(n)], dtype="float64"),
            "queue_s": pd.Series([2.0] * n, dtype="float64"),
        }
    )


def summary_of(rows, **changes):
    return summarise(outputs(rows), arm=ARM, yardstick=YARDSTICK, **changes).summary


MIXED = [
    ("a", "a", Status.OK),
    ("b", "a", Status.OK),
    ("b", None, Status.PARSE_ERROR),
    ("c", None, Status.TOO_LONG),
    (None, "a", Status.OK),
]


def test_quality_counts_and_costs_of_a_small_arm_are_those_computed_by_hand():
    row = summary_of(MIXED, wall={"rows_per_s": 3.0, "tokens_per_s": 7.0})
    assert (row["n"], row["n_scored"], row["n_unscored"]) == (5, 4, 1)
    assert (row["n_ok"], row["n_parse_error"], row["n_too_long"], row["n_timeout"]) == (3, 1, 1, 0)
    assert row["accuracy"] == 0.25
    assert row["accuracy_low"] <= 0.25 <= row["accuracy_high"]
    assert row["macro_f1"] == pytest.approx((2 / 3) / 3)
    assert (row["majority_label"], row["majority_accuracy"]) == ("b", 0.5)
    assert row["majority_macro_f1"] == pytest.approx((2 / 3) / 3)
    assert row["parse_error_rate"] == 0.2
    assert row["prompt_tokens_mean"] == 102.0
    assert row["prompt_tokens_p95"] == pytest.approx(103.8)
    assert row["cached_token_share"] == pytest.approx(250 / 510)
    assert (row["engine_s_p50"], row["queue_s_p95"]) == (2.0, 2.0)
    assert row["engine_s_p95"] == pytest.approx(3.8)
    assert row["demonstrations_mean"] == pytest.approx((0 + 1 + 2 + 0 + 1) / 5)
    assert (row["rows_per_s"], row["tokens_per_s"]) == (3.0, 7.0)


def test_without_a_labelled_corpus_the_majority_is_that_of_the_queries():
    rows = [("c", "a", Status.OK), ("c", "a", Status.OK), ("a", "a", Status.OK)]
    yardstick = Yardstick(LABELS, {}, n_resamples=10)
    row = summarise(outputs(rows), arm=ARM, yardstick=yardstick).summary
    assert (row["majority_label"], row["majority_accuracy"]) == ("c", pytest.approx(2 / 3))


def test_slices_hold_every_label_and_confusion_every_scored_row():
    measured = summarise(outputs(MIXED), arm=ARM, yardstick=YARDSTICK)
    assert [row["value"] for row in measured.slices] == LABELS
    assert [row["support"] for row in measured.slices] == [1, 2, 1]
    cells = {(row["gold"], row["predicted"]): row["n"] for row in measured.confusion}
    assert cells == {("a", "a"): 1, ("b", "a"): 1, ("b", None): 1, ("c", None): 1}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*LABELS, None]),
            st.sampled_from([*LABELS, None]),
            st.sampled_from(list(Status)),
        ),
        max_size=20,
    )
)
def test_every_row_is_counted_once_and_fits_the_schema(rows):
    measured = summarise(outputs(rows), arm=ARM, yardstick=YARDSTICK)
    row = measured.summary
    assert row["n"] == len(rows) == sum(row[f"n_{status}"] for status in Status)
    assert row["n_scored"] + row["n_unscored"] == len(rows)
    assert sum(cell["n"] for cell in measured.confusion) == row["n_scored"]
    table = to_arrow([row], SUMMARY_SCHEMA)
    assert table.num_rows == 1
    to_arrow(measured.slices, SLICES_SCHEMA)
    to_arrow(measured.confusion, CONFUSION_SCHEMA)
    floats = [v for v in table.to_pylist()[0].values() if isinstance(v, float)]
    assert np.isfinite(floats).all()


def test_scores_are_those_of_the_scoring_module():
    rows = [("a", "b", Status.OK), ("b", "b", Status.OK), ("c", "c", Status.OK)]
    expected = score(["a", "b", "c"], ["b", "b", "c"], LABELS)
    row = summary_of(rows)
    assert (row["accuracy"], row["macro_f1"]) == (expected.accuracy, expected.macro_f1)


def test_an_arm_without_gold_has_no_scores_and_says_why():
    measured = summarise(
        outputs([(None, "a", Status.OK), (None, "b", Status.OK)]), arm=ARM, yardstick=YARDSTICK
    )
    assert measured.summary["accuracy"] is None
    assert measured.summary["n_unscored"] == 2
    assert measured.summary["notes"] == [
        "None of the 2 rows has a gold label of the task: no scores."
    ]
    assert (measured.slices, measured.confusion) == ([], [])


def test_an_arm_without_rows_has_nulls_and_says_why():
    row = summary_of([])
    assert (row["n"], row["accuracy"], row["engine_s_p95"], row["parse_error_rate"]) == (
        *(0, None, None, None),
    )
    assert row["notes"] == ["The arm has no output rows."]


def test_one_class_only_is_scored():
    row = summary_of([("a", "a", Status.OK)] * 3)
    assert (row["accuracy"], row["macro_f1"], row["macro_f1_high"]) == (1.0, 1.0, 1.0)


def test_labels_outside_the_task_are_counted_and_noted_never_scored_as_right():
    row = summary_of(
        [("other", "other", Status.OK), ("a", "other", Status.OK), ("a", "a", Status.OK)]
    )
    assert (row["n_scored"], row["accuracy"]) == (2, 0.5)
    assert "1 rows have a gold label outside" in row["notes"][0]
    assert "'other'" in row["notes"][0]
    assert row["notes"][1] == "2 predictions are outside the task's labels: counted as wrong."


def test_missing_engine_times_become_nulls_not_zeros():
    table = outputs(MIXED)
    table[["engine_s", "queue_s"]] = np.nan
    table["cached_tokens"] = pd.Series([None] * 5, dtype="Int64")
    row = summarise(table, arm=ARM, yardstick=YARDSTICK).summary
    names = ("engine_s_p50", "engine_s_p95", "queue_s_p95", "cached_token_share")
    assert [row[name] for name in names] == [None] * 4


def test_a_query_that_appears_twice_is_a_broken_promise():
    table = outputs(MIXED)
    table.loc[1, "id"] = "q0"
    with pytest.raises(InvariantError, match=r"arm 'one': 1 ids stand more than once.*'q0'"):
        summarise(table, arm=ARM, yardstick=YARDSTICK)


def test_an_unknown_status_or_arm_field_is_a_broken_promise():
    with pytest.raises(InvariantError, match="'lost' is none of ok, empty"):
        summarise(outputs([("a", "a", "lost")]), arm=ARM, yardstick=YARDSTICK)
    with pytest.raises(InvariantError, match="Unknown arm field 'size'; known: task, encoder"):
        summarise(outputs(MIXED), arm=ARM | {"size": 3}, yardstick=YARDSTICK)


def test_arm_fields_stand_in_the_summary_and_absent_ones_are_null():
    row = summary_of(MIXED)
    assert {name: row[name] for name in ARM_FIELDS} == dict.fromkeys(ARM_FIELDS) | ARM


def test_comparisons_hold_the_majority_and_each_opponent_but_never_the_arm_itself():
    right = [(label, label, Status.OK) for label in LABELS * 10]
    wrong = [(label, None, Status.PARSE_ERROR) for label in LABELS * 10]
    rows = compare(
        {"good": outputs(right), "random": outputs(wrong)},
        task="t",
        pairs=[("good", "random")],
        yardstick=YARDSTICK,
    )
    assert [(row["arm"], row["against"]) for row in rows] == [
        ("good", MAJORITY),
        ("good", "random"),
        ("random", MAJORITY),
    ]
    assert rows[1]["accuracy_difference"] == rows[1]["accuracy_low"] == 1.0
    assert rows[0]["accuracy_difference"] == pytest.approx(2 / 3)
    assert rows[2]["accuracy_high"] < 0
    assert to_arrow(rows, COMPARISON_SCHEMA).num_rows == 3


def test_an_llm_that_answers_nonsense_throughout_is_scored_and_said():
    row = summary_of([(label, None, Status.PARSE_ERROR) for label in LABELS * 4])
    assert (row["accuracy"], row["macro_f1"], row["n_parse_error"]) == (0.0, 0.0, 12)
    assert row["notes"] == [
        "None of the 12 scored rows has a prediction: every one counts as wrong."
    ]


def test_a_label_slice_has_the_recall_with_the_interval_of_its_queries():
    row = summarise(outputs(MIXED), arm=ARM, yardstick=YARDSTICK).slices[1]
    assert (row["n"], row["accuracy"], row["accuracy_low"]) == (2, 0.0, 0.0)
    assert row["accuracy_high"] == pytest.approx(1.96**2 / (2 + 1.96**2), abs=1e-4)


def test_arms_are_compared_on_the_queries_that_both_answered():
    first = outputs([("a", "a", Status.OK), ("b", "b", Status.OK), ("c", None, Status.TIMEOUT)])
    second = first.iloc[[2, 1]].assign(prediction=["c", "a"])
    rows = compare({"x": first, "y": second}, task="t", pairs=[("x", "y")], yardstick=YARDSTICK)
    (row,) = [row for row in rows if row["against"] == "y"]
    assert (row["n"], row["accuracy_difference"]) == (2, 0.0)


def test_an_arm_without_gold_is_compared_with_nothing():
    none = outputs([(None, "a", Status.OK)])
    assert compare({"x": none, "y": none}, task="t", pairs=[("x", "y")], yardstick=YARDSTICK) == []
