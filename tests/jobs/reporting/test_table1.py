from dataclasses import replace

import pandas as pd
import pytest

from jobs.reporting.model import ReportModel
from jobs.reporting.page import build_page
from jobs.reporting.table1 import (
    TABLE1_SCHEMA,
    is_wanted,
    method_of,
    table1,
    table1_rows,
    usual_baseline,
)
from tests.jobs.metric_rows import paired_row, summary_row
from tests.jobs.report_example import example_model


def cells(table):
    return [[cell.text for cell in row] for row in table.rows]


def block(task, engine, scores):
    """Summary rows of one task and LLM: arms by name with (stage1, accuracy, macro-F1)."""
    return [
        summary_row(f"{arm}+engine={engine}+task={task}", task, engine, *figures)
        for arm, figures in scores.items()
    ]


SUMMARY = [
    *block("ddi", "one", {"random": ("random", 0.5, 0.25), "dual-div": ("dual-div", 0.75, 0.5)}),
    *block("ddi", "two", {"random": ("random", 0.625, 0.375), "dual-div": ("dual-div", 0.5, 0.25)}),
    *block(
        "advice", "one", {"random": ("random", 0.25, 0.125), "dual-div": ("dual-div", 0.5, 0.5)}
    ),
    *block("advice", "two", {"random": ("random", None, None)}),
]
TESTS = [
    paired_row("dual-div+engine=one+task=ddi", "random+engine=one+task=ddi", "ddi", "one")
    | {"metric": metric, "mean_difference": mean, "p_holm": p, "below_floor": below}
    for metric, mean, p, below in (
        ("accuracy", 0.24, 0.0004, False),
        ("macro_f1", 0.26, 0.06, True),
    )
]


def test_the_layout_is_llm_by_method_by_data_set_with_a_diff_row_below_each_method():
    table = table1(table1_rows(SUMMARY, TESTS))
    assert table.headings == [
        *("LLM", "method", "ddi: accuracy", "ddi: macro-F1", "advice: accuracy"),
        "advice: macro-F1",
    ]
    assert cells(table) == [
        ["one", "majority label", "0.100", "0.050", "0.100", "0.050"],
        ["one", "random", "0.500", "0.250", "0.250", "0.125"],
        ["one", "dual-div", "0.750", "0.500", "0.500", "0.500"],
        ["one", "Diff to random", "+0.240***", "+0.260\N{DEGREE SIGN}", "-", "-"],
        ["two", "majority label", "0.100", "0.050", "0.100", "0.050"],
        ["two", "random", "0.625", "0.375", "-", "-"],
        ["two", "dual-div", "0.500", "0.250", "-", "-"],
    ]
    shaded = [[cell.shade > 0 for cell in row[2:]] for row in table.rows]
    assert shaded[2] == [True] * 4
    assert shaded[5] == [True, True, False, False]
    assert shaded[1] == [False] * 4


def test_a_difference_is_turned_round_where_the_baseline_was_the_tested_arm():
    rows = table1_rows(SUMMARY, TESTS, against="dual-div")
    found = {r["arm"]: r["mean_difference"] for r in rows if "mean_difference" in r}
    assert found == {"random+engine=one+task=ddi": -0.26}
    accuracy = [r for r in rows if r["metric"] == "accuracy" and "against" in r]
    assert [(r["mean_difference"], r["p_holm"]) for r in accuracy] == [(-0.24, 0.0004)]
    assert accuracy[0]["against"] == "dual-div+engine=one+task=ddi"


def test_a_difference_that_is_turned_round_is_that_of_the_other_arms_encoder():
    figures = ("x", 0.5, 0.5)
    rows = [
        summary_row(arm, "ddi", "one", *figures) | {"encoder": encoder}
        for arm, encoder in (("knn", "e1"), ("random", "e1"), ("random", "e2"))
    ]
    test = paired_row("knn", "random", "ddi", "one") | {"encoder": "e1", "encoder_b": "e2"}
    found = table1_rows(rows, [test | {"mean_difference": 0.1}], against="knn")
    assert [(r["arm"], r["encoder"]) for r in found if r.get("against")] == [("random", "e2")]


def test_arms_whose_names_say_the_same_method_keep_a_line_each():
    rows = [
        summary_row(arm, "ddi", "one", "x", value, value)
        for arm, value in (("knn", 0.6), ("knn+engine=one", 0.7))
    ]
    assert [line[:2] for line in cells(table1(table1_rows(rows, [])))[1:]] == [
        ["knn", "0.600"],
        ["knn+engine=one", "0.700"],
    ]


@pytest.mark.parametrize(
    ("p", "mark"),
    [(0.05, ""), (0.049, "*"), (0.01, "*"), (0.009, "**"), (0.0009, "***"), (None, "")],
)
def test_stars_go_by_the_corrected_p(p, mark):
    tests = [row | {"p": 1e-9, "p_holm": p, "below_floor": None} for row in TESTS]
    assert cells(table1(table1_rows(SUMMARY, tests)))[3][2] == f"+0.240{mark}"


