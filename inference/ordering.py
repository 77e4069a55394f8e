"""The order in which chosen demonstrations are shown."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Demonstration:
    """One labelled example as a prompt shows it.

    Args:
        id: the row's id; breaks ties.
        input: the text of the example.
        output: the answer of the example.
        similarity: to the query; larger is nearer.
        wrong_output: an incorrect answer shown before the right one; None: no contrast.
        why: the reason why it is incorrect; shown with `wrong_output` only.
    """

    id: str
    input: str
    output: str
    similarity: float = 0.0
    wrong_output: str | None = None
    why: str | None = None


Order = Callable[[Sequence[Demonstration]], list[int]]


def similar_last(demonstrations: Sequence[Demonstration]) -> list[int]:
    """Return positions so that the most similar stands next to the query; ties by id."""
    return similar_first(demonstrations)[::-1]


def similar_first(demonstrations: Sequence[Demonstration]) -> list[int]:
    """Return positions so that the most similar stands first; ties by id."""
    return sorted(
        range(len(demonstrations)),
        key=lambda i: (-demonstrations[i].similarity, demonstrations[i].id, i),
    )


def by_id(demonstrations: Sequence[Demonstration]) -> list[int]:
    """Return positions in the order of ids: the same for every query, so prefixes are shared."""
    return sorted(range(len(demonstrations)), key=lambda i: (demonstrations[i].id, i))


def interleaved(demonstrations: Sequence[Demonstration]) -> list[int]:
    """Return positions so that answers alternate, the most similar next to the query.

    From the query backwards, each place goes to the most similar one with another answer than its
    neighbour's, or to the answer that would otherwise be left with itself: equal answers are
    neighbours only where one answer is more than half of all. O(k^2) time.
    """
    left = similar_first(demonstrations)
    placed: list[int] = []
    last: str | None = None
    while left:
        counts = Counter(demonstrations[i].output for i in left)
        crowded = [a for a, n in counts.items() if 2 * n > len(left) and a != last]
        wanted = crowded or [answer for answer in counts if answer != last] or list(counts)
        chosen = next(i for i in left if demonstrations[i].output in wanted)
        left.remove(chosen)
        placed.append(chosen)
        last = demonstrations[chosen].output
    return placed[::-1]


def order_of(ids: Sequence[str]) -> Order:
    """Return the order that shows demonstrations as their ids are listed."""
    place = {row_id: i for i, row_id in enumerate(ids)}

    def listed(demonstrations: Sequence[Demonstration]) -> list[int]:
        return sorted(range(len(demonstrations)), key=lambda i: place[demonstrations[i].id])

    return listed


def permutations_of(n: int, *, most: int, seed: int) -> list[tuple[int, ...]]:
    """Return all n! orders of n places, or as many drawn ones as are allowed.

    Args:
        n: Places.
        most: The most orders, at least 1; where n! is more, so many are drawn uniformly and without
            repetition.
        seed: Of the draw.

    Returns:
        Permutations of 0 to n - 1, in lexicographic order. O(n most) time where all are taken;
        drawn ones take more tries the closer `most` is to n!, O(n most log most) at worst.
    """
    if math.factorial(n) <= most:
        return list(itertools.permutations(range(n)))
    draw = random.Random(seed)
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:
        drawn.add(tuple(draw.sample(range(n), n)))
    return sorted(drawn)


def rearranged(items: Sequence[T], order: Sequence[int]) -> list[T]:
    """Return the items by an order of their places; places beyond the last item are passed over."""
    return [items[place] for place in order if place < len(items)]


ORDERS: dict[str, Order] = {
    "similar-last": similar_last,
    "similar-first": similar_first,
    "by-id": by_id,
    "interleaved": interleaved,
}
