"""Which tags a text names: whole words, the longest, in one pass."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.identifiers import TagMatcher, tags_of

TAGS = ["user", "user_id", "HER", "HER-2", "heart failure", "C++", "C", ".NET", "Straße", "用户表"]
MATCHER = TagMatcher(TAGS)


def named(text):
    return [TAGS[column] for column in MATCHER.find(text)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Select USER_ID from user.", ["user", "user_id"]),
        ("user_id", ["user_id"]),
        ("users superuser her2", []),
        ("her-2 positive", ["HER-2"]),
        ("HER - 2", ["HER"]),
        ("heart\n failure, acute", ["heart failure"]),
        ("heart-failure; heart", []),
        ("C++11 and c", ["C++", "C"]),
        ("in .net", [".NET"]),
        ("die STRASSE", ["Straße"]),
        ("查询 用户表", ["用户表"]),
        ("", []),
        (" ?", []),
    ],
)
def test_tags_are_found_as_whole_words_the_longest_first(text, wanted):
    assert named(text) == wanted


@settings(deadline=None, max_examples=150)
@given(
    st.sets(st.text(alphabet="ab -", min_size=1, max_size=5).filter(str.strip), max_size=8),
    st.text(alphabet="ab -", max_size=20),
)
def test_a_search_at_every_place_finds_the_same(tags, text):
    tags = sorted(tags)
    folded = [" ".join(tag.strip().split()) for tag in tags]
    squeezed = " ".join(f"^{text}^".split())[1:-1] if text.strip() else ""
    squeezed = (" " if text[:1] == " " else "") + " ".join(text.split())
    wanted, at = set(), 0
    while at < len(squeezed):
        edge = at == 0 or not (squeezed[at - 1].isalnum() and squeezed[at].isalnum())
        ends = [
            at + len(tag)
            for tag in folded
            if edge
            and squeezed.startswith(tag, at)
            and not (tag[-1].isalnum() and squeezed[at + len(tag) : at + len(tag) + 1].isalnum())
        ]
        if not ends:
            at += 1
            continue
        best = squeezed[at : max(ends)]
        wanted |= {column for column, tag in enumerate(folded) if tag == best}
        at = max(ends)
    assert TagMatcher(tags).find(text) == sorted(wanted)


def test_tags_that_differ_in_case_are_named_together():
    assert TagMatcher(["IL-2", "il-2", "x"]).find("IL-2") == [0, 1]


def test_rows_hold_what_the_text_names_and_what_a_column_gives():
    found = MATCHER.named(["about users", "user", "C"], [["HER-2", "her", "unknown"], None, []])
    assert found.dtype == np.bool_
    assert [found.indices[found.indptr[i] : found.indptr[i + 1]].tolist() for i in range(3)] == [
        [2, 3],
        [0],
        [6],
    ]


def test_records_carry_what_their_column_says():
    lists = [["user", "user"], None, ["C", "nothing", " "]]
    assert tags_of(lists) == ["C", "nothing", "user"]
    carried = TagMatcher(tags_of(lists)).carried(lists)
    assert carried.toarray().tolist() == [
        [False, False, True],
        [False, False, False],
        [True, True, False],
    ]


def test_without_tags_or_texts_the_matrix_is_empty():
    assert TagMatcher([]).named(["a"]).shape == (1, 0)
    assert MATCHER.named([]).shape == (0, 10)
    assert MATCHER.carried([]).shape == (0, 10)


def test_a_hundred_thousand_tags_do_not_slow_a_search():
    few, many = (TagMatcher([f"drug {i} mg" for i in range(n)]) for n in (100, 100_000))
    text = "take drug 57 mg and drug 99 mg with water, " * 200
    start = time.process_time()
    assert few.find(text) == [57, 99]
    alone = time.process_time() - start
    start = time.process_time()
    assert many.find(text) == [57, 99]
    assert time.process_time() - start < 5 * alone + 0.05


def test_empty_and_repeated_tags_and_lists_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="tag 1 is ' '"):
        TagMatcher(["a", " "])
    with pytest.raises(ValueError, match="2, 1 of them distinct"):
        TagMatcher(["a", "a"])
    with pytest.raises(ValueError, match="1 lists of tags for 2 texts"):
        MATCHER.named(["a", "b"], [["user"]])
