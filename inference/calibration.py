"""The order of demonstrations that leans least towards any label."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.boundaries import Chat
from inference.engine import VllmEngine
from inference.likelihood import answer_tokens, score
from inference.ordering import Demonstration
from inference.prompt_tokens import encode
from inference.prompts import PromptSpec, answer_gap, build
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


def label_skew(scores: Sequence[Mapping[str, float]]) -> float:
    """Return how far the labels' mean probability over content-free queries is from uniform.

    The content-free probability of Zhao et al. 2021 (label scores made to sum to one, averaged over
    the queries), judged by its entropy as Lu et al. 2022, "Fantastically Ordered Prompts", judge
    orders: log of the number of labels less the entropy, which is the divergence from uniform.

    Args:
        scores: per query, label -> mean log-probability of its answer; the same labels in all.

    Returns:
        Nats, 0 (no label preferred) to log of the number of labels.
    """
    labels = list(scores[0])
    mean = dict.fromkeys(labels, 0.0)
    for one in scores:
        highest = max(one.values())
        weights = {label: math.exp(one[label] - highest) for label in labels}
        total = sum(weights.values())
        for label in labels:
            mean[label] += weights[label] / total / len(scores)
    entropy = -sum(p * math.log(p) for p in mean.values() if p > 0)
    return max(0.0, math.log(len(labels)) - entropy)


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
        The order. Takes (orders x content-free queries x branches of the answers' tokens) requests.

    Raises:
        ValueError: two labels' answers have the same tokens, or one has none.
    """
    by_id = sorted(demonstrations, key=lambda one: one.id)
    orders = permutations_of(len(by_id), seed=seed)
    shown = [[by_id[i] for i in order] for order in orders]
    prompts = [
        build(task, one, query, spec=spec, chat=chat) for one in shown for query in CONTENT_FREE
    ]
    paths = answer_tokens(engine.tokenizer, task, answer_gap(task, prompts[0]))
    scored = score(engine, [encode(engine.tokenizer, prompt) for prompt in prompts], paths)
    skews: dict[int, float] = {}
    for place in range(len(orders)):
        first = place * len(CONTENT_FREE)
        found = [one.scores for one in scored[first : first + len(CONTENT_FREE)]]
        whole = [one for one in found if one is not None]
        if len(whole) == len(CONTENT_FREE):
            skews[place] = label_skew(whole)
    best = min(skews, key=lambda place: (skews[place], place), default=0)
    return Calibrated(
        ids=tuple(one.id for one in shown[best]),
        skew=skews.get(best),
        worst=max(skews.values(), default=None),
        n_orders=len(skews),
    )
