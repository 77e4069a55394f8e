"""The order in which chosen demonstrations are shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Demonstration:
    """One labelled example as a prompt shows it.

    Args:
        id: the row's id; breaks ties.
        input: the text of the example.
        output: the answer of the example.
        similarity: to the query; larger is nearer.
    """

    id: str
    input: str
    output: str
    similarity: float = 0.0


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


ORDERS: dict[str, Order] = {
    "similar-last": similar_last,
    "similar-first": similar_first,
    "by-id": by_id,
}
