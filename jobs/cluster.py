"""Ray: starting or joining a cluster, and what its nodes have."""

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

from jobs import capacity, interrupts
from jobs.config.cluster import ClusterConfig
from jobs.config.storage import worker_variables
from jobs.errors import ClusterError
from jobs.watching import watch

WORKER_ENV = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    # Each process would ask the hub which agent runs it, models in the cache or not.
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # A worker that asked for no GPU would see all of the node, and use one that others hold.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
}
RAY_ENV = {
    "RAY_AUTH_MODE": "disabled",
    # A line for every actor about a restart that cannot fail here: units travel with the driver.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
}
# How long what others hold must stay the same to be theirs, and how long it is waited for.
SETTLE_S, SETTLE_MOST_S = 5.0, 30.0


@contextlib.contextmanager
def connected(config: ClusterConfig) -> Iterator[None]:
    """Have a Ray cluster for the length of the block; an existing connection is left as it is.

    Raises:
        ClusterError: The cluster cannot be started or joined.
    """
    for key, value in RAY_ENV.items():
        os.environ.setdefault(key, value)
    import ray

    # Submitted with `ray job submit`, the address of the cluster stands in the environment.
    address = os.environ.get("RAY_ADDRESS") or config.address
    # What a Ray of this process has does not grow.
    _known.update(declared=None if address == "local" else capacity.declared(config), held={})
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address}
    if address == "local":
        options |= {
            "num_cpus": config.cpus,
            "object_store_memory": config.object_store_mib * 2**20,
            "include_dashboard": False,
        }
    env = {key: os.environ.get(key, value) for key, value in WORKER_ENV.items()}
    env |= worker_variables()
    # Ray refuses what its own runtime environment sets already, even to the same value.
    env = {key: value for key, value in env.items() if key not in _set_by_job()}
    try:
        with interrupts.kept():
            ray.init(
                **options,
                runtime_env={"env_vars": env},
                logging_level=logging.ERROR,
                log_to_driver=bool(os.environ.get("DUALDIV_WORKER_LOGS")),
            )
    except Exception as error:  # Ray has a dozen for this, and some are of no common kind.
        what = "Ray does not start" if address == "local" else "no Ray there"
        reason = f"{type(error).__name__}: {error}"
        raise ClusterError(f"cluster.address = {address}: {what}: {reason}") from None
    _calm_ray_data()
    try:
        if address != "local":
            _known["held"] = _held_by_others()
        yield
    finally:
        ray.shutdown()


def _set_by_job() -> set[str]:
    """Variables that `ray job submit` was told to set in all workers."""
    try:
        config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
        return set(config["runtime_env"]["env_vars"])
    except (ValueError, KeyError, TypeError):
        return set()


class StallCheck:
    """What Ray Data calls between its steps, so that it stops where the driver waits for it."""

    def before_execution_starts(self, executor: Any) -> None:
        """Nothing to do."""

    def on_execution_step(self, executor: Any) -> None:
        """Stop an execution that the watch has given up."""
        watch.check()

    def after_execution_succeeds(self, executor: Any) -> None:
        """Nothing to do."""

    def after_execution_fails(self, executor: Any, error: Exception) -> None:
        """Nothing to do."""


def _calm_ray_data() -> None:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # It takes what a callback raises for a bug of its own, and prints the stack.
    logging.getLogger("ray.data.exceptions").setLevel(logging.CRITICAL)
    # Restart limits have no other way in until Ray 2.64, which the dependencies exclude.
    warnings.filterwarnings("ignore", message=r"`ray_remote_args", module=r"jobs\.units")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.enable_rich_progress_bars = False
    context.use_ray_tqdm = False
    callbacks: list[Any] = [StallCheck]
    context.custom_execution_callback_classes = callbacks
    # Its own guard counts finished units alone, and some take longer than its half hour.
    context.execution_no_progress_timeout_s = -1


def ray_errors() -> tuple[type[Exception], ...]:
    """What Ray raises when a node, a worker or an object is gone for good; no bug of ours."""
    from ray import exceptions

    return (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.ObjectLostError,
        exceptions.NodeDiedError,
        exceptions.OutOfMemoryError,
        exceptions.RaySystemError,
    )


def nodes() -> list[dict[str, float]]:
    """What each node has for this run: as declared in `cluster.nodes`, else those that are alive.

    What others held when the run began (its own entrypoint, another job) is not among it.
    """
    import ray

    if _known["declared"] is not None:
        return list(_known["declared"])
    held = _known["held"]
    return [_less(n["Resources"], held.get(n.get("NodeID"), {})) for n in ray.nodes() if n["Alive"]]


# Of the cluster that this process is connected to.
_known: dict[str, Any] = {"declared": None, "held": {}}


def _less(total: dict[str, float], held: dict[str, float]) -> dict[str, float]:
    return {name: amount - held.get(name, 0.0) for name, amount in total.items()}


def _held_by_others() -> dict[str, dict[str, float]]:
    """CPUs and GPUs in use before this run asks for any, by node.

    A run that was just killed gives its own back within seconds: only what stays is counted.
    """
    last, held = None, _in_use()
    deadline = time.monotonic() + SETTLE_MOST_S
    while held and held != last and time.monotonic() < deadline:
        time.sleep(SETTLE_S)
        last, held = held, _in_use()
    return held


def _in_use() -> dict[str, dict[str, float]]:
    import ray
    from ray._private.state import available_resources_per_node

    free, found = available_resources_per_node(), {}
    for node in ray.nodes():
        if not node["Alive"] or node["NodeID"] not in free:
            continue
        have, left = node["Resources"], free[node["NodeID"]]
        used = {n: have[n] - left.get(n, 0.0) for n in ("CPU", "GPU") if n in have}
        used = {name: amount for name, amount in used.items() if amount > 0}
        if used:
            found[node["NodeID"]] = used
    return found
