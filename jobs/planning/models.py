"""What `dualdiv plan` goes by for a model: its files, or an assumption where it is out of reach."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from inference.encoder_spec import EncoderSpec
from inference.engine import EngineSpec
from inference.models import resolve
from inference.presets import DIMENSIONS
from jobs.errors import ConfigError
from jobs.generating.engines import tokenizer_of

# Of English in subword vocabularies: the packaged models have 4 to 5 in sentences, 3 among names
# of drugs.
CHARACTERS_PER_TOKEN = 4.0
ASSUMED_DIMENSION = 1024

MeanTokens = Callable[[Sequence[str]], float]


def mean_tokens_of(
    spec: EncoderSpec | EngineSpec, *, key: str, absent: Collection[str]
) -> MeanTokens:
    """How texts are counted for a model: by its tokenizer, or by their length.

    Args:
        spec: Names the model.
        key: Its place in the config.
        absent: Places of the models that are out of reach.

    Returns:
        A function from texts to their mean number of tokens; 0 of no texts.
    """
    if key in absent:
        return lambda texts: sum(map(len, texts)) / CHARACTERS_PER_TOKEN / max(1, len(texts))
    tokenizer = tokenizer_of(str(resolve(spec.model)), spec.revision)

    def counted(texts: Sequence[str]) -> float:
        counts = [len(tokenizer(text, add_special_tokens=True)["input_ids"]) for text in texts]
        return sum(counts) / max(1, len(counts))

    return counted


def sizes_of(spec: EncoderSpec, *, key: str, absent: Collection[str]) -> tuple[int, float]:
    """Numbers of a vector, and about how many weights the blocks of an encoder have.

    Of a model that is out of reach those of its preset or 1,024, and 24 layers of 12 d^2.

    Raises:
        ConfigError: Its config cannot be read.
    """
    if key in absent:
        dimension = DIMENSIONS.get(spec.model, ASSUMED_DIMENSION)
        return dimension, 24 * 12.0 * dimension**2
    found = _config_of(spec, key)
    width = int(found.hidden_size)
    inner = int(getattr(found, "intermediate_size", 4 * width))
    return width, float(found.num_hidden_layers * (4 * width**2 + 2 * width * inner))


def model_bytes(spec: EncoderSpec) -> int:
    """Of the files with its weights, where the model is a folder; else 0."""
    folder = Path(str(resolve(spec.model)))
    kinds = ("*.safetensors", "pytorch_model*.bin")
    files = [file for kind in kinds for file in folder.rglob(kind)] if folder.is_dir() else []
    return sum(file.stat().st_size for file in files)


def _config_of(spec: EncoderSpec, key: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(resolve(spec.model)), revision=spec.revision)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}: its model cannot be read: {error}") from None


def absent_lines(absent: dict[str, str]) -> list[str]:
    """What could not be looked up, and what was assumed instead; one line a model."""
    return [
        f"WARNING: {said} Not checked; planned with {CHARACTERS_PER_TOKEN:g} characters a token"
        f"{' and its dimension assumed' if place.startswith('encoders.') else ''}."
        for place, said in absent.items()
    ]
