"""The order of demonstrations that leans least towards any label."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.boundaries import Chat
from inference.engine import VllmEngine
from inference.likelihood import Path, answer_tokens, branches
from inference.llm import Completion, Sampling
from inference.ordering import Demonstration
from inference.prompt_tokens import encode
from inference.prompts import PromptSpec, answer_gap, build
from inference.status import Status
from inference.tasks import Task

# Queries without content, after Zhao et al. 2021, "Calibrate Before Use", section 5.
CONTENT_FREE = ("N/A", "", "[MASK]")
MAX_PERMUTATIONS = 24


@dataclass(frozen=True)
class Calibrated:
    """The order chosen for one set of demonstrations.

    Args:
        ids: in the order shown.
        skew: of that order, in nats; None: the engine scored no order, and `ids` are sorted.
        worst: the largest skew of an order.
        n_orders: orders that were scored.
    """

    ids: tuple[str, ...]
    skew: float | None
    worst: float | None
    n_orders: int


def permutations_of(n: int, *, seed: int) -> list[tuple[int, ...]]:
    """Return the orders of n things that are tried, the given one first.

    Args:
        n: how many.
        seed: of the sample.

    Returns:
        All n! orders up to n = 4, in lexicographic order; above that 24 distinct ones, drawn
        uniformly but for the first.
    """
    given = tuple(range(n))
    if math.factorial(n) <= MAX_PERMUTATIONS:
        return list(itertools.permutations(given))
    draw, found = random.Random(seed), {given: None}
    while len(found) < MAX_PERMUTATIONS:
        found[tuple(draw.sample(given, n))] = None
    return list(found)


def label_skew(probabilities: Sequence[Mapping[str, float]]) -> float:
    """Return how far the labels' mean probability over content-free queries is from uniform.

    The content-free probability of Zhao et al. 2021 (probabilities of the labels, averaged over the
    queries), judged by its entropy as Lu et al. 2022, "Fantastically Ordered Prompts", judge
    orders: log of the number of labels less the entropy, which is the divergence from uniform.

    Args:
        probabilities: per query, label -> probability; the same labels in all, each sums to one.

    Returns:
        Nats, 0 (no label preferred) to log of the number of labels.
    """
    mean = mean_probability(probabilities)
    entropy = -sum(p * math.log(p) for p in mean.values() if p > 0)
    return max(0.0, math.log(len(mean)) - entropy)


def mean_probability(probabilities: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the labels' mean probability over content-free queries (Zhao et al. 2021).

    Args:
        probabilities: per query, label -> probability; the same labels in all.
    """
    n = len(probabilities)
    return {label: sum(one[label] for one in probabilities) / n for label in probabilities[0]}


def content_free_prompts(
    task: Task,
    demonstrations: Sequence[Demonstration],
    *,
    spec: PromptSpec,
    chat: Chat | None = None,
    inputs: Sequence[str] = CONTENT_FREE,
) -> list[str]:
    """Return the prompts that show demonstrations and ask for nothing.

    Args:
        task: labels and layout.
        demonstrations: in the order shown.
        spec: the layout.
        chat: the chat template; needed for the chat format.
        inputs: what stands in the place of a query.
    """
    return [build(task, demonstrations, query, spec=spec, chat=chat) for query in inputs]


def label_probabilities(
    engine: VllmEngine, token_ids: Sequence[Sequence[int]], paths: Mapping[str, Path]
) -> list[dict[str, float] | None]:
    """Return how probable each label is where nothing but one of the answers can be written.

    Only where answers part is the engine asked, with the probabilities of the next tokens made to
    sum to one: for answers of one token each these are the label probabilities of Zhao et al., and
    for many long answers it is a fraction of the requests of `likelihood.score`. An answer that
    begins another one counts with all of its probability before labels are made to sum to one.

    Args:
        engine: runs the requests.
        token_ids: prompts.
        paths: label -> token ids of its answer.

    Returns:
        Per prompt the probabilities, or None where the engine failed.
    """
    tree = {prefix: following for prefix, following in branches(paths).items() if following[1:]}
    width = len(tree)
    requests = [[*ids, *prefix] for ids in token_ids for prefix in tree]
    one_step = [Sampling(max_tokens=1, logprob_token_ids=following) for following in tree.values()]
    rows = [row for row in range(len(token_ids)) for _ in range(width)]
    done = engine.generate_ids(requests, one_step * len(token_ids), rows=rows)
    return [
        _combine(dict(zip(tree, done[row * width : (row + 1) * width], strict=True)), paths)
        for row in range(len(token_ids))
    ]


def _combine(
    steps: Mapping[Path, Completion], paths: Mapping[str, Path]
) -> dict[str, float] | None:
    """Multiply the steps along every label's path."""
    chances: dict[Path, dict[int, float]] = {}
    for prefix, step in steps.items():
        if step.status is not Status.OK or step.logprobs is None:
            return None
        weights = {token: math.exp(logprob) for token, logprob in step.logprobs[0].items()}
        total = sum(weights.values())
        chances[prefix] = {token: weight / total for token, weight in weights.items()}
    found = {
        label: math.prod(
            chances[path[:depth]][path[depth]]
            for depth in range(len(path))
            if path[:depth] in chances
        )
        for label, path in paths.items()
    }
    whole = sum(found.values())
    return {label: chance / whole for label, chance in found.items()}


def calibrate(
    engine: VllmEngine,
    task: Task,
    demonstrations: Sequence[Demonstration],
    *,
    spec: PromptSpec,
    chat: Chat | None = None,
    seed: int = 0,
) -> Calibrated:
    """Choose the order with the lowest label skew; ties to the first tried.

    Orders are tried from the one by id on, so that the choice depends on the set alone.

    Args:
        engine: scores the labels' answers.
        task: labels and layout.
        demonstrations: the set, in any order.
        spec: the layout.
        chat: the chat template; needed for the chat format.
        seed: for the sample of orders.

    Returns:
        The order. Takes (orders x content-free queries x places where answers part) requests.

    Raises:
        ValueError: two labels' answers have the same tokens, or one has none.
    """
    by_id = sorted(demonstrations, key=lambda one: one.id)
    orders = permutations_of(len(by_id), seed=seed)
    shown = [[by_id[i] for i in order] for order in orders]
    prompts = [
        prompt for one in shown for prompt in content_free_prompts(task, one, spec=spec, chat=chat)
    ]
    paths = answer_tokens(engine.tokenizer, task, answer_gap(task, prompts[0]))
    ids = [encode(engine.tokenizer, prompt) for prompt in prompts]
    chances = label_probabilities(engine, ids, paths)
    skews: dict[int, float] = {}
    for place in range(len(orders)):
        first = place * len(CONTENT_FREE)
        whole = [one for one in chances[first : first + len(CONTENT_FREE)] if one is not None]
        if len(whole) == len(CONTENT_FREE):
            skews[place] = label_skew(whole)
    best = min(skews, key=lambda place: (skews[place], place), default=0)
    return Calibrated(
        ids=tuple(one.id for one in shown[best]),
        skew=skews.get(best),
        worst=max(skews.values(), default=None),
        n_orders=len(skews),
    )
