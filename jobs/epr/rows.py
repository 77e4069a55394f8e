"""What a learned map is trained on: labelled texts, never a query, and the records tried with each.

A text is never tried with itself, with a near copy or, as queries are, with a record of its own
group: that would give the answer away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from inference.duplicates import near_keys, text_keys
from inference.status import Status
from inference.tasks import Task, canonical
from jobs.annotate import usable_labels
from jobs.config.schema import Arm
from jobs.ledger import Ledger, Marker
from jobs.ranking.context import group_keys
from jobs.run import Run
from jobs.selecting.id_files import read_ids
from jobs.selecting.inputs import require_found
from jobs.tasks import task_of
from jobs.vectors import Matrix, drawn, random_keys, to_matrix
from selection.guards import guarded
from selection.stage2 import Pool, Queries, dense

Bools = npt.NDArray[np.bool_]
ROW_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("label", pa.string()),
        ("status", pa.string()),
        ("group", pa.string()),
    ]
)
COLUMNS = ["id", "input", "label"]
POOL_COLUMNS = ["id", "input", "group"]


@dataclass(frozen=True)
class Texts:
    """Labelled texts with their vectors.

    Attributes:
        ids: n ids.
        inputs: n texts.
        labels: n labels of the task.
        vectors: (n, d) float32.
        groups: n groups, None for none; None where groups are not heeded.
    """

    ids: list[str]
    inputs: list[str]
    labels: list[str]
    vectors: Matrix
    groups: list[str | None] | None = None

    @property
    def tie_rank(self) -> npt.NDArray[np.int64]:
        """The rank of each id among the ids, (n,)."""
        order = np.argsort(np.array(self.ids, object), kind="stable")
        return np.argsort(order, kind="stable").astype(np.int64)


def training_rows(run: Run, arm: Arm) -> pa.Table:
    """The labelled texts that an arm's map is learned from, by id.

    They are the pool, and the rows of the corpus that `stage2.epr.also` names. A text that is asked
    as a query too is left out: its label would be the answer.

    Returns:
        At most `stage2.epr.rows` rows of `ROW_SCHEMA`, drawn by the seed.

    Raises:
        ConfigError: No such file of ids.
        DataError: Ids that are no rows of the corpus.
    """
    assert run.pool is not None
    task = task_of(run, arm.task)
    labels = usable_labels(run, arm.name, task)
    pool = {row["id"]: row for row in run.ledger.read(run.pool, POOL_COLUMNS).to_pylist()}
    found = {
        row_id: (pool[row_id]["input"], label, pool[row_id]["group"])
        for row_id, label in labels.items()
    }
    found |= _also(run, arm, task)
    ids = sorted(found)
    copies = _asked(run, [found[row_id][0] for row_id in ids])
    if copies.any():
        run.progress.warn(
            f"{arm.name}: {copies.sum()} labelled texts are queries too, so the map of stage2.epr "
            "is not learned from them"
        )
    ids = [row_id for row_id, copy in zip(ids, copies, strict=True) if not copy]
    kept = [ids[i] for i in drawn(random_keys(ids, arm.seed), arm.stage2.epr.rows)]
    inputs, names, groups = ([found[row_id][at] for row_id in kept] for at in range(3))
    ok = [str(Status.OK)] * len(kept)
    return pa.table([kept, inputs, names, ok, _heeded(arm, groups)], schema=ROW_SCHEMA)


def pool_table(run: Run, arm: Arm) -> pa.Table:
    """The records that an arm may show, with their vectors, in the order they were picked."""
    assert run.pool is not None
    labels = usable_labels(run, arm.name, task_of(run, arm.task))
    vectors = run.ledger.read(run.candidates[arm.name], ["id", "vector"])
    vectors = vectors.filter(pc.is_in(vectors["id"], value_set=pa.array(list(labels), pa.string())))
    pool = {row["id"]: row for row in run.ledger.read(run.pool, POOL_COLUMNS).to_pylist()}
    ids = vectors["id"].to_pylist()
    inputs, groups = ([pool[row_id][name] for row_id in ids] for name in ("input", "group"))
    vectors = vectors.append_column("input", pa.array(inputs, pa.large_string()))
    vectors = vectors.append_column("label", pa.array([labels[i] for i in ids], pa.string()))
    return vectors.append_column("group", pa.array(_heeded(arm, groups), pa.string()))


def _heeded(arm: Arm, groups: list[str | None]) -> list[str | None]:
    """The groups, or none of them where an arm's queries are shown their own group too."""
    return groups if arm.stage2.exclude_same_group else [None] * len(groups)


