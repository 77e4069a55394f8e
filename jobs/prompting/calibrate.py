"""Calibrate: the order of each set of demonstrations that leans least towards a label."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from inference.calibration import CONTENT_FREE, calibrate, permutations_of
from inference.engine import EngineError, EngineSpec, VllmEngine
from jobs.config.schema import Arm
from jobs.errors import ClusterError, ConfigError
from jobs.generating.engines import plain_engine
from jobs.ledger import Ledger, Marker, Unit, fingerprint
from jobs.prompting.pool_texts import SHOWN_COLUMNS, laid_out
from jobs.prompting.work import CALIBRATED, set_key
from jobs.run import Run
from jobs.tasks import plain_task, task_of
from jobs.units import finish, threads, with_gpus

VERSION = 1
# Sets share units by the begin of their keys: a new set makes one unit in 256 anew.
KEY_DIGITS = 2
MANY_SETS = 1_000
ORDER_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("ids", pa.list_(pa.string())),
        ("skew", pa.float64()),
        ("worst_skew", pa.float64()),
        ("n_orders", pa.int32()),
    ]
)


@dataclass
class CalibrateWork:
    """Orders sets of demonstrations with an engine that is started once."""

    out: str
    spec: EngineSpec
    start: Callable[[EngineSpec], VllmEngine] = VllmEngine
    engine: VllmEngine | None = field(default=None)

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Choose the order of every set of the payload.

        Args:
            payload: `unit`, `sets` (key -> ids), `pool` (marker), `task`, `prompt` (plain data),
                `seed`.

        Returns:
            Marker of the orders, one row a set.

        Raises:
            ConfigError: The labels' answers cannot be told apart by their tokens.
            ClusterError: The engine does not start, or fails on every row.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        try:
            if self.engine is None:
                self.engine = self.start(self.spec)
            rows = self._rows(ledger, payload)
        except ValueError as error:
            raise ConfigError(f"prompt.order = {CALIBRATED}: {error}.") from error
        except EngineError as error:
            raise ClusterError(f"assemble: {error}.") from error
        return ledger.commit(unit, pa.Table.from_pylist(rows, schema=ORDER_SCHEMA))

    def _rows(self, ledger: Ledger, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert self.engine is not None
        wanted = {row_id for ids in payload["sets"].values() for row_id in ids}
        task, spec, chat, pool = laid_out(ledger, self.spec, payload, wanted)
        rows = []
        for key, ids in payload["sets"].items():
            shown = [pool[row_id] for row_id in ids]
            seed = payload["seed"]
            found = calibrate(self.engine, task, shown, spec=spec, chat=chat, seed=seed)
            rows.append(
                {
                    "key": key,
                    "ids": list(found.ids),
                    "skew": found.skew,
                    "worst_skew": found.worst,
                    "n_orders": found.n_orders,
                }
            )
        return rows


def calibrated_orders(
    run: Run, arms: Sequence[Arm], spec: EngineSpec, drafts: Mapping[str, Sequence[Marker]]
) -> dict[str, list[Marker]]:
    """The orders of all sets that prompts of the arms show.

    Args:
        run: Its ledger has the prompts.
        arms: Of one engine.
        spec: The engine.
        drafts: Arm -> its prompts in any order.

    Returns:
        Arm -> markers of its orders.
    """
    spec = replace(spec, n_threads=threads(run.config.file.cluster.generate))
    units = {arm.name: _units(run, arm, spec, drafts[arm.name]) for arm in arms}
    every = {unit: payload for mine in units.values() for unit, payload in mine}
    if not every:
        return {arm.name: [] for arm in arms}
    markers = finish(
        run,
        list(every.items()),
        CalibrateWork(run.out, spec),
        stage="assemble",
        workers=with_gpus(run.config.file.cluster.generate, spec.tensor_parallel_size or 1),
        stateful=True,
    )
    made = dict(zip(every, markers, strict=True))
    return {name: [made[unit] for unit, _ in mine] for name, mine in units.items()}


def calibration_facts(run: Run, orders: Sequence[Marker]) -> dict[str, Any]:
    """What the manifest says of an arm's calibration: sets, and their mean skew in nats."""
    tables = [run.ledger.read(marker) for marker in orders]
    rows = [row for table in tables for row in table.to_pylist()]
    scored = [row for row in rows if row["skew"] is not None]
    n = max(1, len(scored))
    return {
        "sets": len(rows),
        "not_scored": len(rows) - len(scored),
        "skew_mean": sum(row["skew"] for row in scored) / n,
        "worst_skew_mean": sum(row["worst_skew"] for row in scored) / n,
    }


def _units(
    run: Run, arm: Arm, spec: EngineSpec, drafts: Sequence[Marker]
) -> list[tuple[Unit, dict[str, Any]]]:
    assert run.pool is not None
    sets = _sets(run, drafts)
    if len(sets) > MANY_SETS:
        most = max(len(ids) for ids in sets.values())
        n_orders = len(permutations_of(most, seed=arm.seed))
        run.progress.warn(
            f"{arm.name}: prompt.order {CALIBRATED} scores {n_orders * len(CONTENT_FREE)} prompts "
            f"for each of {len(sets):,} sets of demonstrations; layout clustered has few sets"
        )
    records = {row["id"]: row for row in run.ledger.read(run.pool, SHOWN_COLUMNS).to_pylist()}
    task = plain_task(task_of(run, arm.task))
    prompt = {name: getattr(arm.prompt, name) for name in ("format", "negative_pairs")}
    units = []
    for begin in sorted({key[:KEY_DIGITS] for key in sets}):
        mine = {key: ids for key, ids in sets.items() if key.startswith(begin)}
        texts = [records[row_id] for row_id in sorted({i for ids in mine.values() for i in ids})]
        engine = plain_engine(spec)
        mark = fingerprint("calibrate", VERSION, mine, texts, task, prompt, engine, arm.seed)
        unit = Unit(f"orders/{mark}", "orders", mark)
        payload = {
            "unit": asdict(unit),
            "sets": mine,
            "pool": run.pool.as_dict(),
            "task": task,
            "prompt": prompt,
            "seed": arm.seed,
        }
        units.append((unit, payload))
    return units


def _sets(run: Run, drafts: Iterable[Marker]) -> dict[str, list[str]]:
    """Every distinct set of at least two demonstrations that is shown, by its key."""
    shown: set[tuple[str, ...]] = set()
    for marker in drafts:
        lists = run.ledger.read(marker, ["demonstration_ids"]).column(0).to_pylist()
        shown.update(tuple(sorted(ids)) for ids in lists)
    return {set_key(ids): list(ids) for ids in sorted(shown) if len(ids) > 1}
