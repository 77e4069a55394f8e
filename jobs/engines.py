"""The config's engines in the words of `inference`, and their tokenizers."""

import functools
from dataclasses import asdict
from typing import Any

from inference.engine import EngineSpec
from inference.models import resolve, revision
from inference.prompt_tokens import Tokenizer
from inference.prompts import chat_of
from jobs.config_schema import EngineConfig
from jobs.errors import ConfigError


def engine_spec(config: EngineConfig, *, key: str) -> EngineSpec:
    """The engine's settings with its model resolved to a folder or hub name.

    Raises:
        ConfigError: The model is not there.
    """
    plain = config.model_dump(exclude_none=True)
    try:
        plain["model"] = str(resolve(config.model))
    except (LookupError, OSError, ValueError) as error:
        raise ConfigError(f"{key}.model: {error.args[0] if error.args else error}") from None
    return EngineSpec(**plain)


def plain_engine(spec: EngineSpec) -> dict[str, Any]:
    """Settings and weights that outputs depend on, as plain data for fingerprints."""
    return asdict(spec) | {"weights": revision(spec.model, spec.revision)}


@functools.lru_cache(maxsize=4)
def tokenizer_of(model: str, model_revision: str | None) -> Tokenizer:
    """The tokenizer of a model, loaded once a process."""
    from transformers import AutoTokenizer

    tokenizer: Tokenizer = AutoTokenizer.from_pretrained(model, revision=model_revision)
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
