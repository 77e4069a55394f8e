"""Table 1 of the paper: methods by data sets, LLM under LLM, each method beside a baseline."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from inference.kinds import TESTED
from jobs.reporting.evidence import METRIC_NAMES, stars
from jobs.reporting.scores import NAMES, goes_by_scores
from jobs.reporting.tables import Cell, Table, plain

Rows = Sequence[dict[str, Any]]
Row = dict[str, Any]
KEY = ("engine", "encoder", "task", "method")
GRID_KEY = ("task", "engine", "encoder")
GRID = tuple(f"{key}=" for key in GRID_KEY)
# What a grid repeats one method over.
REPEATS = ("seed=", "repeat=")
BELOW_FLOOR = "\N{DEGREE SIGN}"
NOTE = (
    "Diff: the mean difference to the baseline over the folds; stars by its paired t-test, "
    "p after Holm's correction for all tests of the task in its run: * below 0.05, ** 0.01, *** "
    f"0.001. {BELOW_FLOOR}: not above the noise floor of repeats. Majority label: always "
    "answering it. Shaded: the best of an LLM and encoder. A dash: not measured."
)

TABLE1_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in (*KEY, "arm", "metric")),
        ("n_scored", pa.int64()),
        *((name, pa.float64()) for name in ("value", "low", "high", "majority")),
        ("against", pa.string()),
        *((name, pa.float64()) for name in ("mean_difference", "p_holm")),
        ("below_floor", pa.bool_()),
    ]
)


def method_of(arm: str) -> str:
    """The name of an arm without what a grid over task, engine or encoder added to it."""
    return "+".join(part for part in arm.split("+") if not part.startswith(GRID))


def baseline_of(arm: str) -> str:
    """The method that an arm is as a baseline: its repeats are each the baseline of their twins."""
    return "+".join(part for part in method_of(arm).split("+") if not part.startswith(REPEATS))


def line_of(row: Row) -> tuple[str, ...]:
    """Task, engine, encoder and method of a summary row: rows equal in these are one line."""
    return (*(row[key] for key in GRID_KEY), method_of(row["arm"]))


def table1_rows(
    summary: Rows, tests: Rows, *, scores: Rows = (), against: str | None = None
) -> list[Row]:
    """Every score with its difference to the baseline, one row each.

    Args:
        summary: Summary rows of any number of tasks, encoders and engines; names of arms are
            unique within task, encoder and engine.
        tests: Their paired tests.
        scores: Their scores, which tasks are shown by whose answer is more than one label.
        against: Method that the others are compared with; None: of those that were tested
            against, the one in the most tests, random selection before others.

    Returns:
        Rows of `TABLE1_SCHEMA`, in the order of `summary`. A method that was not tested against
        the baseline, or is it, has no difference.
    """
    wanted = usual_baseline(summary, tests) if against is None else against
    compared = _differences(tests, wanted)
    own: dict[tuple[str, ...], list[Row]] = {}
    for row in scores:
        if not row["against"]:
            place = tuple(row[key] for key in ("task", "encoder", "engine", "arm"))
            own.setdefault(place, []).append(row)
    # Arms that are called alike but for what a grid adds keep their whole names.
    n_alike = Counter(line_of(row) for row in summary)
    rows = []
    for row in summary:
        fields = {key: row[key] for key in ("task", "encoder", "engine", "arm", "n_scored")}
        fields |= {"method": row["arm"] if n_alike[line_of(row)] > 1 else method_of(row["arm"])}
        place = tuple(row[key] for key in ("task", "encoder", "engine", "arm"))
        figures_by_metric = figures_of(row) | _tested(own.get(place, ()))
        for metric, figures in figures_by_metric.items():
            found = compared.get((*place, metric), {})
            rows.append(fields | {"metric": metric} | figures | found)
    return rows


def usual_baseline(summary: Rows, tests: Rows) -> str | None:
    """The method that most tests are against, random selection before others; None of no tests."""
    random = {baseline_of(row["arm"]) for row in summary if row.get("stage1") == "random"}
    counts = Counter(baseline_of(row["arm_b"]) for row in tests)
    return max(counts, key=lambda name: (name in random, counts[name]), default=None)


def table1(rows: Rows) -> Table:
    """Lay the rows out as the paper does.

    Args:
        rows: Those of `table1_rows`.

    Returns:
        A block for each engine and encoder: the majority label, then each method, and below it
        its difference to the baseline. Two columns a task, one where it has one score.
    """
    columns = list(dict.fromkeys((row["task"], row["metric"]) for row in rows))
    blocks = list(dict.fromkeys((row["engine"], row["encoder"]) for row in rows))
    shown = [at for at in (0, 1) if len({block[at] for block in blocks}) > 1]
    cells = []
    for block in blocks:
        mine = [row for row in rows if (row["engine"], row["encoder"]) == block]
        names = [Cell(block[at]) for at in shown]
        cells += [[*names, *line] for line in _block(mine, columns)]
    titles = [f"{task}: {NAMES[metric]}" for task, metric in columns]
    return Table([*(("LLM", "encoder")[at] for at in shown), "method", *titles], cells)


def figures_of(row: Row) -> dict[str, Row]:
    """The scores of an arm: accuracy and macro-F1, or the one that decides for its task."""
    if goes_by_scores([row]):
        names = {"value": "score", "low": "score_low", "high": "score_high"}
        return {row["metric"]: {key: row[name] for key, name in names.items()}}
    return {
        metric: {
            **{"value": row[metric], "majority": row[f"majority_{metric}"]},
            **{part: row[f"{metric}_{part}"] for part in ("low", "high")},
        }
        for metric in METRIC_NAMES
    }


def _tested(scores: Rows) -> dict[str, Row]:
    """Of an arm's scores those that arms are tested in; of labels, accuracy and macro-F1 are."""
    found = {row["metric"]: {key: row[key] for key in ("value", "low", "high")} for row in scores}
    tested = [names for names in TESTED.values() if names != tuple(METRIC_NAMES)]
    names = next((names for names in tested if set(names) <= set(found)), ())
    return {name: found[name] for name in names}


