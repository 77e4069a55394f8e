"""Counting every token and keeping those that fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from inference import tokens
from tests.inference.tiny_models import WORDS, tiny_bert, tiny_gpt_neox


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "\n", "knee,", "(a)"]), min_size=1, max_size=60))
def test_counting_in_pieces_is_counting_at_once(folder, chosen):
    text = " ".join(chosen)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tokens, "_PIECE_CHARS", 20)
        rows, counts = tokens.Tokens(tokenizer, prompt="", limit=16, eos=False).rows([text])
    whole = tokenizer(text)["input_ids"]
    if text.isspace():
        assert counts[0] == 0
        return
    assert counts[0] == len(whole)
    assert rows[0].tolist() == tokenizer(text, truncation=True, max_length=16)["input_ids"]


def test_an_end_token_is_appended_once_and_never_cut(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt_neox(tmp_path))
    bytewise = tokens.Tokens(tokenizer, prompt="q:", limit=6, eos=True)
    rows, counts = bytewise.rows(["ab", "abcdefgh"])
    assert counts.tolist() == [5, 11]
    assert [row[-1] for row in rows] == [tokenizer.eos_token_id] * 2
    assert tokenizer.decode(rows[1][:-1]) == "q:abc"
