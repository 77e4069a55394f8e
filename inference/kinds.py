"""What each kind of task takes for an answer: from data, in prompts, out of an LLM's text.

Every answer has one canonical text, which is what output tables hold and scorers read:

- `classification`: the label;
- `multi-label`: the labels in the order of the task, joined by its separator;
- `ner`: a JSON list of `{text, type}`, with `start` and `end` where they are known;
- `sql`: the query.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from inference.entities import (
    from_json,
    read_entities,
    show_entities,
    with_known_types,
    write_entities,
)
from inference.label_sets import gold_labels, joined, parse_labels, shown_labels
from inference.parsing import Parsed, parse_label
from inference.parsing_entities import parse_entities
from inference.parsing_sql import parse_sql
from inference.tasks import Kind, Task, canonical, verbalize

# Rows of these kinds have their answer in `output`, those of the others in `label`.
ANSWERED_BY_OUTPUT = ("ner", "sql")
HEADLINES: dict[Kind, str] = {
    "classification": "macro_f1",
    "multi-label": "micro_f1",
    "ner": "strict_micro_f1",
    "sql": "execution_accuracy",
}

# The scores that arms are tested in, the one that decides first.
TESTED: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "multi-label": ("micro_f1", "macro_f1", "exact_match"),
    "ner": ("strict_micro_f1", "strict_macro_f1", "token_accuracy"),
    "sql": ("execution_accuracy", "execution_accuracy_unordered"),
}
# Those that say of one query whether it is answered right.
RIGHT_OR_WRONG = ("accuracy", "exact_match", "execution_accuracy")

Row = Mapping[str, Any]


class Gold(NamedTuple):
    """The canonical answer of a row, or None and why it has none."""

    value: str | None
    reason: str


def gold_answer(task: Task, row: Row) -> Gold:
    """Read the answer of a data row.

    Args:
        task: Whose answer.
        row: `input`, `output` and `label`.

    Returns:
        The canonical answer; or None with the reason, which completes the sentence "the row ...".
    """
    return GOLDS[task.kind](task, row)


def shown_answer(task: Task, value: str) -> str:
    """Return a canonical answer as prompts show it and expect it."""
    return SHOWN[task.kind](task, value)


def parse_answer(text: str, task: Task) -> Parsed:
    """Read what the LLM wrote.

    Args:
        text: A free answer.
        task: Its kind decides how it is read.

    Returns:
        The canonical answer, or None, and how it was found or why there is none.
    """
    return PARSERS[task.kind](text, task)


def stratum(task: Task, row: Row, value: str) -> str:
    """Return the class that a row with this answer is ranked and counted under.

    Entities and queries are no classes: their rows go by `label` where there is one.
    """
    return (row["label"] or "") if task.kind in ANSWERED_BY_OUTPUT else value


def _gold_label(task: Task, row: Row) -> Gold:
    raw = row["label"]
    label = canonical(task, raw)
    return Gold(label, "has no label" if raw is None else f"label {raw!r} is none of its task's")


def _gold_set(task: Task, row: Row) -> Gold:
    found = gold_labels(row["label"], task)
    if found.labels is None:
        missing = found.reason == "missing"
        return Gold(None, "has no label" if missing else f"has an {found.reason}")
    return Gold(joined(task, found.labels), found.reason)


def _gold_entities(task: Task, row: Row) -> Gold:
    if row["output"] is None or not row["output"].strip():
        return Gold(None, "has no output")
    try:
        entities = with_known_types(task, read_entities(row["output"], row["input"] or ""))
    except ValueError as error:
        return Gold(None, f"has an output that cannot be used: {error}")
    return Gold(write_entities(entities), "exact")


def _gold_query(task: Task, row: Row) -> Gold:
    query = (row["output"] or "").strip().rstrip("; \t\n")
    return Gold(query, "exact") if query else Gold(None, "has no output")


def _parsed_set(text: str, task: Task) -> Parsed:
    found = parse_labels(text, task)
    return Parsed(None if found.labels is None else joined(task, found.labels), found.reason)


def _parsed_entities(text: str, task: Task) -> Parsed:
    found = parse_entities(text, task)
    return Parsed(None if found.entities is None else write_entities(found.entities), found.reason)


def _parsed_query(text: str, task: Task) -> Parsed:
    return Parsed(*parse_sql(text, task))


def _shown_query(_: Task, value: str) -> str:
    """A blank line would end the answer, so there is none."""
    return "\n".join(line for line in value.splitlines() if line.strip()) + ";"


GOLDS: dict[Kind, Callable[[Task, Row], Gold]] = {
    "classification": _gold_label,
    "multi-label": _gold_set,
    "ner": _gold_entities,
    "sql": _gold_query,
}
PARSERS: dict[Kind, Callable[[str, Task], Parsed]] = {
    "classification": parse_label,
    "multi-label": _parsed_set,
    "ner": _parsed_entities,
    "sql": _parsed_query,
}
SHOWN: dict[Kind, Callable[[Task, str], str]] = {
    "classification": verbalize,
    "multi-label": lambda task, value: shown_labels(
        task, value.split(task.label_separator.strip())
    ),
    "ner": lambda task, value: show_entities(task, from_json(value)),
    "sql": _shown_query,
}
