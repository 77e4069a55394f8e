"""Free text of an LLM to entities: lines `text | type`, JSON, tables, lists by type."""

import re
from functools import lru_cache
from typing import NamedTuple

from inference.answer_text import answer_lines
from inference.entities import Entity
from inference.json_answers import json_entries
from inference.parsing import Lexicon, lexicon_of, parse_beginning
from inference.tasks import Task

_BULLET = re.compile(r"^\s*(?:[-*>\u2022]\s+|\d+[.)]\s+)")
_RULE = re.compile(r"^[\s|:+-]+$")
_HEADINGS = {"text", "type", "entity", "entities", "entity type", "label", "mention", "category"}
_NOTHING = re.compile(
    r"(?:none|nothing|n a|null|empty|no|there (?:are|is) (?:no|none)|no \w+(?: \w+)? "
    r"(?:found|present|mentioned|here)|(?:there are )?no (?:named )?entit(?:y|ies)\b.*)"
    r"(?: in (?:the|this) \w+)?"
)
_MARKS = "*` \t"
_QUOTES = "\"'\u201c\u201d\u2018\u2019" + _MARKS
_IN_BRACKETS = re.compile(r"[\[<{]([^\[\]<>{}]+)[\]>}]")
_SHOWN_CHARS = 40


class ParsedEntities(NamedTuple):
    """Entities as the LLM named them, or None, and what was found or why there are none."""

    entities: tuple[Entity, ...] | None
    reason: str


class _Tally:
    """Entities on their way, and what could not be used."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.entities: list[Entity] = []
        self.foreign: list[str] = []
        self.strange: list[str] = []
        self.cut_off = False

    def add(self, text: str, kind: str, start: int | None = None, end: int | None = None) -> None:
        """Take an entity if its type is one of the task's."""
        text, label = _bare(text), self.type_of(kind)
        if not text:
            self.strange.append(f"a {kind} without a text")
        elif label is None:
            self.foreign.append(kind.strip(_QUOTES))
        else:
            self.entities.append(Entity(text, label, start, end))

    def type_of(self, raw: str) -> str | None:
        """The label of a type as written, or as begun where the answer stops."""
        folded = self.lexicon.fold(raw)
        label = self.lexicon.table.get(folded)
        if label is None and self.cut_off:
            label = parse_beginning(folded, self.lexicon).label
        return label

    def result(self) -> ParsedEntities:
        """What was found, with a reason that says what was not."""
        notes = [
            f"{len(some)} {what}: {some[0][:_SHOWN_CHARS]!r}"
            for what, some in (
                ("not understood", self.strange),
                ("of unknown type", self.foreign),
            )
            if some
        ]
        if not self.entities:
            what = "unknown_type" if self.foreign else "no_entity"
            first = (self.foreign or self.strange or [""])[0]
            return ParsedEntities(None, f"{what}: {first[:_SHOWN_CHARS]!r}")
        reason = "found, " + ", ".join(notes) if notes else "found"
        return ParsedEntities(tuple(self.entities), reason)


def parse_entities(text: str, task: Task) -> ParsedEntities:
    """Find the entities that a free answer names.

    Understood are the form that prompts show (a line `text | type` each, or `none`), JSON in its
    usual shapes, whole, with single quotes, with text after it or cut off, tables, `text (type)`,
    `text: type` and `type: text, text`. Entities of types that the task lacks are left out and
    counted in the reason; repeated ones are kept, because a text may have them twice.

    Args:
        text: What the LLM wrote.
        task: A task of kind `ner`.

    Returns:
        The entities in the order named with `none`, `found` (and what was not understood); or
        None with `empty`, `no_entity: ...` or `unknown_type: ...`.
    """
    lines = answer_lines(text, task)
    if not lines:
        return ParsedEntities(None, "empty")
    tally = _Tally(lexicon_of(task))
    entries = json_entries("\n".join(lines), is_type=lambda raw: tally.type_of(raw) is not None)
    # A mention such as [(3)H]water looks like the begin of a list.
    if entries is not None and (entries.entries or not any("|" in line for line in lines)):
        return _from_json(entries.entries, tally, cut_off=entries.cut_off)
    if _says_none(lines, tally.lexicon):
        return ParsedEntities((), "none")
    for at, line in enumerate(lines):
        tally.cut_off = at == len(lines) - 1
        if not _read_line(line, tally) and not _is_frame(line):
            tally.strange.append(line.strip())
    return tally.result()


