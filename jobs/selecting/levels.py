"""Merges below the root: sets of candidates become smaller ones on a common sample of the corpus.

Each merge is a unit of work of its own, so that a tree of them is spread over the cluster and
resumed like everything else.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger import Ledger, Marker, Unit
from jobs.selecting.actor import Ground
from jobs.selecting.aim import Aim
from jobs.selecting.crowds import crowd_of, voters_of
from jobs.selecting.local import Indices
from jobs.selecting.mapped import Stored
from jobs.selecting.oracle import oracles
from jobs.selecting.union import Union, list_of_vectors, stored_matrix, union_of
from jobs.selecting.workers import Workers
from jobs.vectors import shares
from selection.coverage import CoverageOracle
from selection.merge import Merged, merge
from selection.modes import resolve, sample_rows
from selection.running import sampled_coverage
from selection.screening import Sample, Screening
from selection.tree import MergePlan


def climb(
    ledger: Ledger,
    workers: Workers,
    aim: Aim,
    plan: MergePlan,
    local: Sequence[Marker],
    *,
    unit_of: Any,
    counts: Sequence[int],
    sample: int,
) -> list[list[Marker]]:
    """Run all levels of merging below the root.

    Args:
        ledger: Of the output tree.
        workers: Hold the corpus, and do the merging.
        aim: The setting.
        plan: The merge tree.
        local: What the partitions chose.
        unit_of: Makes a unit of this setting from a name.
        counts: Rows of each partition.
        sample: Ground points that merges judge candidates on.

    Returns:
        The answers of every level, those of the partitions first; the root merges the last.
    """
    answers = [list(local)]
    if len(plan.levels) == 1:
        return answers
    ground = _ground(ledger, workers, aim, unit_of("ground"), counts=counts, sample=sample)
    for number, level in enumerate(plan.levels[:-1]):
        payloads = [
            {
                "unit": asdict(unit_of(f"merge-{number}-{node:05d}")),
                "answers": [answers[-1][i].as_dict() for i in below],
                "ground": ground.as_dict(),
                "k": level.k,
            }
            for node, below in enumerate(plan.groups(number))
        ]
        answers.append(workers.spread(MergeWork(aim), payloads))
    return answers


def _ground(
    ledger: Ledger,
    workers: Workers,
    aim: Aim,
    unit: Unit,
    *,
    counts: Sequence[int],
    sample: int,
) -> Marker:
    """Ground points drawn from all partitions, as a table that every merge reads."""
    found = ledger.find(unit)
    if found is not None:
        return found
    rows = dict(enumerate(shares(counts, sample)))
    drawn = {"sample": Ground(rows, aim.sample_seed, weighted=aim.config.weighted)}
    oracle = oracles(workers, np.zeros((0, 1), np.float32), drawn)["sample"]
    ids, vectors, weights = oracle.points()
    table = pa.table(
        {
            "id": ids,
            "vector": list_of_vectors(vectors),
            "weight": np.ones(len(ids)) if weights is None else weights,
        }
    )
    return ledger.commit(unit, table)


@dataclass(frozen=True)
class MergeWork:
    """Merges some answers on sampled ground points and commits what it hands on."""

    aim: Aim

    def __call__(self, ledger: Ledger, payload: dict[str, Any]) -> Marker:
        """Merge.

        Args:
            ledger: Of the output tree.
            payload: `unit`, `answers` and `ground` (markers), `k`.

        Returns:
            Marker of the candidates handed on.
        """
        unit = Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        union = union_of(ledger, self.aim, [Marker(**one) for one in payload["answers"]])
        table = ledger.read(Marker(**payload["ground"]))
        merged = merge_on(self.aim, union, table, k=payload["k"])
        picks = merged.selection.picks
        rows = union.rows.take(pa.array(picks))
        rank = rows.schema.get_field_index("local_rank")
        rows = rows.set_column(rank, "local_rank", pa.array(np.arange(len(picks))))
        role = rows.schema.get_field_index("role")
        rows = rows.set_column(role, "role", pa.array(["choice"] * len(picks), pa.string()))
        if merged.selection.mass is not None:
            mass = rows.schema.get_field_index("mass")
            rows = rows.set_column(mass, "mass", pa.array(merged.selection.mass))
        stats = {
            "evaluations": merged.selection.evaluations,
            "screened": merged.selection.screened,
            "candidates": union.rows.num_rows,
        }
        return ledger.commit(unit, rows, stats=stats)


def merge_on(aim: Aim, union: Union, ground: pa.Table, *, k: int) -> Merged:
    """Merge answers on ground points that stand for the whole corpus.

    Args:
        aim: The setting; required rows count as annotated here, the root puts them first.
        union: The answers.
        ground: (m) rows with id, vector, weight.
        k: Picks wanted.
    """
    vectors = stored_matrix(ground.column("vector"))
    weights = ground.column("weight").to_numpy() if aim.config.weighted else None
    points = _Points(aim, union, vectors, weights, ground.column("id"))
    everything = points.oracle(np.arange(len(vectors)))
    weight = everything.total_weight
    voters = voters_of(aim, union, ground.column("id").combine_chunks(), vectors, weights)
    request = union.request(
        aim,
        k=k,
        coverage_weight=aim.weight / weight if weight > 0 else 0.0,
        crowd=crowd_of(aim, union, voters, threads=aim.threads),
        below_root=True,
    )
    effort = resolve(
        aim.effort(),
        n_ground=len(vectors),
        n_candidates=len(union.vectors),
        k=k,
        square=False,
    )
    whole = len(vectors) == aim.n_rows
    verify = None if whole else points.sample(everything, np.arange(len(vectors)))
    screening = None if verify is None else Screening(None, verify, threads=aim.threads)
    if effort.mode == "screened":
        rows = sample_rows(aim.keys(ground.column("id").to_pylist()), effort.m1)
        screen = points.sample(points.oracle(rows), rows)
        screening = Screening(screen, verify, effort.z, effort.unseen, aim.threads)
    return merge(
        aim.config.method,
        everything,
        union.vectors,
        request,
        local_sets=union.sets,
        screening=screening,
    )


@dataclass(frozen=True)
class _Points:
    """Ground points of one process, and sums over some of them."""

    aim: Aim
    union: Union
    vectors: Stored
    weights: npt.NDArray[np.float64] | None
    ids: pa.ChunkedArray

    def oracle(self, rows: Indices) -> CoverageOracle:
        vectors = self.vectors if len(rows) == len(self.vectors) else self.vectors[rows]
        weights = None if self.weights is None else self.weights[rows]
        return sampled_coverage(
            vectors,
            self.union.vectors,
            weights=weights,
            threads=self.aim.threads,
            device=self.aim.device,
        )

    def sample(self, oracle: CoverageOracle, rows: Indices) -> Sample:
        drawn = self.ids.take(pa.array(rows)).combine_chunks()
        members = pc.is_in(self.union.rows.column("id").combine_chunks(), value_set=drawn)
        return Sample(
            oracle,
            members.to_numpy(zero_copy_only=False),
            self.aim.n_rows,
            self.union.weights(self.aim),
        )
