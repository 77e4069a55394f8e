"""Select (Stage 1): partitions choose locally, the driver merges what they found."""

import time
from dataclasses import asdict
from typing import Any

from jobs.cluster import n_workers
from jobs.config_schema import Arm, Stage1Config
from jobs.embed import encoder_spec
from jobs.errors import ConfigError, InvariantError
from jobs.ledger import Marker, fingerprint
from jobs.run import Run
from jobs.select_local import LocalWork
from jobs.select_merge import Choice, merge_choice, n_eligible
from jobs.select_workers import Workers
from selection.stage1 import STAGE1

VERSION = 1
NO_STAGE1 = "none"


# What it needs: the vectors of the corpus.


def run_stage(run: Run) -> None:
    """Choose candidates for every Stage 1 setting in the config."""
    choices = _choices(run)
    for encoder in sorted({choice.encoder for choice in choices}):
        mine = [choice for choice in choices if choice.encoder == encoder]
        missing = [choice for choice in mine if run.ledger.find(choice.unit("candidates")) is None]
        if missing:
            _select(run, encoder, missing)
    run.manifest["selections"] = {}
    for choice in choices:
        _warn_of_clipping(run, choice)
        marker = run.ledger.find(choice.unit("candidates"))
        assert marker is not None
        _record(run, choice, marker)


def _warn_of_clipping(run: Run, choice: Choice) -> None:
    n_total = n_eligible(run, choice.encoder)
    if choice.config.k1 > n_total:
        run.progress.warn(
            f"stage1.k1 = {choice.config.k1} is more than the {n_total} rows that can be chosen; "
            f"all {n_total} are"
        )


def check(arm: Arm) -> None:
    """Refuse a Stage 1 that cannot be.

    Raises:
        ConfigError: Unknown method.
    """
    known = sorted([*STAGE1, NO_STAGE1])
    if arm.stage1.method not in known:
        raise ConfigError(
            f"arm {arm.name}: stage1.method = {arm.stage1.method!r}; known: {', '.join(known)}."
        )


def _choices(run: Run) -> list[Choice]:
    found: dict[str, Choice] = {}
    for arm in run.arms:
        if arm.stage1.method == NO_STAGE1:
            continue
        vectors = [m.fingerprint for m in run.vectors[arm.encoder, "corpus"]]
        config = _relevant(arm.stage1)
        seed = run.config.file.seed if arm.stage1.method != "random" else arm.seed
        costs = [part.marker.stats["costs"] for part in run.tables["corpus"].parts]
        depends = [run.encoder_ids[arm.encoder], config, seed, vectors, costs]
        mark = fingerprint("select", VERSION, depends)
        choice = found.setdefault(mark, Choice(arm.encoder, arm.stage1, seed, mark))
        choice.arms.append(arm.name)
    return list(found.values())


def _relevant(config: Stage1Config) -> dict[str, Any]:
    """What the picks and the reported values depend on."""
    plain = config.model_dump(by_alias=True)
    if config.method == "coverage":
        plain["lambda"] = plain["ridge"] = 0.0
    return plain


# The Ray wiring; the Ray-free function on one partition is in `select_local`.


def _select(run: Run, encoder: str, choices: list[Choice]) -> None:
    partitions = {
        number: [marker.as_dict() for marker in markers]
        for number, markers in enumerate(run.vectors_by_partition(encoder))
    }
    resources = run.config.file.cluster.select
    workers = Workers(
        run.out, partitions, resources=resources, n_actors=n_workers(resources, len(partitions))
    )
    try:
        for choice in choices:
            started = time.monotonic()
            local = _local(run, workers, choice)
            facts = merge_choice(run, workers, choice, local, started)
            run.progress.line("select", _line(choice, facts))
    finally:
        workers.stop()


def _local(run: Run, workers: Workers, choice: Choice) -> list[Marker]:
    corpus = run.tables["corpus"]
    n_total = n_eligible(run, choice.encoder)
    spec = encoder_spec(run.config.file.encoders[choice.encoder], key=choice.encoder)
    work = LocalWork(
        choice.config.method,
        choice.config.model_dump(by_alias=True),
        choice.seed,
        spec.storage,
        n_total,
    )
    units = [choice.unit(f"local-{p:05d}") for p in range(corpus.n_partitions)]
    pending = [p for p, unit in enumerate(units) if run.ledger.find(unit) is None]
    payloads = [
        {
            "unit": asdict(units[p]),
            "partition": p,
            "rows": [part.marker.as_dict() for part in corpus.in_partition(p)],
        }
        for p in pending
    ]
    made = {unit.name: run.ledger.find(unit) for unit in units}
    for result in workers.local(work, payloads):
        marker = Marker(**result["marker"])
        made[marker.name] = marker
    markers = [marker for marker in made.values() if marker is not None]
    if len(markers) != corpus.n_partitions:
        raise InvariantError(f"select: {len(markers)} of {corpus.n_partitions} partitions chose")
    return markers


def _line(choice: Choice, facts: dict[str, Any]) -> str:
    def show(key: str) -> str:
        value = facts[key]
        return "none" if value is None else f"{value:,.4f}"

    name = f"{choice.config.method} ({', '.join(choice.arms)})"
    return (
        f"{name}: {facts['N']:,} -> {facts['k1_used']}  objective "
        f"{show('objective')} (best local {show('best_local_objective')}, random "
        f"{show('random_objective')})  {facts['seconds']:.1f} s"
    )


def _record(run: Run, choice: Choice, marker: Marker) -> None:
    for arm in choice.arms:
        run.candidates[arm] = marker
    entry = {"candidates": marker.as_dict(), "arms": choice.arms, "encoder": choice.encoder}
    run.manifest["selections"][choice.mark] = entry
    first = marker.stats["first_negative_gain"]
    if first is not None and choice.config.method == "dual-div":
        arms = ", ".join(choice.arms)
        run.progress.line("select", f"dual-div ({arms}): gain below 0 from pick {first + 1}")
