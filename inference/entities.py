"""Entities of a text: read from data, shown to the LLM, and found again in the text."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

from inference.tasks import Task, match_label, verbalize

NONE = "none"
_SHOWN_CHARS = 40


class Entity(NamedTuple):
    """A mention and its type; offsets in characters, end exclusive, None where not known."""

    text: str
    type: str
    start: int | None = None
    end: int | None = None


class Span(NamedTuple):
    """Where an entity stands: characters from `start` up to, without, `end`."""

    start: int
    end: int
    type: str


class Located(NamedTuple):
    """Entities found again in their text.

    Attributes:
        spans: Distinct, by start and end.
        missing: Entities that do not occur in the text.
        n_repeated: Mentions beyond the occurrences in the text; they count as said once.
    """

    spans: tuple[Span, ...]
    missing: tuple[Entity, ...]
    n_repeated: int


def read_entities(raw: str, text: str) -> tuple[Entity, ...]:
    """Read the entities of a data row and check them against its text.

    Args:
        raw: A JSON list of objects with `text`, `type`, `start`, `end`; without offsets the text
            is looked for; without `text` it is what the offsets name.
        text: The text of the row.

    Returns:
        The entities with offsets, by start and end; they may overlap.

    Raises:
        ValueError: No such list, an offset beyond the text, or a text that stands elsewhere; it
            names the entity, its offsets and the length of the text.
    """
    try:
        items = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"is no JSON list of entities: {error}") from None
    if not isinstance(items, list):
        raise ValueError(f"is no JSON list of entities but {type(items).__name__}")
    found = [_read(item, number, text) for number, item in enumerate(items, 1)]
    placed = [entity for entity in found if entity.start is not None]
    loose = [entity for entity in found if entity.start is None]
    located = locate([*placed, *loose], text)
    if located.missing:
        one = located.missing[0]
        raise ValueError(
            f"entity {one.text[:_SHOWN_CHARS]!r} ({one.type}) has no offsets and does not occur in "
            f"the text of {len(text):,} characters"
        )
    return tuple(Entity(text[s.start : s.end], s.type, s.start, s.end) for s in located.spans)


def write_entities(entities: Iterable[Entity]) -> str:
    """Return entities as a JSON list, one spelling for equal entities."""
    return json.dumps(
        [
            {name: value for name, value in entity._asdict().items() if value is not None}
            for entity in entities
        ],
        ensure_ascii=False,
    )


def from_json(raw: str) -> tuple[Entity, ...]:
    """Read what `write_entities` wrote."""
    return tuple(Entity(**item) for item in json.loads(raw))


def show_entities(task: Task, entities: Sequence[Entity]) -> str:
    """Return entities as the LLM is shown them: a line `text | type` each, or `none`.

    Every mention has a line, in the order of the text. Line breaks inside a mention become spaces.
    """
    lines = [f"{' '.join(one.text.split())} | {verbalize(task, one.type)}" for one in entities]
    return "\n".join(lines) or NONE


def with_known_types(task: Task, entities: Iterable[Entity]) -> tuple[Entity, ...]:
    """Return entities with types spelled as the task's labels.

    Raises:
        ValueError: A type that is none of the task's.
    """
    known = []
    for entity in entities:
        label = match_label(task, entity.type).label
        if label is None:
            raise ValueError(f"entity type {entity.type!r} is none of task {task.name!r}")
        known.append(entity._replace(type=label))
    return tuple(known)


def locate(entities: Iterable[Entity], text: str) -> Located:
    """Find where entities stand.

    Offsets count where the text there is the entity's. Other entities go, in their order, to the
    first occurrence that none has taken: whole words before parts of words, the same case before
    another; white space may differ. Where all are taken, to the first that another type has taken;
    else the mention is repeated.

    Args:
        entities: As read or parsed.
        text: The text they are said to be in.

    Returns:
        Spans, entities that do not occur, and how many mentions were repeated.
    """
    taken: dict[tuple[int, int], set[str]] = {}
    missing: list[Entity] = []
    n_repeated = 0
    occurrences: dict[str, list[tuple[int, int]]] = {}
    for entity in entities:
        places = _own_place(entity, text)
        if not places:
            if entity.text not in occurrences:
                occurrences[entity.text] = _occurrences(entity.text, text)
            places = occurrences[entity.text]
        if not places:
            missing.append(entity)
            continue
        free = [place for place in places if place not in taken]
        other = [place for place in places if entity.type not in taken.get(place, ())]
        chosen = (free or other)[:1]
        n_repeated += not chosen
        for place in chosen:
            taken.setdefault(place, set()).add(entity.type)
    spans = sorted(Span(*place, kind) for place, kinds in taken.items() for kind in kinds)
    return Located(tuple(spans), tuple(missing), n_repeated)


def _read(item: object, number: int, text: str) -> Entity:
    """One entity of a data row, its offsets inside the text."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise ValueError(f"entity {number} is no object with a type: {str(item)[:_SHOWN_CHARS]}")
    start, end, said = item.get("start"), item.get("end"), item.get("text")
    if start is None and end is None and isinstance(said, str) and said.strip():
        return Entity(said, item["type"])
    if not _is_offset(start) or not _is_offset(end):
        raise ValueError(f"entity {number} has offsets {start!r} to {end!r}; wanted two integers")
    name = f"entity {number} {str(said)[:_SHOWN_CHARS]!r} ({item['type']})"
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"{name} is at {start} to {end}, out of the text, which has {len(text):,} characters"
        )
    there = text[start:end]
    if said is not None and said != there:
        raise ValueError(
            f"{name} is at {start} to {end}, where the text of {len(text):,} characters has "
            f"{there[:_SHOWN_CHARS]!r}"
        )
    return Entity(there, item["type"], start, end)


def _is_offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _own_place(entity: Entity, text: str) -> list[tuple[int, int]]:
    """The place that an entity's own offsets name, if its text is there."""
    start, end = entity.start, entity.end
    if start is None or end is None or not 0 <= start < end <= len(text):
        return []
    same = _folded(text[start:end]) == _folded(entity.text)
    return [(start, end)] if same else []


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _occurrences(mention: str, text: str) -> list[tuple[int, int]]:
    """Every place of a mention: whole words, or else parts of words; same case first."""
    words = mention.split()
    if not words:
        return []
    body = r"\s+".join(re.escape(word) for word in words)
    for pattern in (rf"(?<!\w){body}(?!\w)", body):
        same = [match.span() for match in re.finditer(pattern, text)]
        folded = [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
        if folded:
            return same + [place for place in folded if place not in same]
    return []
