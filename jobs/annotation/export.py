"""Export: candidates without a label, as a file for annotators."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from inference.kinds import ANSWERED_BY_OUTPUT
from inference.tasks import Task
from jobs.annotation.candidates import Candidate, candidates_of, current_answer
from jobs.annotation.corpus_rows import embedded_parts, vector_batches, vectors_by_id
from jobs.annotation.finished import finished
from jobs.annotation.label_studio import interface
from jobs.annotation.labels import Label, labels_of
from jobs.annotation.question import chosen_arms, question_of
from jobs.annotation.states import retired_ids
from jobs.annotation.suggest import NEIGHBOURS, nearest_labelled, vote
from jobs.annotation.written import WRITERS
from jobs.config.schema import Arm
from jobs.errors import ConfigError
from jobs.progress import Progress
from jobs.run import Run
from jobs.vectors import Matrix


@dataclass(frozen=True)
class Wanted:
    """What is exported, and how.

    Attributes:
        format: A key of `WRITERS`.
        arm: Only this arm's candidates; None: all arms'.
        everything: Those with a label too.
        suggest: With the label that their neighbours have.
    """

    format: Literal["csv", "jsonl", "label-studio"] = "csv"
    arm: str | None = None
    everything: bool = False
    suggest: bool = False


@dataclass(frozen=True)
class Exported:
    """A file for annotators.

    Attributes:
        text: Of the file.
        interface: Label Studio's labelling interface for it; None for other formats.
        facts: What was counted; plain data.
    """

    text: str
    interface: str | None
    facts: dict[str, Any]


def export(out: str, *, wanted: Wanted, progress: Progress) -> Exported:
    """Write the candidates of a run for annotators; the same output gives the same text.

    Args:
        out: Output of a run that has candidates.
        wanted: Which of them, and how.
        progress: Where warnings go.

    Returns:
        The text and what was counted. Retired candidates are never in it.

    Raises:
        ConfigError: No such arm, arms that ask different questions, or suggestions where an answer
            cannot be that of a neighbour.
    """
    run = finished(out, progress=progress)
    arms = chosen_arms(run, wanted.arm)
    task, labels = question_of(run, arms), labels_of(run.ledger)
    retired = set(retired_ids(run.ledger))
    found = candidates_of(run, arms, task, labels)
    chosen = [
        one for one in found if one.id not in retired and (wanted.everything or one.answer is None)
    ]
    if wanted.suggest:
        chosen = with_suggestions(run, arms[0], task, labels, chosen)
    facts = {
        "format": wanted.format,
        "task": task.name,
        "arms": [arm.name for arm in arms],
        "rows": len(chosen),
        "candidates": len(found),
        "labelled": sum(one.answer is not None for one in found),
        "retired": sum(one.id in retired for one in found),
        "suggested": sum(one.suggestion is not None for one in chosen),
    }
    view = interface(task) if wanted.format == "label-studio" else None
    return Exported(WRITERS[wanted.format](task, chosen), view, facts)


def with_suggestions(
    run: Run, arm: Arm, task: Task, labels: Mapping[str, Label], candidates: list[Candidate]
) -> list[Candidate]:
    """Add what the nearest labelled rows of the corpus, and of imports, say.

    Raises:
        ConfigError: The task's answers are spans or queries, or no labelled row has a vector.
    """
    if task.kind in ANSWERED_BY_OUTPUT:
        raise ConfigError(
            f"--suggest: task {task.name} is of kind {task.kind}, whose answers are about one text "
            "alone; a neighbour's say nothing. Leave --suggest out."
        )
    ids, vectors = vectors_by_id(run, arm.encoder, [one.id for one in candidates])
    found = nearest_labelled((ids, vectors), _labelled(run, arm.encoder, task, labels))
    if ids and not any(found):
        raise ConfigError(
            "--suggest: no row of the corpus has a label of the task yet, so there are no "
            "neighbours to ask. Leave --suggest out until some labels are imported."
        )
    model = f"knn-{NEIGHBOURS}-{run.encoder_ids[arm.encoder]}"
    said = {i: vote(near, task, model=model) for i, near in zip(ids, found, strict=True)}
    return [replace(one, suggestion=said.get(one.id)) for one in candidates]


def _labelled(
    run: Run, encoder: str, task: Task, labels: Mapping[str, Label]
) -> Iterator[tuple[list[str], Matrix, dict[str, str]]]:
    """Labelled rows with their vectors, a part of the corpus at a time."""
    for part, marker in embedded_parts(run, encoder):
        rows = run.ledger.read(part.marker, ["id", "input", "label", "output"]).to_pylist()
        said = {row["id"]: current_answer(task, row, labels.get(row["id"])) for row in rows}
        label_of = {i: answer for i, answer in said.items() if answer is not None}
        if label_of:
            for ids, block in vector_batches(run, marker):
                yield ids, block, label_of
