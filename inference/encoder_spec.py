"""What makes an encoder, and the id that says whose vectors may be compared."""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from inference.masking import MaskRule
from inference.models import resolve, revision

Role = Literal["query", "document"]
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class EncoderSpec:
    """What makes an encoder: everything here but `device` decides the vectors and their id.

    Args:
        model: as for `models.resolve`; with `query_model` given, the model of documents only.
        revision: commit, tag or branch of a hub model.
        query_model: the model of queries where it is another one (MedCPT).
        query_revision: the revision of `query_model`.
        query_prompt: put before every query, without a separator.
        document_prompt: put before every document, without a separator.
        pooling: None takes what the model folder says.
        append_eos: end every text with the end-of-text token that the tokenizer leaves out.
        normalize: scale vectors to unit length; selection needs it.
        mask: rules of `mask_rules`, run over documents and queries alike before all else.
        max_tokens: longer texts are cut (prompt and special tokens count); None is the model's.
        query_max_tokens: the same for queries; None is max_tokens.
        dtype: of the weights and activations.
        storage: of the vectors as the caller writes them; vectors leave here as float32.
        batch_size: rows in one forward pass; it is in the id because it moves vectors by rounding.
        trust_remote_code: let the model folder run its own Python.
        device: None is a GPU if there is one.
    """

    model: str
    revision: str | None = None
    query_model: str | None = None
    query_revision: str | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    pooling: Literal["mean", "cls", "lasttoken"] | None = None
    append_eos: bool = False
    mask: tuple[MaskRule, ...] = ()
    normalize: bool = True
    max_tokens: int | None = None
    query_max_tokens: int | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    storage: Literal["float32", "float16"] = "float32"
    batch_size: int = 64
    trust_remote_code: bool = False
    device: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError on values that no model could work with."""
        for name in ("batch_size", "max_tokens", "query_max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"encoder {name} is {value}; wanted at least 1")
        if self.dtype not in _DTYPES:
            raise ValueError(f"encoder dtype is {self.dtype!r}; wanted one of {', '.join(_DTYPES)}")


@dataclass(frozen=True)
class Side:
    """The half of an EncoderSpec that one role uses."""

    model: str
    revision: str | None
    prompt: str
    max_tokens: int | None


def side(spec: EncoderSpec, role: Role) -> Side:
    """Picks the model, prompt and length limit of a role."""
    if role == "document":
        return Side(spec.model, spec.revision, spec.document_prompt, spec.max_tokens)
    if role != "query":
        raise ValueError(f"role {role!r}; wanted 'query' or 'document'")
    limit = spec.query_max_tokens or spec.max_tokens
    if spec.query_model is None:
        return Side(spec.model, spec.revision, spec.query_prompt, limit)
    return Side(spec.query_model, spec.query_revision, spec.query_prompt, limit)


def pinned(spec: EncoderSpec) -> EncoderSpec:
    """Replaces the revisions of hub models by commits, so that every worker loads the same."""

    def commit(model: str, wanted: str | None) -> str | None:
        return revision(model, wanted) if isinstance(resolve(model), str) else wanted

    changes: dict[str, Any] = {"revision": commit(spec.model, spec.revision)}
    if spec.query_model is not None:
        changes["query_revision"] = commit(spec.query_model, spec.query_revision)
    return dataclasses.replace(spec, **changes)


def encoder_id(name: str, spec: EncoderSpec) -> str:
    """Names a vector space: vectors may be compared only if their encoder ids are equal.

    Args:
        name: the encoder's name in the config; letters, digits, `.`, `_` and `-` are kept.
        spec: covered whole, with the weights of both sides, but for `device` and
            `trust_remote_code`.

    Returns:
        `name-` and 8 hex digits.
    """
    fields = dataclasses.asdict(spec)
    for key in ("device", "trust_remote_code", "model", "revision", "query_model"):
        del fields[key]
    sides = [side(spec, role) for role in ("document", "query")]
    fields["weights"] = [revision(one.model, one.revision) for one in sides]
    fields["masking"] = fields.pop("mask") or "none"
    del fields["query_revision"]
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', name)}-{digest[:8]}"
