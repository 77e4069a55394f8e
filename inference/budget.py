"""How many demonstrations fit: whole ones only, the least relevant dropped first."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inference.ordering import ORDERS, Demonstration
from inference.prompt_tokens import Tokenizer, encode
from inference.prompts import Chat, PromptSpec, build, render_demonstration
from inference.status import Status
from inference.tasks import Task


class TokenCounter:
    """Counts tokens and remembers the lengths of demonstrations, which many queries share.

    Args:
        tokenizer: a transformers tokenizer.
        max_remembered: the most texts whose length is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_remembered: int = 200_000) -> None:
        self._tokenizer = tokenizer
        self._max = max_remembered
        self._lengths: dict[str, int] = {}

    def exact(self, prompt: str) -> int:
        """Return the number of tokens sent for a prompt."""
        return len(encode(self._tokenizer, prompt))

    def about(self, text: str) -> int:
        """Return the number of tokens of a text by itself, without special tokens."""
        if text not in self._lengths:
            if len(self._lengths) >= self._max:
                self._lengths.clear()
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            self._lengths[text] = len(ids)
        return self._lengths[text]


@dataclass(frozen=True)
class Fitted:
    """The prompt that fits, and what was dropped for it.

    Args:
        prompt: the text to send; with status too_long, the text without demonstrations.
        kept: positions of the demonstrations kept, most relevant first.
        shown: the same positions in the order shown.
        n_dropped: demonstrations left out.
        prompt_tokens: tokens of `prompt`, counted on the text that is sent.
        status: ok, or too_long where instruction and query alone exceed the budget.
        detail: the numbers, where the status is not ok.
    """

    prompt: str
    kept: tuple[int, ...]
    shown: tuple[int, ...]
    n_dropped: int
    prompt_tokens: int
    status: Status = Status.OK
    detail: str = ""


@dataclass(frozen=True)
class Budget:
    """What a prompt may cost and how it is laid out.

    Args:
        max_prompt_tokens: most tokens of a prompt, special tokens included.
        counter: counts with the tokenizer of the LLM.
        spec: the layout.
        order: a key of `ORDERS`.
        chat: the chat template; needed for the chat format.
    """

    max_prompt_tokens: int
    counter: TokenCounter
    spec: PromptSpec = field(default_factory=PromptSpec)
    order: str = "similar-last"
    chat: Chat | None = None


def fit(
    task: Task,
    demonstrations: Sequence[Demonstration],
    query_input: str,
    *,
    budget: Budget,
) -> Fitted:
    """Keep the longest run of most relevant demonstrations whose prompt fits the budget.

    Instruction and query stand whole in every prompt. Lengths of single demonstrations give a
    first guess; the final prompt is counted as a whole, so one tokenisation is enough where all
    fit.

    Args:
        task: layout and instruction.
        demonstrations: most relevant first.
        query_input: the text to answer for.
        budget: limit, counter and layout.

    Returns:
        The prompt with what was kept and dropped.
    """
    n = _guess(task, demonstrations, query_input, budget=budget)
    best = _attempt(task, demonstrations, query_input, n=n, budget=budget)
    while best.prompt_tokens > budget.max_prompt_tokens and n > 0:
        n -= 1
        best = _attempt(task, demonstrations, query_input, n=n, budget=budget)
    if best.prompt_tokens > budget.max_prompt_tokens:
        return _too_long(best, budget.max_prompt_tokens)
    while n < len(demonstrations):
        n += 1
        larger = _attempt(task, demonstrations, query_input, n=n, budget=budget)
        if larger.prompt_tokens > budget.max_prompt_tokens:
            break
        best = larger
    return best


def _guess(
    task: Task, demonstrations: Sequence[Demonstration], query_input: str, *, budget: Budget
) -> int:
    """Estimate how many demonstrations fit from their lengths one by one."""
    left = budget.max_prompt_tokens - budget.counter.about(
        build(task, [], query_input, spec=budget.spec, chat=budget.chat)
    )
    for n, shown in enumerate(demonstrations):
        left -= budget.counter.about(
            render_demonstration(task, shown.input, shown.output) + task.separator
        )
        if left < 0:
            return n
    return len(demonstrations)


def _attempt(
    task: Task,
    demonstrations: Sequence[Demonstration],
    query_input: str,
    *,
    n: int,
    budget: Budget,
) -> Fitted:
    """Write and count the prompt with the first n demonstrations."""
    shown = ORDERS[budget.order](demonstrations[:n])
    prompt = build(
        task,
        [demonstrations[i] for i in shown],
        query_input,
        spec=budget.spec,
        chat=budget.chat,
    )
    return Fitted(
        prompt=prompt,
        kept=tuple(range(n)),
        shown=tuple(shown),
        n_dropped=len(demonstrations) - n,
        prompt_tokens=budget.counter.exact(prompt),
    )


def _too_long(bare: Fitted, max_prompt_tokens: int) -> Fitted:
    """Say by how much instruction and query alone exceed the budget."""
    return Fitted(
        prompt=bare.prompt,
        kept=(),
        shown=(),
        n_dropped=bare.n_dropped,
        prompt_tokens=bare.prompt_tokens,
        status=Status.TOO_LONG,
        detail=(
            f"instruction and query alone take {bare.prompt_tokens} tokens, "
            f"the budget is {max_prompt_tokens}"
        ),
    )
