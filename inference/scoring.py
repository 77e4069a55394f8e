"""How good predictions are: accuracy, macro-F1, confusion, intervals, majority baseline."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one label; 0.0 where a ratio has no denominator."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Scores:
    """The scores of one list of predictions.

    Attributes:
        accuracy: Share of rows whose prediction equals the gold label, in [0, 1].
        macro_f1: Mean F1 over the labels that occur as gold or as a prediction, in [0, 1].
        per_class: One entry per label of the task, in the task's order.
        confusion: Shape (L, L + 1), int64; row = gold label, column = predicted label, and
            the last column counts the rows without a prediction.
    """

    accuracy: float
    macro_f1: float
    per_class: list[ClassScores]
    confusion: Counts


@dataclass(frozen=True)
class Interval:
    """Both ends of a two-sided percentile interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """Bootstrap intervals of the two headline scores (or of their differences)."""

    accuracy: Interval
    macro_f1: Interval
    n_resamples: int
    level: float


def score(gold: Sequence[str], predicted: Sequence[str | None], labels: Sequence[str]) -> Scores:
    """Score predictions against gold labels.

    A row without a prediction (None: parse error, too long, crash) is a wrong answer: it stays in
    the denominator of accuracy and of its class's recall. Macro-F1 averages over the labels that
    occur as gold or as a prediction, which is scikit-learn's choice; a label of the task that
    nobody used says nothing about the predictions.

    Args:
        gold: n gold labels, each one of `labels`.
        predicted: n predictions, each one of `labels` or None.
        labels: The L distinct labels of the task.

    Returns:
        The scores. O(n + L^2) time.

    Raises:
        ValueError: No rows, lists of different length, or a label outside `labels`.
    """
    rows, columns = _codes(gold, predicted, labels)
    confusion = np.zeros((len(labels), len(labels) + 1), dtype=np.int64)
    np.add.at(confusion, (rows, columns), 1)
    precision, recall, f1 = _class_scores(confusion)
    occurs = (confusion.sum(axis=1) + confusion[:, :-1].sum(axis=0)) > 0
    per_class = [
        ClassScores(label, float(p), float(r), float(f), int(s))
        for label, p, r, f, s in zip(
            labels, precision, recall, f1, confusion.sum(axis=1), strict=True
        )
    ]
    accuracy = float(np.trace(confusion) / confusion.sum())
    return Scores(accuracy, float(f1[occurs].mean()), per_class, confusion)


def bootstrap(
    gold: Sequence[str],
    predicted: Sequence[str | None],
    labels: Sequence[str],
    *,
    n_resamples: int = 1000,
    seed: int,
    level: float = 0.95,
) -> Intervals:
    """Percentile bootstrap intervals of accuracy and macro-F1 (Efron and Tibshirani 1993, ch. 13).

    Drawing n rows with replacement and tabulating them is one multinomial draw over the cells of
    the confusion table that occur, so no row is ever copied: O(n + n_resamples min(n, L^2)) time.

    Args:
        gold: n gold labels.
        predicted: n predictions or None.
        labels: The labels of the task.
        n_resamples: How many resamples are drawn.
        seed: Seed of the draws; equal seeds give equal intervals.
        level: Coverage of the interval, in (0, 1).

    Returns:
        Both intervals.

    Raises:
        ValueError: As `score`.
    """
    rows, columns = _codes(gold, predicted, labels)
    cells, counts = np.unique(np.stack([rows, columns]), axis=1, return_counts=True)
    draws = _resample(counts, n_resamples, seed)
    accuracies, macro_f1s = _headline(draws, cells[0], cells[1], len(labels))
    return Intervals(
        percentiles(accuracies, level), percentiles(macro_f1s, level), n_resamples, level
    )


def bootstrap_difference(
    gold: Sequence[str],
    predicted: tuple[Sequence[str | None], Sequence[str | None]],
    labels: Sequence[str],
    *,
    n_resamples: int = 1000,
    seed: int,
    level: float = 0.95,
) -> Intervals:
    """Paired bootstrap intervals of first minus second, both answering the same rows.

    Args:
        gold: n gold labels.
        predicted: Two lists of n predictions (or None) for the same rows in the same order.
        labels: The L labels of the task.
        n_resamples: How many resamples are drawn.
        seed: Seed of the draws.
        level: Coverage of the interval, in (0, 1).

    Returns:
        Intervals of the differences of accuracy and of macro-F1. O(n + n_resamples min(n, L^3))
        time.

    Raises:
        ValueError: As `score`.
    """
    rows, first = _codes(gold, predicted[0], labels)
    _, second = _codes(gold, predicted[1], labels)
    cells, counts = np.unique(np.stack([rows, first, second]), axis=1, return_counts=True)
    draws = _resample(counts, n_resamples, seed)
    scores = [_headline(draws, cells[0], columns, len(labels)) for columns in cells[1:]]
    return Intervals(
        percentiles(scores[0][0] - scores[1][0], level),
        percentiles(scores[0][1] - scores[1][1], level),
        n_resamples,
        level,
    )


