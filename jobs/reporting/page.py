"""The report: one self-contained page that asks nothing of the network."""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from jobs.reporting import orders
from jobs.reporting.answer_pictures import class_picture, outcome_picture, score_picture
from jobs.reporting.charts import (
    confusion_heatmap,
    label_coverage,
    metric_bars,
    sweep_lines,
    umap_map,
)
from jobs.reporting.evidence import audit_table, folds_note, noise_table, paired_table, slice_table
from jobs.reporting.model import CandidateMap, Coverage, ReportModel
from jobs.reporting.outcomes import outcome_counts, outcome_table
from jobs.reporting.scores import (
    difference_table,
    goes_by_scores,
    score_headline,
    score_table,
    type_table,
)
from jobs.reporting.sweeps import Sweep, alt_text, caption, majority_of, panels_of
from jobs.reporting.table1 import NOTE as TABLE1_NOTE
from jobs.reporting.table1 import is_wanted, table1, table1_rows
from jobs.reporting.tables import (
    EPR,
    REJECTED,
    STAGE1,
    Table,
    candidates_table,
    class_table,
    cost_table,
    example_table,
    keyed_table,
    metric_table,
    plain,
    status_table,
)
from jobs.reporting.violins import violins
from jobs.reporting.words import best_of, headline, records

MAX_TEXT = 20_000


@dataclass(frozen=True)
class Picture:
    """One picture of the page.

    Attributes:
        name: File name, unique within the report, safe on every file system.
        section: `metrics`, `confusion`, `orders`, `sweeps`, `map` or `coverage`.
        task: Task it belongs to; empty for pictures of the corpus.
        png: The picture.
        alt: What it shows, for those who do not see it.
        caption: How to read it.
    """

    name: str
    section: str
    task: str
    png: bytes
    alt: str
    caption: str

    @property
    def data_uri(self) -> str:
        """The picture as an address that needs no file."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def build_page(model: ReportModel, pictures: Sequence[Picture] | None = None) -> str:
    """Write the page.

    Args:
        model: What it shows.
        pictures: Those of `draw_pictures(model)`, where the caller has them; None: drawn here.

    Returns:
        HTML, encodable as UTF-8. Every text is escaped, a content security policy forbids every
        request, pictures are inlined.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shortened"] = shortened
    source = files("jobs.reporting").joinpath("template.html").read_text(encoding="utf-8")
    rows = records(model.summary)
    page = environment.from_string(source).render(
        model=model,
        tasks=[_task(model, task) for task in dict.fromkeys(row["task"] for row in rows)],
        pictures=draw_pictures(model) if pictures is None else pictures,
        candidate_notes=_candidate_notes(model),
        **_shared_tables(model),
        notes=[(row["arm"], note) for row in rows for note in _list(row["notes"])],
        samples={s.arm: [x for x in model.samples if x.arm == s.arm] for s in model.samples},
        table1_note=TABLE1_NOTE,
        folds_note=folds_note(records(model.paired_tests)),
        plain=plain,
    )
    return page.lstrip().encode("utf-8", "replace").decode()  # lone surrogates


def draw_pictures(model: ReportModel) -> list[Picture]:
    """Draw every picture that the model has data for.

    Args:
        model: What the page shows.

    Returns:
        The pictures in the order of the page.
    """
    rows = records(model.summary)
    drawn = []
    for number, task in enumerate(dict.fromkeys(row["task"] for row in rows), 1):
        mine = [row for row in rows if row["task"] == task and row["macro_f1"] is not None]
        if mine:
            drawn.append(_metrics_picture(f"metrics-{number}.png", task, mine))
            drawn.append(_confusion_picture(f"confusion-{number}.png", task, mine, model))
        drawn += _order_pictures(f"orders-{number}.png", task, model)
        drawn += _answer_pictures(number, task, model)
    for number, sweep in enumerate(model.sweeps, 1):
        drawn.append(_sweep_picture(f"sweep-{number}.png", sweep))
    for number, one in enumerate(model.maps, 1):
        if one.candidates:
            drawn.append(_map_picture(f"map-{number}.png", one))
    for number, coverage in enumerate(model.coverage, 1):
        if coverage.corpus and coverage.candidates:
            drawn.append(_coverage_picture(f"coverage-{number}.png", coverage))
    return drawn


