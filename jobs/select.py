"""Select (Stage 1): partitions choose locally, the driver merges what they found."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa

from jobs import interrupts
from jobs.config.schema import Arm
from jobs.config.stage1 import NO_STAGE1, Stage1Config
from jobs.errors import ConfigError, InvariantError, NothingToChoose
from jobs.folds import fold_name, fold_seed
from jobs.ledger import Ledger, Marker, fingerprint, sum_counts
from jobs.run import Run
from jobs.selecting.aim import Aim
from jobs.selecting.facts import facts_of
from jobs.selecting.id_files import existing, shown
from jobs.selecting.inputs import Wishes, read_wishes
from jobs.selecting.levels import climb
from jobs.selecting.local import LocalWork
from jobs.selecting.mapped import Mapped
from jobs.selecting.merge import candidate_table, decide, peak_bytes
from jobs.selecting.room import controls_kept
from jobs.selecting.root import root_of
from jobs.selecting.setting import Choice, aim_of, dimension_of, plan_of
from jobs.selecting.side_columns import Bools
from jobs.selecting.union import union_of
from jobs.selecting.workers import Workers
from jobs.selection_folds import folds_of, join_candidates, plan_folds
from jobs.units import asked, n_workers, with_gpus
from jobs.vectors import with_encoder
from selection.stage1 import DRAWN, MAXIMISE_F, STAGE1

VERSION = 4
# Where vote-k votes for so large a part of the corpus, its votes mean little.
MANY_NEIGHBOURS = 0.25


# What it needs: the vectors of the corpus.


def run_stage(run: Run) -> None:
    """Choose candidates for every Stage 1 setting in the config."""
    run.folds = plan_folds(run)
    choices = _choices(run)
    markers = finish_choices(run, choices)
    # Not before they are there: a run that fails leaves those of the last one listed.
    run.manifest["selections"] = {}
    for choice, marker in zip(choices, markers, strict=True):
        _record(run, choice, marker)
    join_candidates(run)


def finish_choices(run: Run, choices: Sequence[Choice]) -> list[Marker]:
    """Find or make the candidates of settings, and warn of what is odd about them.

    Raises:
        NothingToChoose: A setting leaves no row.
    """
    missing: dict[tuple[str, int], list[Choice]] = {}
    for choice in choices:
        if run.ledger.find(choice.unit("candidates")) is None:
            fold = -1 if choice.fold is None else choice.fold
            missing.setdefault((choice.encoder, fold), []).append(choice)
    for _, mine in sorted(missing.items()):
        _select(run, mine)
    markers = []
    for choice in choices:
        marker = run.ledger.find(choice.unit("candidates"))
        assert marker is not None
        _warn(run, choice, marker.stats)
        markers.append(marker)
    return markers


def check(arm: Arm) -> None:
    """Refuse a Stage 1 that cannot be.

    Raises:
        ConfigError: Unknown method, a key that its method cannot heed, or a file of ids that is
            not there.
    """
    known = sorted([*STAGE1, NO_STAGE1])
    if arm.stage1.method not in known:
        raise ConfigError(
            f"arm {arm.name}: stage1.method = {arm.stage1.method!r}; known: {', '.join(known)}."
        )
    _check_keys(arm)
    for name in ("given", "required", "forbidden"):
        named = getattr(arm.stage1, name)
        # A list of required or forbidden is one of ids, of given one of files.
        files = [named] if isinstance(named, str) else (named or []) if name == "given" else []
        for file in files:
            existing(file, key=f"arm {arm.name}: stage1.{name}")


def _check_keys(arm: Arm) -> None:
    """Refuse what has no meaning for methods that go by a rule of their own."""
    config = arm.stage1
    if config.method in (*MAXIMISE_F, NO_STAGE1, "random"):
        return
    where, method = f"arm {arm.name}: stage1", config.method
    if config.rule is not None:
        raise ConfigError(
            f"{where}.lambda: found a rule with method {method}, whose picks no lambda moves; a "
            "number is what f judges them by."
        )
    if config.budget is not None:
        raise ConfigError(
            f"{where}.budget = {config.budget:g} with method {method}, which does not weigh costs; "
            f"give k1, or one of {', '.join(MAXIMISE_F)}, random."
        )
    if config.stop_at_negative:
        raise ConfigError(
            f"{where}.stop_at_negative with method {method}, whose picks are no steps of f; wanted "
            f"false, or one of {', '.join(MAXIMISE_F)}."
        )


def _choices(run: Run) -> list[Choice]:
    found: dict[str, Choice] = {}
    for arm in run.arms:
        if arm.stage1.method == NO_STAGE1:
            continue
        wishes = read_wishes(arm.stage1, encoder_id=run.encoder_ids[arm.encoder])
        for fold in folds_of(run, arm) or (None,):
            choice = choice_of(run, arm, arm.stage1, wishes, fold=fold)
            name = arm.name if fold is None else fold_name(arm.name, fold)
            found.setdefault(choice.mark, choice).arms.append(name)
    return list(found.values())


def choice_of(
    run: Run, arm: Arm, config: Stage1Config, wishes: Wishes, *, fold: int | None = None
) -> Choice:
    """A setting with the fingerprint of all it depends on; its arms are left to be named.

    Args:
        run: After embed.
        arm: Its encoder and seed count.
        config: The arm's Stage 1, or what it comes down to.
        wishes: The ids that go with it.
        fold: That is left out of the corpus; None: none.
    """
    seed = run.config.file.seed if config.method not in DRAWN else arm.seed
    heeded = sorted({"cost", *config.columns_needed()})
    sides = [
        [part.marker.stats["sides"][name] for name in heeded] for part in run.tables["corpus"].parts
    ]
    depends = [
        run.encoder_ids[arm.encoder],
        relevant(config),
        seed,
        [marker.fingerprint for marker in run.vectors[arm.encoder, "corpus"]],
        sides,
        wishes.digests(),
        run.config.file.select.model_dump(),
    ]
    if fold is not None:
        assert run.folds is not None
        seed = fold_seed(seed, fold) if config.method in DRAWN else seed
        groups = [part.marker.stats["sides"]["group"] for part in run.tables["corpus"].parts]
        depends += [run.folds.digest, fold, groups]
    mark = fingerprint("select", VERSION, depends)
    return Choice(arm.encoder, config, seed, mark, wishes, fold=fold)


def relevant(config: Stage1Config) -> dict[str, Any]:
    """What the picks and the reported values depend on; files count by what they say."""
    plain = config.model_dump(by_alias=True)
    if config.method == "coverage":
        plain["lambda"] = plain["ridge"] = 0.0
    if config.method != "vote-k":
        del plain["neighbours"]
    for name in ("given", "required", "forbidden"):
        del plain[name]
    return plain


# The Ray wiring; the Ray-free functions are in `jobs/selecting`.


def _select(run: Run, choices: list[Choice]) -> None:
    """Make choices of one encoder and one fold, or none, on the same actors."""
    corpus, encoder, fold = run.tables["corpus"], choices[0].encoder, choices[0].fold
    partitions = {
        number: [marker.as_dict() for marker in markers]
        for number, markers in enumerate(run.vectors_by_partition(encoder))
    }
    rows = {
        p: [part.marker.as_dict() for part in corpus.in_partition(p)]
        for p in range(corpus.n_partitions)
    }
    resources = with_gpus(run.config.file.cluster.select, 0.0)
    with run.watch.stretch("select", asked=asked(resources)) as stretch:
        workers = Workers(
            run.out,
            partitions,
            resources=resources,
            n_actors=n_workers(resources, len(partitions)),
            rows=rows,
            barred=None if fold is None or run.folds is None else run.folds.left_out(fold),
            stretch=stretch,
        )
        try:
            for choice in choices:
                run.watch.note(f"{choice.config.method}: choosing in {len(partitions)} partitions")
                facts = _choose(run, workers, choice)
                # The driver's own, which may be more, is not a worker's.
                run.watch.saw_peak(workers.peak_bytes())
                run.progress.line("select", _line(choice, facts))
        finally:
            workers.stop()


def _choose(run: Run, workers: Workers, choice: Choice) -> dict[str, Any]:
    started = time.monotonic()
    aim = aim_of(run, workers, choice)
    plan = plan_of(run, workers, aim, choice.encoder)
    aim = replace(aim, local_k=plan.local_k)
    local = _local(run, workers, choice, aim)
    counts = [int(marker.stats["n_points"]) for marker in local]
    levels = climb(
        run.ledger,
        workers,
        aim,
        plan,
        local,
        unit_of=choice.unit,
        counts=counts,
        sample=run.config.file.select.sample,
    )
    union = union_of(
        run.ledger,
        aim,
        levels[-1],
        extra=local if len(levels) > 1 else (),
        controls=controls_kept(plan, aim.k),
    )
    if not len(union.vectors):
        raise NothingToChoose(_nothing(choice, aim))
    heard = _Heard(run, choice, aim.k)
    root = root_of(workers, aim, union, counts=counts, m2=_ground(run, choice), heard=heard)
    outcome = decide(root, local, plan.levels[-1].candidates)
    if not len(outcome.merged.selection.picks):
        raise NothingToChoose(_nothing(choice, aim))
    excluded = sum_counts(run.vectors[choice.encoder, "corpus"], "status")
    excluded.pop("ok", None)
    facts = facts_of(
        root,
        outcome,
        local=local,
        between=[marker for level in levels[1:] for marker in level],
        plan=plan,
        seed=choice.seed,
        encoder_id=run.encoder_ids[choice.encoder],
        excluded=excluded,
    )
    facts["forbidden_unknown"] = _unknown(workers, choice.wishes)
    facts["seconds"] = time.monotonic() - started
    facts["peak_memory_bytes"] = peak_bytes(workers)
    table = candidate_table(union, outcome.merged.selection)
    run.ledger.commit(
        choice.unit("candidates"),
        with_encoder(table, run.encoder_ids[choice.encoder]),
        stats=facts,
        files={"selection.json": json.dumps(facts, indent=1, allow_nan=False).encode()},
    )
    return facts


def _nothing(choice: Choice, aim: Aim) -> str:
    config = choice.config
    budget = "" if config.budget is None else f", stage1.budget = {config.budget:g}"
    negative = ", or would lower the objective" if config.stop_at_negative else ""
    return (
        f"stage1 ({', '.join(choice.arms)}): none of {aim.n_rows:,} rows can be chosen "
        f"(stage1.k1 = {config.k1}{budget}): each is forbidden, given already, without a usable "
        f"cost, or dearer than the budget{negative}."
    )


def _ground(run: Run, choice: Choice) -> Any:
    """What leaders are judged on in the last merge: a number, `all`, or None to go by size."""
    select = run.config.file.select
    if select.merge_ground == "sample":
        return max(select.sample, choice.config.m1)
    return "all" if select.merge_ground == "all" else None


class _Heard:
    """Says now and then how far the last merge is, and stops it when asked to."""

    def __init__(self, run: Run, choice: Choice, k: int) -> None:
        self._run, self._name, self._k, self._n = run, choice.config.method, k, 0

    def __call__(self) -> None:
        interrupts.check()
        self._n += 1
        text = f"{self._name}: {self._n} picks of {self._k} merged"
        self._run.watch.note(text)
        self._run.progress.tick("select", text)


def _unknown(workers: Workers, wishes: Wishes) -> str | None:
    """Forbidden ids that no row with a vector has, the first of them by name."""
    ids = list(wishes.forbidden.ids) if wishes.forbidden else []
    if not ids:
        return None
    there = np.any(list(workers.each(_there, ids).values()), axis=0)
    lost = [row_id for row_id, found in zip(ids, there, strict=True) if not found]
    return shown(lost) if lost else None


def _there(ledger: Ledger, parts: Sequence[Marker], rows: Mapped, ids: list[str]) -> Bools:
    found: Bools = rows.find(pa.array(ids, pa.string())) >= 0
    return found


def _warn(run: Run, choice: Choice, facts: dict[str, Any]) -> None:
    config, n_rows = choice.config, int(facts["N"])
    if facts["forbidden_unknown"]:
        run.progress.warn(
            f"stage1.forbidden: no rows of the corpus, or rows without a vector: "
            f"{facts['forbidden_unknown']}"
        )
    ended_early = config.budget is not None or config.stop_at_negative
    if config.k1 is not None and facts["k1_used"] < min(config.k1, n_rows) and not ended_early:
        run.progress.warn(
            f"stage1.k1 = {config.k1}, but only {facts['k1_used']} of {n_rows} rows could be "
            "chosen: the others are forbidden, given already, or of a full group"
        )
    if config.k1 is not None and config.k1 > n_rows:
        run.progress.warn(
            f"stage1.k1 = {config.k1} is more than the {n_rows} rows that can be chosen; "
            f"all {n_rows} are"
        )
    if config.method == "vote-k" and config.neighbours > MANY_NEIGHBOURS * n_rows:
        run.progress.warn(
            f"stage1.neighbours = {config.neighbours} is much of the {n_rows} rows, so that rows "
            "vote for what is not near to them; vote-k's paper takes 150 of 3,000, a twentieth"
        )
    dim = dimension_of(run, choice.encoder)
    if config.diverse and config.k1 is not None and dim < config.k1 <= n_rows:
        run.progress.warn(
            f"stage1.k1 = {config.k1} is more than the {dim} dimensions of encoder "
            f"{choice.encoder}: beyond them the log-determinant hardly tells rows apart; a larger "
            "stage1.ridge, or coverage alone, says more there"
        )


def _local(run: Run, workers: Workers, choice: Choice, aim: Aim) -> list[Marker]:
    corpus = run.tables["corpus"]
    units = [choice.unit(f"local-{p:05d}") for p in range(corpus.n_partitions)]
    made = {unit.name: run.ledger.find(unit) for unit in units}
    payloads = [
        {
            "unit": asdict(unit),
            "partition": p,
            "rows": [part.marker.as_dict() for part in corpus.in_partition(p)],
        }
        for p, unit in enumerate(units)
        if made[unit.name] is None
    ]
    for marker in workers.local(LocalWork(aim), payloads):
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
    given = f", given {facts['given']:,} rows," if facts["given"] else ""
    return (
        f"{name}: {facts['N']:,}{given} -> {facts['k1_used']}  objective "
        f"{show('objective')} (best local {show('best_local_objective')}, random "
        f"{show('random_objective')}{_bound(facts['certificate'])})  {facts['seconds']:.1f} s"
    )


def _bound(certificate: dict[str, Any] | None) -> str:
    if certificate is None or certificate["bound"] is None:
        return ""
    kinds = {
        "proved": "proved",
        "sampled": f"on {certificate['sample'] or 0:,} rows",
        "statistical": f"z = {certificate['z']}, no proof",
    }
    lift = "" if certificate["lift"] is None else f", lift {certificate['lift']:.2f}"
    return f"; at most {certificate['bound']:,.4f}, {kinds[certificate['kind']]}{lift}"


def _record(run: Run, choice: Choice, marker: Marker) -> None:
    for arm in choice.arms:
        run.candidates[arm] = marker
    entry: dict[str, Any] = {"candidates": marker.as_dict(), "arms": choice.arms}
    entry |= {"encoder": choice.encoder, "fold": choice.fold}
    run.manifest["selections"][choice.mark] = entry
    first = marker.stats["first_negative_gain"]
    if first is not None and choice.config.method == "dual-div":
        arms = ", ".join(choice.arms)
        run.progress.line("select", f"dual-div ({arms}): gain below 0 from pick {first + 1}")
