"""What the stages ask of a cluster, and whether its nodes have it; no Ray in here.

A request and a node are plain mappings of resource to amount, named as Ray names them: `CPU`,
`GPU`, `memory` (bytes) and the cluster's own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.config.cluster import ClusterConfig, NodesConfig, WorkersConfig
from jobs.config.load import Config
from jobs.config.section import parse_bytes
from jobs.errors import ClusterError
from jobs.prompting.work import CALIBRATED

Amounts = Mapping[str, float]
EPSILON = 1e-6
KIND = {"CPU": "CPUs", "GPU": "GPUs"}


@dataclass(frozen=True)
class Need:
    """What one stage asks for.

    Attributes:
        stage: Key of `cluster`.
        each: What one of its workers asks for.
        workers: How many must run at a time; null in the config is one.
    """

    stage: str
    each: Amounts
    workers: int


def request(workers: WorkersConfig) -> dict[str, float]:
    """What Ray is asked for one worker; zeros are left out."""
    asked = {"CPU": workers.cpus, "GPU": workers.gpus or 0.0, **workers.resources}
    if workers.memory is not None:
        asked["memory"] = float(parse_bytes(workers.memory))
    return {name: amount for name, amount in asked.items() if amount}


def ray_options(workers: WorkersConfig) -> dict[str, object]:
    """The same in the words of `ray.remote` and `map_batches`."""
    options: dict[str, object] = {"num_cpus": workers.cpus, "num_gpus": workers.gpus or None}
    if workers.memory is not None:
        options["memory"] = parse_bytes(workers.memory)
    return options | ({"resources": dict(workers.resources)} if workers.resources else {})


def room(nodes: Sequence[Amounts], each: Amounts) -> int:
    """How many such workers fit, node by node.

    Args:
        nodes: What each node has.
        each: A request with at least one amount above 0.
    """
    return sum(
        math.floor(min(node.get(name, 0.0) / amount for name, amount in each.items()) + EPSILON)
        for node in nodes
    )


def with_gpus(workers: WorkersConfig, wanted: float, nodes: Sequence[Amounts]) -> WorkersConfig:
    """Give each worker GPUs where the config leaves it open and some node has them."""
    if workers.gpus is not None:
        return workers
    there = any(node.get("GPU", 0.0) for node in nodes)
    return workers.model_copy(update={"gpus": float(wanted) if there else 0.0})


def declared(config: ClusterConfig) -> list[dict[str, float]] | None:
    """The nodes that `cluster.nodes` says there will be; None: it says nothing."""
    if config.nodes is None:
        return None
    return [_has(group) for group in config.nodes for _ in range(group.count)]


def _has(group: NodesConfig) -> dict[str, float]:
    # Where nobody said how much memory, it is no reason to refuse.
    memory = math.inf if group.memory is None else float(parse_bytes(group.memory))
    return {"CPU": group.cpus, "GPU": group.gpus, **group.resources, "memory": memory}


def needs(config: Config, nodes: Sequence[Amounts], *, until: str) -> list[Need]:
    """What each stage asks for, up to and including a stage.

    Args:
        config: The resolved config.
        nodes: Of the cluster; without a GPU among them, stages that would take one do not.
        until: Name of the last stage.
    """
    cluster = config.file.cluster
    engines = {arm.engine for arm in config.arms}
    parallel = max(config.file.engines[name].tensor_parallel_size for name in engines)
    stages = [
        ("ingest", WorkersConfig()),
        ("embed", with_gpus(cluster.embed, 1.0, nodes)),
        ("select", with_gpus(cluster.select, 0.0, nodes)),
        ("rank", cluster.rank),
        ("generate", with_gpus(cluster.generate, float(parallel), nodes)),
    ]
    last = {"annotate": "select", "assemble": "rank"}.get(until, until)
    if until in ("rank", "assemble") and _asks_llm(config, until):
        last = "generate"
    names = [name for name, _ in stages]
    kept = stages[: names.index(last) + 1] if last in names else stages
    return [Need(name, request(workers), workers.actors or 1) for name, workers in kept]


def _asks_llm(config: Config, until: str) -> bool:
    """Whether `rank` learns a map, or `assemble` calibrates orders, with the LLM's workers."""
    shows = [arm for arm in config.arms if not arm.stage2.shows_nothing]
    learns = any(a.stage2.recall_by == "epr" and a.stage2.epr.map is None for a in shows)
    return learns or (until == "assemble" and any(a.prompt.order == CALIBRATED for a in shows))


def check(wanted: Sequence[Need], nodes: Sequence[Amounts]) -> None:
    """Refuse what the cluster cannot hold; stages run one after the other.

    Args:
        wanted: As `needs` returns it.
        nodes: What each node has for this run.

    Raises:
        ClusterError: Names each stage that does not fit, with the sum.
    """
    lines = [_lack(need, nodes) for need in wanted if room(nodes, need.each) < need.workers]
    if lines:
        raise ClusterError(
            "\n".join(lines) + "\nLower cluster.<stage>.actors or what each asks for, join a "
            "larger cluster, or say in cluster.nodes what it grows to."
        )


def _lack(need: Need, nodes: Sequence[Amounts]) -> str:
    total = {name: sum(node.get(name, 0.0) for node in nodes) for name in need.each}
    asked = _asked(need)
    short = [name for name in asked if asked[name] > total[name] + EPSILON]
    count = f"{need.workers} worker{'s' if need.workers > 1 else ''}"
    each = told(need.each)
    if short:
        lacks = "; ".join(
            f"needs {amount_of(name, asked[name])}, cluster has {amount_of(name, total[name])}"
            for name in short
        )
        return f"{need.stage}: {lacks} ({count} of {each}; {len(nodes)} nodes)"
    fit = room(nodes, need.each)
    return (
        f"{need.stage}: needs {count} of {each}, {told(asked)} in all; cluster has {told(total)}, "
        f"but on its {len(nodes)} nodes only {fit} fit"
    )


def told(amounts: Amounts) -> str:
    """A request or a sum in words."""
    return ", ".join(amount_of(name, amount) for name, amount in amounts.items())


def amount_of(name: str, amount: float) -> str:
    """One resource in words: `2 GPUs`, `4.0 GiB of memory`, `1 tpu_host`."""
    if name == "memory":
        return f"{amount / 2**30:,.1f} GiB of memory"
    return f"{amount:g} {KIND.get(name, name)}"


def lines_of(wanted: Sequence[Need], nodes: Sequence[Amounts]) -> list[str]:
    """What `plan` says of each stage: what it asks for, and how many of it would fit."""
    return [
        f"{need.stage} asks for {need.workers} x ({told(need.each)})"
        + (f" = {told(_asked(need))}" if need.workers > 1 else "")
        + f"; {room(nodes, need.each):,} would fit"
        for need in wanted
    ]


def as_dict(wanted: Sequence[Need], nodes: Sequence[Amounts]) -> dict[str, dict[str, object]]:
    """The same as plain data, by stage."""
    return {
        need.stage: {
            "each": dict(need.each),
            "workers": need.workers,
            "would_fit": room(nodes, need.each),
        }
        for need in wanted
    }


def _asked(need: Need) -> dict[str, float]:
    return {name: need.workers * amount for name, amount in need.each.items()}
