"""Texts in, sparse vectors out: a learned sparse encoder (SPLADE) in one process."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from inference.encoder_spec import Role
from inference.fetching import fetched
from inference.masking import MaskRule, mask
from inference.models import resolve, revision
from inference.status import Status


@dataclass(frozen=True)
class SparseSpec:
    """What makes a sparse encoder; all but `device` decides its vectors and their id.

    Args:
        model: as for `models.resolve`; prompts and separate modules for queries are the model's.
        revision: commit, tag or branch of a hub model.
        mask: rules of `mask_rules`, run over documents and queries alike.
        max_tokens: longer texts are cut; None is the model's.
        max_active: keep only so many of the largest entries of a vector; None keeps all.
        dtype: of the weights and activations.
        batch_size: rows in one forward pass.
        device: None is a GPU if there is one.
    """

    model: str
    revision: str | None = None
    mask: tuple[MaskRule, ...] = ()
    max_tokens: int | None = None
    max_active: int | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int = 32
    device: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError on values that no model could work with."""
        for name in ("batch_size", "max_tokens", "max_active"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"sparse encoder {name} is {value}; wanted at least 1")


def sparse_encoder_id(name: str, spec: SparseSpec) -> str:
    """Names a space of sparse vectors: `name-` and 8 hex digits over all but `device`."""
    fields = dataclasses.asdict(spec)
    for key in ("device", "model", "revision"):
        del fields[key]
    fields["weights"] = revision(spec.model, spec.revision)
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', name)}-{digest[:8]}"


def sparse_pinned(spec: SparseSpec) -> SparseSpec:
    """Replaces the revision of a hub model by its commit, so that every worker loads the same."""
    if isinstance(resolve(spec.model), Path):
        return spec
    return dataclasses.replace(spec, revision=revision(spec.model, spec.revision))


def require_sparse(spec: SparseSpec) -> None:
    """Refuses what sentence-transformers would complete with layers that nobody trained.

    Reads the list of modules only.

    Raises:
        ValueError: the model is no sparse encoder, or a revision is given for a folder.
        LookupError, OSError: as `models.revision`, or the list cannot be read.
    """
    from transformers.utils import cached_file

    found, weights = resolve(spec.model), revision(spec.model, spec.revision)
    commit = None if isinstance(found, Path) else weights
    quiet = {"_raise_exceptions_for_missing_entries": False}
    file = cached_file(
        str(found), "modules.json", revision=commit, local_files_only=commit is None, **quiet
    )
    modules = [] if file is None else json.loads(Path(file).read_text(encoding="utf-8"))
    types = [str(module["type"]) for module in modules]
    if not any(".sparse_encoder." in kind or kind.endswith(".Router") for kind in types):
        raise ValueError(
            f"model {spec.model!r} is no sparse encoder of sentence-transformers: its modules.json "
            f"names {', '.join(types) or 'nothing'}; wanted SpladePooling or another sparse module"
        )


@dataclass(frozen=True)
class SparseEncoded:
    """What became of n texts, in the order they came in.

    Args:
        rows: (n, v) float32 CSR, entries above 0 at the terms of the model's vocabulary; a row is
            empty where the status is not ok.
        truncated: (n,) bool, the model saw only the first tokens.
        status: n times ok, empty or not_finite.
    """

    rows: sp.csr_array
    truncated: npt.NDArray[np.bool_]
    status: list[Status]


