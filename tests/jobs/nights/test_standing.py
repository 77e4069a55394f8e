"""Where rows that went out stand on a night, and what of a choice is worth sending."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.config.annotate import AnnotateConfig
from jobs.nights.standing import nearest, room_for, standing, worth_sending


def sent(*rows):
    names = ("id", "expires", "label", "output")
    plain = [dict(zip(names, row, strict=True)) for row in rows]
    kinds = (pa.string(), pa.int64(), pa.string(), pa.large_string())
    return pa.Table.from_pylist(plain, schema=pa.schema(list(zip(names, kinds, strict=True))))


ROWS = sent(
    ("labelled", 3, "x", None),
    ("spans", 3, None, "[]"),
    ("taken-out", 3, "x", None),
    ("early", 4, None, None),
    ("late", 6, None, None),
)


@pytest.mark.parametrize(
    ("night", "pending", "expired", "just"),
    [
        (3, ("early", "late"), (), 0),
        (4, ("late",), ("early",), 1),
        (5, ("late",), ("early",), 0),
        (6, (), ("early", "late"), 1),
    ],
)
def test_what_has_no_label_is_waited_for_until_the_night_it_expires(night, pending, expired, just):
    found = standing(ROWS, night=night, retired={"taken-out", "never-sent"})
    assert (found.annotated, found.retired) == (("labelled", "spans"), ("taken-out",))
    assert (found.pending, found.expired, found.just_expired) == (pending, expired, just)
    assert found.given == (*found.annotated, *pending)
    assert set(found.barred) == {*found.given, "taken-out"}


def test_a_night_proposes_no_more_than_may_be_out():
    assert room_for(AnnotateConfig(), 999) is None
    assert [room_for(AnnotateConfig(max_pending=10), n) for n in (0, 8, 10, 12)] == [10, 2, 0, 0]


EAST, NORTH, NEARLY = (1.0, 0.0), (0.0, 1.0), (0.8, 0.6)


def test_copies_of_what_is_known_or_was_picked_before_are_not_sent():
    picks = np.array([NORTH, EAST, EAST, NEARLY], np.float32)
    known = np.array([NORTH], np.float32)
    texts = ["a", "b", "b", "c"]

    def kept(**options):
        return worth_sending(texts, picks, known=known, **options).tolist()

    assert kept(known_texts={"z"}, max_cosine=None) == [True, True, False, True]
    assert kept(known_texts={"c"}, max_cosine=None) == [True, True, False, False]
    # North is known; the cosine of east and nearly is .8, that of north and nearly .6.
    assert kept(known_texts=set(), max_cosine=0.81) == [False, True, False, True]
    assert kept(known_texts=set(), max_cosine=0.8) == [False, True, False, False]


def test_nothing_is_near_where_nothing_is_known():
    picks = np.array([EAST], np.float32)
    assert nearest(picks, np.zeros((0, 1), np.float32)).tolist() == [-np.inf]
    assert nearest(picks, np.array([NORTH, NEARLY], np.float32)) == pytest.approx([0.8])
