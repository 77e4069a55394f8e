"""The learned retriever step by step: texts, their vectors, the LLM's scores, the map.

Every step is a unit that is found again; a text, a record or weights that change make anew what
hangs on them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from inference.encoder import pinned
from inference.engine import EngineSpec
from jobs.config.cluster import WorkersConfig
from jobs.config.schema import Arm
from jobs.embed import EmbedWork, encoder_spec
from jobs.epr.rows import COLUMNS, candidates_of, pool_table, read_pool, read_rows, training_rows
from jobs.epr.work import EprScoreWork, EprTrainWork
from jobs.generating.engines import plain_engine
from jobs.ledger import Marker, Unit, fingerprint
from jobs.prompting.pool_texts import SHOWN_COLUMNS
from jobs.run import Run
from jobs.tasks import plain_task, task_of
from jobs.units import Work, finish, threads, with_gpus

VERSION = 1
# Texts share units of scores by the begin of a hash: a new one makes one unit in 16 anew.
KEY_DIGITS = 1

Units = dict[Unit, dict[str, Any]]


@dataclass(frozen=True)
class Course:
    """What the map of one arm is learned from, as far as it is there.

    Attributes:
        arm: The arm.
        engine: Its LLM.
        rows: Labelled texts.
        pool: Records that the LLM tries with them.
        vectors: Of the texts, embedded as queries.
        scores: The LLM's.
    """

    arm: Arm
    engine: EngineSpec
    rows: Marker
    pool: Marker
    vectors: Marker | None = None
    scores: tuple[Marker, ...] = ()

    @property
    def llm(self) -> str:
        """Revision of the LLM's weights."""
        return str(plain_engine(self.engine)["weights"])


def begun(run: Run, arm: Arm, engine: EngineSpec) -> Course:
    """Write down the texts and records that an arm's map is learned from."""
    table = training_rows(run, arm)
    mark = fingerprint("epr rows", VERSION, table.to_pylist())
    unit = Unit(f"epr/{mark}", "rows", mark)
    rows = run.ledger.find(unit) or run.ledger.commit(unit, table)
    table = pool_table(run, arm)
    texts = table.select([*COLUMNS, "group"]).to_pylist()
    mark = fingerprint("epr pool", VERSION, run.candidates[arm.name].checksum, texts)
    unit = Unit(f"epr/{mark}", "pool", mark)
    return Course(arm, engine, rows, run.ledger.find(unit) or run.ledger.commit(unit, table))


def embedded(run: Run, courses: Sequence[Course]) -> list[Course]:
    """Embed the texts as queries are: an encoder may treat the two sides differently."""
    made: dict[str, Marker] = {}
    workers = run.config.file.cluster.embed
    for name in dict.fromkeys(course.arm.encoder for course in courses):
        spec = pinned(encoder_spec(run.config.file.encoders[name], key=f"encoders.{name}"))
        units = {
            course.arm.name: _vector_unit(run, course)
            for course in courses
            if course.arm.encoder == name
        }
        work = EmbedWork(run.out, spec, n_threads=threads(workers))
        done = _finish(run, dict(units.values()), work, workers=with_gpus(workers, 1))
        made |= {arm: done[unit] for arm, (unit, _) in units.items()}
    return [replace(course, vectors=made[course.arm.name]) for course in courses]


def scored(run: Run, courses: Sequence[Course]) -> list[Course]:
    """Let the arms' LLMs score the candidates of each text, engine by engine."""
    made: dict[str, tuple[Marker, ...]] = {}
    workers = run.config.file.cluster.generate
    for name in dict.fromkeys(course.arm.engine for course in courses):
        mine = [course for course in courses if course.arm.engine == name]
        spec = replace(mine[0].engine, n_threads=threads(workers))
        units = {course.arm.name: _score_units(run, course) for course in mine}
        every = {unit: payload for some in units.values() for unit, payload in some.items()}
        resources = with_gpus(workers, spec.tensor_parallel_size or 1)
        done = _finish(run, every, EprScoreWork(run.out, spec), workers=resources)
        made |= {arm: tuple(done[unit] for unit in some) for arm, some in units.items()}
    return [replace(course, scores=made[course.arm.name]) for course in courses]


