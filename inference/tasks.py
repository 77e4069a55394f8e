"""A task: what the LLM is asked, the closed set of labels, and how labels are spelled."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

_EDGES = re.compile(r"^[\s\"'`*.,;:]+|[\s\"'`*.,;:]+$")
_GAPS = re.compile(r"[\s_-]+")

How = Literal["exact", "alias", "spelling", "unknown", "missing"]
Kind = Literal["classification", "multi-label", "ner", "sql"]


class Match(NamedTuple):
    """A label of the task, or None, and how the raw spelling led to it."""

    label: str | None
    how: How


@dataclass(frozen=True)
class Task:
    r"""What is asked, and how inputs and answers are laid out.

    Args:
        name: shown in reports.
        labels: the classes used for scoring, for `ner` the entity types; unique, also under
            `normalise`; none for `sql`.
        kind: `classification` (one label), `multi-label` (a set of labels), `ner` (entities with
            their types) or `sql` (a query).
        instruction: first thing in every prompt; `{labels}` in it becomes the list of answers.
        aliases: other spelling -> label; keys are normalised.
        verbalizers: label -> answer shown to and expected from the LLM; a missing label is shown
            as it is.
        input_prefix: put before every input.
        output_prefix: put before every answer; its trailing white space belongs to the answer.
        separator: stands between instruction, demonstrations and query.
        wrong_prefix: put before the incorrect answer of a contrastive demonstration.
        why_prefix: put before the reason why it is incorrect.
        label_separator: stands between the labels of a `multi-label` row, in data and answers.
        context: column of a row -> what is put before it where it is shown below the row's input.
        context_in_demonstrations: show it with demonstrations too, and not with the query alone.

    Raises:
        ValueError: no labels (or some, for `sql`), an empty or repeated label, an alias or
            verbalizer of an unknown label, two labels that share a spelling, or a label that
            holds the separator.
    """

    name: str
    labels: tuple[str, ...]
    kind: Kind = "classification"
    instruction: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    verbalizers: Mapping[str, str] = field(default_factory=dict, hash=False)
    input_prefix: str = "Input: "
    output_prefix: str = "Answer: "
    separator: str = "\n\n"
    wrong_prefix: str = "Wrong answer: "
    why_prefix: str = "Why it is wrong: "
    label_separator: str = ";"
    context: Mapping[str, str] = field(default_factory=dict, hash=False)
    context_in_demonstrations: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        _check_labels(self)
        aliases = {normalise(raw): label for raw, label in self.aliases.items()}
        object.__setattr__(self, "aliases", aliases)
        object.__setattr__(self, "verbalizers", dict(self.verbalizers))
        object.__setattr__(self, "context", dict(self.context))
        _check_spellings(self)
        _check_separator(self)


def normalise(spelling: str) -> str:
    """Fold case, width, white space, `_` and `-`, and strip quotes and punctuation at the edges.

    Args:
        spelling: a label as somebody wrote it.

    Returns:
        The folded spelling; the stripped original where folding would leave nothing.
    """
    folded = unicodedata.normalize("NFKC", spelling).casefold()
    return _GAPS.sub(" ", _EDGES.sub("", folded)).strip() or spelling.strip()


def verbalize(task: Task, label: str) -> str:
    """Return the answer that stands for a label in prompts."""
    return task.verbalizers.get(label, label)


def answers(task: Task) -> list[str]:
    """Return the answer of every label, in the order of the labels."""
    return [verbalize(task, label) for label in task.labels]


def instruction(task: Task) -> str:
    """Return the instruction with `{labels}` replaced by the answers, comma-separated."""
    return task.instruction.replace("{labels}", ", ".join(answers(task)))


def match_label(task: Task, raw: str | None) -> Match:
    """Find the label of a gold spelling: exact, alias or normalised-exact, never fuzzy.

    Args:
        task: the task whose labels count.
        raw: the spelling in the data; None where the row has no label.

    Returns:
        The label and the way it was found, so that a caller can count merged spellings.
    """
    if raw is None or not raw.strip():
        return Match(None, "missing")
    if raw in task.labels:
        return Match(raw, "exact")
    key = normalise(raw)
    if key in task.aliases:
        return Match(task.aliases[key], "alias")
    label = spellings(task).get(key)
    return Match(label, "spelling" if label is not None else "unknown")


def canonical(task: Task, raw: str | None) -> str | None:
    """Return the label of a gold spelling, or None: exact, alias or normalised-exact."""
    return match_label(task, raw).label


def spellings(task: Task) -> dict[str, str]:
    """Return normalised spelling -> label for labels, verbalizers and aliases (these win)."""
    table = {normalise(verbalize(task, label)): label for label in task.labels}
    table |= {normalise(label): label for label in task.labels}
    return table | dict(task.aliases)


def _check_labels(task: Task) -> None:
    """Refuse a label list that cannot be scored."""
    where = f"task {task.name!r}"
    if task.kind == "sql" and task.labels:
        raise ValueError(
            f"{where}: labels names {len(task.labels)} label(s), but a query has none; remove them"
        )
    if not task.labels and task.kind != "sql":
        raise ValueError(f"{where}: labels is empty; a {task.kind} task needs the list of classes")
    blank = [label for label in task.labels if not label.strip()]
    if blank:
        raise ValueError(f"{where}: labels holds {len(blank)} blank label(s); name or remove them")
    twice = [label for label, n in Counter(task.labels).items() if n > 1]
    if twice:
        raise ValueError(f"{where}: labels names {twice[0]!r} more than once; list each label once")
    for what, wanted in (("aliases", task.aliases.values()), ("verbalizers", task.verbalizers)):
        for label in wanted:
            if label not in task.labels:
                known = ", ".join(task.labels[:20])
                raise ValueError(f"{where}: {what} names label {label!r}; labels are {known}")


def _check_spellings(task: Task) -> None:
    """Refuse two labels that one spelling could mean."""
    owner: dict[str, str] = {}
    for label in task.labels:
        for text in (label, verbalize(task, label)):
            if not text.strip():
                raise ValueError(f"task {task.name!r}: the verbalizer of {label!r} is blank")
            other = owner.setdefault(normalise(text), label)
            if other != label:
                raise ValueError(
                    f"task {task.name!r}: labels {other!r} and {label!r} are both spelled "
                    f"{normalise(text)!r} once case and punctuation are folded; rename one, "
                    f"or give it a verbalizer"
                )
    for key, label in task.aliases.items():
        if owner.get(key, label) != label:
            raise ValueError(
                f"task {task.name!r}: alias {key!r} -> {label!r} is a spelling of label "
                f"{owner[key]!r}; remove the alias"
            )


def _check_separator(task: Task) -> None:
    """Refuse a separator that could not be told from a part of a label."""
    if task.kind != "multi-label":
        return
    separator = task.label_separator
    if not separator.strip():
        raise ValueError(
            f"task {task.name!r}: label_separator {separator!r} is blank; give a mark, ';' say"
        )
    for label in task.labels:
        for text in (label, verbalize(task, label)):
            if separator.strip() in text:
                raise ValueError(
                    f"task {task.name!r}: label {text!r} holds the label_separator {separator!r}; "
                    "choose another separator"
                )
