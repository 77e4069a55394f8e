"""The tables of the report: metric rows in, headings and formatted cells out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inference.status import Status
from jobs.reporting.words import best_of, with_interval

Format = Callable[[Any], str]


@dataclass(frozen=True)
class Cell:
    """One cell: its text, whether it is a figure, and a shade between 0 and 1."""

    text: str
    number: bool = False
    shade: float = 0.0


@dataclass(frozen=True)
class Table:
    """Headings and rows of cells, as many cells in a row as headings."""

    headings: list[str]
    rows: list[list[Cell]]


def plain(value: Any) -> str:
    """Any value as text: figures with 3 decimals, counts with thousands marks, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {plain(part)}" for key, part in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.1e}"
    return str(value)


def _count(value: Any) -> str:
    return "-" if value is None else f"{round(value):,}"


def _tenth(value: Any) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _percent(value: Any) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


IDENTITY = {
    "task": "task",
    "encoder": "encoder",
    "engine": "engine",
    "order": "order",
    "layout": "layout",
}
CHOICES = {"stage1": "Stage 1", "k1": "k1", "stage2": "Stage 2", "k": "k"}
COST: dict[str, tuple[str, Format]] = {
    "demonstrations_mean": ("demonstrations, mean", _tenth),
    "prompt_tokens_mean": ("prompt tokens, mean", _tenth),
    "prompt_tokens_p95": ("prompt tokens, p95", _count),
    "cached_token_share": ("prompt tokens cached", _percent),
    "engine_s_p50": ("engine s, p50", plain),
    "engine_s_p95": ("engine s, p95", plain),
    "queue_s_p95": ("queue s, p95", plain),
    "rows_per_s": ("rows/s", _tenth),
    "tokens_per_s": ("tokens/s", _tenth),
}
STAGE1 = {
    "method": "method",
    "fold": "fold",
    "encoder": "encoder",
    "mode": "mode",
    "merge_mode": "mode of the merge",
    "N": "rows to choose from",
    "excluded": "excluded",
    "given": "given rows, annotated or pending",
    "k1": "k1 asked",
    "k1_used": "k1 used",
    "lambda": "lambda",
    "lambda_rule": "lambda rule",
    "lambda_scale": "lambda scale",
    "ridge": "ridge",
    "objective": "objective f",
    "coverage": "coverage C",
    "diversity": "diversity D",
    "merged_objective": "merged f",
    "best_local_objective": "best local f",
    "random_objective": "random control f",
    "random_merged_objective": "random candidates, merged f",
    "certificate": "certificate",
    "partitions": "partitions",
    "merge_levels": "merges: candidates to k",
    "evaluations": "gain evaluations",
    "screened": "gains estimated on a sample",
    "seconds": "seconds",
}
CANDIDATES = {
    "task": "task",
    "encoder": "encoder",
    "stage1": "Stage 1",
    "arms": "arms",
    "k1": "candidates",
    "n_labelled": "labelled",
    "coverage": "coverage",
    "facility_location": "facility location",
    "log_det": "log-det a pick",
    "mean_cosine": "mean cosine",
    "vendi": "Vendi score",
    "label_coverage": "labels found",
    "rare_class_recall": "rare labels found",
    "n_rare": "rare labels",
    "nearest_macro_f1": "1-NN macro-F1",
    "probe_macro_f1": "probe macro-F1",
    "n_queries": "queries",
    "n_ground": "corpus rows covered",
}
EPR = {
    "arm": "arm",
    "task": "task",
    "engine": "LLM",
    "rows": "texts",
    "taught": "texts learned from",
    "prompts": "prompts",
    "not_scored": "prompts not scored",
    "pairs": "candidates",
    "loss": "loss",
    "held_out": "loss of a held-out fifth",
    "steps": "steps",
    "shape": "map",
}
REJECTED = {"table": "table", "status": "status", "reason": "reason", "n": "rows"}
EXAMPLES = {
    "table": "table",
    "place": "file:line",
    "id": "id",
    "reason": "reason",
    "detail": "detail",
    "excerpt": "excerpt",
}


