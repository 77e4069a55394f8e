"""Which demonstrations stand before a query's own: anchors, and the blocks of clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inference.blocks import find_blocks
from jobs.annotate import usable_candidates
from jobs.config.schema import Arm
from jobs.ledger import Ledger, Marker, Unit, fingerprint
from jobs.rank import shows_nothing
from jobs.run import Run
from jobs.tasks import task_of
from jobs.units import finish

VERSION = 1
BLOCK_SCHEMA = pa.schema(
    [
        ("cluster", pa.int32()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("relevance", pa.list_(pa.float64())),
        ("n_queries", pa.int64()),
    ]
)


@dataclass(frozen=True)
class BlocksWork:
    """Chooses the blocks of all queries of an arm."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Choose blocks from the ranked lists.

        Args:
            payload: `unit`, `demonstrations` (markers of all parts), `clusters`, `size`.

        Returns:
            Marker of the blocks, one row each, the records with the highest relevance first.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        ids, ranked = _lists(ledger, [Marker(**plain) for plain in payload["demonstrations"]])
        blocks = find_blocks(
            ranked, n_records=len(ids), n_blocks=payload["clusters"], size=payload["size"]
        )
        columns = [
            list(range(len(blocks.members))),
            [[ids[record] for record in block] for block in blocks.members],
            blocks.relevance,
            blocks.n_queries,
        ]
        table = pa.table(columns, schema=BLOCK_SCHEMA)
        return ledger.commit(unit, table, stats={"kept": blocks.kept})


def anchors_of(run: Run, arm: Arm) -> list[str]:
    """The demonstrations that all prompts of an arm begin with: its first picks with a label."""
    if arm.prompt.layout != "anchor" or shows_nothing(arm.stage2):
        return []
    return usable_candidates(run, arm.name, task_of(run, arm.task))[: arm.prompt.anchors]


def finish_blocks(run: Run) -> dict[str, Marker]:
    """The blocks of every arm that has the layout `clustered`; equal ones are made once."""
    wanted = {
        arm.name: _unit(run, arm)
        for arm in run.arms
        if arm.prompt.layout == "clustered" and not shows_nothing(arm.stage2)
    }
    units = dict(wanted.values())
    if not units:
        return {}
    workers = run.config.file.cluster.rank
    markers = finish(
        run, list(units.items()), BlocksWork(run.out), stage="assemble", workers=workers
    )
    made = dict(zip(units, markers, strict=True))
    return {name: made[unit] for name, (unit, _) in wanted.items()}


def layout_facts(run: Run, blocks: Mapping[str, Marker]) -> dict[str, dict[str, Any]]:
    """What the manifest says of the layouts, by arm."""
    facts: dict[str, dict[str, Any]] = {}
    for arm in run.arms:
        facts[arm.name] = {"layout": arm.prompt.layout, "order": arm.prompt.order}
        if arm.prompt.layout == "anchor":
            facts[arm.name]["anchors"] = anchors_of(run, arm)
        if arm.name in blocks:
            marker = blocks[arm.name]
            sizes = run.ledger.read(marker, ["n_queries"]).column(0).to_pylist()
            facts[arm.name] |= {"blocks": marker.as_dict(), "queries_per_block": sizes}
            facts[arm.name]["relevance_kept"] = marker.stats["kept"]
    return facts


def _unit(run: Run, arm: Arm) -> tuple[Unit, dict[str, Any]]:
    markers = run.demonstrations[arm.name]
    size, clusters = arm.prompt.most(arm.stage2.k), arm.prompt.clusters
    mark = fingerprint("blocks", VERSION, [marker.checksum for marker in markers], size, clusters)
    unit = Unit(f"layouts/{mark}", "blocks", mark)
    payload = {
        "unit": asdict(unit),
        "demonstrations": [marker.as_dict() for marker in markers],
        "clusters": clusters,
        "size": size,
    }
    return unit, payload


def _lists(ledger: Ledger, markers: Sequence[Marker]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """All ranked lists as numbers, (q, k), and the ids they stand for, sorted."""
    tables = [ledger.read(marker, ["demonstration_ids"]).column(0) for marker in markers]
    lists = [ids for column in tables for ids in column.to_pylist()]
    ids = sorted({row_id for one in lists for row_id in one})
    numbers = {row_id: i for i, row_id in enumerate(ids)}
    ranked = np.full((len(lists), max([1, *map(len, lists)])), -1, np.int64)
    for place, one in enumerate(lists):
        ranked[place, : len(one)] = [numbers[row_id] for row_id in one]
    return ids, ranked
