"""What a run costs on a cluster: time by stage, GPU hours, memory by process, disk by kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.config.cluster import WorkersConfig
from jobs.config.load import Config
from jobs.embed import CHUNK_ROWS
from jobs.generating.content_free import CONTENT_FREE_TOKENS
from jobs.planning.cluster import Machines
from jobs.planning.rates import ENCODER_PROCESS_BYTES, PROCESS_BYTES, SECONDS_TO_START, Rates
from jobs.planning.stage1 import Stage1Plan
from jobs.spill import CHUNK_BYTES

# Of a row beside its text, on disk; a prompt token as text; a demonstration's ids and scores.
ROW_BYTES, TOKEN_BYTES = 120, 5
# A partition's rows while it is made: as read, sorted, its texts as Python objects, as written.
COPIES = 6


@dataclass(frozen=True)
class Planned:
    """All that is known of a run before it begins.

    Attributes:
        config: The resolved config.
        tables: Rows, characters and partitions of corpus and queries.
        encoders: Tokens, dimension and weights of each.
        sparse: The same of sparse encoders.
        arms: Prompts and their tokens.
        plans: Of Stage 1.
    """

    config: Config
    tables: Mapping[str, Any]
    encoders: Mapping[str, Any]
    sparse: Mapping[str, Any]
    arms: Mapping[str, Any]
    plans: Mapping[str, Stage1Plan]

    @property
    def n_parts(self) -> int:
        """Parts of both tables."""
        return sum(table["partitions"] for table in self.tables.values())


def cost(planned: Planned, machines: Machines, rates: Rates) -> dict[str, Any]:
    """Predict what a run takes.

    Args:
        planned: The run.
        machines: The cluster.
        rates: Measured, or none.

    Returns:
        `workers`, `seconds`, `gpu_hours`, `memory_bytes`, `disk` by stage or kind, plain data.
    """
    workers = {name: _workers(planned, machines, name) for name in ("embed", "select")}
    turns = _turns(planned, machines, rates)
    seconds = _seconds(planned, machines, rates, workers) | _spent(turns)
    gpu_s = sum(turn.gpus * turn.workers * (turn.seconds + turn.epr_s) for turn in turns)
    for stage, n in workers.items():
        gpu_s += machines.gpus_of(*_resources(planned, stage)) * n * seconds[stage]
    return {
        "workers": workers | {"generate": max((turn.workers for turn in turns), default=0)},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "gpu_hours": round(gpu_s / 3600, 3),
        "memory_bytes": memory(planned, rates),
        "disk": disk(planned, rates),
    }


def _workers(planned: Planned, machines: Machines, stage: str) -> int:
    units = {
        "embed": planned.n_parts,
        "select": planned.tables["corpus"]["partitions"],
    }
    resources, gpus = _resources(planned, stage)
    return machines.n_workers(resources, gpus=gpus, n_units=units[stage])


def _resources(planned: Planned, stage: str) -> tuple[WorkersConfig, float]:
    """What a worker of a stage asks for, and its GPUs where the config leaves them open."""
    gpus = {"embed": 1.0, "select": 0.0}
    return getattr(planned.config.file.cluster, stage), gpus[stage]


@dataclass(frozen=True)
class _Turn:
    """What one engine answers; engines answer one after the other, each on all of the cluster.

    Attributes:
        workers: How many hold it.
        gpus: Of each.
        seconds: For its prompts.
        epr_s: For those from which a map is learnt.
    """

    workers: int
    gpus: float
    seconds: float
    epr_s: float


def _turns(planned: Planned, machines: Machines, rates: Rates) -> list[_Turn]:
    resources = planned.config.file.cluster.generate
    parts = planned.tables["queries"]["partitions"]
    turns = []
    for engine in dict.fromkeys(arm.engine for arm in planned.config.arms):
        arms = [planned.arms[arm.name] for arm in planned.config.arms if arm.engine == engine]
        parallel = float(planned.config.file.engines[engine].tensor_parallel_size)
        n = machines.n_workers(resources, gpus=parallel, n_units=parts * len(arms))
        gpus = machines.gpus_of(resources, parallel)
        pace = rates.prompt_tokens(engine, cpus=resources.cpus, gpus=gpus) * max(1, n)
        asked = sum(map(_prompt_tokens, arms)), sum(arm["epr_prompt_tokens"] for arm in arms)
        turns.append(_Turn(n, gpus, asked[0] / pace, asked[1] / pace))
    return turns


def _spent(turns: Sequence[_Turn]) -> dict[str, float]:
    trials = sum(turn.epr_s for turn in turns)
    return {"generate": sum(turn.seconds for turn in turns)} | ({"epr": trials} if trials else {})


def _seconds(
    planned: Planned, machines: Machines, rates: Rates, workers: Mapping[str, int]
) -> dict[str, float]:
    rows = sum(table["rows"] for table in planned.tables.values())
    files = sum(table["files"] for table in planned.tables.values())
    reading = rows / rates.per_core("read_rows") / max(1.0, min(files, machines.cpus))
    parting = rows / rates.per_core("partition_rows")
    return {
        "start": _start_s(rates),
        "ingest": reading + parting / max(1.0, min(planned.n_parts, machines.cpus)),
        "embed": _embed_seconds(planned, machines, rates, max(1, workers["embed"])),
        "select": _select_seconds(planned, machines, rates, max(1, workers["select"])),
    }


def _start_s(rates: Rates) -> float:
    engines = (rates.get("engines") or {}).values()
    measured = rates.get("start_s")
    if measured is None:
        return SECONDS_TO_START
    return float(measured) + sum(float(one["load_s"]) for one in engines)


def _prompt_tokens(arm: Mapping[str, Any]) -> int:
    asked = arm["prompt_tokens"] + arm["order_prompt_tokens"] + arm["calibration_prompt_tokens"]
    return int(asked + arm["content_free_prompts"] * CONTENT_FREE_TOKENS)


def _embed_seconds(planned: Planned, machines: Machines, rates: Rates, n_workers: int) -> float:
    resources, most = _resources(planned, "embed")
    gpus = machines.gpus_of(resources, most)
    each = {
        name: one["tokens"]
        / rates.embed_tokens(name, weights=one["weights"], cpus=resources.cpus, gpus=gpus)
        for name, one in planned.encoders.items()
    }
    sparse = {
        name: one["tokens"]
        / rates.embed_tokens(name, weights=one["weights"], cpus=resources.cpus, gpus=gpus)
        for name, one in planned.sparse.items()
    }
    return (sum(each.values()) + sum(sparse.values())) / n_workers


def _select_seconds(planned: Planned, machines: Machines, rates: Rates, n_workers: int) -> float:
    """Products at the pace of a core, and what every setting takes whatever its size."""
    pace = float(rates.get("select", "pace") or 1.0)
    fixed = float(rates.get("select", "fixed_s") or 0.0)
    total = 0.0
    for plan in planned.plans.values():
        busy = min(machines.cpus, plan.sizes.threads * min(n_workers, plan.sizes.n_partitions))
        total += plan.n_folds * (plan.core_seconds() / pace / max(1.0, busy) + fixed)
    return total


# Memory: what was measured on the sample, and by how much more this run holds.


def memory(planned: Planned, rates: Rates) -> dict[str, int]:
    """Most that one worker of a stage, and the driver, have resident.

    Args:
        planned: The run.
        rates: With `memory` of the sample and what was predicted of it, or none.

    Returns:
        Bytes of `ingest`, `embed`, `select` (a worker each) and `driver`.
    """
    now = resident(planned)
    found, then = rates.get("memory", "measured"), rates.get("memory", "predicted")
    if not (found and then):
        return now
    return {name: max(found[name], found[name] + now[name] - then[name]) for name in now}


def resident(planned: Planned) -> dict[str, int]:
    """The same from sizes alone."""
    tables = planned.tables.values()
    text = [table["characters_mean"] + ROW_BYTES for table in tables]
    whole = max(int(t["rows"] * one) for t, one in zip(tables, text, strict=True))
    parts = [int(t["rows"] / t["partitions"] * one) for t, one in zip(tables, text, strict=True)]
    chunk = min(CHUNK_ROWS, max(-(-t["rows"] // t["partitions"]) for t in tables))
    encoders = planned.encoders.values()
    model = max((one["model_bytes"] + 12 * chunk * one["dimension"] for one in encoders), default=0)
    selecting = [plan.memory for plan in planned.plans.values()]
    return {
        "ingest": PROCESS_BYTES + max(2 * min(whole, CHUNK_BYTES), COPIES * max(parts)),
        "embed": ENCODER_PROCESS_BYTES + model + int(2 * chunk * max(text)),
        "select": max((one.worker for one in selecting), default=PROCESS_BYTES),
        "driver": max((one.driver for one in selecting), default=PROCESS_BYTES),
    }


def disk(planned: Planned, rates: Rates) -> dict[str, int]:
    """Bytes in the output by kind.

    Args:
        planned: The run.
        rates: With bytes a row, or none.

    Returns:
        `rows`, `vectors`, `candidates` and `prompts`, with answers; spills are gone at the end.
    """
    rows = 0.0
    for name, table in planned.tables.items():
        each = rates.get("bytes_per_row", name) or table["characters_mean"] + ROW_BYTES
        rows += table["rows"] * float(each)
    n_rows = sum(table["rows"] for table in planned.tables.values())
    vectors = 0.0
    for name, one in planned.encoders.items():
        each = rates.get("encoders", name, "bytes_per_row")
        vectors += n_rows * float(each) if each else one["vector_bytes"]
    chosen = sum(plan.n_folds * plan.output_bytes for plan in planned.plans.values())
    prompts = sum(
        2 * (one["prompt_tokens"] + one["order_prompt_tokens"]) * TOKEN_BYTES
        for one in planned.arms.values()
    )
    return {
        "rows": int(rows),
        "vectors": int(vectors),
        "candidates": int(chosen * float(rates.get("select", "bytes_share") or 1.0)),
        "prompts": int(prompts),
    }


def on_nodes(planned: Planned, machines: Machines, held: Mapping[str, int]) -> dict[str, Any]:
    """Memory of the node that holds most workers of a stage, against what it has.

    Args:
        planned: The run.
        machines: The cluster.
        held: As `memory` returns it.

    Returns:
        By stage: `workers`, `bytes` of them together, `node_bytes` (None: not known).
    """
    found = {}
    for stage in ("embed", "select"):
        resources, gpus = _resources(planned, stage)
        units = planned.n_parts if stage == "embed" else planned.tables["corpus"]["partitions"]
        every = [machines.workers_on(node, resources, gpus=gpus) for node in machines.nodes]
        most = max(range(len(every)), key=lambda i: every[i])
        n = min(every[most], units, resources.actors or units)
        found[stage] = {
            "workers": n,
            "bytes": n * held[stage],
            "node_bytes": machines.nodes[most].memory_bytes,
        }
    return found
