"""Turns a GGUF file into a model folder that vLLM and transformers load, once per machine."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Raise it when the written folder would differ: old folders are then left and not used.
_VERSION = 1
_SAMPLE_BYTES = 1 << 20


def converted(source: Path, *, name: str) -> Path:
    """Returns the folder converted from a GGUF file, converting it if no process has.

    The folder appears by a rename, so it is whole or absent; a lock makes a second process wait
    for the first. A killed process leaves a temporary folder, which the next one removes.

    Args:
        source: a GGUF file of a Llama-architecture model, of any quantisation.
        name: what the folder is called under `cache_folder()`; the file's digest is appended.

    Returns:
        A folder with a bfloat16 LlamaForCausalLM, its tokenizer and its chat template.

    Raises:
        FileNotFoundError: no such file.
        LookupError: the `gguf` package is missing.
        OSError: the folder cannot be written; the message names DUALDIV_CACHE.
    """
    if not source.is_file():
        raise FileNotFoundError(f"no GGUF file at {source}: the package that ships it has changed.")
    target = cache_folder() / f"{name}-{_digest(source)}"
    if target.is_dir():
        return target
    try:
        with _locked(target.with_name(target.name + ".lock")):
            if not target.is_dir():
                _convert_into(source, target)
    except OSError as error:
        raise OSError(
            f"cannot write the converted model {target} ({error}). It needs about three times the "
            f"{source.stat().st_size / 1e6:.0f} MB of {source.name}: free some space, or set "
            "DUALDIV_CACHE to a folder that can be written."
        ) from error
    return target


def cache_folder() -> Path:
    """Returns $DUALDIV_CACHE, or ~/.cache/dualdiv."""
    return Path(os.environ.get("DUALDIV_CACHE") or "~/.cache/dualdiv").expanduser()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel if the holder dies
        yield


def _convert_into(source: Path, target: Path) -> None:
    for left_over in target.parent.glob(f"{target.name}.tmp-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.tmp-", dir=target.parent))
    try:
        _write_model(source, work)
        _let_others_read(work)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _let_others_read(folder: Path) -> None:
    """Undoes the private modes of temporary files: a cache may be shared by users."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _write_model(source: Path, folder: Path) -> None:
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise LookupError(f"reading {source.name} needs the package gguf: pip install gguf") from (
            error
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    files = {"gguf_file": source.name, "local_files_only": True}
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **files)
    # The loaded model is marked as quantised and refuses to be saved; its weights are not.
    with torch.device("meta"):
        clean = LlamaForCausalLM(_plain_config(loaded.config))
    clean.load_state_dict(loaded.state_dict(), assign=True)
    clean.tie_weights()
    clean.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, **files).save_pretrained(folder)


def _plain_config(config: object) -> object:
    from transformers import LlamaConfig

    fields = config.to_dict()  # type: ignore[attr-defined]
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "dtype"):
        fields.pop(key, None)
    return LlamaConfig(**fields)


def _digest(path: Path) -> str:
    digest = hashlib.sha256(f"{_VERSION}\0{path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, path.stat().st_size - _SAMPLE_BYTES))
        digest.update(file.read())
    return digest.hexdigest()[:8]
