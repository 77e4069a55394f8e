"""Units of work on tasks or actors, through Ray Data."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from jobs import capacity, interrupts
from jobs.cluster import nodes
from jobs.config.cluster import WorkersConfig
from jobs.errors import ERRORS, ClusterError, DualdivError
from jobs.ledger import Marker, Unit
from jobs.progress import Progress
from jobs.run import Run
from jobs.watching import pulse
from jobs.watching.pulse import Teller
from jobs.watching.stretch import Stretch

# Deaths of one worker process before its units are given up: spot nodes go often, a part that
# kills its worker every time must not be tried for ever.
MAX_RESTARTS = 50
Work = Callable[[dict[str, Any]], Marker]


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
    text = f"{workers.cpus:g} CPUs and {workers.gpus or 0:g} GPUs"
    own = {k: n for k, n in capacity.request(workers).items() if k not in capacity.KIND}
    return f"{text}, {capacity.told(own)}" if own else text


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
