"""The tables of the report that say what is more than chance: tests, noise, slices, audit."""

from collections.abc import Sequence
from typing import Any

from jobs.reporting.paired import SELECTION_FOLDS
from jobs.reporting.scores import NAMES
from jobs.reporting.slices import NEAREST, STEPS
from jobs.reporting.tables import Cell, Table, plain
from jobs.reporting.words import best_of, interval_text, p_text

Rows = Sequence[dict[str, Any]]
WORST = 10  # records of an arm that the page lists
METRIC_NAMES = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def stars(p: float | None) -> str:
    """The usual marks of a p value: three below 0.001, two below 0.01, one below 0.05."""
    return next((mark for bound, mark in STARS if p is not None and p < bound), "")


def paired_table(rows: Rows) -> Table:
    """Paired tests of one task, two rows a pair."""
    headings = [
        *("arm", "against", "metric", "queries", "folds", "folds that lack a label"),
        *("difference", "mean of folds [95%]"),
        *("sd", "t", "p", "p, Holm", "", "noise floor", "below it", "only arm right"),
        *("only other right", "McNemar p", "p, Holm", "by", "note"),
    ]
    cells = [
        [
            *(Cell(plain(row[name])) for name in ("arm_a", "arm_b")),
            Cell(NAMES[row["metric"]]),
            *(_number(plain(row[name])) for name in ("n", "n_folds", "n_short_folds")),
            _number(f"{row['difference']:+.3f}"),
            _number(_mean(row)),
            *(_number(plain(row[name])) for name in ("sd", "t")),
            *(_number(p_text(row[name])) for name in ("p", "p_holm")),
            Cell(stars(row["p_holm"])),
            _number(plain(row["floor"])),
            Cell(plain(row["below_floor"])),
            *(_number(plain(row[name])) for name in ("mcnemar_b", "mcnemar_c")),
            *(_number(p_text(row[name])) for name in ("mcnemar_p", "mcnemar_p_holm")),
            Cell(plain(row["mcnemar_test"])),
            Cell(row["note"] or ""),
        ]
        for row in rows
    ]
    return Table(headings, cells)


def folds_note(rows: Rows) -> str:
    """What the folds of the tests are."""
    if any(row["folds"] == SELECTION_FOLDS for row in rows):
        return (
            "Selection folds: queries and corpus are dealt to folds that never split a group. For "
            "each, Stage 1 selects anew from the corpus without the fold's share, and what it "
            "selects answers the fold's queries alone; arms without Stage 1 have nothing to repeat."
        )
    return (
        "Query folds: the queries are dealt to folds that never split a group; arms are neither "
        "selected nor answered anew for each."
    )


def noise_table(rows: Rows) -> Table:
    """How repeats of one setting vary, one row a setting."""
    parts = ("mean", "sd", "range")
    told = {name: text for name, text in METRIC_NAMES.items() if _has(rows, f"{name}_mean")}
    if not told and rows:
        told = {"score": NAMES[rows[0]["metric"]]}
    names = [f"{metric}_{part}" for metric in told for part in parts]
    headings = [f"{text}, {part}" for text in told.values() for part in parts]
    cells = [
        [
            Cell(", ".join(row["arms"])),
            Cell(row["varies"]),
            _number(plain(row["n"])),
            *(_number(plain(row[name])) for name in names),
        ]
        for row in rows
    ]
    return Table(["repeats", "differ in", "arms", *headings], cells)


def slice_table(rows: list[dict[str, Any]], slices: Rows, differences: Rows) -> Table:
    """The score of each arm in each slice but those by class, and how the best arm differs.

    The score is accuracy, or the one that decides where answers are more than a label.

    Args:
        rows: Summary rows of one task.
        slices: Slice rows of the same task.
        differences: Slice differences of the same task.
    """
    key = "macro_f1" if _has(rows, "macro_f1") else "score"
    scored = [row for row in rows if row[key] is not None]
    found = {
        (row["arm"], row["slice"], row["value"]): row
        for row in slices
        if row["slice"] != "label" and row["n"] is not None
    }
    if not scored or not found:
        return Table([], [])
    best = best_of(rows) or max(scored, key=lambda row: row[key])
    arms = [row["arm"] for row in scored]
    mine = [row for row in differences if row["arm"] == best["arm"]]
    against = {(row["against"], row["slice"], row["value"]): row for row in mine}
    others = list(dict.fromkeys(row["against"] for row in mine))
    cells = [
        [
            *(Cell(name), Cell(value)),
            *(_share(found.get((arm, name, value))) for arm in arms),
            *(_gap(against.get((other, name, value))) for other in others),
        ]
        for name, value in sorted(dict.fromkeys(key[1:] for key in found), key=_nearness)
    ]
    gaps = [f"{best['arm']} minus {other} [95%]" for other in others]
    return Table(["slice", "value", *arms, *gaps], cells)


def audit_table(rows: Rows) -> Table:
    """The worst demonstrations of each arm: those that enough queries saw, suspect ones first."""
    headings = [
        *("arm", "demonstration", "label", "shown to", "scored", "accuracy [95%]"),
        *("otherwise", "suspect"),
    ]
    cells = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        judged = [r for r in rows if r["arm"] == arm and r["suspect"] is not None]
        worst = sorted(judged, key=lambda row: not row["suspect"])[:WORST]
        cells += [
            [
                *(Cell(plain(row[name])) for name in ("arm", "demonstration_id", "label")),
                *(_number(plain(row[name])) for name in ("n_shown", "n_scored")),
                _number(interval_text(row["accuracy"], row["low"], row["high"])),
                _number(plain(row["accuracy_otherwise"])),
                Cell(plain(row["suspect"])),
            ]
            for row in worst
        ]
    return Table(headings, cells)


def _nearness(key: tuple[str, str]) -> int:
    """Arms divide the queries by nearness differently; together the steps are in their order."""
    name, value = key
    return 1 + STEPS.index(value) if name == NEAREST and value in STEPS else 0


def _number(text: str) -> Cell:
    return Cell(text, number=True)


def _mean(row: dict[str, Any]) -> str:
    if row["low"] is None:
        return plain(row["mean_difference"])
    return interval_text(row["mean_difference"], row["low"], row["high"], sign="+")


def _share(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return _number("-")
    value = row["score"] if row["accuracy"] is None else row["accuracy"]
    return Cell(f"{value:.3f} of {row['n']:,}", number=True, shade=value)


def _gap(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return _number("-")
    gap = row["accuracy_difference"]
    gap = row["score_difference"] if gap is None else gap
    return _number(interval_text(gap, row["low"], row["high"], sign="+"))


def _has(rows: Rows, name: str) -> bool:
    return any(row[name] is not None for row in rows)
