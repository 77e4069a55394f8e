"""Models and limits that do not fit are refused; those that do load here, without a network."""

import dataclasses
import socket

import huggingface_hub
import psutil
import pytest

from inference.encoder import Encoder, EncoderSpec
from inference.status import Status
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


@pytest.fixture
def no_network(monkeypatch):
    """Every way out is noted, and shut; telemetry is off, as it is in the workers of a run."""
    asked = []

    def refuse(*address, **_):
        asked.append(address)
        raise OSError("the network is off")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)
    return asked


def test_a_folder_is_loaded_without_asking_the_network(spec, no_network):
    assert Encoder(spec, "document").encode(["a"], ids=["r"]).status == [Status.OK]
    assert no_network == []


def test_a_model_fetched_before_is_loaded_without_asking_the_network(
    tmp_path, monkeypatch, no_network
):
    commit = "0123456789" * 4
    tiny_bert(tmp_path / "models--some--model" / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    fetched = EncoderSpec(model="some/model", revision=commit, pooling="mean", max_tokens=16)
    assert Encoder(fetched, "document").encode(["a"], ids=["r"]).status == [Status.OK]
    assert no_network == []


def test_an_encoder_works_in_its_own_process_alone(spec):
    before = {child.pid for child in psutil.Process().children()}
    encoder = Encoder(spec, "document")
    encoder.encode(["a b c"] * 200, ids=[f"r{i}" for i in range(200)])
    assert {child.pid for child in psutil.Process().children()} <= before