def learned(run: Run, courses: Sequence[Course]) -> dict[str, Marker]:
    """Learn the maps; by arm."""
    units = {course.arm.name: _train_unit(run, course) for course in courses}
    workers = run.config.file.cluster.rank
    done = _finish(run, dict(units.values()), EprTrainWork(run.out), workers=workers)
    return {arm: done[unit] for arm, (unit, _) in units.items()}


def _vector_unit(run: Run, course: Course) -> tuple[Unit, dict[str, Any]]:
    encoder = run.encoder_ids[course.arm.encoder]
    mark = fingerprint("epr vectors", VERSION, encoder, course.rows.fingerprint)
    unit = Unit(f"embeddings/{encoder}/{mark}", "part", mark)
    return unit, {"unit": asdict(unit), "rows": course.rows.as_dict(), "role": "query"}


def _score_units(run: Run, course: Course) -> Units:
    assert run.pool is not None
    assert course.vectors is not None
    arm = course.arm
    rows = read_rows(run.ledger, course.rows, course.vectors)
    records = read_pool(run.ledger, course.pool)
    tried = candidates_of(rows, records, n=arm.stage2.epr.candidates, ceiling=arm.stage2.ceiling)
    texts = dict(zip(rows.ids, zip(rows.inputs, rows.labels, strict=True), strict=True))
    shown = {row["id"]: row for row in run.ledger.read(run.pool, SHOWN_COLUMNS).to_pylist()}
    common = {
        "rows": course.rows.as_dict(),
        "pool": run.pool.as_dict(),
        "task": plain_task(task_of(run, arm.task)),
        "prompt": {name: getattr(arm.prompt, name) for name in ("format", "negative_pairs")},
    }
    units: Units = {}
    for begin in sorted({_key(row_id) for row_id in tried}):
        mine = {row_id: ids for row_id, ids in tried.items() if _key(row_id) == begin}
        needed = sorted({row_id for ids in mine.values() for row_id in ids})
        own = [mine, [texts[row_id] for row_id in mine], [shown[row_id] for row_id in needed]]
        settings = [common["task"], common["prompt"], plain_engine(course.engine)]
        mark = fingerprint("epr scores", VERSION, own, settings)
        unit = Unit(f"epr/{mark}", "scores", mark)
        units[unit] = common | {"unit": asdict(unit), "wanted": mine}
    return units


def _key(row_id: str) -> str:
    return fingerprint(row_id)[:KEY_DIGITS]


def _train_unit(run: Run, course: Course) -> tuple[Unit, dict[str, Any]]:
    assert course.vectors is not None
    arm = course.arm
    facts = {
        "encoder_id": run.encoder_ids[arm.encoder],
        "llm": course.llm,
        "engine": arm.engine,
        "task": arm.task,
        "pool": course.pool.checksum,
    }
    settings = {
        "epr": arm.stage2.epr.model_dump(exclude={"map", "also"}),
        "ceiling": arm.stage2.ceiling,
        "seed": arm.seed,
        "facts": facts,
    }
    scores = [marker.checksum for marker in course.scores]
    made_of = [course.rows.checksum, course.vectors.fingerprint, scores]
    mark = fingerprint("epr map", VERSION, settings, made_of)
    unit = Unit(f"epr/{mark}", "map", mark)
    markers = {
        "rows": course.rows.as_dict(),
        "vectors": course.vectors.as_dict(),
        "pool": course.pool.as_dict(),
        "scores": [marker.as_dict() for marker in course.scores],
    }
    return unit, settings | markers | {"unit": asdict(unit), "arm": arm.name}


def _finish(run: Run, units: Units, work: Work, *, workers: WorkersConfig) -> dict[Unit, Marker]:
    """Make what is missing, on actors: what a unit needs may be costly to load."""
    pairs = list(units.items())
    markers = finish(run, pairs, work, stage="epr", workers=workers, stateful=True)
    return dict(zip(units, markers, strict=True))
