"""Encoders and engines: which model, and how it is asked."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from inference.masking import MaskRule, mask_rules
from jobs.config.section import Section


class MaskPattern(Section):
    """A mask of your own: a regular expression and what stands in the place of its matches."""

    pattern: str
    placeholder: str = Field(alias="with")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return MaskRule(pattern, "").pattern


Mask = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[MaskPattern, Tag("<pattern>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<pattern>"),
]


class EncoderConfig(Section):
    """A sentence encoder: a preset, a model with its settings, or a preset changed in places.

    Attributes:
        preset: A name of `inference.presets`; null: `model` alone says what it is.

    All others are those of `inference.encoder_spec.EncoderSpec`; null: the preset's, or its own.
    """

    preset: str | None = None
    model: str | None = None
    revision: str | None = None
    query_model: str | None = None
    query_revision: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    pooling: Literal["mean", "cls", "lasttoken"] | None = None
    append_eos: bool | None = None
    mask: list[Mask] | None = None
    max_tokens: int | None = Field(None, ge=1)
    query_max_tokens: int | None = Field(None, ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    storage: Literal["float32", "float16"] | None = None
    batch_size: int | None = Field(None, ge=1)
    device: str | None = None
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _named(self) -> "EncoderConfig":
        if self.preset is None and self.model is None:
            raise ValueError("needs preset or model")
        return self

    @field_validator("mask")
    @classmethod
    def _masks(cls, mask: list[Mask] | None) -> list[Mask] | None:
        rules_of(mask)
        return mask


class SparseEncoderConfig(Section):
    """A learned sparse encoder (SPLADE): a model of sentence-transformers with its settings.

    Attributes:
        model: Package, folder or hub name, as for an encoder; its prompts are its own.
        revision: Commit, tag or branch of a hub model.
        mask: As for an encoder, for queries and records alike.
        max_tokens: Longer texts are cut; null: what the model takes.
        max_active: Keep only so many of the largest weights of a text; null: all.
        dtype: Of the weights and activations.
        batch_size: Texts in one forward pass.
        device: Null: a GPU if there is one.
    """

    model: str
    revision: str | None = None
    mask: list[Mask] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_active: int | None = Field(None, ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int = Field(32, ge=1)
    device: str | None = None

    @field_validator("mask")
    @classmethod
    def _masks(cls, mask: list[Mask] | None) -> list[Mask] | None:
        rules_of(mask)
        return mask


def rules_of(mask: list[Mask] | None) -> tuple[MaskRule, ...]:
    """The mask of an encoder as rules, in the order in which they run."""
    return mask_rules(
        entry if isinstance(entry, str) else MaskRule(entry.pattern, entry.placeholder)
        for entry in mask or ()
    )


class EngineConfig(Section):
    """An LLM in vLLM; null means the engine's default for the device at hand.

    Attributes:
        model: Package (`package:NAME`), folder or hub name.
        revision: Commit, tag or branch of a hub model.
        dtype: `auto`: on a CPU float32 unless the CPU multiplies bfloat16 by itself.
        max_model_len: Most tokens of prompt and answer together.
        max_num_seqs: Most requests computed at a time.
        gpu_memory_utilization: Fraction of the GPU's memory.
        tensor_parallel_size: GPUs that share the model.
        kv_cache_memory_bytes: Memory of the prefix cache and running requests.
        extra: Further arguments of `vllm.LLM`, as they are; `trust_remote_code` too.
    """

    model: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(None, ge=16)
    max_num_seqs: int | None = Field(None, ge=1)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    tensor_parallel_size: int = Field(1, ge=1)
    kv_cache_memory_bytes: int | None = Field(None, ge=1)
    extra: dict[str, Any] = Field(default_factory=dict)
