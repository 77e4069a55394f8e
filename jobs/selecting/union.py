"""What several sets found, as one list of candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger import Ledger, Marker
from jobs.selecting.aim import Aim
from jobs.selecting.mapped import Stored
from jobs.vectors import list_values
from selection.crowd import Crowd
from selection.request import Limits, Request

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Union:
    """Candidates in the ascending order of their ids, one row each.

    Attributes:
        rows: (n) rows as `jobs.selecting.local.table_of` makes them.
        vectors: (n, d) as stored.
        sets: Per answer, the indices of what it chose, in its order.
        controls: Per answer, the indices of its random rows, in their order.
        required: Indices of the required rows, in the order of the config.
    """

    rows: pa.Table
    vectors: Stored
    sets: list[Indices]
    controls: list[Indices]
    required: Indices

    @property
    def ids(self) -> list[str]:
        """Their n ids."""
        return self.rows.column("id").to_pylist()

    def column(self, name: str, *, missing: float = 0.0) -> Floats:
        """A column of numbers, (n,) float64."""
        return self.rows.column(name).fill_null(missing).to_numpy().astype(np.float64)

    def weights(self, aim: Aim) -> Floats | None:
        """Ground weights of the candidates; None where rows are not weighted."""
        return self.column("weight") if aim.config.weighted else None

    def request(
        self,
        aim: Aim,
        *,
        k: int,
        coverage_weight: float,
        crowd: Crowd | None = None,
        below_root: bool = False,
    ) -> Request:
        """What a merge of these is asked for.

        Args:
            aim: The setting.
            k: Picks wanted.
            coverage_weight: Weight of the corpus over that of the ground points summed over.
            crowd: The points behind the candidates, where the method asks for them.
            below_root: Required rows are not chosen here, but built upon.
        """
        config, n = aim.config, self.rows.num_rows
        costs = None
        allowed = np.ones(n, np.bool_)
        if config.budget is not None:
            costs = self.column("cost", missing=np.inf)
            costs = np.where(costs > 0, costs, np.inf)
            allowed = np.isfinite(costs)
        limits = Limits(
            allowed=allowed,
            groups=self.rows.column("group_code").to_numpy() if config.max_per_group else None,
            max_per_group=config.max_per_group,
            costs=costs,
            budget=aim.budget_left if below_root else config.budget,
            required=None if below_root else self.required,
            stop_at_negative=config.stop_at_negative,
        )
        return Request(
            k=k,
            objective=aim.objective,
            tie_rank=np.arange(n, dtype=np.int64),
            keys=aim.keys(self.ids),
            n_total=aim.weight,
            coverage_weight=coverage_weight,
            limits=limits,
            quality=self.column("quality") if config.quality else None,
            given=aim.before if below_root else aim.given,
            crowd=crowd,
        )


def union_of(
    ledger: Ledger,
    aim: Aim,
    answers: Sequence[Marker],
    extra: Sequence[Marker] = (),
    controls: int = 0,
) -> Union:
    """Put answers together.

    Args:
        ledger: Of the output tree.
        aim: The setting.
        answers: What is merged, in order.
        extra: Answers of which only required rows and controls are wanted.
        controls: Random rows wanted of each of those.

    Returns:
        All their rows, each once.
    """
    tables = [ledger.read(marker) for marker in answers]
    # One at a time: all partitions' random rows together may be many times what is kept.
    kept = [_kept(ledger.read(marker), controls) for marker in extra]
    everything = pa.concat_tables([t for t in [*tables, *kept] if t.num_rows] or tables[:1])
    ids = everything.column("id").to_pylist()
    first: dict[str, int] = {}
    for at, row_id in enumerate(ids):
        first.setdefault(row_id, at)
    ordered = sorted(first)
    place = {row_id: i for i, row_id in enumerate(ordered)}
    rows = everything.take(pa.array([first[row_id] for row_id in ordered], pa.int64()))
    sources = [*tables, *kept]
    wanted = aim.wishes.required.ids if aim.wishes.required else ()
    return Union(
        rows,
        stored_matrix(rows.column("vector")),
        [_places(table, "choice", place) for table in tables],
        [_places(table, "control", place) for table in sources if _has(table, "control")],
        np.array([place[row_id] for row_id in wanted if row_id in place], np.int64),
    )


def _kept(table: pa.Table, controls: int) -> pa.Table:
    role, rank = table.column("role"), table.column("local_rank")
    wanted = pc.and_(pc.equal(role, "control"), pc.less(rank, controls))
    return table.filter(pc.or_(pc.equal(role, "required"), wanted)).combine_chunks()


def _has(table: pa.Table, role: str) -> bool:
    return bool(pc.any(pc.equal(table.column("role"), role)).as_py())


def list_of_vectors(vectors: Stored) -> pa.Array:
    """(n, d) as fixed-size lists of its own value type."""
    if not vectors.shape[1]:
        # A partition without any part does not know its dimension; it has no rows either.
        return pa.nulls(0, pa.list_(pa.float32(), 0))
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])


def stored_matrix(column: pa.ChunkedArray) -> Stored:
    """Fixed-size lists as (n, d) of their own value type."""
    chunks = [list_values(chunk) for chunk in column.chunks if len(chunk)]
    if not chunks:
        return np.zeros((0, column.type.list_size), np.float32)
    return np.concatenate(chunks)


def _places(table: pa.Table, role: str, place: dict[str, int]) -> Indices:
    picked = table.filter(pc.equal(table.column("role"), role)).sort_by("local_rank")
    return np.array([place[row_id] for row_id in picked.column("id").to_pylist()], np.int64)
