"""The learned retriever: for each arm that recalls by it, a map that its own LLM taught.

Of queries only the texts are looked at, to keep these out of what is learned from; their labels
never are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from inference.engine import EngineSpec
from jobs.annotate import usable_labels
from jobs.config.schema import Arm
from jobs.epr.map import read_map, require_bound
from jobs.epr.units import Course, begun, embedded, learned, scored
from jobs.files.inputs import read_input
from jobs.generating.engines import engine_spec, plain_engine
from jobs.ledger import Marker, Unit, fingerprint, sum_counts
from jobs.run import Run
from jobs.storage import reading
from jobs.tasks import task_of

VERSION = 1


def check_map(arm: Arm, *, encoder_id: str, engine: EngineSpec) -> None:
    """Refuse a map of an earlier run that is not of this encoder and these weights.

    Raises:
        ConfigError: No such file, or a map of others; names both sides.
        DataError: The file is no map.
    """
    path, key = arm.stage2.epr.map, f"arm {arm.name}: stage2.epr.map"
    if path is not None:
        _, facts = read_map(path, key=key)
        llm = plain_engine(engine)["weights"]
        require_bound(
            facts, where=f"{key} = {path}", encoder_id=encoder_id, engine=arm.engine, llm=llm
        )


def finish_maps(run: Run, arms: Sequence[Arm]) -> dict[str, Marker]:
    """Find, take over or learn the map of every arm.

    Args:
        run: Candidates chosen and annotated.
        arms: Those that recall by a map; one without a labelled candidate gets none.

    Returns:
        Arm -> marker of its map.
    """
    run.manifest.pop("epr", None)
    arms = [arm for arm in arms if usable_labels(run, arm.name, task_of(run, arm.task))]
    if not arms:
        return {}
    engines = {
        name: engine_spec(run.config.file.engines[name], key=f"engines.{name}")
        for name in dict.fromkeys(arm.engine for arm in arms)
    }
    maps = {
        arm.name: _taken(run, arm, engines[arm.engine])
        for arm in arms
        if arm.stage2.epr.map is not None
    }
    courses = [begun(run, arm, engines[arm.engine]) for arm in arms if arm.name not in maps]
    courses = scored(run, embedded(run, courses))
    maps |= learned(run, courses)
    entries: dict[str, Any] = {name: {"map": marker.as_dict()} for name, marker in maps.items()}
    for course in courses:
        entries[course.arm.name] |= _made_of(course)
        _tell(run, course, maps[course.arm.name])
    run.manifest["epr"] = entries
    return maps


def _taken(run: Run, arm: Arm, engine: EngineSpec) -> Marker:
    """The map of an earlier run, kept in this one's output."""
    path = str(arm.stage2.epr.map)
    check_map(arm, encoder_id=run.encoder_ids[arm.encoder], engine=engine)
    table, facts = read_map(path, key=f"arm {arm.name}: stage2.epr.map")
    with reading(path):
        content = hashlib.blake2b(read_input(path), digest_size=16).hexdigest()
    mark = fingerprint("epr map taken", VERSION, content)
    unit = Unit(f"epr/{mark}", "map", mark)
    return run.ledger.find(unit) or run.ledger.commit(unit, table, stats=facts)


def _made_of(course: Course) -> dict[str, Any]:
    assert course.vectors is not None
    return {
        "rows": course.rows.as_dict(),
        "pool": course.pool.as_dict(),
        "vectors": course.vectors.as_dict(),
        "scores": [marker.as_dict() for marker in course.scores],
    }


def _tell(run: Run, course: Course, made: Marker) -> None:
    """Say what came of it, and warn where the map does not help texts it was not learned from."""
    facts, arm = made.stats, course.arm.name
    run.progress.line(
        "epr",
        f"{arm}: learned from {facts['taught']:,} of {facts['rows']:,} texts, loss "
        f"{_step(facts['loss'])}"
        + (f" (on a held-out fifth {_step(facts['held_out'])})" if facts["held_out"] else ""),
    )
    lost = {name: n for name, n in sum_counts(course.scores, "status").items() if name != "ok"}
    if lost:
        what = ", ".join(f"{n} {name}" for name, n in sorted(lost.items()))
        run.progress.warn(f"{arm}: prompts of stage2.epr that the LLM did not score: {what}")
    unseen = facts["held_out"]
    if unseen and unseen["after"] >= unseen["before"]:
        run.progress.warn(
            f"{arm}: a map of stage2.epr learned from four fifths of {facts['taught']} texts does "
            f"not lower the loss of the others ({_step(unseen)}); recall_by: dense may do as well. "
            "Raise stage2.epr.pull, or label more texts"
        )


def _step(losses: Mapping[str, float]) -> str:
    return f"{losses['before']:.3f} -> {losses['after']:.3f}"
