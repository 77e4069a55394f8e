"""The merge of Stage 1: what the partitions found becomes one set, judged on the whole corpus."""

import json
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.config_schema import Stage1Config
from jobs.ledger import Marker, Unit, sum_counts
from jobs.run import Run
from jobs.select_local import objective_of
from jobs.select_workers import ActorCoverage, Workers
from jobs.vectors import Matrix, random_keys, to_matrix
from selection.lazy_greedy import evaluate
from selection.merge import Merged, merge
from selection.stage1 import judged_objective
from selection.trace import Selection


@dataclass
class Choice:
    """One Stage 1 setting, shared by every arm that has it."""

    encoder: str
    config: Stage1Config
    seed: int
    mark: str
    arms: list[str] = field(default_factory=list)

    def unit(self, name: str) -> Unit:
        """A unit of this choice's folder."""
        return Unit(f"candidates/{self.mark}", name, self.mark)


def n_eligible(run: Run, encoder: str) -> int:
    """Corpus rows that have a vector and so can be chosen."""
    return sum_counts(run.vectors[encoder, "corpus"], "status").get("ok", 0)


@dataclass(frozen=True)
class Union:
    """What all partitions found, in the order of ids: one row a candidate or control."""

    rows: pa.Table
    vectors: Matrix
    local_sets: list[npt.NDArray[np.int64]]
    control: npt.NDArray[np.int64]


def _union(run: Run, local: list[Marker], *, k1: int, seed: int) -> Union:
    tables = [run.ledger.read(marker) for marker in local]
    everything = pa.concat_tables(tables)
    first = {row_id: i for i, row_id in reversed(list(enumerate(everything["id"].to_pylist())))}
    ids = sorted(first)
    place = {row_id: i for i, row_id in enumerate(ids)}
    rows = everything.take(pa.array([first[row_id] for row_id in ids], pa.int64()))
    local_sets = [_places(table, "choice", place) for table in tables]
    controls = np.concatenate([_places(table, "control", place) for table in tables])
    keys = random_keys([ids[i] for i in controls], seed)
    control = controls[np.argsort(keys, kind="stable")[:k1]]
    return Union(rows, to_matrix(rows.column("vector")), local_sets, control)


def _places(table: pa.Table, role: str, place: dict[str, int]) -> npt.NDArray[np.int64]:
    picked = table.filter(pc.equal(table.column("role"), role)).sort_by("local_rank")
    return np.array([place[row_id] for row_id in picked.column("id").to_pylist()], np.int64)


def merge_choice(
    run: Run, workers: Workers, choice: Choice, local: list[Marker], started: float
) -> dict[str, Any]:
    """Merge what the partitions found, judge it on the whole corpus, and commit the candidates.

    Args:
        run: The run.
        workers: Hold the vectors of all partitions.
        choice: The Stage 1 setting.
        local: One marker of local picks a partition.
        started: When work on this setting began, `time.monotonic()`.

    Returns:
        What `selection.json` says.
    """
    config, n_total = choice.config, n_eligible(run, choice.encoder)
    union = _union(run, local, k1=config.k1, seed=choice.seed)
    oracle = ActorCoverage(workers, union.vectors)
    objective = objective_of(config)
    ids = union.rows.column("id").to_pylist()
    merged = merge(
        config.method,
        oracle,
        union.vectors,
        k=config.k1,
        objective=objective,
        tie_rank=np.arange(len(ids), dtype=np.int64),
        keys=random_keys(ids, choice.seed),
        local_sets=union.local_sets,
        n_total=n_total,
    )
    judge = judged_objective(config.method, objective)
    control = evaluate(oracle, union.vectors, union.control, objective=judge, n_total=n_total)
    # Both terms of every method's choice, also where lambda is 0 and only one was looked at.
    both = replace(objective, lam=1.0)
    terms = evaluate(oracle, union.vectors, merged.selection.picks, objective=both, n_total=n_total)
    facts = _facts(run, choice, local, merged, control) | _terms(config, terms, n_total)
    facts["seconds"] = time.monotonic() - started
    table = candidate_table(union.rows, merged.selection)
    run.ledger.commit(
        choice.unit("candidates"),
        table,
        stats=facts,
        files={"selection.json": json.dumps(facts, indent=1).encode()},
    )
    return facts


def candidate_table(rows: pa.Table, selection: Selection) -> pa.Table:
    """The candidates in the order they were picked, with what each added."""
    k = len(selection.picks)
    chosen = rows.take(pa.array(selection.picks))
    return pa.table(
        {
            "rank": pa.array(np.arange(k, dtype=np.int64)),
            "id": chosen.column("id"),
            "input": chosen.column("input"),
            "gain": selection.gains,
            "coverage_gain": selection.coverage_gains,
            "diversity_gain": selection.diversity_gains,
            "objective": selection.objective,
            "partition": chosen.column("partition"),
            "n_covered": selection.n_covered,
            "cost": chosen.column("cost"),
            "text_hash": chosen.column("text_hash"),
            "vector": chosen.column("vector"),
        }
    )


def _facts(
    run: Run, choice: Choice, local: list[Marker], merged: Merged, control: Selection
) -> dict[str, Any]:
    """What `selection.json` says."""
    config, best = choice.config, merged.selection
    evaluations = best.evaluations + sum(int(m.stats["evaluations"]) for m in local)
    n_total = n_eligible(run, choice.encoder)
    excluded = sum_counts(run.vectors[choice.encoder, "corpus"], "status")
    excluded.pop("ok", None)
    numbers = {
        "objective": best.value,
        "merged_objective": merged.merged_value,
        "best_local_objective": merged.best_local_value,
        "random_objective": control.value,
    }
    return {
        "method": config.method,
        "mode": "exact-lazy" if config.method != "random" else "random",
        "N": n_total,
        "excluded": excluded,
        "k1": config.k1,
        "k1_used": len(best.picks),
        "lambda": 0.0 if config.method == "coverage" else config.lam,
        "lambda_scale": config.lambda_scale,
        "ridge": config.ridge,
        "seed": choice.seed,
        "encoder_id": run.encoder_ids[choice.encoder],
        "partitions": len(local),
        "merge": merged.mode,
        "best_local_partition": merged.best_local_partition,
        "evaluations": evaluations,
        "first_negative_gain": best.first_negative,
        "rank_exhausted_at": best.rank_exhausted_at,
        **{key: value if np.isfinite(value) else None for key, value in numbers.items()},
    }


def _terms(config: Stage1Config, judged: Selection, n_total: int) -> dict[str, float]:
    """C and D of the choice, as the paper has them: its C has no baseline of -1 a point."""
    baseline = float(n_total) if config.lambda_scale == "absolute" else 1.0
    return {
        "coverage": float(np.sum(judged.coverage_gains)) - baseline,
        "diversity": float(np.sum(judged.diversity_gains)),
    }
