"""Span scores against hand-computed figures, seqeval and nervaluate."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nervaluate import Evaluator
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import IOB2
from sklearn import metrics

from inference.entities import Span
from inference.set_scores import by_label as by_label_of
from inference.set_scores import set_counts, set_statistics
from inference.span_scores import Answered, by_type, span_counts, span_statistics, tags
from inference.tallies import difference, estimate

TYPES = ("M", "T")


def scores(rows, types=TYPES):
    sums = span_counts(rows, types).sum(axis=0).astype(float)
    return {name: float(one(sums)) for name, one in span_statistics(len(types)).items()}


def test_strict_relaxed_and_token_scores_computed_by_hand():
    text = "old iron axe and steel saw"
    gold = [Span(4, 8, "M"), Span(9, 12, "T"), Span(17, 22, "M"), Span(17, 26, "T")]
    # iron: right; axe: wrong type; steel saw: too long; saw: a part of the gold tool; one missing.
    predicted = [Span(4, 8, "M"), Span(9, 12, "M"), Span(17, 26, "M"), Span(23, 26, "T")]
    found = scores([Answered(text, gold, predicted, ("T",))])
    # Strict: M 1 of 2 gold, 3 predicted; T 0 of 2 gold, 2 predicted (one of them missing).
    assert found["strict_precision"] == pytest.approx(1 / 5)
    assert found["strict_recall"] == pytest.approx(1 / 4)
    assert found["strict_micro_f1"] == pytest.approx(2 / 9)
    assert found["strict_macro_f1"] == pytest.approx((2 / 5 + 0) / 2)
    # Relaxed: M 2 (iron, steel), T 1 (saw).
    assert found["relaxed_micro_f1"] == pytest.approx(6 / 9)
    assert found["relaxed_macro_f1"] == pytest.approx((4 / 5 + 2 / 4) / 2)
    # Gold tags O B-M B-T O B-T I-T, predicted O B-M B-M O B-M I-M.
    assert found["token_accuracy"] == pytest.approx(3 / 6)


def test_one_span_over_everything_makes_one_gold_span_right():
    gold = [Span(0, 1, "M"), Span(2, 3, "M"), Span(4, 5, "M")]
    found = scores([Answered("a b c", gold, [Span(0, 5, "M")])])
    assert (found["relaxed_precision"], found["relaxed_recall"]) == (1.0, pytest.approx(1 / 3))


def test_the_relaxed_matching_is_the_largest_one():
    # Greedy from the left would give the long prediction to the first gold span and lose one.
    gold = [Span(0, 4, "M"), Span(3, 9, "M")]
    predicted = [Span(2, 9, "M"), Span(8, 9, "M")]
    assert scores([Answered("abcdefghi", gold, predicted)])["relaxed_micro_f1"] == 1.0


def test_tags_give_overlapping_tokens_to_the_longest_span():
    spans = [Span(0, 4, "M"), Span(0, 8, "T"), Span(5, 12, "M")]
    assert tags("iron axe old.", spans) == ["B-T", "I-T", "B-M", "O"]


def test_rows_without_any_entity_score_tokens_only():
    found = scores([Answered("a b", [], [])])
    assert (found["strict_micro_f1"], found["token_accuracy"]) == (0.0, 1.0)


def sequences(seed, n_rows=30):
    """Random BIO tags over 10 words a row and the same as spans."""
    rng = random.Random(seed)
    text = "a b c d e f g h i j"

    def row():
        spans, at = [], 0
        while at < 10:
            length = rng.randint(1, 3)
            if rng.random() < 0.4 and at + length <= 10:
                spans.append(Span(2 * at, 2 * (at + length) - 1, rng.choice(TYPES)))
            at += length
        return spans

    return [Answered(text, row(), row()) for _ in range(n_rows)]


@pytest.mark.parametrize("seed", range(5))
def test_strict_scores_are_seqevals(seed):
    rows = sequences(seed)
    gold = [tags(row.text, row.gold) for row in rows]
    predicted = [tags(row.text, row.predicted) for row in rows]
    found = scores(rows)
    for name, oracle, average in (
        ("strict_micro_f1", f1_score, "micro"),
        ("strict_macro_f1", f1_score, "macro"),
        ("strict_precision", precision_score, "micro"),
        ("strict_recall", recall_score, "micro"),
    ):
        wanted = oracle(gold, predicted, average=average, mode="strict", scheme=IOB2)
        assert found[name] == pytest.approx(wanted)
    flat = [tag for row in gold for tag in row], [tag for row in predicted for tag in row]
    assert found["token_accuracy"] == pytest.approx(metrics.accuracy_score(*flat))


@pytest.mark.parametrize("seed", range(5))
def test_strict_and_relaxed_scores_are_nervaluates_where_no_span_meets_two(seed):
    rows = [row for row in sequences(seed, 200) if _meets_one(row)]
    assert len(rows) > 20
    lists = [
        [[{"label": s.type, "start": s.start, "end": s.end - 1} for s in spans] for spans in part]
        for part in ([row.gold for row in rows], [row.predicted for row in rows])
    ]
    overall = Evaluator(*lists, tags=list(TYPES)).evaluate()["overall"]
    found = scores(rows)
    assert found["strict_micro_f1"] == pytest.approx(overall["strict"].f1)
    assert found["relaxed_precision"] == pytest.approx(overall["ent_type"].precision)
    assert found["relaxed_recall"] == pytest.approx(overall["ent_type"].recall)


def _meets_one(row):
    def meet(a, b):
        return a.start < b.end and b.start < a.end

    return all(
        sum(meet(one, other) for other in others) <= 1
        for some, others in ((row.gold, row.predicted), (row.predicted, row.gold))
        for one in some
    )


SPANS = st.lists(
    st.builds(
        lambda a, n, kind: Span(a, a + n, kind),
        st.integers(0, 15),
        st.integers(1, 5),
        st.sampled_from(TYPES),
    ),
    max_size=6,
)


@given(SPANS, SPANS)
@settings(deadline=None, max_examples=25)
def test_relaxed_is_never_below_strict_and_both_are_symmetric(gold, predicted):
    text = "abc def ghi jkl mno pqrs"
    one, other = (
        scores([Answered(text, *pair)]) for pair in ((gold, predicted), (predicted, gold))
    )
    assert one["relaxed_micro_f1"] >= one["strict_micro_f1"]
    assert all(0 <= value <= 1 for value in one.values())
    assert one["strict_precision"] == other["strict_recall"]
    assert one["relaxed_precision"] == other["relaxed_recall"]
    if set(gold) == set(predicted) and gold:
        assert one["strict_micro_f1"] == 1.0


def test_figures_by_type_add_up_to_the_macro_score():
    rows = sequences(9)
    sums = span_counts(rows, TYPES).sum(axis=0).astype(float)
    for how in ("strict", "relaxed"):
        figures = by_type(sums, how, 2)
        assert figures["f1"].mean() == pytest.approx(scores(rows)[f"{how}_macro_f1"])
        assert figures["support"].sum() == sum(len(set(row.gold)) for row in rows)


LABELS = ("a", "b", "c", "d")
PAIRS = st.lists(
    st.tuples(st.sets(st.sampled_from(LABELS[:3])), st.sets(st.sampled_from(LABELS[:3]))),
    min_size=1,
    max_size=8,
)


@given(PAIRS)
@settings(deadline=None, max_examples=25)
def test_set_scores_are_scikit_learns(pairs):
    counts = set_counts(pairs, LABELS)
    found = estimate(counts, set_statistics(4), n_resamples=5, seed=0)
    both = [np.array([[x in row[i] for x in LABELS] for row in pairs]) for i in (0, 1)]
    gold, predicted = both
    used = np.flatnonzero(gold.any(axis=0) | predicted.any(axis=0))
    assert found["exact_match"].value == pytest.approx((gold == predicted).all(axis=1).mean())
    for average in ("micro", "macro") if len(used) else ():
        wanted = metrics.f1_score(gold, predicted, labels=used, average=average, zero_division=0)
        assert found[f"{average}_f1"].value == pytest.approx(wanted)


def test_a_row_without_an_answer_is_no_exact_match_even_of_nothing():
    counts = set_counts([((), None), ((), ()), (("a",), None)], LABELS)
    found = estimate(counts, set_statistics(4), n_resamples=5, seed=0)
    assert found["exact_match"].value == pytest.approx(1 / 3)
    assert by_label_of(counts.sum(axis=0).astype(float), 4)["support"].tolist() == [1, 0, 0, 0]


def test_intervals_are_those_of_resampled_rows():
    counts = np.array([[1, 1]] * 30 + [[0, 1]] * 70)
    share = {"share": lambda sums: sums[..., 0] / sums[..., 1]}
    found = estimate(counts, share, n_resamples=4000, seed=1)["share"]
    assert found.value == pytest.approx(0.3)
    # The binomial's own 95% interval, by the normal approximation.
    assert found.interval.low == pytest.approx(0.21, abs=0.015)
    assert found.interval.high == pytest.approx(0.39, abs=0.015)
    assert found == estimate(counts, share, n_resamples=4000, seed=1)["share"]
    with pytest.raises(ValueError, match="0 rows"):
        estimate(counts[:0], share, n_resamples=10, seed=0)


def test_a_paired_difference_of_equal_arms_is_nothing():
    counts = span_counts(sequences(3), TYPES)
    micro = span_statistics(2)["strict_micro_f1"]
    both = np.hstack([counts, counts])
    found = estimate(both, {"d": difference(micro)}, n_resamples=50, seed=0)["d"]
    assert (found.value, found.interval.low, found.interval.high) == (0.0, 0.0, 0.0)
