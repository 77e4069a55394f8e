import pytest

from jobs.reporting.cases import (
    MAX_DEMONSTRATION,
    MAX_QUERY,
    Answer,
    Record,
    Shown,
    cases_of,
    choose,
    excerpt,
)
from jobs.reporting.model import ReportModel
from jobs.reporting.page import build_page
from tests.jobs.report_example import example_model


def answers(gold, **predictions):
    """Answers of arms to queries q0, q1, ... from strings with one prediction a query; - none."""
    return {
        arm: {
            f"q{i}": Answer(
                None if g == "-" else g,
                None if p == "-" else p,
                "ok",
                right=None if g == "-" else g == p,
            )
            for i, (g, p) in enumerate(zip(gold, row, strict=True))
        }
        for arm, row in predictions.items()
    }


def test_queries_that_one_arm_has_right_and_another_wrong_come_first_then_other_differences():
    found = answers("aaaa-a", one="abbabc", two="ababac")
    # q1 and q5: both wrong in the same way; q4: no gold.
    assert choose(found) == ["q2", "q3"]
    found = answers("aaaaaa", one="abcbab", two="acabab")
    assert choose(found) == ["q2", "q1"]
    assert choose(found, n=1) == ["q2"]


def test_right_is_what_the_score_says_and_not_whether_texts_are_equal():
    """Two queries that return the same rows; and one that is written like gold and is not run."""
    found = {
        "one": {"q0": Answer("x", "x", "ok", right=True), "q1": Answer("y", "y", "ok", right=True)},
        "two": {
            "q0": Answer("x", "X", "ok", right=True),
            "q1": Answer("y", "y", "ok", right=False),
        },
    }
    assert choose(found) == ["q1", "q0"]


def test_without_a_difference_or_gold_there_is_no_case():
    assert choose(answers("ab-", one="bbx", two="bby")) == []
    assert choose(answers("ab", only="bb")) == []
    assert choose({}) == []


def test_an_arm_that_lacks_a_query_does_not_hide_it():
    found = answers("aa", one="ab", two="bb")
    del found["two"]["q1"]
    assert choose(found) == ["q0"]


def test_a_case_has_every_arm_with_what_it_showed_in_the_order_of_the_prompt():
    found = {
        "knn": {"q": Answer("x", "x", "ok", ["r2", "r1", "lost"], right=True)},
        "zero-shot": {"q": Answer("x", None, "parse_error", right=False)},
        "absent": {},
    }
    records = {"r1": Record("one", "x"), "r2": Record("two", None)}
    (case,) = cases_of("t", ["q"], answers=found, queries={"q": "text"}, records=records)
    assert (case.task, case.id, case.text, case.gold) == ("t", "q", "text", "x")
    assert [(one.arm, one.verdict) for one in case.arms] == [
        ("knn", "right"),
        ("zero-shot", "wrong"),
    ]
    assert case.arms[0].demonstrations == [
        *(Shown("r2", "two", None), Shown("r1", "one", "x"), Shown("lost", "", None))
    ]
    assert case.arms[1].demonstrations == []
    assert case.right == "1 of 2 arms right"


@pytest.mark.parametrize(
    ("gold", "one_label", "verdict"), [(None, True, "not scored"), ("x", False, "")]
)
def test_what_is_not_judged_by_one_label_has_no_verdict(gold, one_label, verdict):
    found = {"knn": {"q": Answer(gold, "x", "ok")}}
    (case,) = cases_of(
        "t", ["q"], answers=found, queries={"q": ""}, records={}, one_label=one_label
    )
    assert case.arms[0].verdict == verdict
    assert case.right == ""


def test_long_texts_are_cut_and_say_so():
    found = {"knn": {"q": Answer("x", "x", "ok", ["r"])}}
    long = "word " * 1000
    (case,) = cases_of(
        "t", ["q"], answers=found, queries={"q": long}, records={"r": Record(long, "x")}
    )
    assert case.text.endswith(" [... 5,000 characters in all]")
    assert len(case.text) < MAX_QUERY + 40
    assert len(case.arms[0].demonstrations[0].text) < MAX_DEMONSTRATION + 40
    assert excerpt("x" * 5, 5) == "x" * 5


def test_an_id_that_is_no_query_is_said_and_loses_nothing_else():
    (case,) = cases_of("t", ["nope"], answers={"knn": {}}, queries={}, records={})
    assert (case.text, case.gold, case.arms, case.right) == (None, None, [], "")
    page = build_page(ReportModel("x", cases=[case]), [])
    assert "No query has this id (report.cases)." in page


def test_the_page_shows_the_arms_side_by_side_and_no_text_becomes_markup():
    page = build_page(example_model(n_queries=60, n_map=80), [])
    part = page.partition('id="cases"')[2].partition("<h2")[0]
    assert part.count("<section>") == 2 * 5
    assert part.count("No demonstrations were shown.") == 2 * 2
    assert "q1: gold stones &lt;script&gt;alert(1)&lt;/script&gt;; 2 of 5 arms right" in part
    assert "a grey pebble &lt;script&gt;" in part
    assert "[... 413 characters in all]" in part
    assert "No query has this id" in part
    assert "<script" not in part
