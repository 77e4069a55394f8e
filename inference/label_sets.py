"""Sets of labels: gold cells and free answers of a multi-label task."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from inference.answer_text import answer_lines
from inference.parsing import Lexicon, lexicon_of, named, parse_beginning
from inference.tasks import Task, match_label, verbalize

_PIECES = re.compile(r"[;,|\n]")
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s+")
_SHOWN_CHARS = 40


class ParsedLabels(NamedTuple):
    """Labels in the order of the task, or None, and how they were found or why there are none."""

    labels: tuple[str, ...] | None
    reason: str


def parse_labels(text: str, task: Task) -> ParsedLabels:
    """Find all labels that a free answer names and does not negate.

    The first line that names a label begins the answer, the next line that names none ends it.
    A last piece that stops inside a label counts when it begins one label only.

    Args:
        text: What the LLM wrote.
        task: A multi-label task.

    Returns:
        The labels with `exact` or `found` (and what was not understood); or None with `empty`
        or `no_label`.
    """
    if not text.strip():
        return ParsedLabels(None, "empty")
    lexicon = lexicon_of(task)
    found: set[str] = set()
    strange: list[str] = []
    for line in answer_lines(text, task):
        labels, unknown = _in_line(line, task, lexicon)
        if found and not labels:
            break
        found |= labels
        strange += unknown if labels else []
    if not found:
        return ParsedLabels(None, "no_label")
    reason = f"found, no label: {strange[0][:_SHOWN_CHARS]!r}" if strange else "found"
    if _is_canonical(text, task):
        reason = "exact"
    return ParsedLabels(in_order(task, found), reason)


def gold_labels(raw: str | None, task: Task) -> ParsedLabels:
    """Read the labels of a data cell: each one exact, an alias or normalised-exact.

    Args:
        raw: Labels joined by the task's separator; None or blank: the row has no gold.
        task: A multi-label task.

    Returns:
        The labels with `exact`; or None with `missing` or `unknown label 'x'`: a set of which
        one label is unknown is no gold.
    """
    if raw is None or not raw.strip():
        return ParsedLabels(None, "missing")
    pieces = [piece for piece in raw.split(task.label_separator.strip()) if piece.strip()]
    labels = {piece: match_label(task, piece).label for piece in pieces}
    unknown = [piece.strip() for piece, label in labels.items() if label is None]
    if unknown or not pieces:
        return ParsedLabels(None, f"unknown label {(unknown or [raw])[0]!r}")
    return ParsedLabels(in_order(task, [label for label in labels.values() if label]), "exact")


def in_order(task: Task, labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels without repeats in the order of the task."""
    wanted = set(labels)
    return tuple(label for label in task.labels if label in wanted)


def joined(task: Task, labels: Iterable[str]) -> str:
    """Return labels as one canonical cell, in the order given."""
    return task.label_separator.strip().join(labels)


def shown_labels(task: Task, labels: Iterable[str]) -> str:
    """Return labels as prompts show them: their verbalizers, a space after each separator."""
    return f"{task.label_separator.strip()} ".join(verbalize(task, label) for label in labels)


def _in_line(line: str, task: Task, lexicon: Lexicon) -> tuple[set[str], list[str]]:
    """Labels that a line names, and its pieces that name none."""
    line = _BULLET.sub("", line)
    labels = named(line, lexicon.fold(line), lexicon)
    pieces = [piece.strip() for piece in _pieces(line, task) if piece.strip()]
    unknown = [piece for piece in pieces if not named(piece, lexicon.fold(piece), lexicon)]
    if pieces and pieces[-1] in unknown:
        begun = parse_beginning(lexicon.fold(pieces[-1]), lexicon).label
        if begun is not None:
            return labels | {begun}, unknown[:-1]
    return labels, unknown


def _pieces(line: str, task: Task) -> list[str]:
    separator = task.label_separator.strip()
    return line.split(separator) if separator in line else _PIECES.split(line)


def _is_canonical(text: str, task: Task) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and gold_labels(lines[0], task).labels is not None
