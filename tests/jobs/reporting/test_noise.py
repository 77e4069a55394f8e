import pytest

from jobs.reporting.metric_tables import NOISE_SCHEMA, to_arrow
from jobs.reporting.noise import floor_of, is_below, noise_rows, with_floors


def scored(name, accuracy, **changes):
    row = {"task": "t", "encoder": "e", "engine": "g", "arm": name, "seed": 0, "repeat": 0}
    return row | {"accuracy": accuracy, "macro_f1": accuracy} | changes


def difference(arm, against, accuracy):
    row = {"arm": arm, "against": against, "accuracy_difference": accuracy}
    return row | {"macro_f1_difference": accuracy}


def test_mean_sd_and_range_over_seeds_are_those_computed_by_hand():
    summary = [scored(f"r{i}", x, seed=i) for i, x in enumerate([0.4, 0.5, 0.6])]
    (row,) = noise_rows(summary, [["r0", "r1", "r2"]])
    assert (row["arms"], row["varies"], row["n"]) == (["r0", "r1", "r2"], "seed", 3)
    figures = [row[f"accuracy_{part}"] for part in ("mean", "sd", "range")]
    assert figures == pytest.approx([0.5, 0.1, 0.2])
    assert to_arrow([row], NOISE_SCHEMA).num_rows == 1


def test_what_repeats_differ_in_is_named():
    one = [scored("a", 0.5), scored("b", 0.5, repeat=1), scored("c", 0.5, seed=1, repeat=1)]
    assert [noise_rows(one, [names])[0]["varies"] for names in (["a", "b"], ["a", "c"])] == [
        *("repeat", "seed and repeat")
    ]


def test_an_arm_that_was_not_scored_is_no_repeat():
    summary = [scored("a", 0.5), scored("b", None)]
    assert noise_rows(summary, [["a", "b"]]) == []


SUMMARY = [
    *(scored("r0", 0.40), scored("r1", 0.44, seed=1), scored("best", 0.42)),
    *(scored("z0", 0.10), scored("z1", 0.11, repeat=1), scored("far", 0.9, engine="h")),
]


def test_the_floor_is_that_of_the_arms_compared_or_of_their_engine():
    noise = noise_rows(SUMMARY, [["r0", "r1"], ["z0", "z1"]])
    assert floor_of(["best", "r0"], noise, "accuracy", "g") == pytest.approx(0.04)
    assert floor_of(["best", "z0"], noise, "accuracy", "g") == pytest.approx(0.01)
    assert floor_of(["best", "other"], noise, "accuracy", "g") == pytest.approx(0.01)
    assert floor_of(["far", "other"], noise, "accuracy", "h") is None


def test_a_difference_that_a_repeat_makes_too_is_marked():
    noise = noise_rows(SUMMARY, [["r0", "r1"]])
    rows = with_floors(
        [difference("best", "r0", -0.02), difference("best", "z0", 0.32)],
        noise,
        {"best": "g"},
    )
    assert [row["accuracy_below_floor"] for row in rows] == [True, None]
    assert [row["macro_f1_floor"] for row in rows] == [pytest.approx(0.04), None]
    assert is_below(0.1 + 0.2, 0.3)
    assert is_below(-0.31, 0.3) is False
