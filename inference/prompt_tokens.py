"""Prompt text to token ids, and user text that cannot turn into control tokens."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """What is used of a transformers tokenizer; its optional attributes are looked up."""

    def __call__(self, text: str, *, add_special_tokens: bool) -> Mapping[str, list[int]]:
        """Return `input_ids` of a text."""
        ...


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Return the token ids that are sent for a prompt.

    Special tokens of the model (a beginning-of-text token, say) are added unless the prompt,
    rendered by a chat template, begins with one already.

    Args:
        tokenizer: a transformers tokenizer.
        prompt: the text of one prompt.

    Returns:
        Token ids; what `budget` counts and `engine` sends.
    """
    bos = getattr(tokenizer, "bos_token", None)
    rendered = isinstance(bos, str) and bos != "" and prompt.startswith(bos)
    return list(tokenizer(prompt, add_special_tokens=not rendered)["input_ids"])


def control_strings(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the spellings that the tokenizer turns into control tokens, longest first.

    Args:
        tokenizer: a transformers tokenizer.

    Returns:
        All special tokens, and added tokens written `<...>`, without white space at the edges.
    """
    found = set(getattr(tokenizer, "all_special_tokens", ()))
    for token in getattr(tokenizer, "added_tokens_decoder", {}).values():
        text = str(token)
        if getattr(token, "special", False) or (text.startswith("<") and text.endswith(">")):
            found.add(text)
    bare = {text.strip() for text in found} - {""}
    return tuple(sorted(bare, key=lambda text: (-len(text), text)))


def neutralise(text: str, control: Sequence[str]) -> str:
    """Put a space after the first character of every control token spelled out in a text.

    Args:
        text: a text written by a user.
        control: spellings from `control_strings`.

    Returns:
        The text; unchanged where it holds no control token, otherwise readable and tokenised as
        plain text.
    """
    hit = True
    while hit:
        hit = False
        for token in control:
            if token in text:
                hit = True
                text = text.replace(token, _split(token))
    return text


def _split(token: str) -> str:
    """Break a spelling; a single character has no inside, so a space takes its place."""
    return f"{token[0]} {token[1:]}" if len(token) > 1 else " "
