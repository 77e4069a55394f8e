"""Texts in, unit vectors out: one encoder model in one process."""

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference.encoder_spec import EncoderSpec, Role, encoder_id, pinned, side
from inference.masking import mask
from inference.status import Status
from inference.tokens import Ids, Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["Encoded", "Encoder", "EncoderSpec", "Role", "encoder_id", "pinned"]

Vectors = npt.NDArray[np.float32]

_TINY_NORM = 1e-12  # below it a direction is rounding noise


@dataclass(frozen=True)
class Encoded:
    """What became of n texts, in the order they came in.

    Args:
        vectors: (n, d) float32, unit rows; zero rows where the status is not ok.
        n_tokens: (n,) int32, of the masked text before truncation, prompt and special tokens
            included; 0 if empty.
        truncated: (n,) bool, the model saw only the first `max_tokens` tokens.
        status: n times ok, empty or not_finite.
    """

    vectors: Vectors
    n_tokens: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.bool_]
    status: list[Status]


class Encoder:
    """One model for one role, on one device.

    Args:
        spec: the encoder.
        role: whose model, prompt and length limit to use.
        n_threads: threads of this process for torch and the tokenizer; None leaves them alone.

    Raises:
        ValueError: the folder does not say how it pools, or max_tokens is above what it takes.
        LookupError, FileNotFoundError: as `models.resolve`.
    """

    def __init__(self, spec: EncoderSpec, role: Role, n_threads: int | None = 1) -> None:
        import torch

        from inference.loading import load, token_limit

        if n_threads is not None:
            torch.set_num_threads(n_threads)
            os.environ["TOKENIZERS_PARALLELISM"] = "false" if n_threads == 1 else "true"
        mine = side(spec, role)
        self.spec = spec
        self.role = role
        #: A module from {input_ids, attention_mask} to {sentence_embedding}.
        self.model: Any = load(spec, mine)
        self.max_tokens = token_limit(self.model, mine)
        self.dimension = int(self.model.get_embedding_dimension())
        self._tokens = Tokens(
            self.model.tokenizer, prompt=mine.prompt, limit=self.max_tokens, eos=spec.append_eos
        )
        self._exact: Any = None

    def encode(self, texts: Sequence[str], *, ids: Sequence[str]) -> Encoded:
        """Encodes texts; what comes out for a row depends on the set of rows, not their order.

        Batches are formed over rows sorted by (n_tokens, id, text). A row whose vector is not
        finite, or is zero, is tried again alone in float32 and else given up. Memory is that of
        the rows given: callers bound it by the size of their calls.

        Args:
            texts: n texts; any Unicode, of any length.
            ids: n row ids, which settle the order of rows with equally many tokens.

        Returns:
            One entry per text, in the order given.
        """
        if len(texts) != len(ids):
            raise ValueError(f"{len(texts)} texts and {len(ids)} ids; wanted an id for each text")
        if self.spec.mask:
            texts = [mask(text, self.spec.mask) for text in texts]
        rows, n_tokens = self._tokens.rows(texts)
        filled = [i for i, row in enumerate(rows) if len(row)]
        order = sorted(filled, key=lambda i: (n_tokens[i], ids[i], texts[i]))
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for start in range(0, len(order), self.spec.batch_size):
            batch = order[start : start + self.spec.batch_size]
            vectors[batch] = self._forward(self.model, [rows[i] for i in batch])
        status = [Status.EMPTY] * len(texts)
        for i, usable in zip(order, _usable(vectors[order]), strict=True):
            status[i] = Status.OK if usable else self._retry(vectors[i : i + 1], rows[i])
        if self.spec.normalize:
            norms = _norms(vectors)[:, None]
            vectors /= np.where(norms > 0, norms, 1.0)
        return Encoded(vectors, n_tokens, n_tokens > self.max_tokens, status)

    def _retry(self, vector: Vectors, row: Ids) -> Status:
        """Encodes one row alone in float32, writing the (1, d) vector in place."""
        vector[:] = self._forward(self._float32_model(), [row])
        if _usable(vector)[0]:
            return Status.OK
        vector[:] = 0.0
        return Status.NOT_FINITE

    def _forward(self, model: "SentenceTransformer", rows: list[Ids]) -> Vectors:
        """Runs one batch; padding is on the right, where causal attention cannot see it."""
        import torch

        lengths = np.array([len(row) for row in rows])
        mask = np.arange(lengths.max()) < lengths[:, None]
        input_ids = np.full(mask.shape, self._tokens.pad, np.int64)
        input_ids[mask] = np.concatenate(rows)
        device = getattr(model, "device", None)
        features: dict[str, Any] = {
            "input_ids": torch.from_numpy(input_ids).to(device),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)).to(device),
        }
        if self._tokens.prompt_length:  # for poolings that leave the prompt out
            features["prompt_length"] = self._tokens.prompt_length
        with torch.inference_mode():
            vectors: torch.Tensor = model(features)["sentence_embedding"]
        return vectors.float().cpu().numpy()

    def _float32_model(self) -> "SentenceTransformer":
        """Returns the model in float32, copied when first needed."""
        if self.spec.dtype == "float32":
            return self.model
        if self._exact is None:
            self._exact = copy.deepcopy(self.model).float()
        return self._exact


def _norms(vectors: Vectors) -> npt.NDArray[np.float64]:
    return np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))


def _usable(vectors: Vectors) -> npt.NDArray[np.bool_]:
    norms = _norms(vectors)
    return np.isfinite(norms) & (norms > _TINY_NORM)
