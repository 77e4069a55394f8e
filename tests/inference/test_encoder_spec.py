"""What an encoder is, and whose vectors may be compared."""

import dataclasses
import shutil

import pytest

from inference import encoder_spec
from inference.encoder_spec import EncoderSpec, encoder_id, pinned
from inference.masking import MaskRule, mask_rules
from tests.inference.tiny_models import tiny_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def spec(folder):
    return EncoderSpec(model=str(folder), pooling="mean", max_tokens=16, batch_size=4)


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"max_tokens": 0}, {"query_max_tokens": -1}, {"dtype": "int8"}]
)
def test_a_spec_refuses_values_that_no_model_could_work_with(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        EncoderSpec(model="m", **wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"query_prompt": "query: "},
        {"document_prompt": "passage: "},
        {"pooling": "cls"},
        {"append_eos": True},
        {"mask": mask_rules(["dates"])},
        {"normalize": False},
        {"max_tokens": 17},
        {"query_max_tokens": 15},
        {"dtype": "bfloat16"},
        {"storage": "float16"},
        {"batch_size": 8},
    ],
)
def test_whatever_changes_vectors_changes_the_id(spec, change):
    assert encoder_id("tiny", dataclasses.replace(spec, **change)) != encoder_id("tiny", spec)


def test_the_id_covers_every_rule_of_a_mask(spec):
    masks = [["dates"], ["dates", "numbers"], [MaskRule("a", "x")], [MaskRule("a", "y")]]
    specs = [dataclasses.replace(spec, mask=mask_rules(entries)) for entries in masks]
    assert len({encoder_id("tiny", one) for one in [spec, *specs]}) == 5


def test_an_encoder_without_a_mask_keeps_the_id_it_had(folder, monkeypatch):
    monkeypatch.setattr(encoder_spec, "revision", lambda model, wanted: "0123456789abcdef")
    assert encoder_id("e", EncoderSpec(model=str(folder))) == "e-cf5a9178"


def test_the_device_does_not_change_the_id(spec):
    assert encoder_id("tiny", dataclasses.replace(spec, device="cuda")) == encoder_id("tiny", spec)


def test_the_id_is_that_of_the_weights_wherever_the_folder_is(spec, folder, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    there = dataclasses.replace(spec, model=str(moved))
    assert encoder_id("tiny", there) == encoder_id("tiny", spec)
    (moved / "config.json").write_text("{}")
    assert encoder_id("tiny", there) != encoder_id("tiny", spec)


def test_another_query_model_changes_the_id(spec, tmp_path):
    two = dataclasses.replace(spec, query_model=str(tiny_bert(tmp_path, seed=5)))
    assert encoder_id("tiny", two) != encoder_id("tiny", spec)


def test_the_id_starts_with_the_name_and_is_a_folder_name(spec):
    name, _, digest = encoder_id("my enc/1", spec).rpartition("-")
    assert name == "my-enc-1"
    assert len(digest) == 8
    assert int(digest, 16) >= 0


def test_pinning_leaves_folders_and_fixes_the_commit_of_hub_models(spec):
    assert pinned(spec) == spec
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = dataclasses.replace(spec, model="some/model", revision=commit, query_model=spec.model)
    assert pinned(hub) == hub
