"""Hashes are the same everywhere, and take for equal only what is."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.readers.hashes import content_hash, normalised, partition_of, text_hash


def test_partitions_are_these_on_every_machine():
    ids = ["a", "b", "row 3", "é", ""]
    assert partition_of(ids, count=64, seed=0).tolist() == [0, 4, 10, 11, 36]
    assert partition_of(ids, count=64, seed=1).tolist() == [35, 52, 1, 51, 36]
    assert partition_of(pa.array(ids), count=64, seed=0).dtype == np.int32


def test_partitions_are_even_and_independent_of_each_other():
    ids = [str(i) for i in range(20_000)]
    first, second = partition_of(ids, count=16, seed=0), partition_of(ids, count=16, seed=-5)
    for counts in (np.bincount(first), np.bincount(second)):
        assert 1100 < counts.min() <= counts.max() < 1400
    assert 0.04 < np.mean(first == second) < 0.085
    assert partition_of([], count=4, seed=0).shape == (0,)


def test_hashes_are_these_on_every_machine():
    assert content_hash(["a", None, "b"]) == "88054be8118486fe"
    assert text_hash("A text.") == "536408935be0e950"


@given(st.lists(st.none() | st.text("a1:-", max_size=4), max_size=4), st.data())
@settings(deadline=None)
def test_different_contents_have_different_hashes(values, data):
    others = data.draw(st.lists(st.none() | st.text("a1:-", max_size=4), max_size=4))
    assert (content_hash(values) == content_hash(others)) == (values == others)


def test_a_lone_surrogate_has_no_content_hash():
    assert content_hash(["a", "\udc00"]) is None


@pytest.mark.parametrize(
    "twin",
    ["the MILL closed", "  the\tmill \n closed ", "The mill closed.", "The mill closed?!",
     "Ｔｈｅ ｍｉｌｌ closed", "the\u00a0mill\u200b closed\ufeff", "The mill closed。"],
)  # fmt: skip
def test_case_spacing_width_and_final_stops_make_no_other_text(twin):
    assert text_hash(twin) == text_hash("The mill closed")


@pytest.mark.parametrize("other", ["The mill closed)", "The. mill closed", "Themill closed", "C++"])
def test_other_texts_stay_apart(other):
    assert text_hash(other) != text_hash("The mill closed")
    assert normalised("C++") != normalised("C")


def test_a_text_of_stops_only_is_not_the_empty_text():
    assert normalised("...") == "..."
    assert text_hash("...") != text_hash("")


@given(st.text())
@settings(deadline=None)
def test_normalising_twice_changes_nothing_more(text):
    once = normalised(text)
    assert normalised(once) == once
