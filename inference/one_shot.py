"""How probable the right answer is after one demonstration, shown alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from inference.boundaries import Chat
from inference.engine import VllmEngine
from inference.likelihood import Scored, answer_tokens, score
from inference.ordering import Demonstration
from inference.prompt_tokens import encode
from inference.prompts import PromptSpec, answer_gap, build
from inference.tasks import Task


@dataclass(frozen=True)
class Trial:
    """A text with its right answer, and the demonstration it is shown.

    Args:
        demonstration: shown alone.
        input: the text to answer for.
        label: the right answer, a label of the task.
    """

    demonstration: Demonstration
    input: str
    label: str


def one_shot(
    engine: VllmEngine,
    task: Task,
    trials: Sequence[Trial],
    *,
    spec: PromptSpec,
    chat: Chat | None = None,
) -> list[Scored]:
    """Score the right answer of every trial (Rubin et al. 2022, section 3.1).

    The score is that of `likelihood.score`, the mean log-probability of the answer's tokens, but of
    the right answer alone: one request for the prompt and one for the answer.

    Args:
        engine: runs the requests.
        task: labels and layout.
        trials: in any order; those that share a demonstration share its prefix in the cache.
        spec: the layout.
        chat: the chat template; needed for the chat format.

    Returns:
        Per trial the score under its label, or None with the first failure.

    Raises:
        ValueError: two labels' answers have the same tokens, or one has none.
    """
    prompts = [build(task, [one.demonstration], one.input, spec=spec, chat=chat) for one in trials]
    together: dict[tuple[str, str], list[int]] = {}
    for position, (one, prompt) in enumerate(zip(trials, prompts, strict=True)):
        together.setdefault((answer_gap(task, prompt), one.label), []).append(position)
    found: dict[int, Scored] = {}
    for (gap, label), positions in together.items():
        path = {label: answer_tokens(engine.tokenizer, task, gap)[label]}
        ids = [encode(engine.tokenizer, prompts[position]) for position in positions]
        found |= dict(zip(positions, score(engine, ids, path), strict=True))
    return [found[position] for position in range(len(trials))]
