"""How many demonstrations fit: whole ones only, the most relevant that the budget allows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from inference.boundaries import Chat
from inference.ordering import ORDERS, Demonstration, Order
from inference.prompt_tokens import Tokenizer, encode
from inference.prompts import PromptSpec, build, render_demonstration, safe
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
        return self.remembered(
            f"text {text}",
            lambda: len(self._tokenizer(text, add_special_tokens=False)["input_ids"]),
        )

    def remembered(self, key: str, count: Callable[[], int]) -> int:
        """Return what `count` counts; the second time without counting."""
        if key not in self._lengths:
            if len(self._lengths) >= self._max:
                self._lengths.clear()
            self._lengths[key] = count()
        return self._lengths[key]


@dataclass(frozen=True)
class Limits:
    """How many demonstrations are shown.

    Args:
        k: most; None: as many as are there.
        k_min: fewest, where there are so many.
        share: part of the tokens left by instruction and query that demonstrations beyond `k_min`
            may fill, so that a longer query is shown fewer; in (0, 1].
        max_demonstration_tokens: a demonstration of more tokens is passed over.
    """

    k: int | None = None
    k_min: int = 0
    share: float = 1.0
    max_demonstration_tokens: int | None = None


@dataclass(frozen=True)
class Fitted:
    """The prompt that fits, and what was left out for it.

    Args:
        prompt: the text to send; with status too_long, the text without demonstrations.
        kept: positions of the demonstrations kept, as they were given.
        shown: the same positions in the order shown.
        n_dropped: places that stay empty: demonstrations shown short of k, or of all there are.
        n_skipped: demonstrations passed over although a place was free.
        prompt_tokens: tokens of `prompt`, counted on the text that is sent.
        status: ok, or too_long where instruction, query and `k_min` demonstrations exceed the
            budget.
        detail: the numbers, where the status is not ok.
    """

    prompt: str
    kept: tuple[int, ...]
    shown: tuple[int, ...]
    n_dropped: int
    n_skipped: int
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
        order: in which demonstrations are shown.
        chat: the chat template; needed for the chat format.
        limits: how many demonstrations.
    """

    max_prompt_tokens: int
    counter: TokenCounter
    spec: PromptSpec = field(default_factory=PromptSpec)
    order: Order = ORDERS["similar-last"]
    chat: Chat | None = None
    limits: Limits = field(default_factory=Limits)


def fit(
    task: Task,
    demonstrations: Sequence[Demonstration],
    query_input: str,
    *,
    budget: Budget,
    n_fixed: int = 0,
) -> Fitted:
    """Show the most relevant demonstrations that fit, each whole.

    Instruction and query stand whole in every prompt. One demonstration after the other is taken
    unless it exceeds `max_demonstration_tokens` or what is left; then the next one is tried. The
    first `k_min` are taken so that the shortest of the later ones still fit beside them. What a
    demonstration adds is counted once and remembered; the prompt is counted as a whole at the end.

    Args:
        task: layout and instruction.
        demonstrations: the fixed ones, then the others; of each, the most relevant first.
        query_input: the text to answer for.
        budget: limit, counter and layout.
        n_fixed: fixed demonstrations; they stand before the others, whatever the order.

    Returns:
        The prompt with what was kept and dropped. Two tokenisations where the counts add up.
    """
    prompt = _Prompt(task, demonstrations, query_input, budget, n_fixed)
    bare = prompt.attempt((), 0)
    room = budget.max_prompt_tokens - bare.prompt_tokens
    if room < 0:
        return _too_long(
            bare,
            f"instruction and query alone take {bare.prompt_tokens} tokens, "
            f"the budget is {budget.max_prompt_tokens}",
        )
    costs = [prompt.cost(i) for i in range(len(demonstrations))]
    best = _fitting(prompt, costs, bare=bare.prompt_tokens)
    needed = _needed(budget.limits, len(costs))
    if len(best.kept) < needed:
        return _too_long(bare, _shortfall(prompt, costs, bare=bare, needed=needed))
    return best


