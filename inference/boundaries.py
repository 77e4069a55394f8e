"""Where a demonstration ends holds, whatever its text says."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from inference.tasks import Task

Chat = Callable[[list[dict[str, str]]], str]

# Put before a line of a text that would look like the begin of something else, as in quoted mail.
QUOTE = "> "
_UNSEEN_ASCII = {code: None for code in (*range(32), 127) if not chr(code).isspace()}
# Private characters that stand for texts while a chat template is looked at.
_PROBES = ("\ue000", "\ue001", "\ue002")


@dataclass(frozen=True)
class Boundary:
    """How lines of untrusted text are told apart from lines of the prompt.

    Args:
        opening: matches a folded line that looks like the begin of a part of the prompt.
        every_line: the task marks its parts by nothing, so every further line is quoted.
    """

    opening: re.Pattern[str]
    every_line: bool


def boundary_of(task: Task, turn_marks: tuple[str, ...] = ()) -> Boundary:
    """Return what no line of a text may begin with.

    That is every prefix of the task, the visible lines of its separator, and what the chat template
    writes between turns. A task whose input or output prefix is blank tells its parts apart by line
    breaks alone, so there every line after the first is quoted.

    Args:
        task: prefixes and separator.
        turn_marks: `turn_marks(chat)`, for the chat format.
    """
    prefixes = (task.input_prefix, task.output_prefix, task.wrong_prefix, task.why_prefix)
    marks = [line for text in (*prefixes, task.separator) for line in text.splitlines()]
    bare = not task.input_prefix.strip() or not task.output_prefix.strip()
    return _boundary((*marks, *turn_marks), bare)


def guard(text: str, boundary: Boundary, *, after: str) -> str:
    """Quote the lines of a text that look like the begin of a part of the prompt.

    Lines end where Python's `splitlines` ends them (carriage returns, form feeds and the Unicode
    separators too). Case, width, invisible characters, white space and leading punctuation
    (`**Input:**`) do not hide a line; a line that is quoted already is quoted once more, so that
    every text can be told from its guarded form.

    Args:
        text: written by a user.
        boundary: of the task.
        after: what stands before the text: after a line break, its first line counts too.

    Returns:
        The text with `> ` before those lines; mostly the text itself. O(n) time.
    """
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    begins = f"{after}.".splitlines()[-1] == "."
    head = QUOTE + lines[0] if begins and boundary.opening.match(_fold(lines[0])) else lines[0]
    rest = [
        QUOTE + line if boundary.every_line or boundary.opening.match(_fold(line)) else line
        for line in lines[1:]
    ]
    return "".join([head, *rest])


def turn_marks(chat: Chat) -> tuple[str, ...]:
    """Return the lines that a chat template writes between texts, those with letters or digits.

    Args:
        chat: `prompts.chat_of(tokenizer)`.
    """
    roles = ("user", "assistant", "user")
    messages = [
        {"role": role, "content": probe} for role, probe in zip(roles, _PROBES, strict=True)
    ]
    before, *between = re.split(f"[{''.join(_PROBES)}]", chat(messages))
    lines = {line.strip() for piece in between for line in piece.splitlines()}
    lines.update(line.strip() for line in before.splitlines()[-1:])
    return tuple(sorted(line for line in lines if any(map(str.isalnum, line))))


@lru_cache(maxsize=256)
def _boundary(marks: tuple[str, ...], every_line: bool) -> Boundary:
    patterns = sorted({_pattern(mark) for mark in marks if mark.strip()})
    return Boundary(re.compile("|".join(patterns) or "(?!)"), every_line)


def _pattern(mark: str) -> str:
    """Match a folded line that begins with a mark, spaces inside it aside."""
    letters = [letter for letter in _fold(mark) if not letter.isspace()]
    start = next((i for i, letter in enumerate(letters) if letter.isalnum()), None)
    if start is None:
        return r"[\s>]*" + _spaced(letters)
    end = r"(?![^\W_])" if letters[-1].isalnum() else ""
    return r"[\W_]*" + _spaced(letters[start:]) + end


def _spaced(letters: Iterable[str]) -> str:
    return r"\s*".join(re.escape(letter) for letter in letters)


def _fold(line: str) -> str:
    """Fold case and width and drop what is not seen."""
    if line.isascii():
        return line.lower().translate(_UNSEEN_ASCII)
    folded = unicodedata.normalize("NFKC", line).casefold()
    return "".join(
        letter
        for letter in folded
        if letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cf")
    )
