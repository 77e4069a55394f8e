"""`plan --calibrate`: run the stages on a sample; keep how fast they were and what they held."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from jobs import manifest
from jobs.config.cluster import WorkersConfig
from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.ledger import Marker
from jobs.plan import prepared
from jobs.planning.cluster import Machines
from jobs.planning.cost import Planned, resident
from jobs.progress import Progress
from jobs.status import markers_in
from jobs.storage import Store

FOLDER = "calibration"
SAMPLE_ROWS = 5_000
# Enough prompts for an LLM's pace, few enough for one on a CPU.
SAMPLE_QUERIES = 32
# A core that multiplies float32 matrices so fast does plan_select.FLOP_PER_CORE_SECOND of Stage 1.
SGEMM_FLOP_PER_SECOND = 75e9
SIDE = 1024


def calibrate(
    config: Config,
    machines: Machines,
    *,
    rows: int = SAMPLE_ROWS,
    until: str = "generate",
    progress: Progress,
) -> dict[str, Any]:
    """Run the stages on the first rows, beside the output proper, and measure.

    Args:
        config: The resolved config.
        machines: The cluster, for what was predicted of the sample.
        rows: Rows of the corpus; of the queries, SAMPLE_QUERIES.
        until: `select`, or `generate` for the pace of the LLMs too.
        progress: Takes the lines of the run.

    Returns:
        What `jobs.planning.rates.Rates` reads.

    Raises:
        DualdivError: As `run`.
    """
    from jobs.pipeline import execute

    store = Store(config.out)
    store.create()
    # What is there already would take no time.
    store.remove_tree(FOLDER)
    sample = sample_of(config, rows)
    try:
        started = time.monotonic()
        execute(sample, until="select", progress=progress)
        wall_s = time.monotonic() - started
        planned, _ = prepared(sample, machines)
        there = Store(sample.out)
        measured = rates_of(
            planned,
            manifest.load(there),
            there,
            machines=machines,
            core_flop=sgemm_flop(),
            wall_s=wall_s,
        )
        if until == "generate":
            few = replace(sample, arms=_one_arm_an_engine(sample))
            execute(few, until="generate", progress=progress)
            measured["engines"] = engines_of(few, manifest.load(there), machines)
    finally:
        store.remove_tree(FOLDER)
    return measured


def sample_of(config: Config, rows: int) -> Config:
    """The first rows, without what no pace comes from, and what names arms or rows left out.

    That is batches for annotators, further orders, folds, baselines, and lists of ids.
    """
    report = {"orders": None, "folds_of": "queries", "baselines": None}
    changes = {
        "out": f"{config.out.rstrip('/')}/{FOLDER}",
        "annotate": config.file.annotate.model_copy(update={"nightly": False}),
        "report": config.file.report.model_copy(update=report),
    }
    file = config.file.model_copy(update=changes)
    limit = min(rows, config.limit or rows)
    arms = tuple(_without_ids(arm) for arm in config.arms)
    few = min(SAMPLE_QUERIES, limit)
    return replace(config, file=file, arms=arms, limit=limit, query_limit=few)


def _without_ids(arm: Arm) -> Arm:
    """The arm without lists of ids, of which the sample need not have the rows."""
    epr = arm.stage2.epr.model_copy(update={"also": None})
    changes = {
        "stage1": arm.stage1.model_copy(update=dict.fromkeys(("given", "required", "forbidden"))),
        "stage2": arm.stage2.model_copy(update={"epr": epr}),
    }
    return arm.model_copy(update=changes)


def _one_arm_an_engine(config: Config) -> tuple[Arm, ...]:
    first: dict[str, Arm] = {}
    for arm in config.arms:
        first.setdefault(arm.engine, arm)
    return tuple(first.values())


def rates_of(
    planned: Planned,
    found: Mapping[str, Any],
    store: Store,
    *,
    machines: Machines,
    core_flop: float,
    wall_s: float,
) -> dict[str, Any]:
    """What a manifest of a run up to `select` says of its pace, memory and disk.

    Args:
        planned: What was counted of the sample before.
        found: The manifest.
        store: Of that run.
        machines: That it ran on.
        core_flop: What a core multiplies in a second.
        wall_s: What the run took.
    """
    stages = found["stages"]
    tables = {name: planned.tables[name] for name in ("corpus", "queries")}
    bytes_of = {name: _bytes(found["tables"][name]) for name in tables}
    chosen, seconds = written(found, store)["candidates"], _selecting_s(found)
    return {
        "rows": planned.tables["corpus"]["rows"],
        "start_s": round(max(0.0, wall_s - seconds - _working_s(stages)), 2),
        "ingest": _ingest(stages["ingest"]),
        "encoders": _encoders(planned, found, machines),
        "select": _select(planned, core_flop, seconds=seconds, chosen=chosen),
        "bytes_per_row": {n: bytes_of[n] / max(1, tables[n]["rows"]) for n in tables},
        "memory": {"measured": held(stages), "predicted": resident(planned)},
    }


def held(stages: Mapping[str, Any]) -> dict[str, int]:
    """Most that a worker of a stage, and the driver, had resident, by a manifest's `stages`."""
    ran = ("ingest", "embed", "select")
    peaks = {name: int(stages[name]["worker_peak_bytes"]) for name in ran}
    return peaks | {"driver": max(int(stages[name]["driver_peak_bytes"]) for name in ran)}


