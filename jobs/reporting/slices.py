"""Scores by slice of the queries: by length, by a column, by nearness of what was shown."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from inference.scoring import score
from inference.significance import paired_shares, wilson
from jobs.reporting.metric_tables import ARM_KEY
from jobs.reporting.metrics import Answers

LABEL, LENGTH, NEAREST = "label", "query tokens", "nearest demonstration"
MOST_VALUES = 20
# Steps of the cosine; with none near, a demonstration is as good as a random one.
COSINES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
UNKNOWN, NOTHING_SHOWN = "unknown", "none shown"
STEPS = (
    f"below {COSINES[0]}",
    *(f"{low} to {high}" for low, high in pairwise(COSINES)),
    f"{COSINES[-1]} and above",
)


@dataclass(frozen=True)
class Slicing:
    """A partition of the queries by one property.

    Attributes:
        name: What they are told apart by.
        values: Value per query id; an id that is not there is `unknown`.
        order: The values as they are listed.
    """

    name: str
    values: Mapping[str, str]
    order: Sequence[str]


def by_length(n_tokens: Mapping[str, int]) -> Slicing:
    """Quartiles of the token counts of the queries; fewer where counts are equal.

    Args:
        n_tokens: Tokens of each query, by id.

    Returns:
        Slices named by their shortest and longest query.
    """
    counts = np.array(list(n_tokens.values()), dtype=np.int64)
    if not len(counts):
        return Slicing(LENGTH, {}, [])
    edges = np.unique(np.quantile(counts, [0.25, 0.5, 0.75], method="inverted_cdf"))
    bins = np.searchsorted(edges, counts)
    names = {}
    for number in np.unique(bins).tolist():
        mine = counts[bins == number]
        low, high = int(mine.min()), int(mine.max())
        names[number] = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    values = {id_: names[number] for id_, number in zip(n_tokens, bins.tolist(), strict=True)}
    return Slicing(LENGTH, values, list(names.values()))


def by_column(name: str, values: Mapping[str, str | None]) -> Slicing:
    """The values of a column, most frequent first; beyond 20, the others are one slice."""
    counts = Counter("none" if value is None else value for value in values.values())
    order = sorted(counts, key=lambda value: (-counts[value], value))
    kept, rest = order[:MOST_VALUES], f"{len(order) - MOST_VALUES} other values"
    found = {id_: "none" if value is None else value for id_, value in values.items()}
    shown = {id_: value if value in kept else rest for id_, value in found.items()}
    return Slicing(f"column {name}", shown, kept if len(order) == len(kept) else [*kept, rest])


def by_nearest(cosines: Mapping[str, float | None]) -> Slicing:
    """Steps of the cosine between a query and the nearest demonstration that it was shown.

    Args:
        cosines: By query id; None for a query that was shown none.

    Returns:
        Slices from far to near; `none shown` stands first.
    """
    values = {
        id_: NOTHING_SHOWN if x is None else STEPS[int(np.searchsorted(COSINES, x, side="right"))]
        for id_, x in cosines.items()
    }
    return Slicing(NEAREST, values, [NOTHING_SHOWN, *STEPS])


def by_label(answers: Answers, labels: Sequence[str]) -> Slicing:
    """The gold labels."""
    return Slicing(LABEL, {id_: gold for id_, (gold, _) in answers.items()}, labels)


def slice_rows(
    answers: Answers, slicing: Slicing, *, arm: Mapping[str, Any], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Scores of one arm in every slice that has a scored query.

    Args:
        answers: Of the arm.
        slicing: What the queries are told apart by.
        arm: Its identifying fields.
        labels: The labels of the task.

    Returns:
        Rows of `SLICES_SCHEMA`: accuracy with its Wilson interval, and macro-F1 over the labels
        that occur in the slice.
    """
    rows = []
    for value, ids in divided(list(answers), slicing).items():
        gold, predicted = zip(*(answers[id_] for id_ in ids), strict=True)
        scores = score(gold, predicted, labels)
        low, high = wilson(round(scores.accuracy * len(ids)), len(ids))
        rows.append(
            {
                **{name: arm.get(name) for name in ARM_KEY},
                **{"slice": slicing.name, "value": value, "n": len(ids)},
                **{"accuracy": scores.accuracy, "accuracy_low": low, "accuracy_high": high},
                "macro_f1": scores.macro_f1,
            }
        )
    return rows


def slice_differences(
    answers: tuple[Answers, Answers],
    slicing: Slicing,
    *,
    arm: Mapping[str, Any],
    against: str,
) -> list[dict[str, Any]]:
    """How much more of each slice an arm answers right than another.

    Differences of macro-F1 are left to the whole: in a slice of few queries it hangs on which
    labels happen to occur.

    Args:
        answers: Of the arm, and of the other.
        slicing: Of the arm's queries.
        arm: Identifying fields of the arm.
        against: Name of the other.

    Returns:
        Rows of `SLICE_DIFFERENCES_SCHEMA` over the queries scored for both, with Newcombe's
        interval of paired shares. The intervals are of one slice each, not of all together.
    """
    rows = []
    first, second = answers
    for value, ids in divided([id_ for id_ in first if id_ in second], slicing).items():
        right = Counter(
            (first[id_][0] == first[id_][1], second[id_][0] == second[id_][1]) for id_ in ids
        )
        only_first, only_second = right[True, False], right[False, True]
        low, high = paired_shares(right[True, True], only_first, only_second, right[False, False])
        rows.append(
            {
                **{name: arm.get(name) for name in ARM_KEY},
                **{"against": against, "slice": slicing.name, "value": value, "n": len(ids)},
                "accuracy_difference": (only_first - only_second) / len(ids),
                **{"low": low, "high": high},
            }
        )
    return rows


def divided(ids: Sequence[str], slicing: Slicing) -> dict[str, list[str]]:
    """Ids per value, in the order of the slicing, what is unknown last; no value without any."""
    found: dict[str, list[str]] = defaultdict(list)
    for id_ in ids:
        found[slicing.values.get(id_, UNKNOWN)].append(id_)
    order = dict.fromkeys([*slicing.order, UNKNOWN, *found])
    return {value: found[value] for value in order if value in found}
