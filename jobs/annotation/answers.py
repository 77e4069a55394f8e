"""What an annotator gave for an answer, in any of the forms of files, as a row would hold it."""

import json
from collections.abc import Mapping
from typing import Any

from inference.tasks import Task
from jobs.readers.cells import BadCell, label_text

_SHOWN_CHARS = 60


class BadAnswer(ValueError):
    """An answer that cannot be read; the text says why."""


def as_cell(value: Any, task: Task, *, text: str) -> str | None:
    """Bring an answer into the form of the row's cell, to be judged as a cell of the corpus is.

    Args:
        value: Text, or what JSON holds: a list, `{"choices": [...]}`, `{"regions": [...]}` (the
            result of a Label Studio annotation).
        task: Its kind says what is looked for.
        text: Of the row, that offsets point into.

    Returns:
        A label, labels joined by the task's separator, a JSON list of entities, or a query; None
        where nothing was answered.

    Raises:
        BadAnswer: It is none of these.
    """
    value = _parsed(value, task)
    if isinstance(value, Mapping) and "regions" in value:
        value = _from_regions(value["regions"], task)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if task.kind == "ner":
        return _entities(value, text)
    if isinstance(value, Mapping):
        value = value.get("choices", value.get("text", value))
    if isinstance(value, list):
        return _one_cell(value, task)
    try:
        return label_text(value)
    except BadCell as error:
        raise BadAnswer(str(error)) from None


def _parsed(value: Any, task: Task) -> Any:
    """JSON in a cell of text, where this kind of task has some; else the value as it is."""
    starts = ("[", "{") if task.kind in ("ner", "multi-label", "classification") else ()
    if not isinstance(value, str) or not value.strip().startswith(starts or ("\0",)):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        if task.kind == "ner":
            shown = value.strip()[:_SHOWN_CHARS]
            raise BadAnswer(f"{shown!r} is no JSON list of entities") from None
        return value


def _from_regions(regions: Any, task: Task) -> Any:
    """The part of an annotation's result that answers the task."""
    kind = {"ner": "labels", "sql": "textarea"}.get(task.kind, "choices")
    found = [
        one
        for one in regions or ()
        if isinstance(one, Mapping)
        and one.get("type") == kind
        and isinstance(one.get("value"), Mapping)
    ]
    named = [one for one in found if one.get("from_name") == "label"]
    controls = sorted({str(one.get("from_name")) for one in found})
    if not named and len(controls) > 1:
        raise BadAnswer(
            f"the annotation has results of several controls ({', '.join(controls)}) and none of "
            "one called 'label'"
        )
    values = [one["value"] for one in named or found]
    if task.kind == "ner":
        return values
    return [text for value in values for text in _texts(value.get("choices", value.get("text")))]


def _texts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _one_cell(values: list[Any], task: Task) -> str | None:
    """Several labels as one cell; a task with one label takes one."""
    if any(isinstance(one, list | Mapping) for one in values):
        raise BadAnswer("the labels are nested")
    texts = list(dict.fromkeys(text for one in values if (text := label_text(one)) is not None))
    if len(texts) > 1 and task.kind != "multi-label":
        raise BadAnswer(f"{len(texts)} answers ({', '.join(texts)[:_SHOWN_CHARS]}), wanted one")
    return task.label_separator.strip().join(texts) if texts else None


# Entities.


def _entities(value: Any, text: str) -> str:
    if not isinstance(value, list):
        raise BadAnswer(f"{str(value)[:_SHOWN_CHARS]!r} is no list of entities")
    found = [entity for one in value for entity in _of_region(one, text)]
    return json.dumps(found, ensure_ascii=False)


def _of_region(one: Any, text: str) -> list[dict[str, Any]]:
    """The entities of one span: one a label. Spans of our own files have their `type` alone."""
    if not isinstance(one, Mapping):
        raise BadAnswer(f"{str(one)[:_SHOWN_CHARS]!r} is no span")
    if "labels" not in one:
        return [dict(one)]
    if not one["labels"]:
        raise BadAnswer(f"the span {str(one.get('text'))[:_SHOWN_CHARS]!r} has no label")
    start, end = _characters(one, text)
    return [{"type": label, "start": start, "end": end} for label in _texts(one["labels"])]


def _characters(span: Mapping[str, Any], text: str) -> tuple[int, int]:
    """Offsets of a span in characters; some versions of Label Studio count UTF-16 units.

    Raises:
        BadAnswer: Neither reading has the text that the span says it covers.
    """
    start, end, said = span.get("start"), span.get("end"), span.get("text")
    if not isinstance(start, int) or not isinstance(end, int):
        raise BadAnswer(f"the span has offsets {start!r} to {end!r}; wanted two integers")
    readings = [(start, end), (_from_units(start, text), _from_units(end, text))]
    if said is None and readings[0] != readings[1]:
        raise BadAnswer(
            f"the span {start} to {end} does not say which text it covers, and the row has "
            "characters that count as two in some versions of Label Studio; export with texts"
        )
    for first, last in readings:
        if said is None or _same(text[first:last], str(said)):
            return first, last
    raise BadAnswer(
        f"the span {start} to {end} should cover {str(said)[:_SHOWN_CHARS]!r}, but the text has "
        f"{text[start:end][:_SHOWN_CHARS]!r} there"
    )


def _from_units(offset: int, text: str) -> int:
    """An offset in UTF-16 units as one in characters."""
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * max(offset, 0)]
    return len(units.decode("utf-16-le", "ignore"))


def _same(there: str, said: str) -> bool:
    """Whether a text is what a span says; line breaks come back written in several ways."""
    plain = [one.replace("\\n", "\n").replace("\r\n", "\n") for one in (there, said)]
    return bool(there) and plain[0] == plain[1]
