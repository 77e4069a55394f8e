"""Which texts share a key."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.duplicates import near_keys, text_keys


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=6), max_size=8))
def test_text_keys_are_equal_exactly_where_texts_are(texts):
    keys = text_keys(texts)
    assert keys.dtype == np.uint64
    assert (keys[:, None] == keys).tolist() == [[a == b for a in texts] for b in texts]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Acute cough.", " acute  COUGH", True),
        ("ＡＢＣ １", "abc 1", True),
        ("a-b", "a b", True),
        ("a b", "ab", False),
        ("take 5 mg", "take 50 mg", False),
        ("left knee", "knee left", False),
        ("?!", "?", False),
        ("?!", "?!", True),
        ("", "  ", False),
        ("\ud800", "\ud800", True),
    ],
)
def test_near_keys_ignore_case_width_space_and_punctuation_only(a, b, same):
    first, second = near_keys([a, b])
    assert (first == second) == same


def test_no_texts_have_no_keys():
    assert text_keys([]).shape == near_keys([]).shape == (0,)
