"""Task, demonstrations and query to the text of a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inference.boundaries import Chat, boundary_of, guard
from inference.ordering import Demonstration
from inference.prompt_tokens import Tokenizer, neutralise
from inference.tasks import Task, instruction

Message = dict[str, str]


@dataclass(frozen=True)
class PromptSpec:
    """The layout of prompts.

    Args:
        format: `completion` continues a plain text; `chat` goes through the model's chat template.
        turns: with `chat`, every demonstration is a user turn and an assistant turn; otherwise
            everything is one user turn.
        control: spellings of control tokens to break up in user text (`control_strings`).
        turn_marks: what the chat template writes between turns (`boundaries.turn_marks`).
    """

    format: Literal["completion", "chat"] = "completion"
    turns: bool = True
    control: tuple[str, ...] = ()
    turn_marks: tuple[str, ...] = ()


def chat_of(tokenizer: Tokenizer, *, model: str, option: str = "format: chat") -> Chat:
    """Return the chat template of a model as a function from messages to text.

    Args:
        tokenizer: a transformers tokenizer.
        model: named in the error.
        option: the setting that asked for chat, named in the error.

    Raises:
        ValueError: the model has no chat template.
    """
    apply = getattr(tokenizer, "apply_chat_template", None)
    if apply is None or not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"model {model} has no chat template, which {option!r} needs; "
            f"set format: completion or use an instruction-tuned model"
        )

    def render(messages: list[Message]) -> str:
        return str(apply(messages, add_generation_prompt=True, tokenize=False))

    return render


def render_demonstration(task: Task, demonstration: Demonstration) -> str:
    """Return one demonstration as plain text: the input, the contrast if any, the answer."""
    asked = f"{task.input_prefix}{demonstration.input}{_contrast(task, demonstration)}"
    return f"{asked}\n{task.output_prefix}{demonstration.output}"


def safe(task: Task, demonstration: Demonstration, spec: PromptSpec) -> Demonstration:
    """Return a demonstration whose texts can imitate no boundary and no control token."""
    wrong, why = demonstration.wrong_output, demonstration.why
    return replace(
        demonstration,
        input=_safe(task, demonstration.input, spec, after=task.input_prefix),
        output=_safe(task, demonstration.output, spec, after=task.output_prefix),
        wrong_output=None if wrong is None else _safe(task, wrong, spec, after=task.wrong_prefix),
        why=None if why is None else _safe(task, why, spec, after=task.why_prefix),
    )


def build(
    task: Task,
    demonstrations: Sequence[Demonstration],
    query_input: str,
    *,
    spec: PromptSpec,
    chat: Chat | None = None,
) -> str:
    """Return the prompt: static instruction first, demonstrations, query last.

    Texts are inserted by value: braces in them mean nothing, control tokens spelled out in them
    stay plain text, and lines that look like the begin of another part are quoted.

    Args:
        task: layout and instruction.
        demonstrations: in the order shown.
        query_input: the text to answer for.
        spec: the layout.
        chat: `chat_of(tokenizer)`; needed for the chat format.

    Raises:
        ValueError: chat format without `chat`.
    """
    shown = [safe(task, demonstration, spec) for demonstration in demonstrations]
    query = _safe(task, query_input, spec, after=task.input_prefix)
    if spec.format == "completion" or not spec.turns:
        text = _plain(task, shown, query)
        messages = [{"role": "user", "content": text}]
    else:
        messages = _turns(task, shown, query)
    if spec.format == "completion":
        return text
    if chat is None:
        raise ValueError(
            "format 'chat' needs the model's chat template: pass chat=chat_of(tokenizer, model=...)"
        )
    return chat(messages)


def answer_gap(task: Task, prompt: str) -> str:
    """Return the white space that an answer to this prompt begins with.

    A completion prompt ends with `output_prefix` less its trailing white space, because a space
    there would be a token of its own and keep the model from the usual " word" tokens. That white
    space belongs to the answer. A chat prompt ends with the template's own header: no gap.
    """
    stem = task.output_prefix.rstrip()
    return task.output_prefix[len(stem) :] if stem and prompt.endswith(stem) else ""


def stop_strings(task: Task, spec: PromptSpec) -> tuple[str, ...]:
    """Return where a free answer ends: nowhere in chat, in completion where its line ends.

    Entities and queries take several lines: they end at a blank line, or where the next input
    would begin.
    """
    if spec.format != "completion":
        return ()
    if task.kind in ("classification", "multi-label"):
        return ("\n",)
    prefix = task.input_prefix.strip()
    return ("\n\n", f"\n{prefix}") if prefix else ("\n\n",)


def _safe(task: Task, text: str, spec: PromptSpec, *, after: str) -> str:
    """Break up control tokens first: what is left in their place may begin a line."""
    return guard(neutralise(text, spec.control), boundary_of(task, spec.turn_marks), after=after)


def _contrast(task: Task, demonstration: Demonstration) -> str:
    """Return the lines of the incorrect answer, each after a line break; empty without one."""
    if demonstration.wrong_output is None:
        return ""
    lines = f"\n{task.wrong_prefix}{demonstration.wrong_output}"
    return lines if demonstration.why is None else f"{lines}\n{task.why_prefix}{demonstration.why}"


def _plain(task: Task, shown: Sequence[Demonstration], query: str) -> str:
    """Join instruction, demonstrations and query into one text that asks for an answer."""
    asked = f"{task.input_prefix}{query}\n{task.output_prefix.rstrip()}"
    parts = [render_demonstration(task, one) for one in shown]
    return task.separator.join([part for part in (instruction(task),) if part] + [*parts, asked])


def _turns(task: Task, shown: Sequence[Demonstration], query: str) -> list[Message]:
    """Lay demonstrations out as turns; the instruction opens the first user turn.

    Not a system turn: several templates refuse one. A contrast stands in the user's turn, so that
    the assistant never gives an incorrect answer.
    """
    messages: list[Message] = []
    opening = instruction(task)
    head = opening + task.separator if opening else ""
    for one in shown:
        asked = f"{head}{task.input_prefix}{one.input}{_contrast(task, one)}"
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": one.output})
        head = ""
    messages.append({"role": "user", "content": f"{head}{task.input_prefix}{query}"})
    return messages
