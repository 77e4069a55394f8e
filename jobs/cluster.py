"""Ray: starting or joining it, and running units of work on actors through Ray Data."""

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobs import interrupts
from jobs.config_schema import ClusterConfig, WorkersConfig
from jobs.config_storage import worker_variables
from jobs.errors import ERRORS, ClusterError, DualdivError
from jobs.ledger import Marker, Unit
from jobs.progress import Progress
from jobs.run import Run

WORKER_ENV = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    # Each process would ask the hub which agent runs it, models in the cache or not.
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
RAY_ENV = {
    "RAY_AUTH_MODE": "disabled",
    # A line for every actor about a restart that cannot fail here: units travel with the driver.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

# Deaths of one worker process before its units are given up: spot nodes go often, a part that
# kills its worker every time must not be tried for ever.
MAX_RESTARTS = 50

Work = Callable[[dict[str, Any]], Marker]


@contextlib.contextmanager
def connected(config: ClusterConfig) -> Iterator[None]:
    """Have a Ray cluster for the length of the block; an existing connection is left as it is.

    Raises:
        ClusterError: The cluster cannot be started or joined.
    """
    for key, value in RAY_ENV.items():
        os.environ.setdefault(key, value)
    import ray

    if ray.is_initialized():
        yield
        return
    # Submitted with `ray job submit`, the address of the cluster stands in the environment.
    address = os.environ.get("RAY_ADDRESS") or config.address
    options: dict[str, Any] = {"address": address}
    if address == "local":
        options |= {
            "num_cpus": config.cpus,
            "object_store_memory": config.object_store_mib * 2**20,
            "include_dashboard": False,
        }
    env = {key: os.environ.get(key, value) for key, value in WORKER_ENV.items()}
    env |= worker_variables()
    try:
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
        yield
    finally:
        ray.shutdown()


def _calm_ray_data() -> None:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Restart limits have no other way in until Ray 2.64, which the dependencies exclude.
    warnings.filterwarnings("ignore", message=r"`ray_remote_args", module=__name__)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.enable_rich_progress_bars = False
    context.use_ray_tqdm = False


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


def n_workers(workers: WorkersConfig, n_units: int) -> int:
    """Actors to start: as configured, else as many as fit the cluster, never more than units.

    Raises:
        ClusterError: Not even one fits; names the sum.
    """
    import ray

    have = ray.cluster_resources()
    gpus = workers.gpus or 0.0
    fits = 0
    for node in ray.nodes():
        if node["Alive"]:
            room = int(node["Resources"].get("CPU", 0.0) // workers.cpus)
            if gpus:
                room = min(room, int(node["Resources"].get("GPU", 0.0) // gpus))
            fits += room
    if fits < 1:
        raise ClusterError(
            f"an actor needs {workers.cpus:g} CPUs and {gpus:g} GPUs; the cluster has "
            f"{have.get('CPU', 0.0):g} CPUs and {have.get('GPU', 0.0):g} GPUs, on no node enough. "
            "Lower cluster.<stage>.cpus or .gpus, or join a larger cluster."
        )
    return max(1, min(workers.actors or fits, fits, n_units))


def threads(workers: WorkersConfig) -> int:
    """Threads a worker may use: as many as the CPUs it holds, at least one."""
    return max(1, int(workers.cpus))


def with_gpus(workers: WorkersConfig, wanted: float) -> WorkersConfig:
    """Give each actor GPUs where the config leaves it open and the cluster has some."""
    import ray

    if workers.gpus is not None:
        return workers
    have = ray.cluster_resources().get("GPU", 0.0)
    return workers.model_copy(update={"gpus": float(wanted) if have else 0.0})


class UnitActor:
    """Holds work that is costly to set up (a model, an engine) from unit to unit."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Make the one unit in the batch."""
        return make_unit(batch, self._work)


def make_unit(batch: dict[str, Any], work: Work) -> dict[str, list[str]]:
    """Make the one unit in the batch; errors a user can act on travel back as data."""
    try:
        marker = work(json.loads(str(batch["unit"][0])))
    except DualdivError as error:
        return {"result": [json.dumps({"error": type(error).__name__, "text": str(error)})]}
    return {"result": [json.dumps({"marker": marker.as_dict()})]}


def run_units(
    work: Work, payloads: Sequence[dict[str, Any]], *, workers: WorkersConfig, stateful: bool
) -> Iterator[Marker]:
    """Run units of work through Ray Data; markers come as they finish.

    A lost worker or node is replaced and its unit made again, which is safe because a unit appears
    whole or not at all.

    Args:
        work: Makes a unit from its payload; sent to the workers.
        payloads: One plain dict a unit.
        workers: Resources of a worker.
        stateful: Run on actors that keep `work` from unit to unit; else on tasks.

    Yields:
        The marker of each unit.

    Raises:
        DualdivError: What a unit raised.
    """
    if not payloads:
        return
    import ray.data

    most = n_workers(workers, len(payloads))
    items = [{"unit": json.dumps(payload)} for payload in payloads]
    dataset = ray.data.from_items(items, override_num_blocks=len(items))
    common: dict[str, Any] = {
        "batch_size": 1,
        "num_cpus": workers.cpus,
        "num_gpus": workers.gpus or None,
    }
    if stateful:
        # Not a fixed size: a pool that wants more actors than are left after a node died hangs.
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=most, max_tasks_in_flight_per_actor=1
        )
        made = dataset.map_batches(
            UnitActor,
            fn_constructor_kwargs={"work": work},
            compute=pool,
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            **common,
        )
    else:
        tasks = ray.data.TaskPoolStrategy(size=most)
        made = dataset.map_batches(
            make_unit,
            fn_kwargs={"work": work},
            compute=tasks,
            max_retries=MAX_RESTARTS,
            **common,
        )
    for row in made.iter_rows():
        result = json.loads(row["result"])
        if "error" in result:
            raise ERRORS[result["error"]](result["text"])
        yield Marker(**result["marker"])


def finish(
    run: Run,
    units: Sequence[tuple[Unit, dict[str, Any]]],
    work: Work,
    *,
    stage: str,
    workers: WorkersConfig,
    stateful: bool = False,
) -> list[Marker]:
    """Make the units that are missing and return the markers of all, in the given order.

    Args:
        run: Its ledger says what is there, its progress takes the lines.
        units: Each unit with the payload its work needs.
        work: As for `run_units`.
        stage: Name on the progress line.
        workers: Resources of a worker.
        stateful: As for `run_units`.

    Returns:
        One marker a unit.
    """
    ledger, progress = run.ledger, run.progress
    found = ledger.find_all(unit for unit, _ in units)
    pending = {unit: payload for unit, payload in units if found[unit] is None}
    started, rows, done = time.monotonic(), 0, len(found) - len(pending)
    made: dict[str, Marker] = {}
    for marker in run_units(work, list(pending.values()), workers=workers, stateful=stateful):
        interrupts.check()
        made[marker.table] = marker
        rows, done = rows + marker.rows, done + 1
        seconds = max(1e-9, time.monotonic() - started)
        eta_s = seconds / (done - len(found) + len(pending)) * (len(found) - done)
        progress.tick(
            stage,
            f"{done}/{len(found)} parts  {rows:,} rows  {rows / seconds:,.0f} rows/s  "
            f"eta {eta_s:,.0f} s",
        )
    markers = [found[unit] or made[unit.table] for unit, _ in units]
    _check_shared(run, list(made.values()))
    _report(stage, markers, n_made=len(pending), started=started, progress=progress)
    return markers


def _check_shared(run: Run, made: Sequence[Marker]) -> None:
    """Workers wrote these; the driver, and so every later worker, must see them."""
    unseen = run.ledger.unseen(made)
    if unseen:
        raise ClusterError(
            f"{run.out}: {unseen[0]} was written by a worker and is not there for the driver "
            f"({len(unseen)} of {len(made)} files). Give an --out on a file system that all nodes "
            "share."
        )


def _report(
    stage: str, markers: list[Marker], *, n_made: int, started: float, progress: Progress
) -> None:
    rows = sum(marker.rows for marker in markers)
    what = f"{len(markers)} parts  {rows:,} rows"
    if markers and not n_made:
        progress.line(stage, f"{what}, all there already")
    elif markers:
        kept = f", {len(markers) - n_made} there already" if n_made < len(markers) else ""
        progress.line(stage, f"{what}{kept}  {time.monotonic() - started:.1f} s")
