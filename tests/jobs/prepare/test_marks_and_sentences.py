"""Marks around mentions of any shape, and the sentences that hold them."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.prepare.marks import marked, overlap
from jobs.prepare.sentences import around, sentence_starts

TEXT = "loop and thiazide diuretics"
LOOP, THIAZIDE, DIURETICS = (0, 4), (9, 17), (18, 27)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([LOOP], [THIAZIDE], "[A]loop[/A] and [B]thiazide[/B] diuretics"),
        ([THIAZIDE], [LOOP], "[B]loop[/B] and [A]thiazide[/A] diuretics"),
        (
            [LOOP, DIURETICS],
            [(9, 27)],
            "[A]loop[/A] and [B]thiazide [A]diuretics[/A][/B]",
        ),
        ([(9, 27)], [THIAZIDE], "loop and [A][B]thiazide[/B] diuretics[/A]"),
        ([THIAZIDE], [(9, 27)], "loop and [B][A]thiazide[/A] diuretics[/B]"),
        ([THIAZIDE], [THIAZIDE], "loop and [A][B]thiazide[/B][/A] diuretics"),
        ([(0, 8)], [(5, 17)], "[A]loop [B]and[/A] thiazide[/B] diuretics"),
        ([(0, 4)], [(4, 8)], "[A]loop[/A][B] and[/B] thiazide diuretics"),
    ],
)
def test_marks_of_two_mentions(one, other, wanted):
    assert marked(TEXT, {"A": one, "B": other}) == wanted


SPANS = st.lists(
    st.tuples(st.integers(0, 26), st.integers(1, 9)).map(lambda s: (s[0], min(27, sum(s)))),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(SPANS, SPANS)
def test_without_the_marks_the_text_is_as_it_was_and_every_letter_inside_is_marked(one, other):
    done = marked(TEXT, {"A": one, "B": other})
    assert re.sub(r"\[/?[AB]\]", "", done) == TEXT
    depth, inside = {"A": 0, "B": 0}, {"A": set(), "B": set()}
    at = 0
    for piece in re.findall(r"\[/?[AB]\]|.", done):
        if len(piece) > 1:
            depth[piece[-2]] += -1 if "/" in piece else 1
            assert min(depth.values()) >= 0
        else:
            for name in depth:
                inside[name] |= {at} if depth[name] else set()
            at += 1
    assert inside["A"] == {place for start, end in one for place in range(start, end)}
    assert inside["B"] == {place for start, end in other for place in range(start, end)}


def test_overlap_is_a_shared_letter():
    assert overlap([LOOP, DIURETICS], [(9, 27)])
    assert not overlap([LOOP], [(4, 8), DIURETICS])


def sentences(text, **keywords):
    starts = [*sentence_starts(text, **keywords), len(text)]
    return [text[a:b].strip() for a, b in pairwise(starts)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It rose. It fell.", ["It rose.", "It fell."]),
        ("Why? It fell! 5 mg did.", ["Why?", "It fell!", "5 mg did."]),
        ("It rose (a lot.) It fell.", ["It rose (a lot.)", "It fell."]),
        ("It rose. (Not much.) It fell.", ["It rose.", "(Not much.)", "It fell."]),
        ("Azulin vs. Corvadine, e.g. Brom et al. 2001.", None),
        ("At 0.5 mg of E. coli it rose. then fell.", None),
        ("Vitamin C. Azulin.", ["Vitamin C.", "Azulin."]),
        ("", [""]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, wanted):
    assert sentences(text) == (wanted or [text])


def test_no_sentence_ends_inside_a_mention_and_one_starts_at_a_break():
    text = "Title without stop St. X. Azulin. Two"
    mention = (text.index("X."), text.index("X.") + len("X. Azulin"))
    assert sentences(text, mentions=[mention]) == [text[:-4], "Two"]
    assert sentences(text, mentions=[mention], breaks=[6])[0] == "Title"


def test_the_run_of_sentences_holds_both_spans_and_no_sentence_more():
    text = "One a. Two b. Three c. Four d."
    starts = sentence_starts(text)
    a, b, c = (text.index(word) for word in ("One", "Two", "Three"))
    assert text[slice(*around(starts, len(text), [(b, b + 3)]))] == "Two b. "
    assert text[slice(*around(starts, len(text), [(c, c + 5), (b, b + 3)]))] == "Two b. Three c. "
    assert text[slice(*around(starts, len(text), [(len(text) - 2, len(text))]))] == "Four d."
    assert around(starts, len(text), [(a, len(text))]) == (0, len(text))
    # A span that ends where a sentence ends does not take the next one in.
    assert text[slice(*around(starts, len(text), [(a, b)]))] == "One a. "
