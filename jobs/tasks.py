"""The config's tasks in the words of `inference`, with label sets taken from the corpus."""

from collections.abc import Mapping
from typing import Any

from inference.kinds import ANSWERED_BY_OUTPUT, gold_answer
from inference.tasks import Task
from jobs.config.schema import TaskConfig
from jobs.errors import ConfigError
from jobs.run import Run


def task_of(run: Run, name: str) -> Task:
    """The task, ready for prompts, parsing and scoring.

    Raises:
        ConfigError: Its label set is not usable.
    """
    return build(name, run.config.file.tasks[name], run.tables["corpus"].counts("labels"))


def build(name: str, config: TaskConfig, corpus_labels: Mapping[str, int]) -> Task:
    """A task from its config; `labels: null` means every label of the corpus.

    Raises:
        ConfigError: Labels, aliases or verbalizers that contradict each other.
    """
    labels = config.labels if config.labels is not None else _labels_of(config, corpus_labels)
    if config.kind == "ner" and not labels:
        raise ConfigError(f"tasks.{name}.labels: not given; name the entity types of the task.")
    if config.kind in ("classification", "multi-label") and len(labels) < 2:
        raise ConfigError(
            f"tasks.{name}.labels: found {labels}; a classification needs at least two. Name them "
            "in the config. Without names they are what corpus.columns.label holds in the rows "
            "that were read: look at that key, at --limit and at the rejected rows."
        )
    plain = config.model_dump(exclude={"labels", "databases", "database_column"})
    try:
        return Task(name=name, labels=tuple(labels), **plain)
    except ValueError as error:
        raise ConfigError(f"tasks.{name}: {error}.") from None


def _labels_of(config: TaskConfig, corpus_labels: Mapping[str, int]) -> list[str]:
    """The labels that the corpus has."""
    if config.kind in ANSWERED_BY_OUTPUT:
        return []
    if config.kind == "classification":
        return sorted(corpus_labels)
    # Of a blank separator, the task says what is wrong with it.
    separator = config.label_separator.strip() or None
    pieces = (one for cell in corpus_labels for one in cell.split(separator))
    return sorted({piece.strip() for piece in pieces if piece.strip()})


def plain_task(task: Task) -> dict[str, Any]:
    """All that prompts and scores of a task depend on, as plain data."""
    return {
        "name": task.name,
        "kind": task.kind,
        "instruction": task.instruction,
        "labels": list(task.labels),
        "aliases": dict(task.aliases),
        "verbalizers": dict(task.verbalizers),
        "input_prefix": task.input_prefix,
        "output_prefix": task.output_prefix,
        "separator": task.separator,
        "wrong_prefix": task.wrong_prefix,
        "why_prefix": task.why_prefix,
        "label_separator": task.label_separator,
        "context": dict(task.context),
        "context_in_demonstrations": task.context_in_demonstrations,
    }


def task_from(plain: Mapping[str, Any]) -> Task:
    """The task that `plain_task` wrote down."""
    return Task(**{**plain, "labels": tuple(plain["labels"])})


def label_spellings(task: Task, counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Sort the labels of a table by what they mean to a task.

    Args:
        task: Whose labels count.
        counts: Rows per label as written.

    Returns:
        Spellings that mean a label without being it (as "spelling = label"), and labels that are
        none of the task's, each with its rows.
    """
    merged: dict[str, int] = {}
    strange: dict[str, int] = {}
    if task.kind in ANSWERED_BY_OUTPUT:
        return merged, strange
    for raw, number in counts.items():
        label = gold_answer(task, {"label": raw}).value
        if label is None:
            strange[raw] = number
        elif label != raw:
            merged[f"{raw!r} = {label}"] = number
    return merged, strange
