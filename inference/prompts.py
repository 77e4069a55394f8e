"""Task, demonstrations and query to the text of a prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from inference.ordering import Demonstration
from inference.prompt_tokens import Tokenizer, neutralise
from inference.tasks import Task, instruction

Message = dict[str, str]
Chat = Callable[[list[Message]], str]


@dataclass(frozen=True)
class PromptSpec:
    """The layout of prompts.

    Args:
        format: `completion` continues a plain text; `chat` goes through the model's chat template.
        turns: with `chat`, every demonstration is a user turn and an assistant turn; otherwise
            everything is one user turn.
        control: spellings of control tokens to break up in user text (`control_strings`).
    """

    format: Literal["completion", "chat"] = "completion"
    turns: bool = True
    control: tuple[str, ...] = ()


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


def render_demonstration(task: Task, input: str, output: str) -> str:
    """Return one demonstration as plain text: the input, then the answer."""
    return f"{task.input_prefix}{input}\n{task.output_prefix}{output}"


def build(
    task: Task,
    demonstrations: Sequence[Demonstration],
    query_input: str,
    *,
    spec: PromptSpec,
    chat: Chat | None = None,
) -> str:
    """Return the prompt: static instruction first, demonstrations, query last.

    Texts are inserted by value: braces in them mean nothing, and control tokens spelled out in
    them stay plain text.

    Args:
        task: layout and instruction.
        demonstrations: in the order shown.
        query_input: the text to answer for.
        spec: the layout.
        chat: `chat_of(tokenizer)`; needed for the chat format.

    Raises:
        ValueError: chat format without `chat`.
    """
    shown = [
        (neutralise(d.input, spec.control), neutralise(d.output, spec.control))
        for d in demonstrations
    ]
    query = neutralise(query_input, spec.control)
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
    """Return where a free answer ends: at the line end in completion, nowhere in chat."""
    return ("\n",) if spec.format == "completion" and task.kind == "classification" else ()


def _plain(task: Task, shown: Sequence[tuple[str, str]], query: str) -> str:
    """Join instruction, demonstrations and query into one text that asks for an answer."""
    asked = f"{task.input_prefix}{query}\n{task.output_prefix.rstrip()}"
    parts = [render_demonstration(task, *pair) for pair in shown]
    return task.separator.join([part for part in (instruction(task),) if part] + [*parts, asked])


def _turns(task: Task, shown: Sequence[tuple[str, str]], query: str) -> list[Message]:
    """Lay demonstrations out as turns; the instruction opens the first user turn.

    Not a system turn: several templates refuse one.
    """
    messages: list[Message] = []
    opening = instruction(task)
    head = opening + task.separator if opening else ""
    for text, answer in shown:
        messages.append({"role": "user", "content": f"{head}{task.input_prefix}{text}"})
        messages.append({"role": "assistant", "content": answer})
        head = ""
    messages.append({"role": "user", "content": f"{head}{task.input_prefix}{query}"})
    return messages