def _bare(text: str) -> str:
    """Return a mention without marks, quotes and brackets around it; 5' keeps its prime."""
    text = text.strip(_MARKS)
    if text[:1] in _QUOTES:
        text = text.strip(_QUOTES)
    whole = _IN_BRACKETS.fullmatch(text)
    return whole.group(1).strip(_QUOTES) if whole else text


def _from_json(entries: list[Entity], tally: _Tally, *, cut_off: bool) -> ParsedEntities:
    for at, entry in enumerate(entries):
        tally.cut_off = cut_off and at == len(entries) - 1
        tally.add(*entry)
    if cut_off:
        tally.strange.append("the end, cut off")
    if not entries and not cut_off:
        return ParsedEntities((), "none")
    return tally.result()


def _says_none(lines: list[str], lexicon: Lexicon) -> bool:
    """Whether the first line that is no heading says that there are no entities."""
    folded = lexicon.fold(next((line for line in lines if not line.rstrip().endswith(":")), ""))
    return bool(_NOTHING.fullmatch(re.sub(r"^(?:answer|entities|output) ", "", folded)))


def _is_frame(line: str) -> bool:
    """Whether a line is the heading or rule of a table, or announces what follows."""
    cells = {cell.strip(_QUOTES).casefold() for cell in line.strip().strip("|").split("|")}
    return bool(_RULE.match(line)) or cells <= _HEADINGS or line.rstrip().endswith(":")


def _read_line(line: str, tally: _Tally) -> bool:
    """Take the entities of one line; False where it has none."""
    line = _BULLET.sub("", line.strip()).strip()
    return any(read(line, tally) for read in (_cells, _bracketed, _listed, _paired))


def _cells(line: str, tally: _Tally) -> bool:
    """`text | type`, several of them with semicolons, a row of a table."""
    if "|" not in line or _RULE.match(line) or _is_frame(line):
        return False
    row = line.startswith("|")
    pieces = [line] if row or line.count("|") == 1 else re.split(r"\s*;\s*", line)
    for piece in (piece for piece in pieces if piece.strip(" |")):
        cells = [cell.strip() for cell in piece.strip().strip("|").split("|")]
        if len(cells) < 2:
            tally.strange.append(piece)
            continue
        if tally.type_of(cells[-1]) is None and tally.type_of(cells[0]) is not None:
            cells = [*cells[1:], cells[0]]
        if row and len(cells) > 2 and cells[0].isdigit():
            cells = cells[1:]
        tally.add(" | ".join(cells[:-1]), cells[-1])
    return True


def _bracketed(line: str, tally: _Tally) -> bool:
    """`text (TYPE), text [TYPE]`, the last bracket may be missing."""
    found = list(_forms(tally.lexicon).bracketed.finditer(line))
    for match in found:
        tally.add(match["text"].strip(_MARKS + ",;"), match["type"])
    return bool(found)


def _listed(line: str, tally: _Tally) -> bool:
    """`TYPE: text, text`."""
    head, colon, rest = line.partition(":")
    if not colon or tally.type_of(head.strip(_QUOTES)) is None:
        return False
    for piece in re.split(r"\s*[,;]\s*", rest.strip(_QUOTES + ".[]")):
        if piece and not _NOTHING.fullmatch(tally.lexicon.fold(piece)):
            tally.add(piece, head)
    return True


def _paired(line: str, tally: _Tally) -> bool:
    """`text: TYPE`, `text -> TYPE`, `text is a TYPE`."""
    match = _forms(tally.lexicon).paired.fullmatch(line.rstrip(" .,;"))
    if match is None:
        return False
    tally.add(match["text"], match["type"])
    return True


class _Forms(NamedTuple):
    bracketed: re.Pattern[str]
    paired: re.Pattern[str]


def _forms(lexicon: Lexicon) -> _Forms:
    return _compiled(tuple(sorted(lexicon.table, key=lambda key: (-len(key), key))))


@lru_cache(maxsize=64)
def _compiled(keys: tuple[str, ...]) -> _Forms:
    """Patterns of the types; what stands between the words of one may be any mark."""
    kinds = "|".join(r"[\W_]*".join(map(re.escape, key.split())) for key in keys) or r"(?!)"
    kind = rf"(?P<type>{kinds})"
    return _Forms(
        re.compile(
            rf"(?P<text>[^,;(\[<][^;(\[<]*?)\s*[(\[<]\s*{kind}\s*(?:[)\]>]|$)", re.IGNORECASE
        ),
        re.compile(
            rf"(?P<text>.+?)\s*(?:\t|->|=>|\u2192|=|:|\s[-\u2013\u2014]|\bis an?\b|/)[\s\"'`*]*"
            rf"{kind}[\"'`*]*",
            re.IGNORECASE,
        ),
    )