@dataclass(frozen=True)
class _Prompt:
    """A query with its demonstrations, from which prompts are tried."""

    task: Task
    demonstrations: Sequence[Demonstration]
    query: str
    budget: Budget
    n_fixed: int

    def attempt(self, kept: tuple[int, ...], n_skipped: int) -> Fitted:
        """Write and count the prompt with some of the demonstrations."""
        shown: list[int] = []
        for group in (
            [i for i in kept if i < self.n_fixed],
            [i for i in kept if i >= self.n_fixed],
        ):
            order = self.budget.order([self.demonstrations[i] for i in group])
            shown += [group[place] for place in order]
        prompt = self.text([self.demonstrations[i] for i in shown], self.query)
        most = _most(self.budget.limits, len(self.demonstrations))
        return Fitted(
            prompt=prompt,
            kept=kept,
            shown=tuple(shown),
            n_dropped=most - len(kept),
            n_skipped=n_skipped,
            prompt_tokens=self.budget.counter.exact(prompt),
        )

    def text(self, demonstrations: Sequence[Demonstration], query: str) -> str:
        """Return the text of a prompt."""
        budget = self.budget
        return build(self.task, demonstrations, query, spec=budget.spec, chat=budget.chat)

    def cost(self, position: int) -> int | None:
        """Return the tokens that a demonstration adds to a prompt; None: it is too long itself."""
        budget, one = self.budget, self.demonstrations[position]
        rendered = render_demonstration(self.task, safe(self.task, one, budget.spec))
        most = budget.limits.max_demonstration_tokens
        if most is not None and budget.counter.about(rendered) > most:
            return None
        count, layout = budget.counter, f"{self.task.name} {budget.spec.format}"
        alone = count.remembered(f"{layout} bare", lambda: count.exact(self.text([], "")))
        return count.remembered(
            f"{layout} with {rendered}",
            lambda: max(0, count.exact(self.text([one], "")) - alone),
        )


def _fitting(prompt: _Prompt, costs: Sequence[int | None], *, bare: int) -> Fitted:
    """Choose by counts of single demonstrations, then by the count of the whole prompt."""
    limit, limits = prompt.budget.max_prompt_tokens, prompt.budget.limits
    room = limit - bare
    best = prompt.attempt(*_choose(costs, room=room, limits=limits))
    # Tokens that merge at the seams leave more room than the single counts say.
    saved = bare + sum(costs[i] or 0 for i in best.kept) - best.prompt_tokens
    if saved > 0 and best.n_dropped:
        larger = prompt.attempt(*_choose(costs, room=room + saved, limits=limits))
        return larger if larger.prompt_tokens <= limit else best
    while best.prompt_tokens > limit:
        room -= best.prompt_tokens - limit
        best = prompt.attempt(*_choose(costs, room=room, limits=limits))
    return best


def _choose(
    costs: Sequence[int | None], *, room: int, limits: Limits
) -> tuple[tuple[int, ...], int]:
    """Take the first that fit; returns their positions and how many were passed over.

    O(n k_min log n) time for n demonstrations.
    """
    most, needed = _most(limits, len(costs)), _needed(limits, len(costs))
    shared = math.floor(room * limits.share + 1e-9)
    kept: list[int] = []
    used = n_skipped = 0
    for position, cost in enumerate(costs):
        if len(kept) == most:
            break
        missing = needed - len(kept) - 1
        later = [other for other in costs[position + 1 :] if other is not None and missing > 0]
        left = (room if missing >= 0 else shared) - used - sum(sorted(later)[: max(0, missing)])
        if cost is None or cost > left:
            n_skipped += 1
            continue
        kept.append(position)
        used += cost
    return tuple(kept), n_skipped


def _most(limits: Limits, n: int) -> int:
    return n if limits.k is None else min(n, limits.k)


def _needed(limits: Limits, n: int) -> int:
    return min(limits.k_min, _most(limits, n))


def _too_long(bare: Fitted, detail: str) -> Fitted:
    return replace(bare, status=Status.TOO_LONG, detail=detail)


def _shortfall(prompt: _Prompt, costs: Sequence[int | None], *, bare: Fitted, needed: int) -> str:
    """Say why not even `k_min` demonstrations fit."""
    budget, sizes = prompt.budget, sorted(cost for cost in costs if cost is not None)
    said = f"k_min asks for {budget.limits.k_min} demonstrations"
    if len(sizes) < needed:
        return (
            f"{said}; {len(costs) - len(sizes)} of {len(costs)} take more than "
            f"max_demonstration_tokens {budget.limits.max_demonstration_tokens}"
        )
    smallest = sum(sizes[:needed])
    return (
        f"{said}: the shortest {needed} of {len(costs)} take {smallest} tokens, instruction and "
        f"query {bare.prompt_tokens}, together {smallest + bare.prompt_tokens}; the budget is "
        f"{budget.max_prompt_tokens}"
    )
