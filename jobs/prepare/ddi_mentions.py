"""Drug mentions of the DDI corpus: `charOffset="80-85;95-120"`, last letters included."""

import re
from typing import NamedTuple

from jobs.prepare.marks import Span

_PART = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
_SHIFTS = (0, 1, -1)


class BadMention(ValueError):
    """A mention or label that cannot be used; the text says why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Mention(NamedTuple):
    """A mention of a drug.

    Attributes:
        text: As the corpus names it.
        parts: Where it stands, [start, end); more than one where other words lie between.
        shifted: The corpus has it one letter off.
    """

    text: str
    parts: tuple[Span, ...]
    shifted: bool


def mention_of(sentence: str, offsets: str, text: str) -> Mention:
    """Read a mention, and hold what stands at its place against its name.

    White space does not count, because the corpus joins the parts of a mention with or without
    it. Places that are all off by one letter are corrected.

    Raises:
        BadMention: No offsets, offsets outside of the sentence, or other letters there.
    """
    parts = _parts(offsets)
    if max(end for _, end in parts) > len(sentence):
        detail = f"charOffset {offsets!r} of {text!r}, in a sentence of {len(sentence)} characters"
        raise BadMention("offset_out_of_range", detail)
    for shift in _SHIFTS:
        moved = tuple((start + shift, end + shift) for start, end in parts)
        if _letters("".join(sentence[max(0, a) : b] for a, b in moved)) == _letters(text):
            return Mention(text, _trimmed(sentence, moved), shift != 0)
    found = " ... ".join(sentence[start:end] for start, end in parts)
    raise BadMention("offset_mismatch", f"charOffset {offsets!r} is {found!r}, wanted {text!r}")


def _parts(offsets: str) -> list[Span]:
    found = [_PART.fullmatch(part) for part in offsets.split(";")]
    spans = [(int(match[1]), int(match[2]) + 1) for match in found if match]
    if len(spans) < len(found) or any(end <= start for start, end in spans):
        raise BadMention("bad_offsets", f"charOffset {offsets!r}, wanted like 3-9 or 3-9;14-20")
    return spans


def _letters(text: str) -> str:
    return "".join(text.split())


def _trimmed(sentence: str, parts: tuple[Span, ...]) -> tuple[Span, ...]:
    """Parts without white space at their ends."""
    trimmed = []
    for start, end in parts:
        part = sentence[start:end]
        start += len(part) - len(part.lstrip())
        trimmed.append((start, start + len(part.strip())))
    return tuple(trimmed)
