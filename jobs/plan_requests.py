"""What `dualdiv plan` says of the cluster: its nodes, and what each stage asks of them."""

import os
from typing import Any

from jobs import capacity
from jobs.cluster import connected, nodes
from jobs.config import Config
from jobs.config_schema import ClusterConfig


def nodes_planned(config: ClusterConfig) -> list[dict[str, float]]:
    """The nodes to plan for: those declared, else of the cluster that is named, else this machine.

    Raises:
        ClusterError: The cluster that is named does not answer.
    """
    found = capacity.declared(config)
    if found is not None:
        return found
    if os.environ.get("RAY_ADDRESS") or config.address != "local":
        with connected(config):
            return nodes()
    return [this_machine(config)]


def this_machine(config: ClusterConfig) -> dict[str, float]:
    """What a Ray started here would have."""
    import torch

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    return {
        "CPU": float(config.cpus or len(os.sched_getaffinity(0))),
        "GPU": float(torch.cuda.device_count()),
        # Ray leaves the rest to the object store and the system.
        "memory": 0.7 * total,
    }


def plan_requests(config: Config) -> dict[str, Any]:
    """The nodes, what each stage asks for, and the lines that say so.

    Raises:
        ClusterError: The cluster that is named does not answer.
    """
    here = nodes_planned(config.file.cluster)
    wanted = capacity.needs(config, here, until="report")
    return {
        "nodes": len(here),
        "cpus": sum(node.get("CPU", 0.0) for node in here),
        "gpus": sum(node.get("GPU", 0.0) for node in here),
        "stages": {
            need.stage: {
                "each": dict(need.each),
                "workers": need.workers,
                "would_fit": capacity.room(here, need.each),
            }
            for need in wanted
        },
        "lines": capacity.lines_of(wanted, here),
        "refusal": capacity.refusal(wanted, here),
    }
