"""How good the candidates of each Stage 1 setting are, without an LLM: one row a task and setting.

They are cheap beside everything else, so every setting is measured: coverage on a sample of the
corpus above GROUND_ROWS rows, probes on a sample of the labelled queries above QUERY_ROWS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from inference.scoring import score
from inference.tasks import canonical
from jobs.annotate import usable_labels
from jobs.config.schema import Arm
from jobs.folds import fold_name
from jobs.ledger import Marker
from jobs.reporting.metrics import Yardstick
from jobs.run import Run
from jobs.selection_folds import folds_of
from jobs.tasks import task_of
from jobs.units import threads
from jobs.vectors import Matrix, drawn, random_keys, sample, to_matrix
from selection.measures import (
    coverage,
    facility_location,
    label_coverage,
    log_det,
    mean_cosine,
    rare_class_recall,
    rare_labels,
    vendi_score,
)
from selection.probes import linear_probe, nearest_label

GROUND_ROWS = 20_000
QUERY_ROWS = 20_000
PROBES = {"nearest_macro_f1": nearest_label, "probe_macro_f1": linear_probe}


@dataclass(frozen=True)
class Chosen:
    """The candidates of one setting.

    Attributes:
        vectors: (k, d) float32, in the order of picking.
        labels: k labels of the task, None for a candidate without one.
    """

    vectors: Matrix
    labels: Sequence[str | None]


@dataclass(frozen=True)
class Labelled:
    """Labelled rows that probes are scored on.

    Attributes:
        vectors: (n, d) float32.
        labels: n labels, as written.
    """

    vectors: Matrix
    labels: Sequence[str]


# What it needs: candidates, the pool, the vectors of corpus and queries.


def candidate_rows(run: Run, yardsticks: Mapping[str, Yardstick]) -> list[dict[str, Any]]:
    """Measure the candidates of every setting that an arm uses.

    Args:
        run: After annotate.
        yardsticks: By task: its labels, and the labelled rows of the corpus.

    Returns:
        Rows of `CANDIDATES_SCHEMA`; what is not defined is None, and `notes` says why.
    """
    rows = []
    mine = [arm for arm in run.arms if arm.name in run.candidates]
    for encoder in dict.fromkeys(arm.encoder for arm in mine):
        ground = _ground(run, encoder)
        queries = _queries(run, encoder)
        for arms in _settings(run, [arm for arm in mine if arm.encoder == encoder]):
            names = [fold_name(arms[0].name, fold) for fold in folds_of(run, arms[0])]
            repeats = [
                _measured(run, name, arms, ground=ground, queries=queries, yardsticks=yardsticks)
                for name in names or [arms[0].name]
            ]
            rows += [mean_of(same) for same in zip(*repeats, strict=True)]
    return rows


def _measured(
    run: Run,
    name: str,
    arms: Sequence[Arm],
    *,
    ground: Matrix,
    queries: Labelled,
    yardsticks: Mapping[str, Yardstick],
) -> list[dict[str, Any]]:
    """The rows of one selection, one a task; `name` is an arm's, or that of one in a fold."""
    vectors = _vectors(run, name)
    measured = spread(vectors, ground, threads=threads(run.config.file.cluster.rank))
    rows = []
    for task in dict.fromkeys(arm.task for arm in arms):
        users = [arm for arm in arms if arm.task == task]
        kind = task_of(run, task).kind
        if kind == "classification":
            held_out = _of_task(run, task, queries)
            by_label = labels_of(_chosen(run, name, task, vectors), held_out, yardsticks[task])
        else:
            why = f"an answer of kind {kind} is no single label, so none is looked at"
            by_label = {"notes": [why]}
        rows.append(_named(run, name, users) | measured | by_label)
    return rows


# The Ray-free functions on one setting.


def spread(chosen: Matrix, ground: Matrix, *, threads: int = 1) -> dict[str, Any]:
    """What needs no label: coverage of the ground points, and how varied the candidates are.

    Args:
        chosen: (k, d) float32.
        ground: (m, d) float32, the corpus or a sample.
        threads: Threads to use.

    Returns:
        Columns of `CANDIDATES_SCHEMA`.
    """
    return {
        "n_ground": len(ground),
        "coverage": coverage(ground, chosen, threads=threads),
        "facility_location": facility_location(ground, chosen, threads=threads),
        "log_det": log_det(chosen),
        "mean_cosine": mean_cosine(chosen),
        "vendi": vendi_score(chosen),
    }


