import pandas as pd
import pytest
from scipy import stats

from inference.folds import fold_of
from inference.scoring import score
from inference.significance import holm, mcnemar
from jobs.reporting.metric_tables import PAIRED_TESTS_SCHEMA, to_arrow
from jobs.reporting.paired import Design, paired_tests
from tests.jobs.report_example import outputs_of

LABELS = ["a", "b", "c"]
METRICS = ("accuracy", "macro_f1")


def judged(outputs, pairs, **changes):
    arms = {name: {"task": "t", "encoder": "e", "engine": "g"} for name in outputs}
    design = {"pairs": pairs, "labels": LABELS, "groups": {}} | changes
    return paired_tests(outputs, arms=arms, design=Design(**design))


@pytest.fixture(scope="module")
def outputs():
    return {
        name: outputs_of(150, right, seed=seed, labels=LABELS)
        for seed, (name, right) in enumerate([("good", 0.8), ("random", 0.5), ("zero", 0.3)])
    }


def test_every_figure_is_what_scipy_gives_for_the_folds(outputs):
    rows = judged(outputs, [("good", "random"), ("good", "zero")])
    names = [(row["arm_a"], row["arm_b"], row["metric"]) for row in rows]
    assert names == [("good", other, metric) for other in ("random", "zero") for metric in METRICS]
    one, two = outputs["good"], outputs["random"]
    folds = fold_of(one["id"].tolist(), [None] * 150, one["gold"].tolist()).number
    for row, metric in zip(rows, METRICS, strict=False):
        values = [
            [
                getattr(score(t["gold"][at].tolist(), answers(t)[at].tolist(), LABELS), metric)
                for at in (folds == fold for fold in range(10))
            ]
            for t in (one, two)
        ]
        theirs = stats.ttest_rel(*values)
        assert (row["t"], row["p"]) == pytest.approx((theirs.statistic, theirs.pvalue))
        assert row["n_folds"] == 10
    assert [row["p_holm"] for row in rows] == holm([row["p"] for row in rows])
    assert {row["n_tests"] for row in rows} == {4}
    assert {row["folds"] for row in rows} == {"query folds"}
    assert to_arrow(rows, PAIRED_TESTS_SCHEMA).num_rows == 4


def answers(table):
    return table["prediction"].astype(object).where(table["prediction"].notna(), None)


def test_mcnemar_stands_beside_accuracy_alone_and_is_corrected_over_the_pairs(outputs):
    rows = judged(outputs, [("good", "random"), ("good", "zero")])
    right = {name: (answers(t) == t["gold"]).to_numpy() for name, t in outputs.items()}
    b = int((right["good"] & ~right["random"]).sum())
    c = int((~right["good"] & right["random"]).sum())
    assert (rows[0]["mcnemar_b"], rows[0]["mcnemar_c"]) == (b, c)
    assert rows[0]["mcnemar_p"] == mcnemar(b, c).p
    assert rows[0]["mcnemar_p_holm"] == holm([rows[0]["mcnemar_p"], rows[2]["mcnemar_p"]])[0]
    assert "mcnemar_p" not in rows[1]


def test_groups_make_fewer_folds_and_the_row_says_so(outputs):
    groups = {f"q{i}": f"g{i % 4}" for i in range(150)}
    rows = judged(outputs, [("good", "zero")], groups=groups)
    assert [row["n_folds"] for row in rows] == [4, 4]
    assert rows[0]["note"] == "4 folds of 10 asked for: no more have a scored query"


def test_folds_that_were_dealt_before_are_the_folds_of_the_test(outputs):
    dealt = {f"q{i}": i % 3 for i in range(150)}
    rows = judged(outputs, [("good", "zero")], dealt=dealt, n_folds=3)
    assert {row["folds"] for row in rows} == {"selection folds"}
    assert [row["n_folds"] for row in rows] == [3, 3]
    assert rows[0]["note"] == ""
    one, two = (
        [(answers(t)[at::3] == t["gold"][at::3]).mean() for at in range(3)]
        for t in (outputs["good"], outputs["zero"])
    )
    assert rows[0]["p"] == pytest.approx(stats.ttest_rel(one, two).pvalue)
    # Labels stand in turn, so each of these folds has one label and lacks two.
    assert rows[0]["n_short_folds"] == 3


def test_one_group_alone_is_no_test_and_is_not_counted(outputs):
    rows = judged(outputs, [("good", "zero")], groups={f"q{i}": "g" for i in range(150)})
    assert [row["p_holm"] for row in rows] == [None, None]
    assert rows[0]["n_tests"] == 0
    assert rows[0]["note"].startswith("1 folds: a t-test needs at least 2")


def table_of(gold, predicted):
    ids = [f"q{i}" for i in range(len(gold))]
    return pd.DataFrame({"id": ids, "gold": gold, "prediction": predicted}, dtype=object)


def test_an_arm_that_answers_nothing_is_tested_and_one_class_is_enough():
    gold = ["a"] * 20
    rows = judged(
        {"right": table_of(gold, gold), "mute": table_of(gold, [None] * 20)}, [("right", "mute")]
    )
    assert [row["mean_difference"] for row in rows] == [1.0, 1.0]
    assert [row["p"] for row in rows] == [2**-9, 2**-9]
    assert rows[0]["mcnemar_p"] == pytest.approx(2 * 0.5**20)


def test_equal_arms_are_not_told_apart():
    gold = list("abc") * 10
    same = table_of(gold, gold)
    rows = judged({"x": same, "y": same}, [("x", "y")])
    assert [(row["p"], row["difference"]) for row in rows] == [(1.0, 0.0)] * 2


def test_folds_without_a_class_are_counted_and_scored_on_the_labels_they_have():
    gold = ["a"] * 40 + ["b"]
    rows = judged(
        {"x": table_of(gold, gold), "y": table_of(gold, ["a"] * 41)}, [("x", "y")], n_folds=10
    )
    assert rows[1]["n_short_folds"] == 9
    # Only the fold that holds the one b differs: 1 against (8/9) / 2 in macro-F1.
    assert rows[1]["mean_difference"] == pytest.approx((1 - 4 / 9) / 10)


def test_queries_without_gold_and_arms_without_rows_leave_the_rest_to_be_tested():
    gold = [*list("abc") * 5, None, "foreign"]
    full = table_of(gold, gold)
    empty = full.iloc[:0]
    pairs = [("x", "y"), ("x", "none"), ("none", "y")]
    rows = judged({"x": full, "y": full, "none": empty}, pairs)
    assert [(row["arm_a"], row["arm_b"], row["n"]) for row in rows] == [("x", "y", 15)] * 2
    assert judged({"none": empty, "no": empty}, [("none", "no")]) == []


def test_a_difference_below_the_floor_is_marked():
    gold = list("abc") * 10
    x, y = table_of(gold, gold), table_of(gold, [*gold[:-1], "a"])
    noise = [
        {"arms": ["x", "z"], "varies": "seed", "engine": "g"}
        | {"accuracy_range": 1 / 30, "macro_f1_range": 0.001}
    ]
    rows = judged({"x": x, "y": y}, [("x", "y")], noise=noise)
    assert [(row["floor"], row["below_floor"]) for row in rows] == [(1 / 30, True), (0.001, False)]
