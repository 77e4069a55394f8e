import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_recall_fscore_support,
)

from inference.scoring import (
    bootstrap,
    bootstrap_difference,
    majority_baseline,
    majority_label,
    score,
)

LABELS = ["a", "b", "c", "d"]
gold_and_predicted = st.lists(
    st.tuples(st.sampled_from(LABELS), st.sampled_from([*LABELS, None])), min_size=1, max_size=40
)


def random_answers(n, n_labels, seed, *, right=0.5):
    rng = np.random.default_rng(seed)
    labels = [f"label {i}" for i in range(n_labels)]
    gold = [labels[i] for i in rng.integers(n_labels, size=n)]
    predicted = [g if rng.random() < right else rng.choice(labels) for g in gold]
    return gold, [str(p) for p in predicted], labels


def test_a_hand_computed_case_comes_out():
    scores = score(["a", "a", "b", "c"], ["a", "b", "b", None], LABELS)
    assert scores.accuracy == 0.5
    by_label = {c.label: c for c in scores.per_class}
    assert (by_label["a"].precision, by_label["a"].recall) == (1.0, 0.5)
    assert (by_label["b"].precision, by_label["b"].recall) == (0.5, 1.0)
    assert (by_label["c"].precision, by_label["c"].recall, by_label["c"].f1) == (0.0, 0.0, 0.0)
    assert scores.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert scores.confusion.tolist() == [
        [1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
    ]


@settings(deadline=None)
@given(gold_and_predicted)
def test_scores_equal_those_of_scikit_learn(pairs):
    gold = [g for g, _ in pairs]
    predicted = [p for _, p in pairs]
    scores = score(gold, predicted, LABELS)
    named = [p if p is not None else "no prediction" for p in predicted]
    used = [label for label in LABELS if label in gold or label in predicted]
    assert scores.accuracy == pytest.approx(accuracy_score(gold, named))
    assert scores.macro_f1 == pytest.approx(
        f1_score(gold, named, labels=used, average="macro", zero_division=0)
    )
    theirs = precision_recall_fscore_support(gold, named, labels=LABELS, zero_division=0)
    ours = [(c.precision, c.recall, c.f1, c.support) for c in scores.per_class]
    np.testing.assert_allclose(np.array(ours).T, np.array(theirs))
    columns = [*LABELS, "no prediction"]
    np.testing.assert_array_equal(
        scores.confusion, confusion_matrix(gold, named, labels=columns)[: len(LABELS)]
    )


@settings(deadline=None)
@given(gold_and_predicted)
def test_macro_f1_is_scikit_learns_default_when_every_row_has_a_prediction(pairs):
    gold = [g for g, _ in pairs]
    predicted = [p or "a" for _, p in pairs]
    assert score(gold, predicted, LABELS).macro_f1 == pytest.approx(
        f1_score(gold, predicted, average="macro", zero_division=0)
    )


@settings(deadline=None)
@given(gold_and_predicted)
def test_a_missing_prediction_is_never_dropped(pairs):
    gold = [g for g, _ in pairs]
    scores = score(gold, [p for _, p in pairs], LABELS)
    assert scores.confusion.sum() == len(pairs)
    assert scores.confusion[:, -1].sum() == sum(p is None for _, p in pairs)
    assert sum(c.support for c in scores.per_class) == len(pairs)


def test_a_label_that_nobody_used_does_not_lower_macro_f1():
    assert score(["a", "b"], ["a", "b"], LABELS).macro_f1 == 1.0


def test_a_label_that_was_only_predicted_lowers_macro_f1():
    assert score(["a", "a"], ["a", "b"], LABELS).macro_f1 == pytest.approx((2 / 3) / 2)


@pytest.mark.parametrize(
    ("gold", "predicted", "labels", "message"),
    [
        ([], [], LABELS, "0 rows with a gold label"),
        (["a"], ["a", "b"], LABELS, "1 gold labels but 2 predictions"),
        (["x", "a"], ["a", "a"], LABELS, "1 distinct gold label values are outside the 4 .*'x'"),
        (["a", "a"], ["y", "z"], LABELS, "2 distinct prediction values .*'y'"),
        (["a"], ["a"], ["a", "a"], "'a' more than once"),
    ],
)
def test_input_that_cannot_be_scored_is_refused_with_the_values(gold, predicted, labels, message):
    with pytest.raises(ValueError, match=message):
        score(gold, predicted, labels)
    with pytest.raises(ValueError, match=message):
        bootstrap(gold, predicted, labels, seed=0)


def test_the_bootstrap_agrees_with_resampling_the_rows_themselves():
    gold, predicted, labels = random_answers(60, 4, seed=1)
    rng = np.random.default_rng(2)
    draws = rng.integers(len(gold), size=(1500, len(gold)))
    by_rows = np.array(
        [
            (s.accuracy, s.macro_f1)
            for s in (score([gold[i] for i in d], [predicted[i] for i in d], labels) for d in draws)
        ]
    )
    low, high = np.percentile(by_rows, [2.5, 97.5], axis=0)
    ours = bootstrap(gold, predicted, labels, n_resamples=20_000, seed=3)
    assert (ours.accuracy.low, ours.accuracy.high) == pytest.approx((low[0], high[0]), abs=0.02)
    assert (ours.macro_f1.low, ours.macro_f1.high) == pytest.approx((low[1], high[1]), abs=0.02)


def test_the_interval_covers_the_true_accuracy_about_as_often_as_it_says():
    hits = 0
    for trial in range(200):
        rng = np.random.default_rng(trial)
        predicted = ["a" if ok else "b" for ok in rng.random(150) < 0.6]
        interval = bootstrap(["a"] * 150, predicted, LABELS, n_resamples=400, seed=0).accuracy
        hits += interval.low <= 0.6 <= interval.high
    assert 178 <= hits <= 200


def test_equal_seeds_give_equal_intervals_and_another_seed_gives_others():
    gold, predicted, labels = random_answers(100, 5, seed=4)
    assert bootstrap(gold, predicted, labels, seed=7) == bootstrap(gold, predicted, labels, seed=7)
    assert bootstrap(gold, predicted, labels, seed=7) != bootstrap(gold, predicted, labels, seed=8)


def test_perfect_predictions_of_one_class_have_an_interval_of_no_width():
    intervals = bootstrap(["a"] * 20, ["a"] * 20, ["a"], seed=0)
    assert (intervals.accuracy.low, intervals.accuracy.high) == (1.0, 1.0)
    assert (intervals.macro_f1.low, intervals.macro_f1.high) == (1.0, 1.0)


def test_a_thousand_resamples_of_200_rows_take_less_than_a_second():
    gold, predicted, labels = random_answers(200, 22, seed=5)
    started = time.perf_counter()
    bootstrap(gold, predicted, labels, n_resamples=1000, seed=0)
    assert time.perf_counter() - started < 1.0


def test_two_equal_lists_of_predictions_differ_by_exactly_nothing():
    gold, predicted, labels = random_answers(80, 4, seed=6)
    difference = bootstrap_difference(gold, (predicted, predicted), labels, seed=0)
    assert (difference.accuracy.low, difference.accuracy.high) == (0.0, 0.0)
    assert (difference.macro_f1.low, difference.macro_f1.high) == (0.0, 0.0)


def test_the_paired_interval_is_narrower_than_the_two_intervals_side_by_side():
    gold, first, labels = random_answers(200, 4, seed=7, right=0.6)
    second = ["label 0" if i % 10 == 0 else p for i, p in enumerate(first)]
    paired = bootstrap_difference(gold, (first, second), labels, seed=0).accuracy
    alone = [bootstrap(gold, p, labels, seed=0).accuracy for p in (first, second)]
    width = (alone[0].high - alone[1].low) - (alone[0].low - alone[1].high)
    assert paired.high - paired.low < 0.6 * width


def test_the_paired_difference_changes_its_sign_with_the_order():
    gold, first, labels = random_answers(120, 3, seed=8, right=0.7)
    second = [None] * 120
    one = bootstrap_difference(gold, (first, second), labels, seed=0, n_resamples=4000)
    two = bootstrap_difference(gold, (second, first), labels, seed=0, n_resamples=4000)
    assert one.accuracy.low > 0 > two.accuracy.high
    assert one.macro_f1.low == pytest.approx(-two.macro_f1.high, abs=0.02)


def test_the_majority_baseline_takes_its_label_from_the_corpus():
    gold = ["a", "a", "a", "b"]
    assert majority_baseline(gold, LABELS).accuracy == 0.75
    corpus = majority_baseline(gold, LABELS, corpus_counts={"b": 900, "a": 5, "foreign": 9999})
    assert corpus.accuracy == 0.25
    assert corpus.macro_f1 == pytest.approx(0.4 / 2)


def test_the_majority_baseline_falls_back_to_the_queries_without_a_labelled_corpus():
    for counts in ({}, {"foreign": 3}):
        scores = majority_baseline(["a", "a", "b"], LABELS, corpus_counts=counts)
        assert scores.accuracy == pytest.approx(2 / 3)


def test_a_tie_for_the_majority_goes_to_the_first_label_of_the_task():
    assert majority_label({"c": 2, "b": 2}, LABELS) == "b"
    with pytest.raises(ValueError, match="at least 1 label"):
        majority_label({"a": 1}, [])


@settings(deadline=None)
@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=30))
def test_no_constant_answer_beats_the_majority_of_the_queries_in_accuracy(gold):
    best = max(score(gold, [label] * len(gold), LABELS).accuracy for label in LABELS)
    assert majority_baseline(gold, LABELS).accuracy == pytest.approx(best)
