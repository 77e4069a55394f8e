"""Suggested labels: the vote of the nearest labelled neighbours."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from inference.label_sets import in_order, joined
from inference.tasks import Task
from jobs.vectors import Matrix

NEIGHBOURS = 5
#: A label of several is suggested where neighbours with at least half of the weight have it.
HALF = 0.5


class Suggestion(NamedTuple):
    """A canonical label (or several), its share of the weight, 0 to 1, and what says so."""

    label: str
    score: float
    model: str


class Neighbour(NamedTuple):
    """A labelled row near to a candidate; the order of neighbours is that of these fields."""

    distance: float
    id: str
    label: str


def nearest_labelled(
    candidates: tuple[Sequence[str], Matrix],
    labelled: Iterable[tuple[list[str], Matrix, Mapping[str, str]]],
) -> list[list[Neighbour]]:
    """Find the nearest labelled rows of each candidate, some labelled rows at a time.

    Args:
        candidates: n ids and (n, d) float32 unit rows.
        labelled: Batches of ids, (m, d) vectors, and canonical labels by id; rows without one are
            passed over.

    Returns:
        At most 5 neighbours of each, the nearest first, equal ones by id; a row is none of its
        own. O(n N d) time, O(n m) memory.
    """
    ids, vectors = candidates
    best: list[list[Neighbour]] = [[] for _ in ids]
    for some, block, label_of in labelled:
        # By id, so that a stable sort by cosine leaves equal ones in the order of their ids.
        keep = sorted((i, k) for k, i in enumerate(some) if i in label_of)
        if not keep:
            continue
        cosines = vectors @ block[np.array([k for _, k in keep], np.int64)].T
        # One more than wanted: the candidate may be among them.
        order = np.argsort(-cosines, axis=1, kind="stable")[:, : NEIGHBOURS + 1]
        for at, near in enumerate(order):
            names = [(keep[k][0], float(cosines[at, k])) for k in near]
            new = [Neighbour(-c, i, label_of[i]) for i, c in names if i != ids[at]]
            best[at] = sorted([*best[at], *new])[:NEIGHBOURS]
    return best


def vote(neighbours: Sequence[Neighbour], task: Task, *, model: str) -> Suggestion | None:
    """What the neighbours of a row say.

    Args:
        neighbours: Each weighs its cosine, one below 0 nothing.
        task: `classification`: the label with most weight, of equal ones the first of the task.
            `multi-label`: all labels with at least half of the weight; the score is the least of
            their shares.
        model: What the suggestion goes by.

    Returns:
        The suggestion; None where no label has weight enough.
    """
    several = task.kind == "multi-label"
    weights = dict.fromkeys(task.labels, 0.0)
    for one in neighbours:
        mark = task.label_separator.strip()
        for label in one.label.split(mark) if several else [one.label]:
            weights[label] += max(-one.distance, 0.0)
    total = sum(max(-one.distance, 0.0) for one in neighbours)
    if not total:
        return None
    shares = {label: weight / total for label, weight in weights.items()}
    if not several:
        first = max(task.labels, key=lambda label: shares[label])
        return Suggestion(first, round(shares[first], 4), model)
    kept = [label for label in task.labels if shares[label] >= HALF]
    if not kept:
        return None
    least = min(shares[label] for label in kept)
    return Suggestion(joined(task, in_order(task, kept)), round(least, 4), model)
