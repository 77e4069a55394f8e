"""Ray: starting or joining it, and running units of work on actors through Ray Data."""

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from jobs import capacity, interrupts
from jobs.config.cluster import ClusterConfig, WorkersConfig
from jobs.config.storage import worker_variables
from jobs.errors import ERRORS, ClusterError, DualdivError
from jobs.ledger import Marker, Unit
from jobs.progress import Progress
from jobs.run import Run
from jobs.watching import pulse, watch
from jobs.watching.pulse import Teller
from jobs.watching.stretch import Stretch

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

# How long what others hold must stay the same to be theirs, and how long it is waited for.
SETTLE_S, SETTLE_MOST_S = 5.0, 30.0

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
    warnings.filterwarnings("ignore", message=r"`ray_remote_args", module=__name__)
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


def n_workers(workers: WorkersConfig, n_units: int) -> int:
    """Workers to start: as configured, else as many as fit the cluster, never more than units.

    Raises:
        ClusterError: Not even one fits; names the sum.
    """
    here, each = nodes(), capacity.request(workers)
    fits = capacity.room(here, each)
    if fits < 1:
        wanted = capacity.told({"CPU": 0.0, "GPU": 0.0} | each)
        total = {name: sum(node.get(name, 0.0) for node in here) for name in ("CPU", "GPU", *each)}
        raise ClusterError(
            f"an actor needs {wanted}; the cluster has {capacity.told(total)}, on no node enough. "
            "Lower cluster.<stage>.cpus, .gpus, .memory or .resources, or join a larger cluster."
        )
    return max(1, min(workers.actors or fits, fits, n_units))


def threads(workers: WorkersConfig) -> int:
    """Threads a worker may use: as many as the CPUs it holds, at least one."""
    return max(1, int(workers.cpus))


def with_gpus(workers: WorkersConfig, wanted: float) -> WorkersConfig:
    """Give each actor GPUs where the config leaves it open and the cluster has some."""
    return capacity.with_gpus(workers, wanted, nodes())


class UnitActor:
    """Holds work that is costly to set up (a model, an engine) from unit to unit."""

    def __init__(self, work: Work, teller: Teller) -> None:
        self._work, self._teller = work, teller

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Make the one unit in the batch."""
        return make_unit(batch, self._work, self._teller)


def make_unit(batch: dict[str, Any], work: Work, teller: Teller) -> dict[str, list[str]]:
    """Make the one unit in the batch; errors a user can act on travel back as data."""
    payload = json.loads(str(batch["unit"][0]))
    unit = payload.get("unit", {})
    with teller.working(f"{unit.get('folder')}/{unit.get('name')}"):
        rows, started = pulse.counted("rows"), time.monotonic()
        try:
            marker = work(payload)
        except DualdivError as error:
            return {"result": [json.dumps({"error": type(error).__name__, "text": str(error)})]}
        pulse.count(unit_ms=round(1000 * (time.monotonic() - started)))
        pulse.finished(marker, rows=marker.rows + rows - pulse.counted("rows"))
        return {"result": [json.dumps({"marker": marker.as_dict(), "worker": pulse.report()})]}


def run_units(
    work: Work,
    payloads: Sequence[dict[str, Any]],
    *,
    workers: WorkersConfig,
    stateful: bool,
    stretch: Stretch | None = None,
) -> Iterator[Marker]:
    """Run units of work through Ray Data; markers come as they finish.

    A lost worker or node is replaced and its unit made again, which is safe because a unit appears
    whole or not at all.

    Args:
        work: Makes a unit from its payload; sent to the workers.
        payloads: One plain dict a unit.
        workers: Resources of a worker.
        stateful: Run on actors that keep `work` from unit to unit; else on tasks.
        stretch: Hears what workers report.

    Yields:
        The marker of each unit.

    Raises:
        DualdivError: What a unit raised.
    """
    if not payloads:
        return
    import ray.data

    stretch = stretch or Stretch("units")
    most = n_workers(workers, len(payloads))
    items = [{"unit": json.dumps(payload)} for payload in payloads]
    dataset = ray.data.from_items(items, override_num_blocks=len(items))
    common: dict[str, Any] = {"batch_size": 1, **capacity.ray_options(workers)}
    if stateful:
        # Not a fixed size: a pool that wants more actors than are left after a node died hangs.
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=most, max_tasks_in_flight_per_actor=1
        )
        made = dataset.map_batches(
            UnitActor,
            fn_constructor_kwargs={"work": work, "teller": stretch.teller},
            compute=pool,
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            **common,
        )
    else:
        tasks, function = ray.data.TaskPoolStrategy(size=most), cast(Callable[..., Any], make_unit)
        made = dataset.map_batches(
            function,
            fn_kwargs={"work": work, "teller": stretch.teller},
            compute=tasks,
            max_retries=MAX_RESTARTS,
            **common,
        )
    for row in made.iter_rows():
        result = json.loads(row["result"])
        if "error" in result:
            raise ERRORS[result["error"]](result["text"])
        stretch.hear([result["worker"]])
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
    found = run.ledger.find_all(unit for unit, _ in units)
    pending = {unit: payload for unit, payload in units if found[unit] is None}
    made: dict[str, Marker] = {}
    started = time.monotonic()
    if pending:
        with (
            run.watch.stretch(
                stage,
                pending=[unit.table for unit in pending],
                n_there=len(found) - len(pending),
                asked=asked(workers),
            ) as stretch,
            stretch.wait(),
        ):
            units_made = run_units(
                work,
                list(pending.values()),
                workers=workers,
                stateful=stateful,
                stretch=stretch,
            )
            for marker in units_made:
                interrupts.check()
                made[marker.table] = marker
                run.watch.finished(marker.table, marker.rows)
    markers = [found[unit] or made[unit.table] for unit, _ in units]
    _check_shared(run, list(made.values()))
    _report(stage, markers, n_made=len(pending), started=started, progress=run.progress)
    return markers


def asked(workers: WorkersConfig) -> str:
    """What a worker asks for, in words."""
    return f"{workers.cpus:g} CPUs and {workers.gpus or 0:g} GPUs"


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
