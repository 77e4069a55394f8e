"""The config's tasks in the words of `inference`, with label sets taken from the corpus."""

from collections.abc import Mapping
from typing import Any

from inference.tasks import Task, canonical
from jobs.config_schema import TaskConfig
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
        ConfigError: No label at all, or one that stands twice, or an alias of none.
    """
    labels = config.labels if config.labels is not None else sorted(corpus_labels)
    key = f"tasks.{name}"
    if len(labels) < 2:
        raise ConfigError(
            f"{key}.labels: found {labels}; a classification needs at least two. Name them, or map "
            "corpus.columns.label so that they are found in the corpus."
        )
    if len(set(labels)) < len(labels):
        raise ConfigError(f"{key}.labels: a label stands there twice: {labels}.")
    for where, mapping in (("aliases", config.aliases.values()), ("verbalizers", config.verbalizers)):
        stray = sorted(set(mapping) - set(labels))
        if stray:
            raise ConfigError(f"{key}.{where}: {stray[0]!r} is not among its labels {labels}.")
    try:
        return Task(
            name=name,
            kind=config.kind,
            instruction=config.instruction,
            labels=tuple(labels),
            aliases=config.aliases,
            verbalizers=config.verbalizers,
            input_prefix=config.input_prefix,
            output_prefix=config.output_prefix,
            separator=config.separator,
        )
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


def plain(config: TaskConfig, task: Task) -> dict[str, Any]:
    """What prompts and scores of a task depend on, as plain data for fingerprints."""
    return config.model_dump(mode="json") | {"labels": list(task.labels)}


def stray_labels(task: Task, counts: Mapping[str, int]) -> dict[str, int]:
    """Labels of a table that are none of the task's, with how often each occurs."""
    return {label: n for label, n in counts.items() if canonical(task, label) is None}
