"""A hub model is fetched once on a machine, however many want it at the same moment."""

import threading
import time
from pathlib import Path

import huggingface_hub
import pytest

from inference.fetching import fetched

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub of one model; `asked` has one entry a fetch."""
    asked = []

    def download(name, *, revision, ignore_patterns=None, local_files_only=False):
        folder = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / revision
        if local_files_only:
            if not folder.is_dir():
                raise FileNotFoundError("not in the cache")
            return str(folder)
        asked.append(name)
        if hub.down:
            raise ConnectionError("429 Too Many Requests")
        time.sleep(0.2)
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / file).write_text("{}")
        return str(folder)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    fetched.cache_clear()
    hub.asked, hub.down, hub.cache = asked, False, tmp_path
    yield hub
    fetched.cache_clear()


def anew(*args):
    """As another process would: without what this one remembers."""
    return fetched.__wrapped__(*args)


def test_eight_at_once_fetch_once_and_all_have_the_folder(hub):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(anew("me/model", COMMIT))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hub.asked == ["me/model"]
    assert len(set(found)) == 1
    assert len(found) == 8
    assert (found[0] / "config.json").is_file()


def test_what_is_here_is_used_with_the_network_off(hub):
    first = anew("me/model", COMMIT)
    hub.down = True
    assert anew("me/model", COMMIT) == first
    assert hub.asked == ["me/model"]


def test_a_copy_that_someone_else_fetched_needs_no_network(hub):
    hub.down = True
    folder = hub.cache / "models--me--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / file).write_text("{}")
    assert anew("me/model", COMMIT) == folder
    assert hub.asked == []


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_a_copy_that_is_not_whole_is_fetched_on(hub, missing):
    folder = hub.cache / "models--me--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for file in {"config.json", "tokenizer.json", "model.safetensors"} - {missing}:
        (folder / file).write_text("{}")
    assert anew("me/model", COMMIT) == folder
    assert hub.asked == ["me/model"]
    assert (folder / missing).exists()


def test_a_missing_shard_is_fetched_on(hub):
    folder = hub.cache / "models--me--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "model-1.safetensors"):
        (folder / file).write_text("{}")
    index = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    anew("me/model", COMMIT)
    assert hub.asked == ["me/model"]


def test_a_hub_that_refuses_is_named_with_what_to_do(hub):
    hub.down = True
    with pytest.raises(LookupError, match=r"'me/model' .* 429 Too Many .*hf download me/model"):
        anew("me/model", COMMIT)


def test_a_copy_that_was_removed_is_fetched_again(hub):
    import shutil

    folder = anew("me/model", COMMIT)
    shutil.rmtree(Path(folder))
    assert anew("me/model", COMMIT).is_dir()
    assert hub.asked == ["me/model"] * 2
