"""One Stage 1 setting of a run, and all the numbers it depends on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from jobs.config.stage1 import Stage1Config
from jobs.embed import encoder_spec
from jobs.errors import DataError, NothingToChoose
from jobs.ledger import Ledger, Marker, Unit, sum_counts
from jobs.run import Run
from jobs.selecting.aim import Aim
from jobs.selecting.inputs import Wishes, require_found, require_within
from jobs.selecting.mapped import Mapped
from jobs.selecting.room import require_room
from jobs.selecting.side_columns import Sides, group_codes, read_sides
from jobs.selecting.sizes import Sizes
from jobs.selecting.workers import Workers
from jobs.units import with_gpus
from jobs.vectors import Matrix
from selection.tree import MergePlan


@dataclass
class Choice:
    """One Stage 1 setting, shared by every arm that has it; in one fold, where it is repeated."""

    encoder: str
    config: Stage1Config
    seed: int
    mark: str
    wishes: Wishes
    arms: list[str] = field(default_factory=list)
    fold: int | None = None

    def unit(self, name: str) -> Unit:
        """A unit of this choice's folder."""
        return Unit(f"candidates/{self.mark}", name, self.mark)


def n_eligible(run: Run, encoder: str) -> int:
    """Corpus rows that have a vector and so can be chosen."""
    return sum_counts(run.vectors[encoder, "corpus"], "status").get("ok", 0)


def dimension_of(run: Run, encoder: str) -> int:
    """Numbers in a vector of this encoder; 1 where there is no vector."""
    markers = [marker for part in run.vectors_by_partition(encoder) for marker in part]
    if not markers:
        return 1
    with run.ledger.opened(markers[0]) as file:
        return int(file.schema_arrow.field("vector").type.list_size)


def plan_of(run: Run, workers: Workers, aim: Aim, encoder: str) -> MergePlan:
    """Plan the merges of a setting.

    Raises:
        ConfigError: A partition or a merge does not fit the declared memory.
    """
    ok = [sum_counts(part, "status").get("ok", 0) for part in run.vectors_by_partition(encoder)]
    return require_room(
        Sizes(
            n_rows=aim.n_rows,
            dim=dimension_of(run, encoder),
            k=aim.k,
            stage1=aim.config,
            select=run.config.file.select,
            n_partitions=aim.n_partitions,
            storage=aim.storage,
            n_workers=workers.n_actors,
            threads=aim.threads,
            n_largest=max(ok, default=0),
        )
    )


def aim_of(run: Run, workers: Workers, choice: Choice) -> Aim:
    """Look up what a setting names and count what it may cost; `local_k` is left open.

    Raises:
        DataError: Ids that are no rows, weights that add up to 0.
        NothingToChoose: A budget that buys nothing.
    """
    config, wishes = choice.config, choice.wishes
    n_rows = n_eligible(run, choice.encoder)
    if choice.fold is not None:
        n_rows = sum(workers.each(_n_rows).values())
    spec = encoder_spec(run.config.file.encoders[choice.encoder], key=choice.encoder)
    resources = with_gpus(run.config.file.cluster.select, 0.0)
    aim = Aim(
        config=config,
        seed=choice.seed,
        storage=spec.storage,
        memory_bytes=run.config.file.select.memory_bytes,
        n_rows=n_rows,
        weight=float(n_rows),
        n_partitions=run.tables["corpus"].n_partitions,
        k=n_rows if config.k1 is None else min(config.k1, n_rows),
        local_k=0,
        wishes=wishes,
        given=_given(workers, wishes),
        threads=workers.threads,
        device="cuda" if resources.gpus else "cpu",
    )
    if config.weighted:
        aim = replace(aim, weight=float(sum(workers.each(_weight).values())))
        if aim.weight <= 0:
            raise DataError("stage1.weighted: the weights of all rows add up to 0.")
    if config.budget is not None:
        affordable = workers.each(_affordable, config.budget).values()
        cheapest = min((cost for cost, _ in affordable), default=np.inf)
        n_most = sum(n for _, n in affordable)
        if not n_most:
            raise NothingToChoose(_too_dear(config, cheapest))
        n_most = int(min(n_most, config.budget / cheapest * (1 + 1e-9)))
        aim = replace(aim, k=min(aim.k, n_most))
    return _with_required(workers, aim)


