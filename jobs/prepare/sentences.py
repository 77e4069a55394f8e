"""Sentences of an abstract, by a rule: no model, no lists to fetch."""

import re
from bisect import bisect_right
from collections.abc import Iterable

from jobs.prepare.marks import Span

_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|al|approx|resp|ca|Figs?|No|Dr|St|spp?))$")


def sentence_starts(
    text: str, *, mentions: Iterable[Span] = (), breaks: Iterable[int] = ()
) -> list[int]:
    """Where sentences start.

    A sentence ends with a full stop, question or exclamation mark before white space and a capital
    or digit, unless an abbreviation stands there or a mention goes on beyond it.

    Args:
        text: The text.
        mentions: Spans that no sentence ends in.
        breaks: Further places where a sentence starts: that after a title.

    Returns:
        Ascending offsets, the first 0.
    """
    inside = {place for start, end in mentions for place in range(start + 1, end)}
    found = {match.end() for match in _END.finditer(text) if not _is_abbreviation(text, match)}
    return sorted({0, *breaks, *(found - inside)})


def around(starts: list[int], length: int, spans: Iterable[Span]) -> Span:
    """The whole sentences that hold all of `spans`: [start, end).

    Args:
        starts: Of `sentence_starts`.
        length: Of the text, in characters.
        spans: At least one.
    """
    spans = list(spans)
    first = bisect_right(starts, min(start for start, _ in spans)) - 1
    last = bisect_right(starts, max(end for _, end in spans) - 1)
    return starts[first], starts[last] if last < len(starts) else length


def _is_abbreviation(text: str, match: re.Match[str]) -> bool:
    at = match.start()
    return text[at] == "." and _ABBREVIATED.search(text, max(0, at - 8), at) is not None