def read_rows(ledger: Ledger, rows: Marker, vectors: Marker) -> Texts:
    """Training rows that have a vector."""
    texts = ledger.read(rows, [*COLUMNS, "group"])
    embedded = ledger.read(vectors, ["vector", "status"])
    usable = pc.equal(embedded["status"], str(Status.OK))
    return _texts(texts.filter(usable), to_matrix(embedded.filter(usable)["vector"]))


def read_pool(ledger: Ledger, pool: Marker) -> Texts:
    """The records of `pool_table`."""
    table = ledger.read(pool)
    return _texts(table, to_matrix(table["vector"]))


def allowed_pairs(rows: Texts, records: Texts, *, ceiling: float | None) -> Bools:
    """Which records may be tried with which rows, by the rules that hold for queries.

    Never a row's own record, a near copy, one of its group, or one that is too similar.

    Args:
        rows: m texts.
        records: n records.
        ceiling: As `stage2.ceiling`.

    Returns:
        (m, n) bool.
    """
    same = [
        (near_keys(rows.inputs), near_keys(records.inputs)),
        (text_keys(rows.ids), text_keys(records.ids)),
    ]
    if rows.groups is not None and records.groups is not None:
        same.append((group_keys(rows.groups, none=1), group_keys(records.groups, none=0)))
    return guarded(rows.vectors, records.vectors, ceiling=ceiling, same=same)


def candidates_of(
    rows: Texts, records: Texts, *, n: int, ceiling: float | None
) -> dict[str, list[str]]:
    """The n nearest records of each row by id, nearest first; rows without any are left out."""
    queries = Queries(rows.vectors, random_keys(rows.ids, 0))
    pool = Pool(records.vectors, records.tie_rank)
    near = dense(queries, pool, r=n, allowed=allowed_pairs(rows, records, ceiling=ceiling))
    found = {
        row_id: [records.ids[i] for i in places if i >= 0]
        for row_id, places in zip(rows.ids, near.indices.tolist(), strict=True)
    }
    return {row_id: ids for row_id, ids in found.items() if ids}


def _texts(table: pa.Table, vectors: Matrix) -> Texts:
    ids, inputs, labels, groups = (table[name].to_pylist() for name in (*COLUMNS, "group"))
    return Texts(ids, inputs, labels, vectors, groups)


def _also(run: Run, arm: Arm, task: Task) -> Mapping[str, tuple[str, str, str | None]]:
    """Text, label and group of the rows that the config names beside the pool, by id."""
    if arm.stage2.epr.also is None:
        return {}
    key = f"arm {arm.name}: stage2.epr.also"
    ids = read_ids(arm.stage2.epr.also, key=key).ids
    wanted = pa.array(ids, pa.string())
    found: dict[str, Any] = {}
    for part in run.tables["corpus"].parts:
        table = run.ledger.read(part.marker, [*COLUMNS, "status", "group"])
        here = pc.and_(
            pc.is_in(table["id"], value_set=wanted), pc.equal(table["status"], str(Status.OK))
        )
        found |= {row["id"]: row for row in table.filter(here).to_pylist()}
    require_found(ids, np.array([row_id in found for row_id in ids]), key=key)
    labels = {row_id: canonical(task, found[row_id]["label"]) for row_id in ids}
    n_without = sum(label is None for label in labels.values())
    if n_without:
        run.progress.warn(
            f"{arm.name}: {n_without} of {len(ids)} rows of stage2.epr.also have no label of task "
            f"{task.name}; the map is not learned from them"
        )
    return {
        i: (found[i]["input"], label, found[i]["group"])
        for i, label in labels.items()
        if label is not None
    }


def _asked(run: Run, inputs: Sequence[str]) -> Bools:
    """Which texts are queries too, case, spaces and punctuation apart; (n,) bool."""
    keys = near_keys(inputs)
    found = np.zeros(len(keys), np.bool_)
    for part in run.tables["queries"].parts:
        texts = run.ledger.read(part.marker, ["input"]).column(0).drop_null().to_pylist()
        found |= np.isin(keys, near_keys(texts))
    return found
