"""Texts to token ids, counted in full and cut to what a model takes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Longer texts are tokenised in pieces, so that time and memory stay linear in their length.
_PIECE_CHARS = 50_000
_SLAB_ROWS = 64

Ids = npt.NDArray[np.int32]


class Tokens:
    """A tokenizer with the prompt, the special tokens and the length limit of one encoder.

    Args:
        tokenizer: a transformers tokenizer.
        prompt: put before every text.
        limit: the most tokens a row may have, all included.
        eos: end rows with the end-of-text token if the tokenizer does not do so.

    Raises:
        ValueError: the limit leaves no room for the text.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", *, prompt: str, limit: int, eos: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._head, self._tail = _special_tokens(tokenizer)
        if eos:
            self._tail = _ending_in_eos(self._tail, tokenizer)
        fixed = len(self._head) + len(self._tail)
        self._n_prompt = len(self._plain([prompt])[0]) if prompt else 0
        self._room = limit - fixed
        if self._room <= self._n_prompt:
            raise ValueError(
                f"a limit of {limit} tokens leaves no room for text: special tokens take {fixed} "
                f"and the prompt {prompt!r} takes {self._n_prompt}. Raise max_tokens."
            )
        self._fixed = fixed
        #: Tokens before the text, 0 without a prompt.
        self.prompt_length = len(self._head) + self._n_prompt if prompt else 0
        self.pad = int(_first_known(tokenizer.pad_token_id, tokenizer.eos_token_id, 0))

    def rows(self, texts: Sequence[str]) -> tuple[list[Ids], npt.NDArray[np.int32]]:
        """Tokenises texts.

        Args:
            texts: n texts. Lone surrogates become question marks. Text over 50,000 characters is
                tokenised in pieces cut at white space; its count is exact unless a token would
                span a cut (text without white space, or a run of it: off by one per piece).

        Returns:
            n arrays of at most `limit` ids, empty for a text without tokens (blank, or only
            characters the tokenizer drops), and (n,) int32 the counts before cutting.
        """
        rows: list[Ids] = []
        counts = np.zeros(len(texts), np.int32)
        for start in range(0, len(texts), _SLAB_ROWS):
            slab = texts[start : start + _SLAB_ROWS]
            for plain in self._plain([self._prompt + text for text in slab]):
                index = len(rows)
                if self._is_empty(texts[index], plain):
                    rows.append(plain[:0])
                    continue
                counts[index] = len(plain) + self._fixed
                rows.append(np.concatenate([self._head, plain[: self._room], self._tail]))
        return rows, counts

    def _is_empty(self, text: str, plain: Ids) -> bool:
        if not text or text.isspace():
            return True
        # A first token may merge with the end of the prompt, so equal counts prove nothing.
        return len(plain) <= self._n_prompt and not len(self._plain([text])[0])

    def _plain(self, texts: Sequence[str]) -> list[Ids]:
        """Tokenises without special tokens, the short texts in one call."""
        texts = [_well_formed(text) for text in texts]
        short = [text if len(text) <= _PIECE_CHARS else "" for text in texts]
        found = [np.array(ids, np.int32) for ids in self._call(short)]
        for index, text in enumerate(texts):
            if len(text) > _PIECE_CHARS:
                pieces = [np.array(self._call([piece])[0], np.int32) for piece in _pieces(text)]
                found[index] = np.concatenate(pieces)
        return found

    def _call(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._tokenizer(
            texts,
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return ids


def _special_tokens(tokenizer: "PreTrainedTokenizerBase") -> tuple[Ids, Ids]:
    """Finds what the tokenizer puts before and after a text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            end = start + len(bare)
            return np.array(full[:start], np.int32), np.array(full[end:], np.int32)
    raise ValueError(
        f"tokenizer {type(tokenizer).__name__}: 'a' is {bare} alone and {full} with special "
        "tokens; wanted the second to contain the first"
    )


def _ending_in_eos(tail: Ids, tokenizer: "PreTrainedTokenizerBase") -> Ids:
    eos = tokenizer.eos_token_id
    if eos is None:
        raise ValueError(
            f"append_eos: tokenizer {type(tokenizer).__name__} has no end-of-text token. Remove it."
        )
    return tail if tail[-1:].tolist() == [eos] else np.append(tail, np.int32(eos))


def _well_formed(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _pieces(text: str) -> Iterator[str]:
    """Cuts before the last white space of each 50,000 characters, as most tokenizers do."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        window = text[start : start + _PIECE_CHARS]
        kept = max(window.rfind(space) for space in " \n\t")
        end = start + (kept if kept > 0 else _PIECE_CHARS)
        yield text[start:end]
        start = end
    yield text[start:]


def _first_known(*values: int | None) -> int:
    return next(value for value in values if value is not None)