def test_the_usual_baseline_is_random_selection_even_where_another_has_more_tests():
    zero = [paired_row(f"x{i}", "zero-shot", "ddi", "one") for i in range(9)]
    assert usual_baseline(SUMMARY, [*zero, *TESTS]) == "random"
    assert usual_baseline(SUMMARY, zero) == "zero-shot"
    assert usual_baseline(SUMMARY, []) is None


def test_each_repeat_of_the_baseline_is_the_baseline_of_its_own_twins():
    scores = {
        f"{arm}+seed={seed}": (arm, 0.5, 0.5) for arm in ("random", "dual-div") for seed in (0, 1)
    }
    summary = block("ddi", "one", scores)
    arms = [row["arm"] for row in summary]
    tests = [
        paired_row(arms[2 + seed], arms[seed], "ddi", "one")
        | {"metric": metric, "mean_difference": 0.1 + seed, "p_holm": 0.5, "below_floor": False}
        for metric in ("accuracy", "macro_f1")
        for seed in (0, 1)
    ]
    rows = table1_rows(summary, tests)
    found = {(r["method"], r["mean_difference"]) for r in rows if r.get("against")}
    assert found == {("dual-div+seed=0", 0.1), ("dual-div+seed=1", 1.1)}
    assert [line[:2] for line in cells(table1(rows))][3:] == [
        ["dual-div+seed=0", "0.500"],
        ["Diff to random", "+0.100"],
        ["dual-div+seed=1", "0.500"],
        ["Diff to random", "+1.100"],
    ]
    one = table1_rows(summary, tests, against="random+seed=1")
    assert {r["method"] for r in one if r.get("against")} == {"dual-div+seed=1"}


def test_without_a_test_there_are_scores_and_no_diff_row():
    assert [row[1] for row in cells(table1(table1_rows(SUMMARY, [])))].count("Diff to random") == 0


def test_a_task_whose_answer_is_no_label_has_the_one_column_that_decides_for_it():
    row = summary_row("knn", "ner", "one", "dual-div", None, None)
    row |= {"metric": "strict_micro_f1", "score": 0.4, "score_low": 0.3, "score_high": 0.5}
    table = table1(table1_rows([*SUMMARY[:2], row], []))
    assert table.headings[-1] == "ner: strict span micro-F1"
    assert ["knn", "-", "-", "0.400"] in cells(table)


def test_only_what_a_grid_added_is_taken_off_a_name():
    assert method_of("random+knn+engine=a+k=4+task=b+encoder=c") == "random+knn+k=4"


def test_encoders_are_blocks_of_their_own():
    rows = [summary_row("knn", "ddi", "one", "x", 0.5, 0.5) | {"encoder": e} for e in ("a", "b")]
    table = table1(table1_rows(rows, []))
    assert table.headings[:2] == ["encoder", "method"]
    assert [row[0] for row in cells(table)] == ["a", "a", "b", "b"]


def test_every_field_of_a_row_is_in_the_schema():
    rows = table1_rows(SUMMARY, TESTS)
    assert {key for row in rows for key in row} == set(TABLE1_SCHEMA.names)


def test_the_page_has_the_table_from_two_tasks_or_engines_on():
    model = example_model(n_queries=60, n_map=80)
    assert not is_wanted(table1_rows(model.summary.to_dict("records"), []))
    assert 'id="table1"' not in build_page(model, [])
    hostile = "<script>two</script>"
    both = [
        model.summary.assign(engine=hostile),
        model.paired_tests.assign(engine=hostile, engine_b=hostile),
    ]
    page = build_page(
        replace(
            model,
            summary=pd.concat([model.summary, both[0]]),
            paired_tests=pd.concat([model.paired_tests, both[1]]),
        ),
        [],
    )
    part = page.partition('id="table1"')[2].partition("<h2")[0]
    assert part.count("Diff to random+knn") == 2 * 4
    assert "&lt;script&gt;two" in part
    assert "<script" not in page
    assert 'id="table1"' not in build_page(ReportModel("empty"), [])


def test_a_task_with_a_score_of_its_own_has_one_column_also_where_an_llm_was_not_scored():
    rows = [
        summary_row("knn", "parts", engine, "random", None, None)
        | {"metric": "strict_micro_f1", "score": score, "score_low": score, "score_high": score}
        for engine, score in (("one", 0.5), ("two", None))
    ]
    table = table1(table1_rows(rows, []))
    assert table.headings == ["LLM", "method", "parts: strict span micro-F1"]
    assert cells(table) == [["one", "knn", "0.500"], ["two", "knn", "-"]]
