"""Mentions in a text: their parts, and marks around them."""

from collections.abc import Mapping, Sequence

Span = tuple[int, int]


def marked(text: str, mentions: Mapping[str, Sequence[Span]]) -> str:
    """Put `[NAME]` and `[/NAME]` around every part of every mention.

    Parts that share letters are nested, the longer outside; parts that cross keep their own ends.

    Args:
        text: The text.
        mentions: Name of a mark -> its parts, [start, end) in characters.

    Returns:
        The text with marks; without them it is the text as it was.
    """
    parts = [
        (start, end, at, name)
        for at, (name, spans) in enumerate(mentions.items())
        for start, end in spans
    ]
    opened = sorted(parts, key=lambda part: (part[0], -part[1], part[2]))
    closed = sorted(parts, key=lambda part: (part[1], -part[0], -part[2]))
    # At one place what ends there is closed before anything is opened.
    marks = [(end, 0, at, f"[/{name}]") for at, (_, end, _, name) in enumerate(closed)]
    marks += [(start, 1, at, f"[{name}]") for at, (start, _, _, name) in enumerate(opened)]
    pieces, done = [], 0
    for place, _, _, mark in sorted(marks):
        pieces += [text[done:place], mark]
        done = place
    return "".join([*pieces, text[done:]])


def overlap(one: Sequence[Span], other: Sequence[Span]) -> bool:
    """Whether two mentions share a letter."""
    return any(a < d and c < b for a, b in one for c, d in other)
