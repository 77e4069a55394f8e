"""How well sets of labels are found: micro-F1, macro-F1 and exact match."""

from collections.abc import Collection, Sequence

import numpy as np

from inference.tallies import Counts, Floats, Statistic, f1, macro_f1, ratio


def set_counts(
    rows: Sequence[tuple[Collection[str], Collection[str] | None]], labels: Sequence[str]
) -> Counts:
    """Count what labels of each row are right.

    Args:
        rows: n pairs of gold and predicted labels; predicted None (no answer) is the empty set,
            and never an exact match.
        labels: The L labels.

    Returns:
        Shape (n, 3 L + 2): gold, predicted and right by label; exact matches, rows.
    """
    counts = np.zeros((len(rows), 3 * len(labels) + 2), np.int64)
    for at, (gold, predicted) in enumerate(rows):
        mine = predicted or ()
        flags = [(one in gold, one in mine, one in gold and one in mine) for one in labels]
        counts[at, :-2] = np.array(flags, np.int64).T.ravel()
        counts[at, -2:] = predicted is not None and set(mine) == set(gold), 1
    return counts


def set_statistics(n_labels: int) -> dict[str, Statistic]:
    """The scores over `set_counts`, by name; `micro_f1` is the headline."""
    return {
        "micro_f1": lambda sums: f1(*(part.sum(axis=-1) for part in _parts(sums, n_labels))),
        "macro_f1": lambda sums: macro_f1(*_parts(sums, n_labels)),
        "exact_match": lambda sums: ratio(sums[..., -2], sums[..., -1]),
    }


def by_label(sums: Floats, n_labels: int) -> dict[str, Floats]:
    """Precision, recall, F1 and support of each label, each of shape (L,)."""
    right, gold, predicted = _parts(sums, n_labels)
    return {
        "precision": ratio(right, predicted),
        "recall": ratio(right, gold),
        "f1": f1(right, gold, predicted),
        "support": gold,
    }


def _parts(sums: Floats, n: int) -> tuple[Floats, Floats, Floats]:
    """Right, gold and predicted by label."""
    return sums[..., 2 * n : 3 * n], sums[..., :n], sums[..., n : 2 * n]
