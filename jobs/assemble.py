"""Assemble: demonstrations and query to the prompt that is sent, inside its token budget."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inference.decoding import DECODERS
from inference.engine import EngineSpec
from inference.ordering import ORDERS
from inference.status import Status
from jobs.annotate import shown_records
from jobs.config.schema import Arm
from jobs.errors import ConfigError
from jobs.generating.engines import engine_spec, plain_engine
from jobs.ledger import Marker, Unit, fingerprint, sum_counts
from jobs.orders.study import write_prompts
from jobs.prompting.calibrate import calibrated_orders, calibration_facts
from jobs.prompting.layouts import anchors_of, finish_blocks, layout_facts
from jobs.prompting.work import (
    CALIBRATED,
    DRAFT_ORDER,
    PROMPT_SCHEMA,
    AssembleWork,
    max_prompt_tokens,
)
from jobs.rank import shows_nothing
from jobs.run import Run
from jobs.tasks import plain_task, task_of
from jobs.units import finish

__all__ = ["PROMPT_SCHEMA", "AssembleWork", "check", "max_prompt_tokens", "run_stage"]

VERSION = 2

Units = list[tuple[Unit, dict[str, Any]]]


# What it needs: demonstrations, the pool's texts and labels, the tokenizer of the LLM; for
# calibrated orders the LLM.


def run_stage(run: Run) -> None:
    """Write the prompts of every arm; arms that need the same share them."""
    engines = {
        name: engine_spec(run.config.file.engines[name], key=f"engines.{name}")
        for name in dict.fromkeys(arm.engine for arm in run.arms)
    }
    blocks = finish_blocks(run)
    facts = layout_facts(run, blocks)
    orders = _orders(run, engines, blocks)
    run.prompts = _finish(
        run,
        {
            arm.name: _units(run, arm, engines[arm.engine], blocks, orders=orders.get(arm.name))
            for arm in run.arms
        },
    )
    for arm in run.arms:
        if arm.name in orders:
            facts[arm.name]["calibration"] = calibration_facts(run, orders[arm.name])
        _warn_of_losses(run, arm.name)
    run.manifest["layouts"] = facts
    run.manifest["prompts"] = {
        name: [marker.as_dict() for marker in markers] for name, markers in run.prompts.items()
    }
    write_prompts(run)


def check(arm: Arm) -> None:
    """Refuse an order, a layout or a decoder that cannot be.

    Raises:
        ConfigError: Names what is known, or the two keys that contradict each other.
    """
    for key, value, known in (
        ("prompt.order", arm.prompt.order, [*ORDERS, CALIBRATED]),
        ("generate.decoder", arm.generate.decoder, DECODERS),
    ):
        if value not in known:
            wanted = ", ".join(sorted(known))
            raise ConfigError(f"arm {arm.name}: {key} = {value!r}; known: {wanted}.")
    prompt, where = arm.prompt, f"arm {arm.name}"
    if arm.generate.calibrate != "none" and arm.generate.decoder != "likelihood":
        raise ConfigError(
            f"{where}: generate.calibrate = {arm.generate.calibrate} divides label probabilities, "
            f"which generate.decoder = {arm.generate.decoder} does not give. Set decoder: "
            "likelihood, or calibrate: none."
        )
    if prompt.layout == "by-id" and prompt.order != "by-id":
        raise ConfigError(
            f"{where}: prompt.order = {prompt.order} contradicts prompt.layout = by-id, which is "
            "an order itself. Leave one of them out."
        )
    if prompt.layout == "anchor" and prompt.order == CALIBRATED:
        raise ConfigError(
            f"{where}: prompt.order = {CALIBRATED} would move the anchors, which prompt.layout = "
            "anchor keeps at the begin. Use layout clustered or dynamic, or another order."
        )
    if not shows_nothing(arm.stage2):
        _check_numbers(arm)


def _check_numbers(arm: Arm) -> None:
    """Refuse numbers of demonstrations that contradict each other."""
    prompt, most = arm.prompt, arm.prompt.most(arm.stage2.k)
    caps = f"stage2.k = {arm.stage2.k}"
    if prompt.k_max is not None:
        caps += f" and prompt.k_max = {prompt.k_max}"
    if prompt.k_min > most:
        raise ConfigError(
            f"arm {arm.name}: prompt.k_min = {prompt.k_min} is more than the {most} that {caps} "
            "allow. Lower it, or raise them."
        )
    if prompt.layout == "anchor" and prompt.anchors > most:
        raise ConfigError(
            f"arm {arm.name}: prompt.anchors = {prompt.anchors} is more than the {most} that "
            f"{caps} allow; anchors count among them. Lower it, or raise them."
        )


# The Ray wiring; the Ray-free functions are in `jobs.prompting`.


def _orders(
    run: Run, engines: Mapping[str, EngineSpec], blocks: Mapping[str, Marker]
) -> dict[str, list[Marker]]:
    """For arms with calibrated orders: which sets their prompts show, then an order for each."""
    arms = [arm for arm in run.arms if arm.prompt.order == CALIBRATED]
    if not arms:
        return {}
    drafts = _finish(
        run,
        {arm.name: _units(run, _draft(arm), engines[arm.engine], blocks) for arm in arms},
    )
    found: dict[str, list[Marker]] = {}
    for name in dict.fromkeys(arm.engine for arm in arms):
        mine = [arm for arm in arms if arm.engine == name]
        found |= calibrated_orders(run, mine, engines[name], drafts)
    return found


def _draft(arm: Arm) -> Arm:
    prompt = arm.prompt.model_copy(update={"order": DRAFT_ORDER})
    return arm.model_copy(update={"prompt": prompt})


def _finish(run: Run, by_arm: Mapping[str, Units]) -> dict[str, list[Marker]]:
    """Make what is missing of the arms' prompts; equal ones once."""
    units = {unit: payload for mine in by_arm.values() for unit, payload in mine}
    markers = finish(
        run,
        list(units.items()),
        AssembleWork(run.out),
        stage="assemble",
        workers=run.config.file.cluster.rank,
    )
    made = dict(zip(units, markers, strict=True))
    return {name: [made[unit] for unit, _ in mine] for name, mine in by_arm.items()}