def metric_table(rows: list[dict[str, Any]]) -> Table:
    """Scores with intervals, the majority baseline beside each."""
    shared = _varying(rows)
    headings = [
        *("arm", *shared.values(), "scored queries", "accuracy [95%]", "majority accuracy"),
        *("macro-F1 [95%]", "majority macro-F1", "parse errors", "not scored"),
    ]
    cells = [
        [
            Cell(plain(row["arm"])),
            *(_cell(row[name]) for name in shared),
            _cell(row["n_scored"]),
            Cell(with_interval(row, "accuracy"), number=True),
            Cell(plain(row["majority_accuracy"]), number=True),
            Cell(with_interval(row, "macro_f1"), number=True),
            Cell(plain(row["majority_macro_f1"]), number=True),
            Cell(_percent(row["parse_error_rate"]), number=True),
            _cell(row["n_unscored"]),
        ]
        for row in rows
    ]
    return Table(headings, cells)


def cost_table(rows: list[dict[str, Any]]) -> Table:
    """What each arm cost: tokens, seconds inside the engine, throughput."""
    cells = [
        [
            Cell(plain(row["arm"])),
            *(Cell(form(row[name]), number=True) for name, (_, form) in COST.items()),
        ]
        for row in rows
    ]
    return Table(["arm", *(heading for heading, _ in COST.values())], cells)


def status_table(rows: list[dict[str, Any]]) -> Table:
    """Output rows by arm and status; statuses that never occur are left out."""
    used = [status for status in Status if any(row[f"n_{status}"] for row in rows)]
    cells = [
        [Cell(plain(row["arm"])), _cell(row["n"]), *(_cell(row[f"n_{status}"]) for status in used)]
        for row in rows
    ]
    return Table(["arm", "rows", *map(str, used)], cells)


def class_table(rows: list[dict[str, Any]], slices: list[dict[str, Any]]) -> Table:
    """F1 of each label by arm, and precision and recall of the best arm.

    Args:
        rows: Summary rows of one task.
        slices: Slice rows of the same task.

    Returns:
        One row per label; F1 cells are shaded by their value.
    """
    best = best_of(rows)
    arms = [row["arm"] for row in rows if row["macro_f1"] is not None]
    if best is None:
        return Table([], [])
    found = {(row["arm"], row["value"]): row for row in slices if row["slice"] == "label"}
    labels = [label for arm, label in found if arm == best["arm"]]
    cells = []
    for label in labels:
        own = found[best["arm"], label]
        f1 = [found[arm, label]["f1"] for arm in arms]
        figures = [Cell(plain(value), number=True, shade=value) for value in f1]
        edges = [_cell(own["precision"]), _cell(own["recall"])]
        cells.append([Cell(plain(label)), _cell(own["support"]), *figures, *edges])
    last = [f"precision: {best['arm']}", f"recall: {best['arm']}"]
    return Table(["label", "queries", *(f"F1: {arm}" for arm in arms), *last], cells)


def keyed_table(rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> Table:
    """Mappings as a table: known keys that occur, in order, then all further keys."""
    used = {key for row in rows for key, value in row.items() if value is not None}
    further = sorted(used - set(headings))
    keys = [*(key for key in headings if key in used), *further]
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    return Table([headings.get(key, key) for key in keys], cells)


def candidates_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Measures of the candidates without an LLM; a column in which nothing is known is left out."""
    shown = [{k: v for k, v in row.items() if k != "notes"} for row in rows]
    return keyed_table([row | {"arms": ", ".join(row["arms"])} for row in shown], CANDIDATES)


def example_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Examples of rejected rows, file and line in one cell."""
    placed = []
    for row in rows:
        rest = {k: v for k, v in row.items() if k not in ("source_file", "source_line")}
        line = row.get("source_line")
        file = row.get("source_file")
        placed.append(rest | {"place": file if line is None else f"{file}:{line}"})
    return keyed_table(placed, EXAMPLES)


def _varying(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Identity columns that differ between the arms, and the choices that any arm made."""
    differing = {k: v for k, v in IDENTITY.items() if len({row[k] for row in rows}) > 1}
    made = {k: v for k, v in CHOICES.items() if any(row[k] is not None for row in rows)}
    return differing | made


def _cell(value: Any) -> Cell:
    return Cell(plain(value), number=isinstance(value, int | float) or value is None)
