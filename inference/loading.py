"""Loads the modules of an encoder: transformer and pooling, without the final normalisation."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.encoder_spec import EncoderSpec, Side
from inference.fetching import fetched
from inference.models import resolve, revision

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load(spec: EncoderSpec, side: Side) -> "SentenceTransformer":
    """Loads a SentenceTransformer that pools as the spec says and does not normalise.

    Args:
        spec: for dtype, device, pooling and trust_remote_code.
        side: the model and its revision. What is on this machine is loaded without
            asking the network; a hub model that is not is fetched once for all processes.

    Raises:
        ValueError: neither the spec nor the folder says how to pool, or there is nothing to pool.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize
    from transformers.utils import logging

    logging.disable_progress_bar()  # a bar per actor is noise in a batch job's log
    found = resolve(side.model)
    if not isinstance(found, Path):
        found = fetched(found, revision(side.model, side.revision))
    if spec.pooling is None and not _says_how_it_pools(found):
        raise ValueError(
            f"model {side.model!r} has no modules.json that says how to pool its tokens. Set the "
            "encoder's pooling to mean, cls or lasttoken, as its model card says."
        )
    model = SentenceTransformer(
        str(found),
        local_files_only=True,
        device=spec.device,
        trust_remote_code=spec.trust_remote_code,
        model_kwargs={"dtype": getattr(torch, spec.dtype)},
    )
    kept = [module for module in model if not isinstance(module, Normalize)]
    if spec.pooling is not None:
        kept = _repooled(kept, spec.pooling, side.model)
    return SentenceTransformer(modules=kept, device=spec.device).eval()


def token_limit(model: "SentenceTransformer", side: Side) -> int:
    """Returns the most tokens a row may have.

    Raises:
        ValueError: the wanted limit is above the positions the model has, or neither is known.
    """
    own = model.max_seq_length
    positions = getattr(model[0].config, "max_position_embeddings", None)
    if side.max_tokens is None:
        if own is None or own > 1 << 24:  # the tokenizer's way to say that it does not know
            raise ValueError(f"model {side.model!r} names no length limit: set max_tokens.")
        return int(own)
    if positions is not None and side.max_tokens > positions:
        raise ValueError(
            f"max_tokens {side.max_tokens} is above the {positions} positions of model "
            f"{side.model!r}. Lower it to at most {positions}."
        )
    return side.max_tokens


def _says_how_it_pools(found: Path) -> bool:
    return (found / "modules.json").is_file()


def _repooled(modules: list[Any], mode: str, model: str) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Pooling

    if not any(isinstance(module, Pooling) for module in modules):
        raise ValueError(
            f"model {model!r} does not pool tokens, so pooling {mode!r} means nothing: remove it."
        )
    return [
        Pooling(module.embedding_dimension, mode, module.include_prompt)
        if isinstance(module, Pooling)
        else module
        for module in modules
    ]