def labels_of(chosen: Chosen, held_out: Labelled, yardstick: Yardstick) -> dict[str, Any]:
    """What the labels say: which were found, and what can be learned from those of the candidates.

    Args:
        chosen: The candidates.
        held_out: Rows of the task that the probes are scored on.
        yardstick: Labels of the task, and the labelled rows of the corpus.

    Returns:
        Columns of `CANDIDATES_SCHEMA`, `notes` among them.
    """
    code = {label: i for i, label in enumerate(yardstick.labels)}
    known = [i for i, label in enumerate(chosen.labels) if label is not None]
    codes = np.array([code[str(chosen.labels[i])] for i in known], np.int64)
    corpus = np.array([yardstick.corpus_counts.get(label, 0) for label in code], np.int64)
    found = np.bincount(codes, minlength=len(code))
    row: dict[str, Any] = {
        "n_labelled": len(known),
        "n_queries": len(held_out.labels),
        "n_rare": len(rare_labels(corpus)),
        "label_coverage": label_coverage(corpus, found) if known else None,
        "rare_class_recall": rare_class_recall(corpus, found) if known else None,
        "notes": _notes(len(known), len(held_out.labels), corpus),
    }
    if known and held_out.labels:
        names, gold = list(code), list(held_out.labels)
        for name, probe in PROBES.items():
            answers = probe(chosen.vectors[known], codes, held_out.vectors)
            row[name] = score(gold, [names[i] for i in answers], names).macro_f1
    return row


def mean_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for the selections of all folds: means of what is measured, rounded where counted.

    A measure that is missing in some folds is the mean of the others.
    """
    if len(rows) == 1:
        return dict(rows[0])
    found = dict(rows[0])
    for name in {name: None for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        known = [value for value in values if isinstance(value, int | float)]
        if known:
            mean = sum(known) / len(known)
            found[name] = round(mean) if all(isinstance(value, int) for value in known) else mean
    notes = dict.fromkeys(note for row in rows for note in row["notes"])
    return found | {"notes": [f"means over the selections of {len(rows)} folds", *notes]}


def _notes(n_labelled: int, n_queries: int, corpus: npt.NDArray[np.int64]) -> list[str]:
    """Why a measure by labels is missing."""
    if not n_labelled:
        return ["no candidate has a label of the task, so nothing by label is known"]
    notes = []
    if not corpus.any():
        notes.append("the corpus has no labels of the task to compare with")
    elif not len(rare_labels(corpus)):
        notes.append("no label has fewer rows than half an even share, so none is rare")
    if not n_queries:
        notes.append("no query has a label of the task to score a probe on")
    return notes


# Reading what the run has.


def _settings(run: Run, arms: Sequence[Arm]) -> list[list[Arm]]:
    """Arms that share their candidates, together."""
    found: dict[str, list[Arm]] = {}
    for arm in arms:
        found.setdefault(run.candidates[arm.name].fingerprint, []).append(arm)
    return list(found.values())


def _named(run: Run, name: str, arms: Sequence[Arm]) -> dict[str, Any]:
    marker: Marker = run.candidates[name]
    return {
        "task": arms[0].task,
        "encoder": arms[0].encoder,
        "stage1": arms[0].stage1.method,
        "arms": [arm.name for arm in arms],
        "k1": marker.rows,
    }


def _ground(run: Run, encoder: str) -> Matrix:
    partitions = run.vectors_by_partition(encoder)
    return sample(run.ledger, partitions, size=GROUND_ROWS, seed=run.config.file.seed)[1]


def _vectors(run: Run, name: str) -> Matrix:
    return to_matrix(run.ledger.read(run.candidates[name], ["vector"])["vector"])


def _chosen(run: Run, name: str, task: str, vectors: Matrix) -> Chosen:
    ids = run.ledger.read(run.candidates[name], ["id"])["id"].to_pylist()
    labels = usable_labels(run, name, task_of(run, task))
    return Chosen(vectors, [labels.get(row_id) for row_id in ids])


def _queries(run: Run, encoder: str) -> Labelled:
    """Queries with a label and a vector, at most QUERY_ROWS of them, drawn by their ids."""
    ids: list[str] = []
    labels: list[str] = []
    vectors = np.zeros((0, 0), np.float32)
    for part, marker in zip(
        run.tables["queries"].parts, run.vectors[encoder, "queries"], strict=True
    ):
        rows = run.ledger.read(part.marker, ["id", "label"])
        rows = rows.append_column("vector", run.ledger.read(marker, ["vector"])["vector"])
        status = run.ledger.read(marker, ["status"])["status"]
        rows = rows.filter(pc.and_(pc.equal(status, "ok"), pc.is_valid(rows["label"])))
        ids += rows["id"].to_pylist()
        labels += rows["label"].to_pylist()
        more = to_matrix(rows["vector"])
        vectors = np.concatenate([vectors, more]) if len(vectors) else more
        if len(ids) > QUERY_ROWS:
            kept = drawn(random_keys(ids, run.config.file.seed), QUERY_ROWS)
            ids, labels = [ids[i] for i in kept], [labels[i] for i in kept]
            vectors = vectors[kept]
    return Labelled(vectors, labels)


def _of_task(run: Run, task: str, queries: Labelled) -> Labelled:
    """Those whose label is one of the task's, under the task's name for it."""
    built = task_of(run, task)
    labels = [canonical(built, label) for label in queries.labels]
    kept = [i for i, label in enumerate(labels) if label is not None]
    return Labelled(queries.vectors[kept], [str(labels[i]) for i in kept])
