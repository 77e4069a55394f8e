import pandas as pd
import pytest

from inference.significance import wilson
from jobs.reporting.audit import audit, points_of
from jobs.reporting.evidence import WORST, audit_table
from jobs.reporting.metric_tables import AUDIT_SCHEMA, to_arrow
from jobs.reporting.metrics import answers_by_id

ARM = {"task": "t", "encoder": "e", "engine": "g", "arm": "x"}


def outputs(rows):
    """Rows of (demonstrations, gold, prediction)."""
    return pd.DataFrame(
        [
            {"id": f"q{i}", "demonstration_ids": shown, "gold": gold, "prediction": predicted}
            for i, (shown, gold, predicted) in enumerate(rows)
        ],
        dtype=object,
    )


def audited(rows):
    table = outputs(rows)
    points = points_of(answers_by_id(table, ["a", "b"]))
    return audit(table, arm=ARM, points=points, record_labels={"bad": "a"})


SEEN = [(["bad", "good"], "a", "b")] * 10 + [(["good"], "a", "a")] * 20


def test_a_record_whose_queries_fail_is_suspect_with_the_figures_computed_by_hand():
    bad, good = audited(SEEN)
    assert (bad["demonstration_id"], bad["label"], good["label"]) == ("bad", "a", None)
    assert (bad["n_shown"], bad["n_scored"], bad["n_right"], bad["accuracy"]) == (10, 10, 0, 0.0)
    assert (bad["low"], bad["high"]) == wilson(0, 10)
    assert (bad["n_otherwise"], bad["accuracy_otherwise"], bad["suspect"]) == (20, 1.0, True)
    assert good["accuracy"] == pytest.approx(20 / 30)
    assert to_arrow([bad, good], AUDIT_SCHEMA).num_rows == 2


def test_a_record_that_all_queries_saw_or_few_is_not_judged():
    _, good = audited(SEEN)
    assert (good["n_otherwise"], good["accuracy_otherwise"], good["suspect"]) == (0, None, None)
    few = audited([*SEEN[1:10], *SEEN[10:]])[0]
    assert (few["n_scored"], few["suspect"]) == (9, None)


def test_queries_without_gold_count_as_shown_and_not_as_scored():
    (row,) = audited([(["bad"], None, "a"), (["bad", "bad"], "a", "a"), (None, "a", "a")])
    assert (row["n_shown"], row["n_scored"], row["accuracy"]) == (2, 1, 1.0)
    assert audited([(["bad"], None, "a")])[0]["accuracy"] is None


def test_the_page_lists_the_worst_of_each_arm_that_can_be_judged():
    rows = []
    for record in range(WORST + 3):
        rows += [([f"r{record:02}"], "a", "a" if i < record else "b") for i in range(12)]
    table = audit_table(audited(rows))
    assert [row[1].text for row in table.rows] == [f"r{i:02}" for i in range(WORST)]
    assert table.rows[0][-1].text == "yes"
    assert audit_table([]).rows == []
