import io

import matplotlib.image
import numpy as np
import pytest

from jobs.reporting.charts import (
    MAX_CONFUSION,
    _lumped,
    confusion_heatmap,
    label_coverage,
    metric_bars,
    one_line,
    umap_map,
)


def pixels(png):
    return matplotlib.image.imread(io.BytesIO(png), format="png")[:, :, :3]


def has_colour(png, colour, *, tolerance=0.02):
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return bool((np.abs(pixels(png) - wanted).max(axis=2) < tolerance).any())


def bars(n):
    values = [(0.5, 0.4, 0.6, 0.1)] * n
    return metric_bars([f"arm {i}" for i in range(n)], {"accuracy": values, "macro-F1": values})


def test_equal_values_give_equal_bytes():
    assert bars(3) == bars(3)


def test_every_arm_adds_height_so_that_names_do_not_overlap():
    assert pixels(bars(30)).shape[0] > pixels(bars(3)).shape[0] + 27 * 40


def test_the_bars_show_the_baseline_in_its_own_colour():
    assert has_colour(bars(2), "#B2182B")


def test_an_interval_that_leaves_out_its_own_value_is_drawn_from_the_value_on():
    inside, outside, point = (
        metric_bars(["x"], {"f": [(0.5, low, 0.6, 0.1)]}) for low in (0.4, 0.55, 0.5)
    )
    assert outside == point != inside


def test_a_label_without_a_candidate_shows_a_red_nought():
    corpus = {"a": 5, "b": 5}
    assert has_colour(label_coverage(corpus, {"m": {"a": 2}}), "#B2182B", tolerance=0.1)
    assert not has_colour(label_coverage(corpus, {"m": {"a": 1, "b": 1}}), "#B2182B", tolerance=0.1)


def test_the_map_colours_the_frequent_labels_and_greys_the_rest():
    points = np.random.default_rng(0).normal(size=(120, 2))
    labels = [f"label {i % 12}" for i in range(120)]
    few = umap_map(points, labels[:120], {"m": np.arange(120)})
    assert has_colour(few, "#332288")
    assert has_colour(few, "#8A8A8A")
    plain = umap_map(points, ["a"] * 120, {"m": np.arange(3)})
    assert not has_colour(plain, "#CC6677")


@pytest.mark.parametrize("n_methods", [1, 2, 3, 5])
def test_every_method_gets_a_panel_on_the_map(n_methods):
    points = np.zeros((4, 2))
    png = umap_map(points, [None] * 4, {f"m{i}": np.array([i % 4]) for i in range(n_methods)})
    height, width, _ = pixels(png).shape
    assert width > 500 * min(n_methods, 3)
    assert height > 500 * -(-n_methods // 3)


def test_more_labels_than_a_chart_holds_are_put_together_and_none_is_lost():
    n = MAX_CONFUSION + 25
    rng = np.random.default_rng(1)
    confusion = rng.integers(0, 4, size=(n, n + 1))
    confusion[7] += 100
    table, names = _lumped(confusion, [f"label {i}" for i in range(n)])
    assert table.shape == (MAX_CONFUSION, MAX_CONFUSION + 1)
    assert table.sum() == confusion.sum()
    assert table[:, -1].sum() == confusion[:, -1].sum()
    assert "label 7" in names
    assert names[-1] == "other (26 labels)"


def test_few_labels_are_drawn_as_they_are():
    confusion = np.arange(6).reshape(2, 3)
    table, names = _lumped(confusion, ["a", "b"])
    np.testing.assert_array_equal(table, confusion)
    assert names == ["a", "b"]


HOSTILE = [
    "$x^{2$ and $",
    r"\frac{",
    "line\nbreak\ttab",
    "\x00\x07",
    "",
    "漢字かな",
    "a" * 500,
    "{}%s",
]


def test_hostile_labels_are_drawn_as_text_never_as_formulas():
    n = len(HOSTILE)
    counts = dict.fromkeys(HOSTILE, 3)
    confusion_heatmap(np.ones((n, n + 1), dtype=np.int64), HOSTILE)
    label_coverage(counts, {name: counts for name in HOSTILE})
    umap_map(np.eye(n, 2), HOSTILE, {name: np.array([0]) for name in HOSTILE})
    metric_bars(HOSTILE, {"accuracy": [(0.5, 0.4, 0.6, 0.1)] * n})
    assert one_line("cost: $5 and $6", 40) == r"cost: \$5 and \$6"
    assert one_line("a" * 500, 20) == "a" * 17 + "..."
    assert one_line("line\nbreak\ttab", 40) == "line break tab"
