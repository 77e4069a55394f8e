"""Models and limits that do not fit are refused before any row is encoded."""

import dataclasses

import pytest

from inference.encoder import Encoder, EncoderSpec
from tests.inference.tiny_models import tiny_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def spec(folder):
    return EncoderSpec(model=str(folder), pooling="mean", max_tokens=16, batch_size=4)


def test_a_folder_that_does_not_say_how_it_pools_is_refused(folder):
    with pytest.raises(ValueError, match="pooling to mean, cls or lasttoken"):
        Encoder(EncoderSpec(model=str(folder)), "document")


def test_a_limit_above_the_positions_of_the_model_is_refused_with_both_numbers(spec):
    with pytest.raises(ValueError, match="max_tokens 513 is above the 512 positions"):
        Encoder(dataclasses.replace(spec, max_tokens=513), "document")


def test_a_prompt_that_fills_the_limit_is_refused(spec):
    wordy = dataclasses.replace(spec, document_prompt="a " * 14)
    with pytest.raises(ValueError, match="limit of 16 tokens leaves no room"):
        Encoder(wordy, "document")


def test_an_appended_end_token_needs_a_tokenizer_that_has_one(spec):
    with pytest.raises(ValueError, match="no end-of-text token"):
        Encoder(dataclasses.replace(spec, append_eos=True), "document")


def test_an_unknown_role_is_refused(spec):
    with pytest.raises(ValueError, match="role 'passage'"):
        Encoder(spec, "passage")
