"""What became of queries that an LLM wrote, and pictures of answers that are no single label."""

import pytest

from jobs.reporting.answer_pictures import class_picture, outcome_picture, score_picture
from jobs.reporting.outcomes import OUTCOMES, outcome_counts, outcome_of, outcome_table


def answer(arm, status, score, detail=None):
    return {"arm": arm, "status": status, "score": score, "detail": detail}


@pytest.mark.parametrize(
    ("status", "score", "detail", "outcome"),
    [
        ("ok", 1.0, None, "right"),
        ("ok", 0.0, None, "another result"),
        ("sql_error", 0.0, "no such column: height", "no such column"),
        ("sql_error", 0.0, "no such table: hill", "no such table"),
        ("sql_error", 0.0, 'near "FORM": syntax error', "syntax error"),
        ("sql_error", 0.0, "incomplete input", "syntax error"),
        ("sql_error", 0.0, 'unrecognized token: "\'x"', "syntax error"),
        ("sql_error", 0.0, "not allowed: FUNCTION printf", "not allowed"),
        ("sql_error", 0.0, "ambiguous column name: name", "another error"),
        ("sql_error", 0.0, None, "another error"),
        ("timeout", 0.0, "ran longer than 5 s", "took too long"),
        ("parse_error", 0.0, None, "no query written"),
        ("empty_output", 0.0, None, "no query written"),
        ("ok", None, "the gold query does not run: no such table: x", None),
    ],
)
def test_every_query_has_one_outcome_and_what_is_not_scored_has_none(
    status, score, detail, outcome
):
    found = outcome_of(answer("a", status, score, detail))
    assert found == outcome
    assert found is None or found in OUTCOMES


ANSWERS = [
    *(answer("b", "ok", 1.0), answer("b", "ok", 0.0), answer("b", "ok", 0.0)),
    *(answer("a", "timeout", 0.0), answer("b", "ok", None)),
]
SCORES = [
    {"metric": "execution_accuracy_unordered", "arm": arm, "against": against, "value": v, "n": n}
    for arm, against, v, n in (("b", None, 2 / 3, 3), ("a", None, 0.0, 1), ("b", "a", 0.5, 1))
]


def test_what_is_right_in_another_order_is_told_apart_and_the_sum_stays():
    counts = outcome_counts(ANSWERS, SCORES)
    assert list(counts) == ["b", "a"]
    assert {name: n for name, n in counts["b"].items() if n} == {
        "right": 1,
        "right but for the order of rows": 1,
        "another result": 1,
    }
    table = outcome_table(counts)
    assert table.headings == [
        *("arm", "right", "right but for the order of rows", "another result", "took too long")
    ]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["b", "1", "1", "1", "0"],
        ["a", "0", "0", "0", "1"],
    ]


def test_the_picture_of_outcomes_says_every_number_in_words():
    drawn = outcome_picture(outcome_counts(ANSWERS, SCORES))
    assert drawn.png.startswith(b"\x89PNG")
    assert "b: 1 right, 1 right but for the order of rows, 1 another result; " in drawn.alt
    assert drawn.alt.endswith("a: 1 took too long.")
    assert outcome_picture(outcome_counts([answer("a", "ok", None)], [])) is None


def test_the_picture_of_classes_shows_the_frequent_first():
    rows = [
        {"slice": way, "arm": "a", "value": name, "f1": f1, "support": n}
        for way, f1 in (("strict span", 0.25), ("relaxed span", 0.5))
        for name, n in (("rare", 1), ("often $x$", 9))
    ]
    drawn = class_picture(rows)
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.alt == (
        "F1 by class. a, strict span: often $x$ 0.250, rare 0.250; "
        "a, relaxed span: often $x$ 0.500, rare 0.500."
    )
    assert class_picture([]) is None


def test_the_picture_of_scores_has_the_main_ones_without_a_majority_line():
    names = ("strict_micro_f1", "strict_recall", "token_accuracy")
    rows = [
        {"metric": name, "arm": "a", "against": None, "value": 0.5, "low": 0.4, "high": 0.6}
        for name in names
    ]
    drawn = score_picture([*rows, rows[0] | {"against": "b"}])
    assert drawn.alt == (
        "Bars of strict span micro-F1, token accuracy (BIO) by arm: a 0.500 and 0.500."
    )
    assert score_picture([]) is None
