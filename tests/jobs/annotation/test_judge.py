"""Verdicts on rows that came back, whatever stands in the file."""

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.tasks import Task
from jobs.annotation.judge import STATUSES, Answer, Known, counts, judged
from jobs.annotation.labels import OK
from jobs.annotation.returned import Returned

TASK = Task("colour", ("red", "blue"), aliases={"crimson": "red"})
CORPUS = {
    "a": Known("a", "rose", "t1"),
    "b": Known("b", "sky", "t2", {False: Answer("blue", "import-0001")}),
    "c": Known("c", "sea", "t3"),
}
ROWS = st.lists(
    st.builds(
        Returned,
        st.integers(2, 99),
        id=st.sampled_from(["a", "b", "c", " a", "zz", "", None]),
        label=st.sampled_from(["red", "Blue", "crimson", "violet", "", None, ["red"], {"x": 1}]),
        checksum=st.sampled_from([None, "t1", "t2"]),
        cancelled=st.booleans(),
        damage=st.sampled_from([None, None, None, "not_json: x"]),
    ),
    max_size=8,
)


def find(row_id):
    return CORPUS.get(row_id.strip())


@settings(deadline=None, max_examples=60)
@given(ROWS, st.sampled_from(["reject", "first", "newest"]))
def test_every_row_has_one_verdict_and_no_id_two_labels(rows, policy):
    verdicts = judged(rows, find, [TASK], policy=policy)
    assert [one.row for one in verdicts] == rows
    assert {one.status for one in verdicts} <= {OK, *STATUSES}
    assert sum(counts(verdicts).values()) == len(rows)
    good = [one for one in verdicts if one.status == OK]
    assert len({one.id for one in good}) == len(good)
    assert all(one.answer in TASK.labels for one in good)
    assert all(one.reason for one in verdicts if one.status != OK)
    if policy != "newest":
        assert "b" not in {one.id for one in good}


@settings(deadline=None, max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_what_counts_is_the_same_in_any_order_of_lines_where_nothing_is_preferred(rows, random):
    def counted(some):
        verdicts = judged(some, find, [TASK], policy="reject")
        return {one.id: one.answer for one in verdicts if one.status == OK}

    shuffled = random.sample(rows, len(rows))
    assert counted(shuffled) == counted(rows)
