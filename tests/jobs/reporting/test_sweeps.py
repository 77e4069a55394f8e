import numpy as np
import pytest

from jobs.reporting.charts import _places, sweep_lines
from jobs.reporting.page import build_page, draw_pictures
from jobs.reporting.sweeps import (
    MAX_LINES,
    Sweep,
    alt_text,
    caption,
    majority_of,
    panels_of,
)
from tests.jobs.metric_rows import summary_row
from tests.jobs.report_example import example_model
from tests.jobs.reporting.test_charts import HOSTILE, has_colour, pixels


def sweep(lines, setting="stage2.k"):
    made = {
        name: [(x, summary_row(f"{name}{x}", "t", "g", "s", y, y / 2)) for x, y in points]
        for name, points in lines.items()
    }
    return Sweep("t", setting, made)


TWO = sweep({"knn": [(1, 0.25), (4, 0.5), (8, 0.4)], "zero-shot": [(1, 0.25), (8, 0.25)]})


def test_both_metrics_have_each_line_with_its_intervals():
    panels = panels_of(TWO)
    assert list(panels) == ["accuracy", "macro-F1"]
    assert panels["accuracy"]["knn"] == [
        *((1, 0.25, 0.2, 0.3), (4, 0.5, 0.45, 0.55), (8, 0.4, 0.4 - 0.05, 0.4 + 0.05))
    ]
    assert panels["macro-F1"]["zero-shot"][1][:2] == (8, 0.125)
    assert majority_of(TWO) == {"accuracy": 0.1, "macro-F1": 0.05}


def test_a_task_with_one_score_has_one_panel():
    row = summary_row("a", "t", "g", "s", None, None)
    row |= {"metric": "strict_micro_f1", "score": 0.5, "score_low": 0.4, "score_high": 0.6}
    one = Sweep("t", "stage2.k", {"a": [(1, row), (2, row)]})
    points = [(1, 0.5, 0.4, 0.6), (2, 0.5, 0.4, 0.6)]
    assert panels_of(one) == {"strict span micro-F1": {"a": points}}
    assert majority_of(one) == {}
    assert pixels(sweep_lines("k", panels_of(one), majority_of(one))).shape[0] > 400


def test_the_alt_text_names_ends_and_highest_point_of_each_line():
    assert alt_text(TWO) == (
        "Lines of accuracy and macro-F1 over stage2.k. macro-F1: knn from 0.125 at 1 to 0.200 at "
        "8, highest 0.250 at 4; zero-shot from 0.125 at 1 to 0.125 at 8, highest 0.125 at 1."
    )


def test_more_lines_than_colours_are_left_out_and_the_caption_says_how_many():
    many = sweep({f"line {i}": [(1, 0.5), (2, 0.5)] for i in range(MAX_LINES + 3)})
    assert len(panels_of(many)["accuracy"]) == MAX_LINES
    assert "3 more lines are left out" in caption(many)
    assert "left out" not in caption(TWO)
    sweep_lines("k", panels_of(many), {})


def test_lines_have_their_colours_and_the_baseline_is_red():
    png = sweep_lines("k", panels_of(TWO), majority_of(TWO))
    assert has_colour(png, "#332288")
    assert has_colour(png, "#CC6677")
    assert has_colour(png, "#B2182B")
    assert not has_colour(sweep_lines("k", panels_of(TWO), {}), "#B2182B")
    assert png == sweep_lines("k", panels_of(TWO), majority_of(TWO))


@pytest.mark.parametrize("numbers", [(0, 1000), (0.01, 100), (5, 6), (-1, 1)])
def test_any_numbers_can_be_swept_and_any_name_drawn(numbers):
    lines = {name: [(x, 0.5) for x in numbers] for name in HOSTILE}
    sweep_lines("$k_{", panels_of(sweep(lines)), {})


@pytest.mark.parametrize(
    ("numbers", "places"),
    [
        ([1, 2, 19], [1, 2, 19]),
        ([1, 10, 100], [0, 1, 2]),
        ([0, 0.1, 10], [-3, -1, 1]),
        ([0, 5], [0, 5]),
        ([-1, 1, 50], [-1, 1, 50]),
    ],
)
def test_wide_numbers_stand_by_their_logarithm_and_nought_before_them(numbers, places):
    np.testing.assert_allclose(_places(np.array(numbers, float)), places)


def test_the_page_has_the_picture_in_its_section():
    model = example_model(n_queries=60, n_map=80)
    pictures = [one for one in draw_pictures(model) if one.section == "sweeps"]
    assert [(one.name, one.task) for one in pictures] == [("sweep-1.png", "things")]
    part = build_page(model, pictures).partition('id="sweeps"')[2].partition("<h2")[0]
    assert part.count("<img") == 1
    assert "over stage2.k; arms on a line" in part