def _too_dear(config: Stage1Config, cheapest: float) -> str:
    cost = (
        f"the cheapest costs {cheapest:g}" if np.isfinite(cheapest) else "none has a cost above 0"
    )
    return f"stage1.budget = {config.budget:g} buys no row: {cost}. Raise it, or mend the costs."


def _n_rows(ledger: Ledger, parts: Sequence[Marker], rows: Mapped) -> int:
    return len(rows)


def _weight(ledger: Ledger, parts: Sequence[Marker], rows: Mapped) -> float:
    weight = read_sides(ledger, parts, rows.ids, ["weight"]).weight
    return 0.0 if weight is None else float(weight.sum())


def _affordable(
    ledger: Ledger, parts: Sequence[Marker], rows: Mapped, budget: float
) -> tuple[float, int]:
    """The cheapest cost, and how many of the cheapest the budget buys."""
    costs = read_sides(ledger, parts, rows.ids, ["cost"]).cost
    assert costs is not None
    total = np.cumsum(np.sort(costs))
    most = int(np.searchsorted(total, budget * (1 + 1e-12), side="right"))
    return float(costs.min(initial=np.inf)), most


def _given(workers: Workers, wishes: Wishes) -> Matrix | None:
    given = wishes.given
    if given is None:
        return None
    parts = [] if given.vectors is None else [given.vectors]
    if given.of_corpus:
        found = workers.find(given.of_corpus)
        require_found(given.of_corpus, found.there, key="stage1.given")
        parts.append(found.vectors)
    return np.concatenate(parts) if parts else None


def _with_required(workers: Workers, aim: Aim) -> Aim:
    """The aim with all that its required rows fix; every set holds them."""
    if aim.wishes.required is None:
        return aim
    ids = aim.wishes.required.ids
    found = workers.find(ids)
    require_found(ids, found.there, key="stage1.required")
    rows = workers.each(_sides_of, list(ids), aim.side_names).values()
    tables = [table for table in rows if table.num_rows]
    sides = pa.concat_tables(tables)
    own = Sides(
        cost=sides["cost"].to_numpy() if aim.config.budget is not None else None,
        group=sides["group"].combine_chunks() if aim.config.max_per_group else None,
    )
    require_within(aim.config, own)
    full: tuple[int, ...] = ()
    if own.group is not None and aim.config.max_per_group is not None:
        codes, counts = np.unique(group_codes(own.group), return_counts=True)
        full = tuple(
            int(code)
            for code, count in zip(codes, counts, strict=True)
            if code >= 0 and count >= aim.config.max_per_group
        )
    spent = 0.0 if own.cost is None else float(own.cost.sum())
    return replace(
        aim,
        required=found.vectors,
        full_groups=full,
        spent=spent,
        k=max(aim.k, len(ids)),
    )


def _sides_of(
    ledger: Ledger, parts: Sequence[Marker], rows: Mapped, ids: list[str], names: list[str]
) -> pa.Table:
    """Cost and group of those of these ids that live here."""
    at = rows.find(pa.array(ids, pa.string()))
    here = rows.ids.take(pa.array(at[at >= 0]))
    sides = read_sides(ledger, parts, here, [name for name in names if name in ("cost", "group")])
    n = len(here)
    return pa.table(
        {
            "cost": np.zeros(n) if sides.cost is None else sides.cost,
            "group": pa.nulls(n, pa.string()) if sides.group is None else sides.group,
        }
    )
