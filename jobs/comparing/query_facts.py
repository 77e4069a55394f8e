"""What is known of the queries beside their answers: group, length, columns, what is near."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inference.status import Status
from jobs.config.schema import Arm
from jobs.ledger import Marker
from jobs.run import Part, Run
from jobs.vectors import to_matrix

ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class QueryFacts:
    """Facts of the queries, each by id.

    Attributes:
        groups: What belongs together, None for a query by itself.
        n_tokens: Length in tokens of an encoder, of those that it embedded.
        columns: Values of each column of `report.slices`.
    """

    groups: dict[str, str | None] = field(default_factory=dict)
    n_tokens: dict[str, int] = field(default_factory=dict)
    columns: dict[str, dict[str, str | None]] = field(default_factory=dict)


def read_facts(run: Run, encoder: str) -> QueryFacts:
    """Read the facts of all queries.

    Args:
        run: The run, embedded.
        encoder: Whose tokens are counted.
    """
    wanted = run.config.file.report.slices
    facts = QueryFacts(columns={name: {} for name in wanted})
    for part, vectors in _parts(run, encoder):
        rows = run.ledger.read(part.marker, ["id", "group", *wanted])
        ids = rows["id"].to_pylist()
        facts.groups.update(zip(ids, rows["group"].to_pylist(), strict=True))
        for name in wanted:
            facts.columns[name].update(zip(ids, rows[name].to_pylist(), strict=True))
        found = run.ledger.read(vectors, ["n_tokens", "status"])
        embedded = zip(ids, found["n_tokens"].to_pylist(), found["status"].to_pylist(), strict=True)
        facts.n_tokens.update({id_: n for id_, n, status in embedded if status == Status.OK})
    return facts


def nearest_shown(run: Run, arm: Arm) -> dict[str, float | None]:
    """The cosine of each query to the nearest demonstration in its prompt.

    Args:
        run: The run, with the arm's outputs.
        arm: The arm; cosines are those of its encoder.

    Returns:
        By id; None where nothing was shown. A query that has demonstrations but no vector is
        absent.
    """
    nearest: dict[str, float | None] = {}
    candidates = run.candidates.get(arm.name)
    records = candidates and run.ledger.read(candidates, ["id", "vector"])
    parts = zip(_parts(run, arm.encoder), run.outputs[arm.name], strict=True)
    for (_, vectors), outputs in parts:
        shown = run.ledger.read(outputs, ["id", "demonstration_ids"])
        ids, lists = shown["id"].to_pylist(), shown["demonstration_ids"].to_pylist()
        nearest.update({id_: None for id_, one in zip(ids, lists, strict=True) if not one})
        if records is None or not any(lists):
            continue
        found = run.ledger.read(vectors, ["vector", "status"])
        ok = np.array([status == Status.OK for status in found["status"].to_pylist()])
        best = _nearest(to_matrix(found["vector"]), lists, records)
        nearest.update({ids[i]: float(best[i]) for i in np.flatnonzero(ok & np.isfinite(best))})
    return nearest


def _parts(run: Run, encoder: str) -> Iterator[tuple[Part, Marker]]:
    return zip(run.tables["queries"].parts, run.vectors[encoder, "queries"], strict=True)


def _nearest(
    queries: npt.NDArray[np.float32], shown: list[list[str] | None], records: pa.Table
) -> npt.NDArray[np.float64]:
    """The largest cosine of each query to its records, -inf without any."""
    place = {row_id: i for i, row_id in enumerate(records["id"].to_pylist())}
    vectors = to_matrix(records["vector"])
    pairs = [(i, place[one]) for i, ids in enumerate(shown) for one in ids or ()]
    best = np.full(len(queries), -np.inf)
    for start in range(0, len(pairs), ROWS_AT_A_TIME):
        rows, columns = np.array(pairs[start : start + ROWS_AT_A_TIME]).T
        np.maximum.at(best, rows, np.einsum("ij,ij->i", queries[rows], vectors[columns]))
    return best
