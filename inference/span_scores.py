"""How well entities are found: strict and relaxed span F1, and token accuracy.

- **strict**: a predicted span is right when its begin, end and type are those of a gold span.
- **relaxed**: a predicted span is right when it overlaps a gold span of its type; each gold span
  makes one predicted span right, by a largest one-to-one matching, so that neither one span over
  the whole text nor many pieces of one entity gain anything.
- **token accuracy**: share of tokens whose BIO tag is right. Most tokens are outside of every
  entity, so it is high for whoever finds nothing; it is there because users know it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from inference.entities import Span
from inference.tallies import Counts, Floats, Statistic, f1, macro_f1, ratio

_TOKEN = re.compile(r"\w+|[^\w\s]")
# Blocks of one column per type, then two columns of tokens.
BLOCKS = ("gold", "predicted", "strict", "relaxed")


class Answered(NamedTuple):
    """One row: its text, gold spans, predicted spans, and types predicted but not in the text.

    Where `is_there` is false there is no answer, and no tag of the text is right.
    """

    text: str
    gold: Sequence[Span]
    predicted: Sequence[Span]
    missing: Sequence[str] = ()
    is_there: bool = True


def span_counts(rows: Sequence[Answered], types: Sequence[str]) -> Counts:
    """Count what spans and tokens of each row are right.

    Args:
        rows: n rows; spans may overlap, an equal one counts once.
        types: The T entity types.

    Returns:
        Shape (n, 4 T + 2): gold, predicted (with the missing), strict and relaxed matches by type;
        right tokens, tokens.
    """
    place = {name: at for at, name in enumerate(types)}
    return np.array([_count(row, place) for row in rows], np.int64).reshape(-1, 4 * len(types) + 2)


def span_statistics(n_types: int) -> dict[str, Statistic]:
    """The scores over `span_counts`, by name; `strict_micro_f1` is the headline."""
    found: dict[str, Statistic] = {}
    for how in ("strict", "relaxed"):
        found |= {
            f"{how}_micro_f1": _micro(how, n_types),
            f"{how}_macro_f1": _macro(how, n_types),
            f"{how}_precision": _share(how, "predicted", n_types),
            f"{how}_recall": _share(how, "gold", n_types),
        }
    return found | {"token_accuracy": _token_accuracy}


def by_type(sums: Floats, how: str, n_types: int) -> dict[str, Floats]:
    """Precision, recall, F1 and support of each type, each of shape (T,)."""
    right, gold, predicted = (_block(sums, name, n_types) for name in (how, "gold", "predicted"))
    return {
        "precision": ratio(right, predicted),
        "recall": ratio(right, gold),
        "f1": f1(right, gold, predicted),
        "support": gold,
    }


def tags(text: str, spans: Sequence[Span]) -> list[str]:
    """Tag the tokens of a text, words and single marks, by BIO.

    Of overlapping spans the longest names its tokens, then the first; a token belongs to a span
    that it overlaps.
    """
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    found = ["O"] * len(tokens)
    taken = [False] * len(tokens)
    for span in sorted(spans, key=lambda one: (one.start - one.end, one)):
        inside = [i for i, (a, b) in enumerate(tokens) if a < span.end and span.start < b]
        free = [i for i in inside if not taken[i]]
        for order, i in enumerate(free):
            found[i] = f"{'I' if order else 'B'}-{span.type}"
            taken[i] = True
    return found


def _count(row: Answered, place: dict[str, int]) -> list[int]:
    n = len(place)
    counts = [0] * (4 * n + 2)
    gold, predicted = set(row.gold), set(row.predicted)
    for block, spans in ((0, gold), (1, predicted), (2, gold & predicted)):
        for span in spans:
            counts[block * n + place[span.type]] += 1
    for kind in row.missing:
        counts[n + place[kind]] += 1
    for kind, at in place.items():
        counts[3 * n + at] = _overlaps(
            [one for one in gold if one.type == kind],
            [one for one in predicted if one.type == kind],
        )
    theirs, mine = tags(row.text, row.gold), tags(row.text, row.predicted)
    counts[-2:] = row.is_there * sum(map(str.__eq__, theirs, mine)), len(theirs)
    return counts


def _overlaps(gold: Sequence[Span], predicted: Sequence[Span]) -> int:
    """Size of the largest one-to-one matching of overlapping spans."""
    if not gold or not predicted:
        return 0
    starts, ends = (np.array([one[edge] for one in gold])[:, None] for edge in (0, 1))
    first, last = (np.array([one[edge] for one in predicted])[None, :] for edge in (0, 1))
    graph = csr_array((starts < last) & (first < ends))
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def _block(sums: Floats, name: str, n_types: int) -> Floats:
    at = BLOCKS.index(name) * n_types
    return sums[..., at : at + n_types]


def _micro(how: str, n: int) -> Statistic:
    return lambda sums: f1(
        *(_block(sums, name, n).sum(axis=-1) for name in (how, "gold", "predicted"))
    )


def _macro(how: str, n: int) -> Statistic:
    return lambda sums: macro_f1(*(_block(sums, name, n) for name in (how, "gold", "predicted")))


def _share(how: str, of: str, n: int) -> Statistic:
    return lambda sums: ratio(_block(sums, how, n).sum(axis=-1), _block(sums, of, n).sum(axis=-1))


def _token_accuracy(sums: Floats) -> Floats:
    return ratio(sums[..., -2], sums[..., -1])