class SparseEncoder:
    """One sparse model for one role, on one device.

    Args:
        spec: the encoder.
        role: whether texts are encoded as queries or as documents.
        n_threads: threads of this process for torch and the tokenizer; None leaves them alone.

    Raises:
        ValueError: the model is no sparse encoder, or max_tokens is above its positions.
        LookupError, FileNotFoundError: as `models.resolve`.
    """

    def __init__(self, spec: SparseSpec, role: Role, n_threads: int | None = 1) -> None:
        import torch

        if n_threads is not None:
            torch.set_num_threads(n_threads)
            os.environ["TOKENIZERS_PARALLELISM"] = "false" if n_threads == 1 else "true"
        if role not in ("query", "document"):
            raise ValueError(f"role {role!r}; wanted 'query' or 'document'")
        self.spec = spec
        self.model: Any = _loaded(spec)
        self._encode = self.model.encode_query if role == "query" else self.model.encode_document
        # What the model says of itself may be the width of its hidden layer.
        self.dimension = int(self._encode(["a"], show_progress_bar=False).shape[1])

    def encode(self, texts: Sequence[str]) -> SparseEncoded:
        """Encodes texts; what comes out for a row depends on the set of rows, not their order.

        Batches are formed over rows sorted by (length, text); their composition moves entries by
        rounding. Memory is that of the rows given and one dense batch.

        Args:
            texts: n texts; any Unicode.

        Returns:
            One entry per text, in the order given.
        """
        shown = [mask(text, self.spec.mask).encode("utf-8", "replace").decode() for text in texts]
        filled = [i for i, text in enumerate(shown) if text.strip()]
        order = sorted(filled, key=lambda i: (len(shown[i]), shown[i]))
        status = [Status.EMPTY] * len(texts)
        blocks: list[sp.csr_array] = []
        for start in range(0, len(order), self.spec.batch_size):
            batch = order[start : start + self.spec.batch_size]
            block, finite = self._forward([shown[i] for i in batch])
            blocks.append(block)
            for i, usable in zip(batch, finite, strict=True):
                status[i] = Status.OK if usable else Status.NOT_FINITE
        truncated = np.zeros(len(texts), np.bool_)
        truncated[filled] = self._too_long([shown[i] for i in filled])
        return SparseEncoded(self._in_order(blocks, order, len(texts)), truncated, status)

    def _forward(self, texts: list[str]) -> tuple[sp.csr_array, npt.NDArray[np.bool_]]:
        """Rows of one batch, emptied where they are not finite, and which are."""
        found = self._encode(
            texts,
            batch_size=len(texts),
            show_progress_bar=False,
            save_to_cpu=True,
            max_active_dims=self.spec.max_active,
        ).coalesce()
        at, values = found.indices().numpy(), found.values().float().numpy()
        finite = np.ones(len(texts), np.bool_)
        finite[at[0][~np.isfinite(values)]] = False
        kept = finite[at[0]] & (values > 0)
        shape = (len(texts), self.dimension)
        return sp.csr_array((values[kept], (at[0][kept], at[1][kept])), shape=shape), finite

    def _in_order(self, blocks: list[sp.csr_array], order: list[int], n: int) -> sp.csr_array:
        none = sp.csr_array((1, self.dimension), dtype=np.float32)
        places = np.full(n, len(order), np.int64)
        places[order] = np.arange(len(order))
        rows: sp.csr_array = sp.vstack([*blocks, none], format="csr")[places]
        rows.sort_indices()
        return rows

    def _too_long(self, texts: list[str]) -> list[bool]:
        limit = self.model.max_seq_length
        if limit is None or not texts:
            return [False] * len(texts)
        ids = self.model.tokenizer(texts, truncation=False, verbose=False)["input_ids"]
        return [len(row) > limit for row in ids]


def _source(spec: SparseSpec) -> Path:
    """A folder on this machine."""
    found = resolve(spec.model)
    if isinstance(found, Path):
        return found
    return fetched(found, revision(spec.model, spec.revision))


def _loaded(spec: SparseSpec) -> Any:  # noqa: ANN401  (sentence-transformers' own class)
    import torch
    from sentence_transformers import SparseEncoder as Model
    from transformers.utils import logging

    logging.disable_progress_bar()
    require_sparse(spec)
    model = Model(
        str(_source(spec)),
        local_files_only=True,
        device=spec.device,
        model_kwargs={"dtype": getattr(torch, spec.dtype)},
    ).eval()
    if spec.max_tokens is not None:
        positions = getattr(model.transformers_model.config, "max_position_embeddings", None)
        if positions is not None and spec.max_tokens > positions:
            raise ValueError(
                f"max_tokens {spec.max_tokens} is above the {positions} positions of model "
                f"{spec.model!r}. Lower it to at most {positions}."
            )
        model.max_seq_length = spec.max_tokens
    return model
