"""The config's engines in the words of `inference`, and their tokenizers."""

import functools
import os
from dataclasses import asdict, replace
from typing import Any

from inference.engine import EngineSpec
from inference.models import OutOfReach, resolve, revision
from inference.prompt_tokens import Tokenizer
from inference.prompts import chat_of
from jobs.config.models import EngineConfig
from jobs.errors import ConfigError, ModelOutOfReach
from jobs.storage import absolute_folder

RESOURCES = (
    "max_num_seqs",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "block_size",
    "enforce_eager",
    "n_threads",
)


def engine_spec(config: EngineConfig, *, key: str) -> EngineSpec:
    """The engine's settings with its model resolved to a folder, or to one commit of a hub model.

    Raises:
        ConfigError: The model is not there.
        ModelOutOfReach: It is no folder, there is no copy of it, and the hub gives no answer.
    """
    spec = unpinned_spec(config, key=key)
    if os.path.isdir(spec.model):
        return spec
    # A hub model is held to one commit, so that all workers load what the fingerprint says.
    try:
        return replace(spec, revision=revision(spec.model, spec.revision))
    except OutOfReach as error:
        raise ModelOutOfReach(f"{key}.model: {error}") from None
    except (LookupError, OSError, ValueError) as error:
        raise ConfigError(f"{key}.model: {error.args[0] if error.args else error}") from None


def unpinned_spec(config: EngineConfig, *, key: str) -> EngineSpec:
    """The engine's settings, for which the hub is not asked.

    Raises:
        ConfigError: The model is no hub name, and no folder or package that is there.
    """
    plain = config.model_dump(exclude_none=True)
    try:
        plain["model"] = str(resolve(config.model))
    except (LookupError, OSError, ValueError) as error:
        raise ConfigError(f"{key}.model: {error.args[0] if error.args else error}") from None
    plain["model"] = absolute_folder(plain["model"])
    return EngineSpec(**plain)


def plain_engine(spec: EngineSpec) -> dict[str, Any]:
    """Settings and weights that outputs depend on, as plain data for fingerprints.

    How much memory an engine takes, or how many requests at a time, changes no answer beyond the
    noise that batching has anyway: lowering it after a crash must not redo what is done.
    """
    plain = {key: value for key, value in asdict(spec).items() if key not in RESOURCES}
    return plain | {"model": None, "weights": revision(spec.model, spec.revision)}


@functools.lru_cache(maxsize=4)
def tokenizer_of(model: str, model_revision: str | None) -> Tokenizer:
    """The tokenizer of a model, loaded once a process."""
    from transformers import AutoTokenizer

    local = os.path.isdir(model)
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
            model, revision=None if local else model_revision
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"model {model}: its tokenizer cannot be loaded: {error}") from None
    return tokenizer


def check_chat(spec: EngineSpec, *, engine: str, arm: str) -> None:
    """Refuse `prompt.format: chat` for a model that has no chat template.

    Raises:
        ConfigError: It has none; names model and option.
    """
    try:
        chat_of(tokenizer_of(spec.model, spec.revision), model=engine, option="prompt.format: chat")
    except ValueError as error:
        raise ConfigError(f"arm {arm}: {error}.") from None