def is_wanted(rows: Rows) -> bool:
    """Whether there is more than one task or engine, which the table exists to join."""
    return any(len({row[key] for row in rows}) > 1 for key in ("task", "engine"))


def _differences(tests: Rows, against: str | None) -> dict[tuple[str, ...], Row]:
    """What the tests say of each arm and metric beside the baseline, whichever came first."""
    found: dict[tuple[str, ...], Row] = {}
    for row in tests:
        for arm, other, sign, own in (
            ("arm_a", "arm_b", 1, ("encoder", "engine")),
            ("arm_b", "arm_a", -1, ("encoder_b", "engine_b")),
        ):
            if against not in (method_of(row[other]), baseline_of(row[other])):
                continue
            # Metrics of an earlier version do not say it of the second arm.
            where = [row.get(key, row[key.removesuffix("_b")]) for key in own]
            place = (row["task"], *where, row[arm], row["metric"])
            difference = row["mean_difference"]
            told = {name: row[name] for name in ("p_holm", "below_floor")}
            told["mean_difference"] = difference if difference is None else sign * difference
            found.setdefault(place, told | {"against": row[other]})
    return found


def _block(rows: Rows, columns: Sequence[tuple[str, str]]) -> list[list[Cell]]:
    place = {(row["method"], row["task"], row["metric"]): row for row in rows}
    best = {
        column: _best(r for r in rows if (r["task"], r["metric"]) == column) for column in columns
    }
    majority = [_majority([r for r in rows if (r["task"], r["metric"]) == c]) for c in columns]
    lines = [[Cell("majority label"), *majority]] if any(r.get("majority") for r in rows) else []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [place.get((method, *column)) for column in columns]
        scores = [_score(row, best[c]) for row, c in zip(mine, columns, strict=True)]
        lines.append([Cell(method), *scores])
        if any(row and row.get("against") for row in mine):
            lines.append([Cell(_diff_title(mine)), *(_difference(row) for row in mine)])
    return lines


def _diff_title(rows: Iterable[Row | None]) -> str:
    named = dict.fromkeys(baseline_of(r["against"]) for r in rows if r and r.get("against"))
    return f"Diff to {', '.join(named)}"


def _best(rows: Iterable[Row]) -> float | None:
    return max((row["value"] for row in rows if row["value"] is not None), default=None)


def _majority(rows: Rows) -> Cell:
    known = [row["majority"] for row in rows if row.get("majority") is not None]
    return Cell(plain(known[0] if known else None), number=True)


def _score(row: Row | None, best: float | None) -> Cell:
    value = row["value"] if row else None
    shade = 0.5 if value is not None and value == best else 0.0
    return Cell(plain(value), number=True, shade=shade)


def _difference(row: Row | None) -> Cell:
    if row is None or row.get("mean_difference") is None:
        return Cell("-", number=True)
    mark = stars(row["p_holm"]) + (BELOW_FLOOR if row["below_floor"] else "")
    return Cell(f"{row['mean_difference']:+.3f}{mark}", number=True)
