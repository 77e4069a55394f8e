"""Hub models on this machine: fetched once, whatever the number of processes that want them."""

import functools
import hashlib
import json
from pathlib import Path

# Weights for other programs, and second copies of the same ones.
NOT_USED = [
    *("onnx/*", "openvino/*", "original/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite"),
    *("*.gguf", "*.mlmodel", "coreml/*"),
]


@functools.cache
def fetched(name: str, commit: str) -> Path:
    """The folder of a hub model's files, fetched if they are not here.

    Many actors begin at once, and a hub refuses those that ask too often. So one process of a
    machine asks, the others wait for it at a lock beside the cache, and all of them then load the
    folder, which needs no network. A mark says that a copy is whole: what a process that was
    killed left is fetched on, not loaded.

    Args:
        name: of the model on the hub.
        commit: 40 hex, as `inference.models.revision` returns it.

    Raises:
        LookupError: the files are not here and the hub cannot be reached.
    """
    from filelock import FileLock
    from huggingface_hub import constants

    key = hashlib.sha256(f"{name}@{commit}".encode()).hexdigest()[:24]
    marks = Path(constants.HF_HUB_CACHE) / ".dualdiv"
    marks.mkdir(parents=True, exist_ok=True)
    mark = marks / f"{key}.whole"
    with FileLock(marks / f"{key}.lock"):
        if mark.exists():
            folder = Path(mark.read_text(encoding="utf-8"))
            if folder.is_dir():
                return folder
        folder = _here(name, commit) or _fetch(name, commit)
        mark.write_text(str(folder), encoding="utf-8")
    return folder


def _here(name: str, commit: str) -> Path | None:
    """A copy that someone else fetched: with all its weights, and a tokenizer."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    store = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")
    folder = store / "snapshots" / commit
    if not folder.is_dir():
        return None
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.exists()}
    listed = {
        shard
        for index in present
        if index.endswith(".index.json")
        for shard in json.loads((folder / index).read_text()).get("weight_map", {}).values()
    }
    weights = any(one.endswith((".safetensors", ".bin")) for one in present)
    reads = any(Path(one).name.startswith(("tokenizer", "vocab", "spiece")) for one in present)
    described = {"config.json", "modules.json"} & present
    return folder if weights and reads and described and listed <= present else None


def _fetch(name: str, commit: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=commit, ignore_patterns=NOT_USED))
    except Exception as error:  # whatever the transport raises: a copy in the cache will do
        try:
            return Path(snapshot_download(name, revision=commit, local_files_only=True))
        except Exception:
            raise LookupError(
                f"model {name!r} ({commit[:12]}) is not in the hub cache of this machine, and the "
                f"hub gave no answer ({type(error).__name__}: {error}). Fetch it where there is a "
                f"network (hf download {name} --revision {commit}), or name its folder."
            ) from error
