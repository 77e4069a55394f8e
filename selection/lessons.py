"""What a learned map is trained on: which records helped the LLM with which rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from selection.arrays import Bool, Float32, Float64, Int64, UInt64, require_per_row, require_vectors
from selection.info_nce import Batch
from selection.tiles import blocks


@dataclass(frozen=True)
class Lessons:
    """Rows, records, and how records count for rows.

    Attributes:
        rows: (m, d) float32 unit vectors, embedded as queries are.
        records: (n, d) float32 unit vectors of the pool.
        keys: (m,) uint64, all different: they put the rows in order and into batches.
        tie_rank: (n,) int64, the rank of each record's id among the ids.
        positives: (m, p) int64 into the records, those that helped; -1 behind the last.
        negatives: (m, h) int64, those that helped least; -1 behind the last.
        open: (m, n) bool, records that may count against a row when another row brings them along.
    """

    rows: Float32
    records: Float32
    keys: UInt64
    tie_rank: Int64
    positives: Int64
    negatives: Int64
    open: Bool

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, rows: slice | Int64) -> Lessons:
        """Return some of the rows, with all records."""
        names = ("rows", "keys", "positives", "negatives", "open")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def chosen(
    candidates: Int64, scores: Float64, *, tie_rank: Int64, positives: int, negatives: int
) -> tuple[Int64, Int64]:
    """Take the candidates that helped each row most, and those that helped least.

    Of v scored candidates at most half are positives. A row teaches nothing, and has none of
    either, unless its last positive scores above its first negative.

    Args:
        candidates: (m, c) int64 into the pool, -1 behind the last.
        scores: (m, c) float64, larger is better; not finite where the LLM gave none.
        tie_rank: (n,) int64; of equal scores the smaller rank counts as better.
        positives: Wanted for each row, at least 1.
        negatives: Wanted for each row, at least 1.

    Returns:
        (m, positives) and (m, negatives) int64, -1 behind the last; O(m c log c) time.

    Raises:
        ValueError: Shapes that do not fit, or numbers below 1.
    """
    if positives < 1 or negatives < 1:
        raise ValueError(
            f"epr: found {positives} positives and {negatives} negatives, wanted at least 1 of each"
        )
    require_per_row("epr.scores", scores, candidates.shape)
    best = np.full((len(candidates), positives), -1, dtype=np.int64)
    worst = np.full((len(candidates), negatives), -1, dtype=np.int64)
    for row in range(len(candidates)):
        known = np.flatnonzero((candidates[row] >= 0) & np.isfinite(scores[row]))
        order = known[np.lexsort((tie_rank[candidates[row, known]], -scores[row, known]))]
        n_best = min(positives, len(order) // 2)
        n_worst = min(negatives, len(order) - n_best)
        if not n_best or scores[row, order[n_best - 1]] <= scores[row, order[-n_worst]]:
            continue
        best[row, :n_best] = candidates[row, order[:n_best]]
        worst[row, :n_worst] = candidates[row, order[-n_worst:]]
    return best, worst


def in_order(lessons: Lessons) -> Lessons:
    """Return the rows that teach something by their keys, and the records by their tie ranks.

    Args:
        lessons: In any order.

    Returns:
        The same lessons, whatever the order they came in.

    Raises:
        ValueError: Shapes that do not fit, or no row with a positive and a negative.
    """
    lessons = _checked(lessons)
    order = np.argsort(lessons.tie_rank, kind="stable")
    place = np.append(np.argsort(order, kind="stable"), -1)  # the last entry answers for -1
    lessons = replace(
        lessons,
        records=lessons.records[order],
        tie_rank=np.arange(len(order)),
        positives=place[lessons.positives],
        negatives=place[lessons.negatives],
        open=lessons.open[:, order],
    )
    both = np.stack(
        [lessons.positives.max(axis=1, initial=-1), lessons.negatives.max(axis=1, initial=-1)]
    )
    teaches = np.min(both, axis=0) >= 0
    if not teaches.any():
        raise ValueError(
            f"epr: found {len(lessons)} rows, none with a positive and a negative; wanted one"
        )
    by_key = np.argsort(lessons.keys, kind="stable")
    kept: Int64 = by_key[teaches[by_key]]
    return lessons[kept]


def batches_of(lessons: Lessons, size: int) -> list[Batch]:
    """Cut rows that are `in_order` into batches of `size`, the last one smaller."""
    return [_batch(lessons[part]) for part in blocks(len(lessons), size)]


def _batch(lessons: Lessons) -> Batch:
    """The records that these rows bring along, and how each counts for each row."""
    m, n = len(lessons), len(lessons.records)
    marks = np.zeros((2, m, n + 1), dtype=np.bool_)  # the last column takes the -1
    for mark, places in zip(marks, (lessons.positives, lessons.negatives), strict=True):
        mark[np.arange(m)[:, None], places] = True
    positive, own = marks[0, :, :n], marks[1, :, :n]
    used = np.flatnonzero((positive | own).any(axis=0))
    positive, own = positive[:, used], own[:, used]
    return Batch(
        rows=lessons.rows.astype(np.float64),
        records=lessons.records[used].astype(np.float64),
        positive=positive,
        negative=(own | lessons.open[:, used]) & ~positive,
    )


def _checked(lessons: Lessons) -> Lessons:
    records = require_vectors("epr.records", lessons.records)
    rows = require_vectors("epr.rows", lessons.rows, dim=records.shape[1])
    m, n = len(rows), len(records)
    require_per_row("epr.keys", lessons.keys, (m,))
    require_per_row("epr.tie_rank", lessons.tie_rank, (n,))
    require_per_row("epr.open", lessons.open, (m, n))
    for name in ("positives", "negatives"):
        places = getattr(lessons, name)
        if places.ndim != 2 or len(places) != m or not ((places >= -1) & (places < n)).all():
            raise ValueError(
                f"epr.{name}: found shape {places.shape}, wanted ({m}, any) of -1 to {n - 1}"
            )
    return replace(lessons, rows=rows, records=records)
