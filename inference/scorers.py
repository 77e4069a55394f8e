"""Canonical answers of a kind beyond one label to counts, scores and a verdict per row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inference import set_scores, span_scores
from inference.entities import Span, from_json, locate
from inference.kinds import HEADLINES
from inference.sql_results import Gold, judge, run_gold
from inference.sql_sandbox import Limits, Sandbox
from inference.status import Status
from inference.tallies import Counts, Floats, Statistic, ratio
from inference.tasks import Kind, Task

SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")


class Answer(NamedTuple):
    """One row to be scored.

    Attributes:
        input: Its text, in which entities are located.
        gold: The canonical gold answer.
        predicted: The canonical prediction, or None.
        database: Names the SQLite file of a query.
    """

    input: str
    gold: str
    predicted: str | None
    database: str | None = None


class Verdict(NamedTuple):
    """What came of one row.

    Attributes:
        score: The row's own: F1 of its entities, 1 or 0 for a set or a query; None: not scored.
        status: `sql_error` or `timeout` of the prediction, else ok.
        detail: Why that status, why it is not scored, or what the score leaves out.
    """

    score: float | None
    status: Status = Status.OK
    detail: str = ""


@dataclass(frozen=True)
class Scored:
    """Counts that add up to scores.

    Attributes:
        counts: Shape (m, c), of the m rows that could be scored.
        kept: Their positions among the rows given, ascending.
        verdicts: One per row given.
        statistics: Scores by name, over sums of counts.
        headline: The name of the one that decides.
        classes: Names of the classes.
        by_class: Figures of each class by the name of the slice, over sums of counts.
    """

    counts: Counts
    kept: list[int]
    verdicts: list[Verdict]
    statistics: Mapping[str, Statistic]
    headline: str
    classes: Sequence[str] = ()
    by_class: Mapping[str, Callable[[Floats], dict[str, Floats]]] = field(default_factory=dict)


def score_answers(task: Task, rows: Sequence[Answer], *, databases: Path | None = None) -> Scored:
    """Score the rows of one arm.

    Args:
        task: Of kind `multi-label`, `ner` or `sql`.
        rows: Rows with a gold answer.
        databases: Folder of the SQLite files, for `sql`.

    Returns:
        Counts, scores and verdicts. A prediction that is None is wrong, not left out; a gold
        query that does not run leaves its row out and says so.
    """
    return SCORERS[task.kind](task, rows, databases)


def database_file(folder: Path, name: str | None) -> Path:
    """Find the SQLite file that a row names.

    Raises:
        ValueError: No name, a name that leaves the folder, or no such file.
    """
    if not name:
        raise ValueError("the row names no database")
    if Path(name).name != name or name in (".", ".."):
        raise ValueError(f"database {name!r} is no plain name")
    for suffix in ("", *SQLITE_SUFFIXES):
        path = folder / (name + suffix)
        if path.is_file():
            return path
    raise ValueError(f"database {name!r} has no file in {folder} ({', '.join(SQLITE_SUFFIXES)})")


def _score_sets(task: Task, rows: Sequence[Answer], _: Path | None) -> Scored:
    separator = task.label_separator.strip()
    pairs = [
        (
            row.gold.split(separator),
            None if row.predicted is None else row.predicted.split(separator),
        )
        for row in rows
    ]
    n = len(task.labels)
    counts = set_scores.set_counts(pairs, task.labels)
    return Scored(
        counts,
        list(range(len(rows))),
        [Verdict(float(exact)) for exact in counts[:, -2]],
        set_scores.set_statistics(n),
        HEADLINES[task.kind],
        task.labels,
        {"label": lambda sums: set_scores.by_label(sums, n)},
    )


def _score_entities(task: Task, rows: Sequence[Answer], _: Path | None) -> Scored:
    n = len(task.labels)
    placed = [_placed(row) for row in rows]
    counts = span_scores.span_counts([answered for answered, _ in placed], task.labels)
    statistics = span_scores.span_statistics(n)
    own = statistics["strict_micro_f1"](counts.astype(np.float64))
    # Nothing to find and nothing found is right; no answer is not.
    answered = np.array([one.is_there for one, _ in placed], dtype=bool)
    own = np.where(answered & (counts[:, : 2 * n].sum(axis=1) == 0), 1.0, own)
    return Scored(
        counts,
        list(range(len(rows))),
        [Verdict(float(f1), detail=note) for f1, (_, note) in zip(own, placed, strict=True)],
        statistics,
        HEADLINES[task.kind],
        task.labels,
        {
            "strict span": lambda sums: span_scores.by_type(sums, "strict", n),
            "relaxed span": lambda sums: span_scores.by_type(sums, "relaxed", n),
        },
    )


def _placed(row: Answer) -> tuple[span_scores.Answered, str]:
    """A row with its entities located, and a note on those that were not."""
    gold = [
        Span(one.start, one.end, one.type)
        for one in from_json(row.gold)
        if one.start is not None and one.end is not None
    ]
    found = locate(from_json(row.predicted or "[]"), row.input)
    notes = []
    if found.missing:
        notes.append(f"{len(found.missing)} not in the text: {found.missing[0].text[:40]!r}")
    if found.n_repeated:
        notes.append(f"{found.n_repeated} said again")
    missing = [one.type for one in found.missing]
    is_there = row.predicted is not None
    return span_scores.Answered(row.input, gold, found.spans, missing, is_there), ", ".join(notes)


def _score_queries(task: Task, rows: Sequence[Answer], databases: Path | None) -> Scored:
    judges = _Judges(databases)
    try:
        judged = [judges.judge(row) for row in rows]
    finally:
        judges.close()
    kept = [at for at, (verdict, _) in enumerate(judged) if verdict.score is not None]
    counts = [[int(judged[at][0].score or 0), int(judged[at][1]), 1] for at in kept]
    return Scored(
        np.array(counts, np.int64).reshape(-1, 3),
        kept,
        [verdict for verdict, _ in judged],
        {
            "execution_accuracy": lambda sums: ratio(sums[..., 0], sums[..., 2]),
            "execution_accuracy_unordered": lambda sums: ratio(sums[..., 1], sums[..., 2]),
        },
        HEADLINES[task.kind],
    )


class _Judges:
    """Open databases, and what gold queries return in them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._open: dict[Path, Sandbox] = {}
        self._gold: dict[tuple[Path, str], Gold] = {}

    def judge(self, row: Answer) -> tuple[Verdict, bool]:
        """The verdict on a row, and whether the results are equal in any order."""
        if self._folder is None:
            return Verdict(None, detail="no folder of databases is given"), False
        try:
            path = database_file(self._folder, row.database)
            if path not in self._open:
                self._open[path] = Sandbox(path, Limits())
        except ValueError as error:
            return Verdict(None, detail=str(error)), False
        key = (path, row.gold)
        if key not in self._gold:
            self._gold[key] = run_gold(self._open[path], row.gold)
        gold = self._gold[key]
        if gold.rows is None:
            return Verdict(None, detail=f"the gold query does not run: {gold.detail}"), False
        if row.predicted is None:
            return Verdict(0.0), False
        found = judge(self._open[path], row.predicted, gold)
        return Verdict(float(found.same), found.status, found.detail), found.same_unordered

    def close(self) -> None:
        for sandbox in self._open.values():
            sandbox.close()


SCORERS: dict[Kind, Callable[[Task, Sequence[Answer], Path | None], Scored]] = {
    "multi-label": _score_sets,
    "ner": _score_entities,
    "sql": _score_queries,
}
