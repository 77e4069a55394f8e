"""Free text of an LLM to a label of the task."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from inference.tasks import Task, normalise, spellings, verbalize

# Shorter beginnings of a label are too easily a word of their own.
_MIN_PREFIX_CHARS = 3
_LEAD_IN = re.compile(
    r"^(?:(?:sure|okay|ok|well)\b\W*)?"
    r"(?:(?:the|my|a|correct|right|best|final|most likely|appropriate|predicted)\s+)*"
    r"(?:answer|label|category|class|classification|output|prediction|type|chapter|response)\b"
    r"\s*(?:(?:is|would be|should be|are|as)\b)?\s*"
)
_NEGATION = re.compile(r"(?:\bnot|\bisn t|\bisn't|\bnor|\bneither|\brather than)(?: an?| the)?\s*$")
_WORDS_ONLY = re.compile(r"[\W_]+")

Fold = Callable[[str], str]


class Parsed(NamedTuple):
    """A label, or None, and the reason: how it was found or why there is none."""

    label: str | None
    reason: str


class Lexicon(NamedTuple):
    """The spellings of a task, ready to be looked for in a text.

    Attributes:
        fold: Brings a text into the form of the table's keys.
        table: Folded spelling -> label.
        words: Matches every spelling of more than one letter.
        letters: Matches the labels of one letter in unfolded text; None: there are none.
    """

    fold: Fold
    table: dict[str, str]
    words: re.Pattern[str]
    letters: re.Pattern[str] | None


def parse_label(text: str, task: Task) -> Parsed:
    """Find the one label that a free answer names.

    The first line that names anything decides. Within it the longest spelling wins where
    spellings overlap; two different labels are ambiguous; an unfinished label counts when it
    begins one label only.

    Args:
        text: what the LLM wrote.
        task: the task whose labels, verbalizers and aliases count.

    Returns:
        The label with `exact`, `found` or `partial`; or None with `empty`, `no_label` or
        `ambiguous: a | b`.
    """
    if not text.strip():
        return Parsed(None, "empty")
    lexicon = lexicon_of(task)
    for line in text.splitlines():
        parsed = _parse_line(line, lexicon)
        if parsed.reason != "no_label":
            return parsed
    return Parsed(None, "no_label")


def _parse_line(line: str, lexicon: Lexicon) -> Parsed:
    """Try the whole line, then the labels inside it, then the beginning of a label."""
    folded = lexicon.fold(line)
    bare = _LEAD_IN.sub("", folded).strip()
    for whole in (folded, bare):
        if whole in lexicon.table:
            return Parsed(lexicon.table[whole], "exact")
    found = named(line, folded, lexicon)
    if len(found) > 1:
        return Parsed(None, "ambiguous: " + " | ".join(sorted(found)))
    if found:
        return Parsed(found.pop(), "found")
    return parse_beginning(bare, lexicon)


def named(line: str, folded: str, lexicon: Lexicon) -> set[str]:
    """Return the labels named in a line and not negated; single letters only where no word is."""
    found = {
        lexicon.table[match.group()]
        for match in lexicon.words.finditer(folded)
        if not _NEGATION.search(folded[: match.start()])
    }
    if not found and lexicon.letters is not None:
        found = {
            lexicon.table[lexicon.fold(match.group())] for match in lexicon.letters.finditer(line)
        }
    return found


def parse_beginning(bare: str, lexicon: Lexicon) -> Parsed:
    """Accept an answer that stopped inside a label, if only one label begins so."""
    if len(bare) < _MIN_PREFIX_CHARS:
        return Parsed(None, "no_label")
    begun = {label for key, label in lexicon.table.items() if key.startswith(bare)}
    if len(begun) > 1:
        return Parsed(None, "ambiguous: " + " | ".join(sorted(begun)))
    return Parsed(begun.pop(), "partial") if begun else Parsed(None, "no_label")


@lru_cache(maxsize=64)
def lexicon_of(task: Task) -> Lexicon:
    """Compile the spellings of a task, letters and digits only where that keeps labels apart."""
    fold: Fold = _letters_and_digits
    if _merges_labels(task, fold):
        fold = normalise
    table = {fold(key): label for key, label in spellings(task).items()}
    # Single letters are words of their own ("a"): they count in upper case, before a mark, only.
    letters = [key for key in table if len(key) == 1 and key.isalpha()]
    words = _alternatives(key for key in table if key not in letters)
    marked = None
    if letters:
        marked = re.compile(rf"(?<![\w])[{re.escape(''.join(letters).upper())}](?=\s*[).:,;\]*]|$)")
    return Lexicon(fold, table, words, marked)


def _merges_labels(task: Task, fold: Fold) -> bool:
    """Tell whether folding leaves a label empty or makes two labels one."""
    owner: dict[str, str] = {}
    pairs = [(text, label) for label in task.labels for text in (label, verbalize(task, label))]
    for text, label in [*pairs, *task.aliases.items()]:
        key = fold(text)
        if not key or owner.setdefault(key, label) != label:
            return True
    return False


def _alternatives(keys: Iterable[str]) -> re.Pattern[str]:
    """Match any of the keys as whole words, the longest first."""
    longest_first = sorted(keys, key=lambda key: (-len(key), key))
    body = "|".join(re.escape(key) for key in longest_first) or r"(?!)"
    return re.compile(rf"(?<!\w)(?:{body})(?!\w)")


def _letters_and_digits(text: str) -> str:
    """Fold case and width; every run of anything else becomes one space."""
    return _WORDS_ONLY.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
