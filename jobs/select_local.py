"""Stage 1 inside one partition: the Ray-free function, and the table it writes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.config_schema import Stage1Config
from jobs.ledger import Ledger, Marker, Unit
from jobs.vectors import Matrix, random_keys, to_lists
from selection.objective import Objective
from selection.stage1 import select_local

ROW_COLUMNS = ["id", "input", "cost", "text_hash"]


def objective_of(config: Stage1Config) -> Objective:
    """The config's objective in the words of `selection`."""
    return Objective(lam=config.lam, scale=config.lambda_scale, ridge=config.ridge)


@dataclass(frozen=True)
class LocalWork:
    """Selects inside one partition and commits the picks with their rows and vectors."""

    method: str
    config: dict[str, Any]
    seed: int
    storage: str
    n_total: int

    def __call__(
        self, ledger: Ledger, payload: dict[str, Any], ids: list[str], vectors: Matrix
    ) -> Marker:
        """Select k1 of the partition, and k1 at random as its control.

        Args:
            ledger: Of the output tree.
            payload: `unit`, `partition`, `rows` (markers of the partition's parts).
            ids: n ids in ascending order.
            vectors: (n, d) float32 unit rows.

        Returns:
            Marker of the local picks.
        """
        unit = Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        config = Stage1Config.model_validate(self.config)
        keys = random_keys(ids, self.seed)
        chosen = select_local(
            self.method,
            vectors,
            k=config.k1,
            objective=objective_of(config),
            tie_rank=np.arange(len(ids), dtype=np.int64),
            keys=keys,
            n_total=self.n_total,
        )
        control = np.argsort(keys, kind="stable")[: config.k1].astype(np.int64)
        table = pa.concat_tables(
            [
                _table(ledger, payload, ids, vectors, chosen.picks, "choice", self.storage),
                _table(ledger, payload, ids, vectors, control, "control", self.storage),
            ]
        )
        stats = {"evaluations": chosen.evaluations, "n_points": len(ids), "value": chosen.value}
        return ledger.commit(unit, table, stats={k: _plain(v) for k, v in stats.items()})


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _table(
    ledger: Ledger,
    payload: dict[str, Any],
    ids: list[str],
    vectors: Matrix,
    picks: npt.NDArray[np.int64],
    role: str,
    storage: str,
) -> pa.Table:
    n = len(picks)
    rows = _rows(ledger, payload["rows"], [ids[i] for i in picks])
    rows = rows.append_column("vector", to_lists(vectors[picks], storage))
    rows = rows.append_column("local_rank", pa.array(np.arange(n, dtype=np.int64)))
    rows = rows.append_column("role", pa.array([role] * n, pa.string()))
    return rows.append_column("partition", pa.array([payload["partition"]] * n, pa.int64()))


def _rows(ledger: Ledger, parts: list[dict[str, Any]], wanted: list[str]) -> pa.Table:
    """The rows of these ids, in this order."""
    ids = pa.array(wanted, pa.string())
    tables = []
    for plain in parts:
        table = ledger.read(Marker(**plain), ROW_COLUMNS)
        tables.append(table.filter(pc.is_in(table.column("id"), value_set=ids)))
    found = pa.concat_tables(tables)
    return found.take(pc.index_in(ids, value_set=found.column("id").combine_chunks()))