def written(found: Mapping[str, Any], store: Store) -> dict[str, int]:
    """Bytes of what a run up to `select` left, by the kinds of `jobs.planning.cost.disk`.

    Args:
        found: Its manifest.
        store: Its output: of the answers of partitions the manifest does not speak.
    """
    chosen = 0
    for entry in found["selections"].values():
        marker = Marker(**entry["candidates"])
        parts = int(marker.stats["partitions"])
        names = [f"{marker.folder}/local-{p:05d}.parquet" for p in range(parts)]
        chosen += marker.bytes + sum(store.size(name) or 0 for name in names)
    return {
        "rows": _bytes(found["tables"]),
        "vectors": _bytes(found["embeddings"]),
        "candidates": chosen,
    }


def _bytes(entry: Any) -> int:
    """Of a file once, however often it is listed."""
    found: dict[str, Marker] = {marker.table: marker for marker in markers_in(entry)}
    return sum(marker.bytes for marker in found.values())


def _selecting_s(found: Mapping[str, Any]) -> float:
    return sum(
        float(entry["candidates"]["stats"]["seconds"]) for entry in found["selections"].values()
    )


def _working_s(stages: Mapping[str, Any]) -> float:
    """What workers worked, loading apart; the rest of a run is starting these, and loading."""
    each = [one for name in ("ingest", "embed") for one in stages[name]["stretches"]]
    return sum(
        (one["worker_seconds"] - one["load_seconds"]) / max(1, one["workers"]) for one in each
    )


def _ingest(stage: Mapping[str, Any]) -> dict[str, float]:
    pace = {}
    for one in stage["stretches"]:
        what = {"read": "read_rows", "ingest": "partition_rows"}[one["stage"]]
        pace[what] = one["rows"] / max(1e-3, one["worker_seconds"])
    return pace


def _encoders(planned: Planned, found: Mapping[str, Any], machines: Machines) -> dict[str, Any]:
    """By name, in which order the stage embeds; a pace counts for the device it was measured on."""
    unit, count = _device(planned.config.file.cluster.embed, machines, 1.0)
    rates = {}
    stretches = found["stages"]["embed"]["stretches"]
    for name, one in zip(sorted(planned.encoders), stretches, strict=True):
        entry = found["embeddings"][name]
        n_tokens = sum(entry[table]["n_tokens"] for table in ("corpus", "queries"))
        n_rows = sum(marker.rows for marker in markers_in(entry))
        pace = n_tokens / max(1e-3, one["worker_seconds"] - one["load_seconds"])
        rates[name] = {
            "tokens_per_s": {unit: pace / count},
            "tokens_per_row": n_tokens / max(1, n_rows),
            "load_s": one["load_seconds"] / max(1, one["workers"]),
            "bytes_per_row": _bytes(entry) / max(1, n_rows),
        }
    return rates


def _device(workers: WorkersConfig, machines: Machines, gpus: float) -> tuple[str, float]:
    """What a worker computed on, and how many of it: it takes GPUs without being told to."""
    held = machines.gpus_of(workers, gpus)
    return ("gpu", held) if held else ("core", workers.cpus)


def _select(planned: Planned, core_flop: float, *, seconds: float, chosen: int) -> dict[str, float]:
    """The pace of a core against the one planned with, and what is left over as fixed."""
    pace, plans = core_flop / SGEMM_FLOP_PER_SECOND, planned.plans.values()
    products = sum(plan.seconds(plan.sizes.n_workers) for plan in plans) / pace
    predicted = sum(plan.output_bytes for plan in plans)
    return {
        "pace": pace,
        "fixed_s": max(0.0, seconds - products) / max(1, len(plans)),
        "bytes_share": chosen / predicted if predicted else 1.0,
    }


def engines_of(config: Config, found: Mapping[str, Any], machines: Machines) -> dict[str, Any]:
    """The pace of every LLM, by a manifest of a run up to `generate`.

    Args:
        config: Of that run.
        found: Its manifest.
        machines: That it ran on.
    """
    workers = config.file.cluster.generate
    rates = {}
    for arm in config.arms:
        markers = markers_in(found["outputs"][arm.name])
        tokens = sum(marker.stats["prompt_tokens"] for marker in markers)
        seconds = sum(marker.stats["wall_s"] for marker in markers)
        parallel = config.file.engines[arm.engine].tensor_parallel_size
        unit, count = _device(workers, machines, float(parallel))
        rates[arm.engine] = {"tokens_per_s": {unit: tokens / max(1e-3, seconds) / count}}
    loads = sum(one["load_seconds"] for one in found["stages"]["generate"]["stretches"])
    for one in rates.values():
        one["load_s"] = loads / len(rates)
    return rates


def sgemm_flop() -> float:
    """What one core multiplies in a second, in float32."""
    left = np.random.default_rng(0).random((SIDE, SIDE), np.float32)
    best = np.inf
    with threadpool_limits(limits=1):
        for _ in range(4):
            started = time.perf_counter()
            left @ left
            best = min(best, time.perf_counter() - started)
    return 2.0 * SIDE**3 / best
