"""Pool records as prompts show them: the demonstration, its text, its tokens."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from inference.boundaries import Chat, turn_marks
from inference.budget import TokenCounter
from inference.context import with_context
from inference.engine import EngineSpec
from inference.kinds import gold_answer, shown_answer
from inference.ordering import Demonstration
from inference.prompt_tokens import control_strings
from inference.prompts import PromptSpec, chat_of, render_demonstration, safe
from inference.tasks import Task, canonical
from jobs.config.stage2 import PromptConfig
from jobs.errors import DataError
from jobs.generating.engines import tokenizer_of
from jobs.ledger import Ledger, Marker
from jobs.tasks import task_from

# What a demonstration is made of.
SHOWN_COLUMNS = ["id", "input", "output", "label", "wrong_output", "why", "context"]

Record = Mapping[str, Any]


class LaidOut(NamedTuple):
    """A task, how its prompts are laid out, and demonstrations by id."""

    task: Task
    spec: PromptSpec
    chat: Chat | None
    demonstrations: dict[str, Demonstration]


@dataclass(frozen=True)
class Shown:
    """A record as it is shown, None where it has no answer of any task.

    Attributes:
        text: Input, contrast and answer.
        n_tokens: Of the text, in the LLM's tokenizer.
        made_for: Task, engine and format.
    """

    text: str | None = None
    n_tokens: int | None = None
    made_for: str | None = None


class Renderer:
    """Writes records as the prompts of one task, engine and format do."""

    def __init__(
        self, task: Task, engine: EngineSpec, prompt: PromptConfig, *, made_for: str
    ) -> None:
        self._task = task
        self._prompt = prompt
        self._made_for = made_for
        self._spec, _ = layout_of(engine, prompt)
        self._counter = TokenCounter(tokenizer_of(engine.model, engine.revision))

    def __call__(self, record: Record) -> Shown | None:
        """The record as shown; None where it has no answer of the task."""
        one = demonstration_of(self._task, record, contrast=self._prompt.negative_pairs)
        if one is None:
            return None
        text = render_demonstration(self._task, safe(self._task, one, self._spec))
        return Shown(text, self._counter.about(text), self._made_for)


def layout_of(engine: EngineSpec, prompt: PromptConfig) -> tuple[PromptSpec, Chat | None]:
    """How texts are laid out for an engine, with its chat template where that is asked for."""
    tokenizer = tokenizer_of(engine.model, engine.revision)
    control = control_strings(tokenizer)
    if prompt.format != "chat":
        return PromptSpec(format=prompt.format, control=control), None
    chat = chat_of(tokenizer, model=engine.model, option="prompt.format: chat")
    return PromptSpec(format="chat", control=control, turn_marks=turn_marks(chat)), chat


def demonstration_of(task: Task, record: Record, *, contrast: bool) -> Demonstration | None:
    """The record as a demonstration; None where it has no answer of the task.

    Args:
        task: Spells the answers.
        record: `SHOWN_COLUMNS` of the pool.
        contrast: Whether an incorrect answer is shown before the right one.
    """
    gold = gold_answer(task, record).value
    if gold is None:
        return None
    answer, asked = shown_answer(task, gold), _asked(task, record)
    wrong, why = _text(record["wrong_output"]), _text(record["why"])
    if not contrast or wrong is None or _says(task, wrong) == answer:
        return Demonstration(record["id"], asked, answer)
    return Demonstration(record["id"], asked, answer, wrong_output=_says(task, wrong), why=why)


def same_answer(tasks: Sequence[Task], record: Record) -> bool:
    """Whether the incorrect answer of a record is its right one."""
    wrong = _text(record["wrong_output"])
    golds = [(task, gold_answer(task, record).value) for task in tasks]
    return wrong is not None and any(
        gold is not None and _says(task, wrong) == shown_answer(task, gold) for task, gold in golds
    )


def _asked(task: Task, record: Record) -> str:
    """The input as it is shown, with the context that the record came with."""
    text: str = record["input"]
    if not task.context_in_demonstrations or not record.get("context"):
        return text
    return with_context(task, text, json.loads(record["context"]))


def _says(task: Task, wrong: str) -> str:
    """An incorrect answer, spelled as the task would where it is a label."""
    named = canonical(task, wrong) if task.kind == "classification" else None
    return wrong if named is None else shown_answer(task, named)


def laid_out(
    ledger: Ledger, engine: EngineSpec, payload: Mapping[str, Any], wanted: set[str]
) -> LaidOut:
    """What prompts of their own making need of a unit: its task, layout and demonstrations.

    Args:
        ledger: Has the pool.
        engine: Its tokenizer says what is a control token.
        payload: `task`, `pool` (marker), `prompt` (plain data).
        wanted: Ids of the demonstrations that are shown.

    Raises:
        DataError: As `demonstrations_in`.
    """
    task, prompt = task_from(payload["task"]), PromptConfig.model_validate(payload["prompt"])
    spec, chat = layout_of(engine, prompt)
    pool = Marker(**payload["pool"])
    shown = demonstrations_in(ledger, pool, task, wanted, contrast=prompt.negative_pairs)
    return LaidOut(task, spec, chat, shown)


def demonstrations_in(
    ledger: Ledger, pool: Marker, task: Task, wanted: set[str], *, contrast: bool
) -> dict[str, Demonstration]:
    """The demonstrations of the pool that are needed, by id.

    Raises:
        DataError: One has no answer of the task; it was ranked and cannot be shown.
    """
    found = {}
    for record in ledger.read(pool, SHOWN_COLUMNS).to_pylist():
        if record["id"] in wanted:
            one = demonstration_of(task, record, contrast=contrast)
            if one is None:
                raise DataError(
                    f"pool record {record['id']!r} {gold_answer(task, record).reason} (task "
                    f"{task.name!r}); it was ranked and cannot be shown."
                )
            found[record["id"]] = one
    return found


def _text(value: str | None) -> str | None:
    return value if value and value.strip() else None
