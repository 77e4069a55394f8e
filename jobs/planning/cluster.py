"""The cluster that a plan is made for: told, or looked at; and how many workers it holds."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.capacity import Amounts, declared, request, room
from jobs.cluster import connected
from jobs.cluster import nodes as cluster_nodes
from jobs.config.cluster import ClusterConfig, WorkersConfig
from jobs.config.section import parse_bytes
from jobs.errors import ConfigError

STANDARD = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True)
class Node:
    """One machine.

    Attributes:
        cpus: Its cores.
        gpus: Its GPUs.
        memory_bytes: Its memory; None: not known.
        resources: Its own resources, by name.
    """

    cpus: float
    gpus: float = 0.0
    memory_bytes: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def amounts(self) -> dict[str, float]:
        """What it has as `jobs.capacity` counts; memory that is not known is enough."""
        memory = math.inf if self.memory_bytes is None else float(self.memory_bytes)
        return {"CPU": self.cpus, "GPU": self.gpus, "memory": memory, **self.resources}


@dataclass(frozen=True)
class Machines:
    """All nodes of a cluster.

    Attributes:
        nodes: At least one.
        source: `told`, `cluster.nodes`, `this machine` or `the cluster at ADDRESS`.
    """

    nodes: tuple[Node, ...]
    source: str

    @property
    def cpus(self) -> float:
        """Cores of all nodes."""
        return sum(node.cpus for node in self.nodes)

    @property
    def gpus(self) -> float:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    def workers_on(self, node: Node, workers: WorkersConfig, *, gpus: float) -> int:
        """Workers of a stage that one node holds.

        Args:
            node: The node.
            workers: What each asks for.
            gpus: What each asks for where the config leaves it open and there are some.
        """
        asked = workers.model_copy(update={"gpus": self.gpus_of(workers, gpus)})
        return room([node.amounts], request(asked))

    def n_workers(self, workers: WorkersConfig, *, gpus: float, n_units: int) -> int:
        """Workers of a stage, as `jobs.cluster.n_workers` would start them; 0: none fits.

        Args:
            workers: What each asks for.
            gpus: As for `workers_on`.
            n_units: Units to be made.
        """
        fits = sum(self.workers_on(node, workers, gpus=gpus) for node in self.nodes)
        return min(workers.actors or fits, fits, max(1, n_units))

    def gpus_of(self, workers: WorkersConfig, gpus: float) -> float:
        """GPUs that each worker gets."""
        if workers.gpus is not None:
            return workers.gpus
        return gpus if self.gpus else 0.0

    def amounts(self) -> list[dict[str, float]]:
        """The nodes as `jobs.capacity` counts."""
        return [node.amounts for node in self.nodes]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        known = [node.memory_bytes for node in self.nodes if node.memory_bytes is not None]
        return {
            "nodes": len(self.nodes),
            "cpus": self.cpus,
            "gpus": self.gpus,
            "smallest_memory_bytes": min(known, default=None),
            "source": self.source,
        }

    def line(self) -> str:
        """In words."""
        n, first = len(self.nodes), self.nodes[0]
        if any(node != first for node in self.nodes):
            return f"{n:,} nodes with {self.cpus:g} CPUs and {self.gpus:g} GPUs ({self.source})"
        memory = "" if first.memory_bytes is None else f", {first.memory_bytes / 2**30:,.0f} GiB"
        each = f"{first.cpus:g} CPUs, {first.gpus:g} GPUs{memory}"
        return f"{n:,} node{'s' if n > 1 else ''} of {each} ({self.source})"


def machines_of(
    config: ClusterConfig,
    *,
    nodes: int | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    memory: str | None = None,
) -> Machines:
    """The cluster that is told; else what the config says it grows to; else that at its address.

    Without any of these, this machine.

    Args:
        config: Of the cluster.
        nodes: Equal nodes.
        cpus: Of each.
        gpus: Of each.
        memory: Of each, like `256GiB`.

    Raises:
        ConfigError: A number that cannot be.
        ClusterError: The cluster cannot be joined.
    """
    address = os.environ.get("RAY_ADDRESS") or config.address
    told = (nodes, cpus, gpus, memory)
    grown = declared(config)
    if all(one is None for one in told) and grown is not None:
        return Machines(tuple(map(_node, grown)), "cluster.nodes")
    if all(one is None for one in told) and address != "local":
        return _joined(config, address)
    here = _this_machine(config)
    for flag, value, least in (("nodes", nodes, 1), ("cpus", cpus, 1), ("gpus", gpus, 0)):
        if value is not None and value < least:
            raise ConfigError(f"--{flag} {value:g}: wanted at least {least}.")
    node = Node(
        here.cpus if cpus is None else cpus,
        (here.gpus if cpus is None else 0.0) if gpus is None else gpus,
        _bytes(memory) if memory is not None else (here.memory_bytes if cpus is None else None),
    )
    source = "this machine" if all(one is None for one in told) else "told"
    return Machines((node,) * (nodes or 1), source)


def machines_of_run(config: ClusterConfig) -> Machines:
    """The cluster that a run has today: a Ray of its own does not grow to `cluster.nodes`."""
    address = os.environ.get("RAY_ADDRESS") or config.address
    return machines_of(config.model_copy(update={"nodes": None}) if address == "local" else config)


def _node(has: Amounts) -> Node:
    """A node from what `jobs.capacity` knows of it."""
    memory = has.get("memory", math.inf)
    own = {name: amount for name, amount in has.items() if name not in STANDARD}
    known = None if math.isinf(memory) else int(memory)
    return Node(has.get("CPU", 0.0), has.get("GPU", 0.0), known, own)


def _bytes(memory: str) -> int:
    try:
        return parse_bytes(memory)
    except ValueError as error:
        raise ConfigError(f"--memory {memory}: {error}.") from None


def _this_machine(config: ClusterConfig) -> Node:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Node(float(config.cpus or len(os.sched_getaffinity(0))), _gpus_here(), memory)


def _gpus_here() -> float:
    """GPUs of this machine, as a Ray that starts here counts them."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    kind: Any = get_accelerator_manager_for_resource("GPU")
    found, visible = (
        kind.get_current_node_num_accelerators(),
        kind.get_current_process_visible_accelerator_ids(),
    )
    return float(found if visible is None else min(found, len(visible)))


def _joined(config: ClusterConfig, address: str) -> Machines:
    with connected(config):
        alive = cluster_nodes()
    return Machines(tuple(map(_node, alive)), f"the cluster at {address}")
