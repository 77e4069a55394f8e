"""Stage 1 inside one partition: the Ray-free function, and the table it writes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger import Ledger, Marker, Unit
from jobs.selecting.aim import Aim
from jobs.selecting.inputs import limits_of
from jobs.selecting.mapped import Mapped
from jobs.selecting.side_columns import Sides, group_codes
from jobs.selecting.union import list_of_vectors
from selection.arrays import squared_norms
from selection.request import Request
from selection.stage1 import Local, random_picks, select_local

ROW_COLUMNS = ["id", "input", "cost", "text_hash"]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LocalWork:
    """Selects inside one partition and commits the picks with their rows and vectors."""

    aim: Aim

    def __call__(self, ledger: Ledger, payload: dict[str, Any], rows: Mapped) -> Marker:
        """Select in the partition, and as many at random as its control.

        Args:
            ledger: Of the output tree.
            payload: `unit`, `partition`, `rows` (markers of the partition's parts).
            rows: The partition's n rows, in ascending order of their ids.

        Returns:
            Marker of the local picks.
        """
        unit, aim = Unit(**payload["unit"]), self.aim
        found = ledger.find(unit)
        if found is not None:
            return found
        sides = aim.sides(ledger, [Marker(**one) for one in payload["rows"]], rows)
        request = aim.local_request(rows, sides)
        chosen = self._choose(rows, sides, request)
        picks = {"choice": _none() if chosen is None else chosen.selection.picks}
        picks["control"] = random_picks(request, len(rows)) if len(rows) else _none()
        picks["required"] = self._required(rows, sides)
        tables = [
            table_of(ledger, payload, rows, sides, picks=some, role=role)
            for role, some in picks.items()
        ]
        if aim.weighs_picks:
            tables = [
                table.append_column("mass", _masses(chosen, table.num_rows, role))
                for table, role in zip(tables, picks, strict=True)
            ]
        stats = _stats(chosen, rows, sides)
        return ledger.commit(unit, pa.concat_tables(tables), stats=stats)

    def _choose(self, rows: Mapped, sides: Sides, request: Request) -> Local | None:
        if not len(rows):
            return None
        return select_local(
            self.aim.config.method,
            rows.vectors,
            request,
            effort=self.aim.effort(),
            weights=sides.weight,
            threads=self.aim.threads,
            device=self.aim.device,
        )

    def _required(self, rows: Mapped, sides: Sides) -> Indices:
        required = limits_of(self.aim.config, self.aim.wishes, rows, sides).required
        return _none() if required is None else required


def _none() -> Indices:
    return np.zeros(0, np.int64)


def _masses(chosen: Local | None, n: int, role: str) -> pa.Array:
    """What the picks of a choice stand for; other rows stand for nothing."""
    mass = np.zeros(n)
    if role == "choice" and chosen is not None and chosen.selection.mass is not None:
        mass = chosen.selection.mass
    return pa.array(mass, pa.float64())


def _stats(chosen: Local | None, rows: Mapped, sides: Sides) -> dict[str, Any]:
    stats: dict[str, Any] = {
        "n_points": len(rows),
        "no_cost": sides.no_cost,
        "max_squared_norm": float(squared_norms(rows.vectors).max(initial=0.0)),
        "evaluations": 0,
        "screened": 0,
        "mode": None,
        "bounds": None,
    }
    if chosen is not None:
        stats["evaluations"] = chosen.selection.evaluations
        stats["screened"] = chosen.selection.screened
        stats["mode"] = chosen.effort.mode
        stats["m2"] = chosen.effort.m2
        stats["bounds"] = None if chosen.bounds is None else chosen.bounds.smallest
    return stats


def table_of(
    ledger: Ledger,
    payload: dict[str, Any],
    rows: Mapped,
    sides: Sides,
    *,
    picks: Indices,
    role: str,
) -> pa.Table:
    """Rows of a partition with all that a merge needs to know of them.

    Args:
        ledger: Of the output tree.
        payload: As for `LocalWork`.
        rows: The partition's rows.
        sides: Their side columns.
        picks: (k,) indices, in their order.
        role: `choice`, `control` or `required`.

    Returns:
        k rows.
    """
    n = len(picks)
    ids = rows.ids.take(pa.array(picks))
    table = _rows(ledger, payload["rows"], ids)
    table = table.append_column("vector", list_of_vectors(np.asarray(rows.vectors[picks])))
    table = table.append_column("local_rank", pa.array(np.arange(n, dtype=np.int64)))
    table = table.append_column("role", pa.array([role] * n, pa.string()))
    table = table.append_column("partition", pa.array([payload["partition"]] * n, pa.int64()))
    codes = np.full(n, -1, np.int64) if sides.group is None else group_codes(sides.group)[picks]
    table = table.append_column("group_code", pa.array(codes))
    for name, values, plain in (
        ("quality", sides.quality, 0.0),
        ("weight", sides.weight, 1.0),
    ):
        column = np.full(n, plain) if values is None else values[picks]
        table = table.append_column(name, pa.array(column, pa.float64()))
    return table


def _rows(ledger: Ledger, parts: list[dict[str, Any]], ids: pa.StringArray) -> pa.Table:
    """The rows of these ids, in this order."""
    tables = []
    for plain in parts:
        table = ledger.read(Marker(**plain), ROW_COLUMNS)
        tables.append(table.filter(pc.is_in(table.column("id"), value_set=ids)))
    found = pa.concat_tables(tables)
    return found.take(pc.index_in(ids, value_set=found.column("id").combine_chunks()))