def majority_label(counts: Mapping[str, int], labels: Sequence[str]) -> str:
    """Name the most frequent label; a tie goes to the one that stands first in `labels`.

    Args:
        counts: Rows per label; labels outside the task are ignored, absent ones count 0.
        labels: The labels of the task, at least one.

    Returns:
        The majority label.

    Raises:
        ValueError: No labels.
    """
    if not labels:
        raise ValueError("labels is empty: a majority label needs at least 1 label.")
    return max(labels, key=lambda label: counts.get(label, 0))


def majority_baseline(
    gold: Sequence[str],
    labels: Sequence[str],
    *,
    corpus_counts: Mapping[str, int] | None = None,
) -> Scores:
    """Score the answer that needs no model: always the most frequent label.

    Args:
        gold: n gold labels of the queries.
        labels: The labels of the task.
        corpus_counts: Labelled corpus rows per label; the majority is taken from it, because
            that is what one knows before the queries are answered. Without it (or where it
            names no label of the task), the majority of `gold` itself.

    Returns:
        The scores of that constant answer.

    Raises:
        ValueError: As `score`.
    """
    counts = corpus_counts or {}
    if not any(counts.get(label, 0) for label in labels):
        counts = Counter(gold)
    return score(gold, [majority_label(counts, labels)] * len(gold), labels)


def _codes(
    gold: Sequence[str], predicted: Sequence[str | None], labels: Sequence[str]
) -> tuple[Counts, Counts]:
    """Turn labels into positions; a missing prediction becomes position L."""
    known = {label: position for position, label in enumerate(labels)}
    if len(known) != len(labels):
        twice = [label for label, n in Counter(labels).items() if n > 1]
        raise ValueError(f"labels holds {twice[0]!r} more than once: name each label once.")
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} gold labels but {len(predicted)} predictions: give one of each per row."
        )
    if not gold:
        raise ValueError("There are 0 rows with a gold label: nothing can be scored.")
    _refuse_foreign("gold label", set(gold) - set(known), len(known))
    _refuse_foreign("prediction", set(predicted) - set(known) - {None}, len(known))
    rows = [known[label] for label in gold]
    columns = [len(known) if label is None else known[label] for label in predicted]
    return np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)


def _refuse_foreign(kind: str, foreign: set[str] | set[str | None], n_labels: int) -> None:
    if foreign:
        raise ValueError(
            f"{len(foreign)} distinct {kind} values are outside the {n_labels} labels of the task, "
            f"for example {min(foreign, key=repr)!r}. Add them to the labels; or leave such rows "
            "out (gold) or score them as None (prediction)."
        )


def _class_scores(confusion: Counts) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1, each of shape (L,), of a table of shape (L, L + 1)."""
    right = np.diagonal(confusion).astype(np.float64)
    n_gold, n_predicted = confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    precision = right / np.maximum(n_predicted, 1)
    recall = right / np.maximum(n_gold, 1)
    return precision, recall, 2 * right / np.maximum(n_gold + n_predicted, 1)


def _headline(draws: Counts, rows: Counts, columns: Counts, n_labels: int) -> tuple[Floats, Floats]:
    """Accuracy and macro-F1, each of shape (R,), of R tables given by their C cells.

    Args:
        draws: Shape (R, C), how often each cell was drawn.
        rows: Shape (C,), gold position of each cell.
        columns: Shape (C,), predicted position of each cell; L means no prediction.
        n_labels: L.
    """
    hit = rows == columns
    right = draws[:, hit] @ _indicator(rows[hit], n_labels)
    n_gold = draws @ _indicator(rows, n_labels)
    n_predicted = (draws @ _indicator(columns, n_labels + 1))[:, :-1]
    used = n_gold + n_predicted
    f1 = 2 * right / np.maximum(used, 1)
    return right.sum(axis=1) / draws.sum(axis=1), f1.sum(axis=1) / (used > 0).sum(axis=1)


def _indicator(positions: Counts, width: int) -> sparse.csr_array:
    """Shape (C, width), 1 where a cell belongs to a position."""
    ones = np.ones(len(positions), dtype=np.int64)
    return sparse.csr_array((ones, (np.arange(len(positions)), positions)), (len(positions), width))


def _resample(counts: Counts, n_resamples: int, seed: int) -> Counts:
    """Draw cell counts of the same total, shape (R, C): the bootstrap of the rows."""
    total = int(counts.sum())
    return np.random.default_rng(seed).multinomial(total, counts / total, size=n_resamples)


def percentiles(values: Floats, level: float) -> Interval:
    """Return the percentile interval of resampled scores; those that do not exist are left out.

    Args:
        values: Shape (R,), nan where a resample has no score.
        level: Coverage, in (0, 1).

    Returns:
        The interval; nan at both ends where no resample has a score.
    """
    found = values[np.isfinite(values)]
    if not len(found):
        return Interval(float("nan"), float("nan"))
    low, high = np.percentile(found, [50 * (1 - level), 50 * (1 + level)])
    return Interval(float(low), float(high))