def page_tables(model: ReportModel) -> dict[str, Table]:
    """Every table of the page that has rows, by name; those of a task carry its number.

    Args:
        model: What the page shows.

    Returns:
        Tables such as `table1`, `cost`, `metrics-1`, `tests-1`, in no particular order.
    """
    found = _shared_tables(model)
    tasks = dict.fromkeys(row["task"] for row in records(model.summary))
    for number, task in enumerate(tasks, 1):
        parts = _task(model, task).items()
        found |= {f"{name}-{number}": part for name, part in parts if isinstance(part, Table)}
    return {name: table for name, table in found.items() if table.rows}


def shortened(text: str) -> str:
    """A text of at most `MAX_TEXT` characters, which says so where it was cut."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[... cut: {len(text):,} characters in all]"


def _shared_tables(model: ReportModel) -> dict[str, Table]:
    """The tables that are of no single task."""
    rows = records(model.summary)
    return {
        "table1": _table1(model),
        "cost": cost_table(rows),
        "statuses": status_table(rows),
        "stage1": keyed_table(model.stage1, STAGE1),
        "epr": keyed_table(model.epr, EPR),
        "candidates": candidates_table(records(model.candidates)),
        "rejected": keyed_table(model.rejected, REJECTED),
        "examples": example_table(model.rejected_examples),
    }


def _task(model: ReportModel, task: str) -> dict[str, Any]:
    def of_task(table: pd.DataFrame) -> list[dict[str, Any]]:
        return [row for row in records(table) if row["task"] == task]

    mine, slices, tests = of_task(model.summary), of_task(model.slices), of_task(model.paired_tests)
    shared = {
        "tests": paired_table(tests),
        "noise": noise_table(of_task(model.noise)),
        "slices": slice_table(mine, slices, of_task(model.slice_differences)),
        "audit": audit_table(of_task(model.audit)),
        "order_spread": orders.spread_table(of_task(model.order_spread)),
        "orders": orders.order_table(of_task(model.orders)),
    }
    if goes_by_scores(mine):
        scores, counts = of_task(model.scores), _outcomes(model, task)
        classes = outcome_table(counts) if counts else type_table(slices)
        return {
            "name": task,
            "best": classes.rows,
            "headline": score_headline(mine, scores, tests),
            "metrics": score_table(scores),
            "differences": difference_table(scores),
            "classes": classes,
            **shared,
        }
    return {
        "name": task,
        "best": best_of(mine),
        "headline": headline(mine, of_task(model.comparisons), tests),
        "metrics": metric_table(mine),
        "differences": Table([], []),
        "classes": class_table(mine, slices),
        **shared,
    }


def _table1(model: ReportModel) -> Table:
    tests, scores = records(model.paired_tests), records(model.scores)
    rows = table1_rows(records(model.summary), tests, scores=scores)
    return table1(rows) if is_wanted(rows) else Table([], [])


def _metrics_picture(name: str, task: str, rows: list[dict[str, Any]]) -> Picture:
    metrics = {
        title: [
            (row[key], row[f"{key}_low"], row[f"{key}_high"], row[f"majority_{key}"])
            for row in rows
        ]
        for title, key in (("accuracy", "accuracy"), ("macro-F1", "macro_f1"))
    }
    figures = "; ".join(f"{r['arm']} {r['accuracy']:.3f} and {r['macro_f1']:.3f}" for r in rows)
    return Picture(
        name,
        "metrics",
        task,
        metric_bars([row["arm"] for row in rows], metrics),
        f"Bars of accuracy and macro-F1 by arm: {figures}.",
        "Bars are the scores, whiskers their 95% bootstrap intervals over the queries, dashed "
        "lines the scores of always answering the majority label.",
    )


def _answer_pictures(number: int, task: str, model: ReportModel) -> list[Picture]:
    """Those of a task whose answer is more than one label."""
    if not goes_by_scores([row for row in records(model.summary) if row["task"] == task]):
        return []
    scores, slices = (
        [row for row in records(table) if row["task"] == task]
        for table in (model.scores, model.slices)
    )
    by_class = [row for row in slices if row["support"] is not None]
    drawn = {
        "metrics": score_picture(scores),
        "confusion": outcome_picture(_outcomes(model, task)) or class_picture(by_class),
    }
    names = {"metrics": f"metrics-{number}.png", "confusion": f"classes-{number}.png"}
    return [Picture(names[key], key, task, *one) for key, one in drawn.items() if one]


def _outcomes(model: ReportModel, task: str) -> dict[str, Counter[str]]:
    answers, scores = (
        [row for row in records(table) if row["task"] == task]
        for table in (model.answers, model.scores)
    )
    return outcome_counts(answers, scores)


def _confusion_picture(
    name: str, task: str, rows: list[dict[str, Any]], model: ReportModel
) -> Picture:
    best = best_of(rows)
    assert best is not None  # rows are scored
    labels = [r["value"] for r in _of_arm(model.slices, best) if r["slice"] == "label"]
    place = {label: position for position, label in enumerate([*labels, None])}
    confusion = np.zeros((len(labels), len(labels) + 1), dtype=np.int64)
    for row in _of_arm(model.confusion, best):
        confusion[place[row["gold"]], place[row["predicted"]]] += row["n"]
    right, total = int(np.trace(confusion)), int(confusion.sum())
    return Picture(
        name,
        "confusion",
        task,
        confusion_heatmap(confusion, labels),
        f"Confusion table of {best['arm']}: {right} of {total} queries on the diagonal, "
        f"{int(confusion[:, -1].sum())} without a prediction.",
        f"Confusion of {best['arm']}. Numbers are queries, shades their share of the row; what is "
        "off the diagonal is wrong, and so is the last column.",
    )


def _of_arm(table: Any, arm: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in records(table) if (row["task"], row["arm"]) == (arm["task"], arm["arm"])]


def _order_pictures(name: str, task: str, model: ReportModel) -> list[Picture]:
    """The violins of a task, where orders were tried."""
    rows, spread = (
        [row for row in records(table) if row["task"] == task]
        for table in (model.orders, model.order_spread)
    )
    if not spread:
        return []
    png = violins(orders.violins_of(rows, spread))
    return [Picture(name, "orders", task, png, orders.alt_text(spread), orders.caption(spread))]


def _sweep_picture(name: str, sweep: Sweep) -> Picture:
    png = sweep_lines(sweep.setting, panels_of(sweep), majority_of(sweep))
    return Picture(name, "sweeps", sweep.task, png, alt_text(sweep), caption(sweep))


def _map_picture(name: str, one: CandidateMap) -> Picture:
    how = one.projection.method
    reason = f" PCA, because {one.projection.note}." if one.projection.note else ""
    return Picture(
        name,
        "map",
        "",
        umap_map(one.projection.points, one.labels, one.candidates),
        f"{how} map of {len(one.labels):,} corpus rows with the candidates of "
        f"{', '.join(one.candidates)}.",
        f"{how} of the vectors of encoder {one.encoder}: a sample of {one.n_sampled:,} of "
        f"{one.n_corpus:,} corpus rows and all candidates (ringed), in one common projection. The "
        "ten most frequent labels on the map have a colour. Distances between far groups mean "
        f"little.{reason}",
    )


def _coverage_picture(name: str, coverage: Coverage) -> Picture:
    n = len(coverage.corpus)
    covered = "; ".join(
        f"{method} {sum(counts.get(label, 0) > 0 for label in coverage.corpus)} of {n} labels"
        for method, counts in coverage.candidates.items()
    )
    return Picture(
        name,
        "coverage",
        "",
        label_coverage(coverage.corpus, coverage.candidates),
        f"Labels with at least one candidate: {covered}.",
        f"Candidates by label (encoder {coverage.encoder}): bars and numbers are the candidates, "
        f"ticks the share of the label in the corpus. Covered: {covered}.",
    )


def _candidate_notes(model: ReportModel) -> list[str]:
    """Why measures of candidates are missing, each reason once with the methods it holds for."""
    found: dict[str, list[str]] = {}
    for row in records(model.candidates):
        for note in _list(row["notes"]):
            methods = found.setdefault(note, [])
            methods += [row["stage1"]] if row["stage1"] not in methods else []
    return [f"{', '.join(methods)}: {note}" for note, methods in found.items()]


def _list(value: Any) -> list[str]:
    return [] if value is None else [str(part) for part in value]
