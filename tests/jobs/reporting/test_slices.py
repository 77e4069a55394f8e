import pytest

from inference.significance import paired_shares, wilson
from jobs.reporting.metric_tables import SLICE_DIFFERENCES_SCHEMA, SLICES_SCHEMA, to_arrow
from jobs.reporting.slices import (
    by_column,
    by_label,
    by_length,
    by_nearest,
    slice_differences,
    slice_rows,
)

ARM = {"task": "t", "encoder": "e", "engine": "g", "arm": "x"}
MINE = {"q0": ("a", "a"), "q1": ("a", "b"), "q2": ("b", "b"), "q3": ("b", "b")}
THEIRS = {"q0": ("a", None), "q1": ("a", "a"), "q2": ("b", None), "q3": ("b", None)}


def test_quartiles_of_length_hold_a_quarter_each_and_are_named_by_their_ends():
    found = by_length({f"q{i}": i + 1 for i in range(8)})
    assert found.order == ["1 to 2", "3 to 4", "5 to 6", "7 to 8"]
    assert found.values["q3"] == "3 to 4"


def test_equal_lengths_are_one_slice_and_no_length_is_none():
    assert by_length(dict.fromkeys("abcd", 7)).order == ["7"]
    assert by_length({"a": 5, "b": 5, "c": 5, "d": 9}).order == ["5", "9"]
    assert by_length({}).values == {}


def test_values_of_a_column_come_by_frequency_and_rare_ones_together():
    found = by_column("year", {"a": "x", "b": "y", "c": "y", "d": None})
    assert (found.name, found.order) == ("column year", ["y", "none", "x"])
    many = by_column("id", {str(i): f"v{i:02}" for i in range(23)})
    assert many.order == [*(f"v{i:02}" for i in range(20)), "3 other values"]
    assert many.values["22"] == "3 other values"


def test_nearness_goes_in_steps_whose_lower_end_is_inside():
    found = by_nearest({"a": -0.2, "b": 0.3, "c": 0.59, "d": 0.9, "e": 1.0, "f": None})
    assert list(found.values.values()) == [
        *("below 0.3", "0.3 to 0.5", "0.5 to 0.6", "0.9 and above", "0.9 and above"),
        "none shown",
    ]


def test_scores_of_a_slice_are_those_of_its_queries_with_unknown_ones_last():
    slicing = by_column("c", {"q1": "low", "q2": "low", "q3": "low"})
    rows = slice_rows(MINE, slicing, arm=ARM, labels=["a", "b"])
    assert [(row["value"], row["n"]) for row in rows] == [("low", 3), ("unknown", 1)]
    assert rows[0]["accuracy"] == pytest.approx(2 / 3)
    assert (rows[0]["accuracy_low"], rows[0]["accuracy_high"]) == wilson(2, 3)
    assert rows[0]["macro_f1"] == pytest.approx(0.8 / 2)
    assert to_arrow(rows, SLICES_SCHEMA).num_rows == 2


def test_differences_by_slice_are_paired_with_their_interval():
    rows = slice_differences((MINE, THEIRS), by_label(MINE, ["a", "b"]), arm=ARM, against="y")
    assert [(row["value"], row["n"], row["accuracy_difference"]) for row in rows] == [
        *(("a", 2, 0.0), ("b", 2, 1.0))
    ]
    assert [(row["low"], row["high"]) for row in rows] == [
        *(paired_shares(0, 1, 1, 0), paired_shares(0, 2, 0, 0))
    ]
    assert to_arrow(rows, SLICE_DIFFERENCES_SCHEMA).num_rows == 2


def test_only_queries_that_both_were_scored_on_are_compared():
    fewer = {"q3": THEIRS["q3"]}
    rows = slice_differences((MINE, fewer), by_label(MINE, ["a", "b"]), arm=ARM, against="y")
    assert [(row["value"], row["n"]) for row in rows] == [("b", 1)]
    assert slice_rows({}, by_length({}), arm=ARM, labels=["a"]) == []
