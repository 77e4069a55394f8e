"""JSON as LLMs write it: among prose, in single quotes, cut off in the middle."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from inference.entities import Entity

_TEXT_KEYS = ("text", "entity", "name", "mention", "span", "value", "word")
_TYPE_KEYS = ("type", "label", "entity_type", "category", "tag", "class", "entity_group")
_BEGIN = re.compile(r"[\[{]\s*(?:[\"'{\[(\]}]|\Z)")
_OBJECT = re.compile(r"\{[^{}]*\}")
_OPEN_OBJECT = re.compile(r"\{[^{}]*\Z")

IsType = Callable[[str], bool]


class Entries(NamedTuple):
    """Entities as written, types unchecked, and whether the answer stopped inside them."""

    entries: list[Entity]
    cut_off: bool


def json_entries(text: str, *, is_type: IsType) -> Entries | None:
    """Read the entities of an answer that is JSON or nearly so.

    Args:
        text: The answer, without fences.
        is_type: Tells the types of the task, for objects from types to texts.

    Returns:
        The entries, in the order written; None where there is no JSON.
    """
    begin = _BEGIN.search(text)
    if begin is None:
        return None
    body = text[begin.start() :]
    whole, value = _whole(body)
    if whole:
        found = list(_entries(value, is_type))
        return Entries(found, cut_off=False) if found or _is_empty(value) else None
    found = [e for piece in _OBJECT.findall(body) for e in _entries(_value(piece), is_type)]
    rest = _OPEN_OBJECT.search(body)
    if rest is not None:
        found += _entries(_completed(rest.group()), is_type)
    cut_off = rest is not None or not body.rstrip().endswith(("]", "}"))
    return Entries(found, cut_off) if found or cut_off else None


def _whole(body: str) -> tuple[bool, object]:
    """The value that begins a text, and whether it is whole; what follows it is ignored."""
    try:
        return True, json.JSONDecoder().raw_decode(body)[0]
    except (ValueError, RecursionError):
        pass
    end = max(body.rfind("]"), body.rfind("}")) + 1
    value = _value(body[:end]) if end else None
    return value is not None, value


def _value(piece: str) -> object:
    """A piece as JSON, or else as Python writes it; None where it is neither."""
    try:
        return json.loads(piece)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(piece)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _completed(piece: str) -> object:
    """An object that was cut off, closed in the first way that makes it readable."""
    for end in ("}", '"}', "'}"):
        value = _value(piece.rstrip().rstrip(",") + end)
        if isinstance(value, dict):
            return value
    return None


def _is_empty(value: object) -> bool:
    return value in ([], {}) or (
        isinstance(value, dict) and all(part == [] for part in value.values())
    )


def _entries(value: object, is_type: IsType) -> Iterator[Entity]:
    """The entities in a value: objects, pairs, objects from types to texts, nested ones."""
    if isinstance(value, list | tuple):
        if len(value) == 2 and all(isinstance(part, str) for part in value):
            first, second = value
            yield Entity(second, first) if is_type(first) else Entity(first, second)
            return
        for part in value:
            yield from _entries(part, is_type)
    elif isinstance(value, dict):
        yield from _of_object(value, is_type)


def _of_object(value: dict[Any, Any], is_type: IsType) -> Iterator[Entity]:
    keys = {str(key).casefold(): part for key, part in value.items()}
    text = next((keys[key] for key in _TEXT_KEYS if isinstance(keys.get(key), str)), None)
    kind = next((keys[key] for key in _TYPE_KEYS if isinstance(keys.get(key), str)), None)
    if text is not None and kind is not None:
        yield Entity(text, kind, _offset(keys.get("start")), _offset(keys.get("end")))
        return
    for key, part in value.items():
        texts = [part] if isinstance(part, str) else part
        if is_type(str(key)) and isinstance(texts, list):
            yield from (Entity(one, str(key)) for one in texts if isinstance(one, str))
        elif isinstance(part, list | dict):
            yield from _entries(part, is_type)
        elif isinstance(part, str) and is_type(part):
            yield Entity(str(key), part)


def _offset(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
