"""Candidates as annotators are asked about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference.tasks import Task
from jobs.annotation.corpus_rows import rows_by_id
from jobs.annotation.labels import Label, input_checksum
from jobs.annotation.question import answer_field, answer_of
from jobs.annotation.suggest import Suggestion
from jobs.config.schema import Arm
from jobs.run import Run


@dataclass(frozen=True)
class Candidate:
    """A text that was chosen, and what is known of it.

    Attributes:
        id: Of its row.
        input: The text.
        arm: The first arm that chose it; `rank` and `gain` are that arm's.
        rank: Place in the order of picking, from 0.
        gain: What it added to the objective.
        group: Sentence, document, ... it is a part of; None: none.
        answer: Canonical, None where there is none yet.
        suggestion: What its neighbours say; None: not asked, or they say nothing.
    """

    id: str
    input: str
    arm: str
    rank: int
    gain: float | None
    group: str | None
    answer: str | None = None
    suggestion: Suggestion | None = None

    @property
    def checksum(self) -> str:
        """Of the text, so that a label given to another text is found out."""
        return input_checksum(self.input)


def candidates_of(
    run: Run, arms: list[Arm], task: Task, labels: Mapping[str, Label]
) -> list[Candidate]:
    """All candidates of some arms, each once, in the order of the arms and of picking.

    Args:
        run: Has the candidates and the corpus.
        arms: Whose.
        task: Says which labels of the corpus are an answer.
        labels: Imported ones, by id; they go before those of the corpus.
    """
    picked: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for arm in arms:
        table = run.ledger.read(run.candidates[arm.name], ["id", "rank", "gain"])
        for row in table.to_pylist():
            picked.setdefault(row["id"], (arm.name, row))
    rows = rows_by_id(run, picked, ["input", "label", "output", "group"])
    return [
        Candidate(
            id=i,
            input=rows[i]["input"] or "",
            arm=arm,
            rank=pick["rank"],
            gain=pick["gain"],
            group=rows[i]["group"],
            answer=current_answer(task, rows[i], labels.get(i)),
        )
        for i, (arm, pick) in picked.items()
        if i in rows
    ]


def current_answer(task: Task, row: Mapping[str, Any], label: Label | None) -> str | None:
    """The canonical answer that a row has by now: as imported, or else as in the corpus."""
    if label is not None and label.input_checksum == input_checksum(row["input"]):
        said = label.output if answer_field(task) == "output" else label.label
        if said is not None:
            # The task may have other labels by now than when it was imported.
            return answer_of([task], {**row, "label": said, "output": said})
    return answer_of([task], dict(row))
