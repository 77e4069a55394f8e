"""Tests, slices and audit of arms whose answer is more than one label, beside scipy."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from inference.scorers import SCORERS, Answer, Scored, Verdict
from inference.tallies import ratio
from inference.tasks import Task
from jobs.reporting.answer_metrics import (
    AnswerYardstick,
    Measured,
    contest_of,
    summarise_answers,
)
from jobs.reporting.answer_slices import score_slice_differences, score_slices
from jobs.reporting.audit import audit
from jobs.reporting.evidence import noise_table, paired_table, slice_table
from jobs.reporting.metric_tables import (
    NOISE_SCHEMA,
    PAIRED_TESTS_SCHEMA,
    SLICE_DIFFERENCES_SCHEMA,
    SLICES_SCHEMA,
    to_arrow,
)
from jobs.reporting.metrics import ArmMetrics
from jobs.reporting.noise import noise_rows
from jobs.reporting.paired import Design, contest_tests
from jobs.reporting.scores import goes_by_scores, score_headline
from jobs.reporting.slices import by_column
from jobs.reporting.words import records

SETS = Task(name="t", kind="multi-label", instruction="?", labels=("a", "b"))
NER = Task(name="t", kind="ner", instruction="?", labels=("X",))
SQL = Task(name="t", kind="sql", instruction="?", labels=())
ARMS = {name: {"task": "t", "encoder": "e", "engine": "g", "arm": name} for name in ("p", "q", "r")}
YARDSTICK = AnswerYardstick(SETS, n_resamples=200)
STATUS = {"status": "ok", "prompt_tokens": 1, "cached_tokens": 0, "output_tokens": 1}


def measured(name, predictions, gold):
    rows = [
        {"id": f"q{i}", "input": "x", "database": None, "gold": g, "prediction": p, **STATUS}
        | {"engine_s": 0.1, "queue_s": 0.0, "demonstration_ids": [], "finish_reason": "stop"}
        for i, (g, p) in enumerate(zip(gold, predictions, strict=True))
    ]
    return summarise_answers(
        pd.DataFrame(rows, dtype=object), arm=ARMS[name] | {"seed": 0}, yardstick=YARDSTICK
    )


@pytest.fixture(scope="module")
def arms():
    rng = np.random.default_rng(0)
    gold = rng.choice(["a", "b", "a;b"], 60).tolist()
    good = [g if rng.random() < 0.8 else "b" for g in gold]
    poor = [g if rng.random() < 0.4 else "b" for g in gold]
    return {"p": measured("p", good, gold), "q": measured("q", poor, gold)}


def judged(arms, **design):
    plan = Design(pairs=[("p", "q")], labels=(), groups={}, n_folds=5, **design)
    rows = contest_tests(contest_of(arms, SETS), arms=ARMS, design=plan)
    assert to_arrow(rows, PAIRED_TESTS_SCHEMA).num_rows == len(rows)
    return {row["metric"]: row for row in rows}


def test_exact_match_over_folds_is_scipys_paired_test_and_mcnemars(arms):
    dealt = {f"q{i}": i % 5 for i in range(60)}
    found = judged(arms, dealt=dealt)
    right = {name: np.array([one.points[f"q{i}"] for i in range(60)]) for name, one in arms.items()}
    means = {name: [one[at::5].mean() for at in range(5)] for name, one in right.items()}
    expected = stats.ttest_rel(means["p"], means["q"])
    row = found["exact_match"]
    assert (row["t"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue))
    interval = expected.confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    only_p = int(((right["p"] == 1) & (right["q"] == 0)).sum())
    only_q = int(((right["p"] == 0) & (right["q"] == 1)).sum())
    assert (row["mcnemar_b"], row["mcnemar_c"]) == (only_p, only_q)
    assert found["micro_f1"].get("mcnemar_b") is None
    assert row["n_tests"] == 3
    assert row["p_holm"] >= row["p"]


def test_a_fold_is_scored_by_the_sum_of_its_counts_and_not_by_the_mean_of_its_queries():
    # Of two queries 4 entities are gold, 3 in the first: found 3 of 3, and 0 of 1.
    counts = {"p": [[3, 3, 3], [0, 1, 0]], "q": [[0, 3, 0], [1, 1, 1]]}
    arms = {name: counted(one, "strict_micro_f1") for name, one in counts.items()}
    contest = contest_of(arms, NER)
    gap = contest.gap("p", "q", ["q0", "q1"])
    assert gap["strict_micro_f1"] == pytest.approx(6 / 7 - 2 / 5)
    assert contest.judged_by is None


def counted(counts, headline):
    statistics = {headline: lambda sums: ratio(2 * sums[..., 0], sums[..., 1] + sums[..., 2])}
    statistics |= dict.fromkeys(("strict_macro_f1", "token_accuracy"), statistics[headline])
    verdicts = [Verdict(float(right == n)) for right, n, _ in counts]
    scored = Scored(np.array(counts), list(range(len(counts))), verdicts, statistics, headline)
    return Measured(ArmMetrics({}, [], []), scored, [f"q{i}" for i in range(len(counts))])


def test_tags_of_a_text_without_an_answer_are_not_right():
    gold = '[{"text": "b", "type": "X", "start": 2, "end": 3}]'
    rows = [Answer("a b c d", gold, predicted, None) for predicted in (None, "[]", gold)]
    scored = SCORERS["ner"](NER, rows, None)
    figures = [float(scored.statistics["token_accuracy"](row)) for row in scored.counts]
    assert figures == [0.0, 0.75, 1.0]


def test_nothing_that_could_be_scored_is_said_as_that(arms):
    unscored = [
        row.metrics.summary | {"score": None, "metric": "execution_accuracy", "accuracy": None}
        for row in arms.values()
    ]
    assert goes_by_scores(unscored)
    assert score_headline(unscored, [])[0].startswith("No arm was scored")


def test_every_kind_that_can_be_scored_says_what_it_is_tested_in():
    from inference.kinds import TESTED

    for kind in SCORERS:
        task = Task(name="t", kind=kind, instruction="?", labels=() if kind == "sql" else ("X",))
        assert set(TESTED[kind]) <= set(SCORERS[kind](task, [], None).statistics)


def test_slices_and_their_differences_are_those_of_their_queries_alone(arms):
    slicing = by_column("source", {f"q{i}": "odd" if i % 2 else "even" for i in range(60)})
    rows = score_slices(arms["p"], slicing, arm=ARMS["p"], yardstick=YARDSTICK)
    assert {row["value"]: row["n"] for row in rows} == {"even": 30, "odd": 30}
    counts = arms["p"].scored.counts[1::2].sum(axis=0).astype(float)
    odd = next(row for row in rows if row["value"] == "odd")
    assert odd["score"] == pytest.approx(float(arms["p"].scored.statistics["micro_f1"](counts)))
    assert odd["score_low"] <= odd["score"] <= odd["score_high"]
    gaps = score_slice_differences(
        (arms["p"], arms["q"]), slicing, arm=ARMS["p"], against="q", yardstick=YARDSTICK
    )
    theirs = score_slices(arms["q"], slicing, arm=ARMS["q"], yardstick=YARDSTICK)
    for mine, other, gap in zip(rows, theirs, gaps, strict=True):
        assert gap["score_difference"] == pytest.approx(mine["score"] - other["score"])
    summary = [arms[name].metrics.summary for name in arms]
    shown = slice_table(
        summary,
        records(to_arrow([*rows, *theirs], SLICES_SCHEMA).to_pandas()),
        records(to_arrow(gaps, SLICE_DIFFERENCES_SCHEMA).to_pandas()),
    )
    assert [row[1].text for row in shown.rows] == ["even", "odd"]
    assert f"{odd['score']:.3f} of 30" in [cell.text for cell in shown.rows[1]]
    assert "p minus q [95%]" in shown.headings


def test_repeats_make_a_floor_for_the_score_that_decides_and_for_no_other(arms):
    again = {**arms["p"].metrics.summary, "arm": "r", "repeat": 1, "score": 0.5}
    noise = noise_rows([arms["p"].metrics.summary, again], [["p", "r"]])
    spread = abs(arms["p"].metrics.summary["score"] - 0.5)
    assert noise[0]["score_range"] == pytest.approx(spread)
    found = judged(arms, noise=noise)
    assert found["micro_f1"]["floor"] == pytest.approx(spread)
    assert (found["macro_f1"]["floor"], found["exact_match"]["floor"]) == (None, None)
    shown = noise_table(records(to_arrow(noise, NOISE_SCHEMA).to_pandas()))
    assert shown.headings[-1] == "micro-F1, range"


def test_the_headline_goes_by_the_test_and_says_when_arms_are_level(arms):
    tests = list(judged(arms).values())
    summary = [arms[name].metrics.summary for name in arms]
    value = summary[0]["score"] - summary[1]["score"]
    gap = {"arm": "p", "against": "q", "metric": "micro_f1", "n": 60}
    gap |= {"value": value, "low": value - 0.1, "high": value + 0.1}
    first, second = score_headline(summary, [gap], tests)
    assert first.startswith("p has the highest micro-F1 of 2 arms")
    assert "better in micro-F1 (paired t-test over 5 query folds" in second
    level = [row | {"score": 0.0, "score_low": 0.0, "score_high": 0.0} for row in summary]
    assert score_headline(level, [])[0].startswith("p and all other arms have the same micro-F1: 0")
    assert any("micro-F1" in cell.text for cell in paired_table(as_read(tests)).rows[0])


def as_read(rows):
    return records(to_arrow(rows, PAIRED_TESTS_SCHEMA).to_pandas())


def test_a_record_is_judged_by_answers_that_are_partly_right():
    points = {f"q{i}": 0.25 if i < 20 else 0.9 for i in range(60)}
    table = pd.DataFrame(
        {"id": list(points), "demonstration_ids": [["bad"] if i < 20 else [] for i in range(60)]}
    )
    (row,) = audit(table, arm=ARMS["p"], points=points, record_labels={})
    assert (row["accuracy"], row["accuracy_otherwise"]) == pytest.approx((0.25, 0.9))
    assert (row["n_right"], row["n_scored"], row["suspect"]) == (0, 20, True)
