"""How much the order of demonstrations matters: the same prompts in every order, answered anew.

An arm is tried with the demonstrations that its prompts really show; nothing before the prompts is
made again. An order is one of places in the arm's own prompt, the same for all queries: of an arm
that shows one set to all queries it is an order of that set, of another an order of nearness.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inference.ordering import permutations_of
from inference.status import Status
from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.errors import ConfigError
from jobs.generating.engines import engine_spec, plain_engine
from jobs.ledger import Marker, Unit, fingerprint
from jobs.orders.work import OrderWork
from jobs.rank import shows_nothing
from jobs.run import Run
from jobs.tasks import plain_task, task_of
from jobs.units import finish
from jobs.vectors import drawn, random_keys

VERSION = 1


def n_places(arm: Arm) -> int:
    """How many demonstrations an arm's prompts show at most."""
    return 0 if shows_nothing(arm.stage2) else arm.prompt.most(arm.stage2.k)


def studied(config: Config) -> list[Arm]:
    """The arms whose order is varied."""
    wanted = config.file.report.orders
    if wanted is None:
        return []
    if wanted.arms is not None:
        return [arm for arm in config.arms if arm.name in wanted.arms]
    return [arm for arm in config.arms if n_places(arm) > 1 and not arm.repeat]


def check_orders(config: Config) -> None:
    """Refuse to vary an order that is not there.

    Raises:
        ConfigError: Names the arm, or says that no arm shows two demonstrations.
    """
    wanted = config.file.report.orders
    if wanted is None:
        return
    arms = {arm.name: arm for arm in config.arms}
    for name in wanted.arms or ():
        if name not in arms:
            raise ConfigError(f"report.orders.arms: {name!r} is no arm. Arms: {', '.join(arms)}.")
        if n_places(arms[name]) < 2:
            raise ConfigError(
                f"report.orders.arms: {name!r} shows {n_places(arms[name])} demonstrations, and an "
                "order needs at least 2. Leave it out, or raise its k."
            )
    if not studied(config):
        raise ConfigError(
            "report.orders: no arm shows at least 2 demonstrations, so there is no order to vary. "
            "Leave it out, or raise stage2.k."
        )


def orders_of(config: Config, arm: Arm) -> list[tuple[int, ...]]:
    """The orders that an arm is tried in: all, or as many drawn ones as are allowed."""
    wanted = config.file.report.orders
    assert wanted is not None
    return permutations_of(n_places(arm), most=wanted.most, seed=config.file.seed)


def orders_planned(config: Config, arm: Arm, n_queries: int) -> dict[str, int] | None:
    """How many prompts the orders of an arm take; None where they are not tried."""
    wanted = config.file.report.orders
    if wanted is None or arm.name not in {one.name for one in studied(config)}:
        return None
    n_possible = math.factorial(n_places(arm))
    n_orders, n_asked = min(n_possible, wanted.most), min(wanted.queries, n_queries)
    return {"orders": n_orders, "queries": n_asked, "prompts": n_orders * n_asked}


def order_line(name: str, planned: Mapping[str, int]) -> str:
    """What the plan says of them."""
    return (
        f"{name}: {planned['prompts']:,} prompts more, {planned['orders']:,} orders for "
        f"{planned['queries']:,} queries (report.orders); they share beginnings, so the engine "
        "computes less"
    )


# The Ray wiring; the Ray-free function is in `jobs.orders.work`.


def write_prompts(run: Run) -> None:
    """Write the prompts of every arm that is tried in other orders."""
    run.order_prompts.clear()
    run.manifest.pop("order_prompts", None)
    arms = studied(run.config)
    if not arms:
        return
    asked = _queries(run)
    units = {arm.name: _prompt_units(run, arm, asked) for arm in arms}
    markers = finish(
        run,
        [unit for mine in units.values() for unit in mine],
        OrderWork(run.out),
        stage="assemble",
        workers=run.config.file.cluster.rank,
    )
    for arm in arms:
        n = len(units[arm.name])
        run.order_prompts[arm.name], markers = markers[:n], markers[n:]
        _tell(run, arm)
    run.manifest["order_prompts"] = {
        name: [marker.as_dict() for marker in mine] for name, mine in run.order_prompts.items()
    }


def _queries(run: Run) -> list[set[str]]:
    """The queries that are asked, part by part; the same for every arm."""
    wanted = run.config.file.report.orders
    assert wanted is not None
    parts = []
    for part in run.tables["queries"].parts:
        rows = run.ledger.read(part.marker, ["id", "status"]).to_pylist()
        parts.append([row["id"] for row in rows if row["status"] == Status.OK])
    ids = [row_id for part in parts for row_id in part]
    chosen = {ids[i] for i in drawn(random_keys(ids, run.config.file.seed), wanted.queries)}
    return [chosen & set(part) for part in parts]


def _prompt_units(
    run: Run, arm: Arm, asked: Sequence[set[str]]
) -> list[tuple[Unit, dict[str, Any]]]:
    assert run.pool is not None
    engine = engine_spec(run.config.file.engines[arm.engine], key=f"engines.{arm.engine}")
    common: dict[str, Any] = {
        "orders": [list(order) for order in orders_of(run.config, arm)],
        "pool": run.pool.as_dict(),
        "task": plain_task(task_of(run, arm.task)),
        "engine": asdict(engine),
        "prompt": arm.prompt.model_dump(),
        "generate": arm.generate.model_dump(),
        "stage2": {"k": n_places(arm)},
    }
    room = [arm.generate.max_tokens, arm.generate.decoder, engine.max_model_len]
    depends = [common["orders"], common["task"], common["prompt"], room]
    depends.append(plain_engine(engine)["weights"])
    parts = zip(run.tables["queries"].parts, run.prompts[arm.name], asked, strict=True)
    units = []
    for part, prompts, queries in parts:
        # The arm's own prompts hold every text that is rearranged.
        shown = part.shown(context=bool(common["task"]["context"]))
        own = [prompts.checksum, shown, sorted(queries)]
        mark = fingerprint("orders", VERSION, own, depends)
        unit = Unit(f"order_prompts/{mark}", "part", mark)
        markers = {"rows": part.marker.as_dict(), "prompts": prompts.as_dict()}
        mine = {"unit": asdict(unit), "queries": sorted(queries)}
        units.append((unit, common | markers | mine))
    return units


def _tell(run: Run, arm: Arm) -> None:
    markers: Sequence[Marker] = run.order_prompts[arm.name]
    n_orders, k = len(orders_of(run.config, arm)), n_places(arm)
    n = sum(int(marker.stats["n_queries"]) for marker in markers)
    drawn_of = "" if math.factorial(k) == n_orders else f" drawn of {math.factorial(k):,}"
    run.progress.line(
        "assemble",
        f"{arm.name}: {n_orders:,} orders{drawn_of} of {k} demonstrations, {n:,} queries",
    )
    n_without = sum(int(marker.stats["n_without_prompt"]) for marker in markers)
    if n_without:
        run.progress.warn(
            f"{arm.name}: {n_without} queries of report.orders have no prompt in this arm and are "
            "left out of its orders"
        )
