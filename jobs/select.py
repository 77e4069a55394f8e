"""Select (Stage 1): partitions choose locally, the driver merges what they found."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.cluster import n_workers
from jobs.config_schema import Arm, Stage1Config
from jobs.embed import encoder_spec
from jobs.errors import ConfigError, InvariantError
from jobs.ledger import Marker, Unit, fingerprint, sum_counts
from jobs.run import Run
from jobs.select_local import LocalWork, objective_of
from jobs.select_workers import ActorCoverage, Workers
from jobs.vectors import Matrix, random_keys, to_matrix
from selection.lazy_greedy import evaluate
from selection.merge import Merged, merge
from selection.stage1 import STAGE1, judged_objective
from selection.trace import Selection

VERSION = 1
NO_STAGE1 = "none"


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


# What it needs: the vectors of the corpus.


def run_stage(run: Run) -> None:
    """Choose candidates for every Stage 1 setting in the config."""
    choices = _choices(run)
    for encoder in sorted({choice.encoder for choice in choices}):
        mine = [choice for choice in choices if choice.encoder == encoder]
        missing = [choice for choice in mine if run.ledger.find(choice.unit("candidates")) is None]
        if missing:
            _select(run, encoder, missing)
    run.manifest["selections"] = {}
    for choice in choices:
        marker = run.ledger.find(choice.unit("candidates"))
        assert marker is not None
        _record(run, choice, marker)


def check(arm: Arm) -> None:
    """Refuse a Stage 1 that cannot be.

    Raises:
        ConfigError: Unknown method.
    """
    known = sorted([*STAGE1, NO_STAGE1])
    if arm.stage1.method not in known:
        raise ConfigError(
            f"arm {arm.name}: stage1.method = {arm.stage1.method!r}; known: {', '.join(known)}."
        )


def _choices(run: Run) -> list[Choice]:
    found: dict[str, Choice] = {}
    for arm in run.arms:
        if arm.stage1.method == NO_STAGE1:
            continue
        vectors = [m.fingerprint for m in run.vectors[arm.encoder, "corpus"]]
        config = _relevant(arm.stage1)
        seed = run.config.file.seed if arm.stage1.method != "random" else arm.seed
        costs = [part.marker.stats["costs"] for part in run.tables["corpus"].parts]
        depends = [run.encoder_ids[arm.encoder], config, seed, vectors, costs]
        mark = fingerprint("select", VERSION, depends)
        choice = found.setdefault(mark, Choice(arm.encoder, arm.stage1, seed, mark))
        choice.arms.append(arm.name)
    return list(found.values())


def _relevant(config: Stage1Config) -> dict[str, Any]:
    """What the picks and the reported values depend on."""
    plain = config.model_dump(by_alias=True)
    if config.method == "coverage":
        plain["lambda"] = plain["ridge"] = 0.0
    return plain


# The Ray wiring; the Ray-free function on one partition is in `select_local`.


def _select(run: Run, encoder: str, choices: list[Choice]) -> None:
    partitions = {
        number: [marker.as_dict() for marker in markers]
        for number, markers in enumerate(run.vectors_by_partition(encoder))
    }
    resources = run.config.file.cluster.select
    workers = Workers(
        run.out, partitions, resources=resources, n_actors=n_workers(resources, len(partitions))
    )
    try:
        for choice in choices:
            started = time.monotonic()
            local = _local(run, workers, choice)
            _merge(run, workers, choice, local, started)
    finally:
        workers.stop()


def _local(run: Run, workers: Workers, choice: Choice) -> list[Marker]:
    corpus = run.tables["corpus"]
    n_total = _n_eligible(run, choice.encoder)
    if choice.config.k1 > n_total:
        run.progress.warn(
            f"stage1.k1 = {choice.config.k1} is more than the {n_total} rows that can be chosen; "
            f"all {n_total} are"
        )
    spec = encoder_spec(run.config.file.encoders[choice.encoder], key=choice.encoder)
    work = LocalWork(
        choice.config.method,
        choice.config.model_dump(by_alias=True),
        choice.seed,
        spec.storage,
        n_total,
    )
    units = [choice.unit(f"local-{p:05d}") for p in range(corpus.n_partitions)]
    pending = [p for p, unit in enumerate(units) if run.ledger.find(unit) is None]
    payloads = [
        {
            "unit": asdict(units[p]),
            "partition": p,
            "rows": [part.marker.as_dict() for part in corpus.in_partition(p)],
        }
        for p in pending
    ]
    made = {unit.name: run.ledger.find(unit) for unit in units}
    for result in workers.local(work, payloads):
        marker = Marker(**result["marker"])
        made[marker.name] = marker
    markers = [marker for marker in made.values() if marker is not None]
    if len(markers) != corpus.n_partitions:
        raise InvariantError(f"select: {len(markers)} of {corpus.n_partitions} partitions chose")
    return markers


def _n_eligible(run: Run, encoder: str) -> int:
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


def _merge(run: Run, workers: Workers, choice: Choice, local: list[Marker], started: float) -> None:
    config, n_total = choice.config, _n_eligible(run, choice.encoder)
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
    run.progress.line("select", _line(choice, facts))


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
    n_total = _n_eligible(run, choice.encoder)
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


def _line(choice: Choice, facts: dict[str, Any]) -> str:
    def show(key: str) -> str:
        value = facts[key]
        return "none" if value is None else f"{value:,.4f}"

    return (
        f"{choice.config.method}: {facts['N']:,} -> {facts['k1_used']}  objective "
        f"{show('objective')} (best local {show('best_local_objective')}, random "
        f"{show('random_objective')})  {facts['seconds']:.1f} s"
    )


def _record(run: Run, choice: Choice, marker: Marker) -> None:
    for arm in choice.arms:
        run.candidates[arm] = marker
    entry = {"candidates": marker.as_dict(), "arms": choice.arms, "encoder": choice.encoder}
    run.manifest["selections"][choice.mark] = entry
    first = marker.stats["first_negative_gain"]
    if first is not None and choice.config.method == "dual-div":
        run.progress.line("select", f"{choice.config.method}: gain below 0 from pick {first + 1}")