def _units(
    run: Run,
    arm: Arm,
    engine: EngineSpec,
    blocks: Mapping[str, Marker],
    *,
    orders: Sequence[Marker] | None = None,
) -> Units:
    assert run.pool is not None
    common = _common(run, arm, engine)
    block = blocks.get(arm.name)
    common["blocks"] = None if block is None else block.as_dict()
    common["orders"] = None if orders is None else [marker.as_dict() for marker in orders]
    room = [arm.generate.max_tokens, arm.generate.decoder, engine.max_model_len]
    # What may be shown, and not the pool: another arm's candidates change nothing here.
    shown = shown_records(run, arm.name) if not shows_nothing(arm.stage2) else None
    depends: list[Any] = [
        *(shown, common["task"], plain_engine(engine)["weights"], room, common["stage2"]),
        *(common["anchors"], arm.prompt.model_dump()),
        None if block is None else block.checksum,
        None if orders is None else [marker.checksum for marker in orders],
    ]
    units = []
    for part, ranked in zip(run.tables["queries"].parts, run.demonstrations[arm.name], strict=True):
        own = [ranked.checksum, part.shown(context=bool(common["task"]["context"]))]
        mark = fingerprint("assemble", VERSION, own, depends)
        unit = Unit(f"prompts/{mark}", "part", mark)
        markers = {"rows": part.marker.as_dict(), "demonstrations": ranked.as_dict()}
        units.append((unit, common | markers | {"unit": asdict(unit)}))
    return units


def _common(run: Run, arm: Arm, engine: EngineSpec) -> dict[str, Any]:
    """What the parts of an arm have in common, as plain data."""
    assert run.pool is not None
    candidates = run.candidates.get(arm.name)
    k = 0 if shows_nothing(arm.stage2) else arm.stage2.k
    return {
        "pool": run.pool.as_dict(),
        "candidates": candidates and candidates.as_dict(),
        "anchors": anchors_of(run, arm),
        "task": plain_task(task_of(run, arm.task)),
        "engine": asdict(engine),
        "prompt": arm.prompt.model_dump(),
        "generate": arm.generate.model_dump(),
        "stage2": {"k": k, "exclude_same_text": arm.stage2.exclude_same_text},
    }


def _warn_of_losses(run: Run, arm: str) -> None:
    markers = run.prompts[arm]
    totals = {
        name: sum(int(marker.stats[name]) for marker in markers)
        for name in ("n_dropped", "n_skipped", "n_not_calibrated")
    }
    most = max((int(marker.stats["max_prompt_tokens"]) for marker in markers), default=0)
    too_long = sum_counts(markers, "status").get(Status.TOO_LONG, 0)
    if totals["n_dropped"] and totals["n_skipped"]:
        run.progress.warn(
            f"{arm}: {totals['n_dropped']} demonstrations dropped to keep {most} tokens and the "
            f"limits of prompt ({totals['n_skipped']} passed over)"
        )
    if totals["n_not_calibrated"]:
        run.progress.warn(
            f"{arm}: the calibrated order of {totals['n_not_calibrated']} prompts exceeds {most} "
            f"tokens; they are shown {DRAFT_ORDER}"
        )
    if too_long:
        run.progress.warn(
            f"{arm}: {too_long} queries are too long for {most} tokens, by themselves or with "
            "prompt.k_min demonstrations"
        )
