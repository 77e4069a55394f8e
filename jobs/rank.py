"""Rank (Stage 2): which demonstrations each query is shown, most relevant first."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from jobs.annotate import usable_labels
from jobs.config.schema import Arm
from jobs.config.stage1 import NO_STAGE1
from jobs.config.stage2 import ZERO_SHOT, Stage2Config
from jobs.epr.learn import finish_maps
from jobs.errors import ConfigError
from jobs.ledger import Marker, Unit, fingerprint, sum_counts
from jobs.ranking.sparse import identify_sparse, sparse_vectors
from jobs.ranking.work import (
    LABELLED,
    METHODS,
    SEEDED,
    GroundWork,
    RankWork,
    ScoreWork,
    draws_ground,
)
from jobs.run import Run
from jobs.selecting.id_files import existing
from jobs.selection_folds import fold_arms, join_rankings
from jobs.tasks import task_of
from jobs.units import finish, threads
from selection.mutual_information import KEPT_MOST

VERSION = 4
POOL_COLUMNS = ("input", "tags", "group")


@dataclass(frozen=True)
class Need:
    """What a ranking depends on; arms with the same need share it.

    Attributes:
        arm: One of the arms that have it.
        mark: Fingerprint.
        pool: Ids that may be shown, in the order they were picked; empty: nothing is shown.
        labels: Their labels.
        map: By which candidates are recalled; None: by the vectors as they are, or by words.
        fold: Whose queries are ranked for; None: all.
    """

    arm: Arm
    mark: str
    pool: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    map: Marker | None = None
    fold: int | None = None

    def unit(self, name: str) -> Unit:
        """A unit of this need's folder."""
        return Unit(f"demonstrations/{self.mark}", name, self.mark)


# What it needs: the pool, its vectors, the vectors of the queries; the LLM to learn a map.


def run_stage(run: Run) -> None:
    """Rank for every arm; arms that need the same share it."""
    arms = [one for arm in run.arms for one in fold_arms(run, arm)]
    maps = finish_maps(run, [arm for arm, _ in arms if learns(arm)])
    by_arm = {arm.name: _need(run, arm, maps.get(arm.name), fold) for arm, fold in arms}
    needs = {need.mark: need for need in by_arm.values()}
    payloads = {mark: _shared(run, need) for mark, need in needs.items()}
    _finish_pools(run, list(needs.values()), payloads)
    _finish_sparse(run, list(needs.values()), payloads)
    _finish_scores(run, list(needs.values()), payloads)
    made = _finish_parts(run, list(needs.values()), payloads)
    for arm in run.arms:
        mine = [(by_arm[one.name], fold) for one, fold in fold_arms(run, arm)]
        markers = [made[need.mark] for need, _ in mine]
        whole = mine[0][1] is None
        run.demonstrations[arm.name] = markers[0] if whole else join_rankings(run, arm, markers)
    run.manifest["demonstrations"] = {
        name: [marker.as_dict() for marker in markers]
        for name, markers in run.demonstrations.items()
    }


def check(arm: Arm) -> None:
    """Refuse a Stage 2 that cannot be.

    Raises:
        ConfigError: Unknown method or a combination that means nothing.
    """
    stage2, where = arm.stage2, f"arm {arm.name}"
    known = sorted([*METHODS, ZERO_SHOT])
    if stage2.method not in known:
        raise ConfigError(f"{where}: stage2.method = {stage2.method!r}; known: {', '.join(known)}.")
    if stage2.method != ZERO_SHOT and stage2.condition_on not in METHODS[stage2.method]:
        wanted = " or ".join(METHODS[stage2.method])
        raise ConfigError(
            f"{where}: stage2.condition_on = {stage2.condition_on} does not go with method "
            f"{stage2.method}; wanted {wanted}."
        )
    if stage2.condition_on == "all" and stage2.recall_by != "dense":
        raise ConfigError(
            f"{where}: stage2.recall_by = {stage2.recall_by} needs stage2.condition_on = query: "
            "one set for all queries is chosen from the whole pool."
        )
    if learns(arm) and isinstance(stage2.epr.also, str):
        existing(stage2.epr.also, key=f"{where}: stage2.epr.also")
    shows = not shows_nothing(stage2)
    if shows and arm.stage1.method == NO_STAGE1:
        raise ConfigError(
            f"{where}: stage1.method = none leaves nothing to show; give a Stage 1 method or "
            "stage2.method: zero-shot."
        )


def check_k(arm: Arm) -> None:
    """Refuse to show more than this run chooses; night by night the pool may well hold more.

    Raises:
        ConfigError: `stage2.k` is more than `stage1.k1`.
    """
    k, k1 = arm.stage2.k, arm.stage1.k1
    if not shows_nothing(arm.stage2) and k1 is not None and k > k1:
        raise ConfigError(
            f"arm {arm.name}: stage2.k = {k} is more than stage1.k1 = {k1}. Lower k or raise k1."
        )


def _need(run: Run, arm: Arm, learned: Marker | None, fold: int | None) -> Need:
    rows = [part.marker.stats["texts"] for part in run.tables["queries"].parts]
    if shows_nothing(arm.stage2):
        return Need(arm, fingerprint("rank", VERSION, ZERO_SHOT, rows))
    labels = usable_labels(run, arm.name, task_of(run, arm.task))
    pool = tuple(labels)
    if arm.stage2.k > len(pool):
        run.progress.warn(
            f"{arm.name}: stage2.k = {arm.stage2.k} is more than the {len(pool)} labelled "
            f"candidates; {len(pool)} are shown"
        )
    _require_room(run, arm, len(pool))
    depends = [
        run.candidates[arm.name].checksum,
        pool,
        relevant(arm.stage2),
        learned and learned.checksum,
        arm.prompt.spare,
        [marker.fingerprint for marker in run.vectors[arm.encoder, "queries"]],
        rows,
    ]
    name = sparse_encoder_of(arm)
    if name is not None:
        depends.append(identify_sparse(name, run.config.file.sparse_encoders[name]))
    if arm.stage2.cover_tags:
        depends.append(_tags(run))
    if arm.stage2.exclude_same_group:
        depends.append(_groups(run, pool))
    if draws_ground(arm.stage2):
        depends.append([marker.fingerprint for marker in run.vectors[arm.encoder, "corpus"]])
    if arm.stage2.method in SEEDED:
        depends.append(arm.seed)
    if arm.stage2.method in LABELLED:
        depends.append(list(labels.values()))
    if fold is not None and run.folds is not None:
        depends.append([run.folds.digest, fold])
    mark = fingerprint("rank", VERSION, depends)
    return Need(arm, mark, pool, tuple(labels.values()), learned, fold)


def _require_room(run: Run, arm: Arm, n: int) -> None:
    """Refuse more ground points than `mutual-information` keeps cosines of."""
    if arm.stage2.method != "mutual-information":
        return
    have = sum_counts(run.vectors[arm.encoder, "corpus"], "status").get("ok", 0)
    asked = {"all": have, "pool": n}.get(str(arm.stage2.ground))
    size = min(have, int(arm.stage2.ground)) if asked is None else asked
    if n * size > KEPT_MOST:
        raise ConfigError(
            f"arm {arm.name}: stage2.ground: found {size} ground points for a pool of {n} records, "
            f"wanted at most {KEPT_MOST // n} for method mutual-information. Lower it."
        )


def relevant(stage2: Stage2Config) -> dict[str, Any]:
    """What a ranking depends on, beside the marks of a sparse encoder or a learned map, if any."""
    return stage2.model_dump(by_alias=True, exclude={"sparse_encoder", "epr"})


def sparse_encoder_of(arm: Arm) -> str | None:
    """The sparse encoder that takes part in what an arm recalls, if one does."""
    return None if shows_nothing(arm.stage2) else arm.stage2.recalls_sparse


def shows_nothing(stage2: Stage2Config) -> bool:
    """Whether prompts have no demonstrations by wish."""
    return stage2.shows_nothing


def learns(arm: Arm) -> bool:
    """Whether an arm recalls by a map that an LLM taught."""
    return arm.stage2.recall_by == "epr" and not shows_nothing(arm.stage2)


# The Ray wiring; the Ray-free functions on one part are in `jobs.ranking.work`.


def _shared(run: Run, need: Need) -> dict[str, Any]:
    """What the units of a need have in common."""
    encoder = need.arm.encoder
    return {
        "stage2": need.arm.stage2.model_dump(by_alias=True),
        "spare": need.arm.prompt.spare,
        "seed": need.arm.seed,
        "threads": threads(run.config.file.cluster.rank),
        "n_total": sum_counts(run.vectors[encoder, "corpus"], "status").get("ok", 0),
        "pool": None,
        "sparse": None,
        "ground": None,
        "scores": None,
        "map": need.map and need.map.as_dict(),
    }


def _finish_pools(run: Run, needs: list[Need], payloads: dict[str, dict[str, Any]]) -> None:
    """Write the records that may be shown and draw the ground samples."""
    grounds: dict[str, tuple[Unit, dict[str, Any]]] = {}
    for need in needs:
        if need.pool:
            payloads[need.mark]["pool"] = _pool(run, need).as_dict()
            if draws_ground(need.arm.stage2):
                grounds[need.mark] = _ground_unit(run, need.arm)
    markers = _finish(run, list(grounds.values()), GroundWork(run.out))
    for mark, marker in zip(grounds, markers, strict=True):
        payloads[mark]["ground"] = marker.as_dict()


def _pool(run: Run, need: Need) -> Marker:
    unit = need.unit("pool")
    found = run.ledger.find(unit)
    if found is not None:
        return found
    assert run.pool is not None
    chosen = _in_order(run.ledger.read(run.candidates[need.arm.name], ["id", "vector"]), need)
    texts = _in_order(run.ledger.read(run.pool, ["id", *POOL_COLUMNS]), need)
    for name in POOL_COLUMNS:
        chosen = chosen.append_column(name, texts[name])
    chosen = chosen.append_column("label", pa.array(need.labels, pa.string()))
    return run.ledger.commit(unit, chosen)


def _in_order(table: pa.Table, need: Need) -> pa.Table:
    """The rows of the records that may be shown, in their order."""
    place = {row_id: i for i, row_id in enumerate(table.column("id").to_pylist())}
    return table.take(pa.array([place[row_id] for row_id in need.pool], pa.int64()))


def _tags(run: Run) -> list[Any]:
    """What the tags of pool and queries depend on; nothing where the pool has none."""
    assert run.pool is not None
    pool = run.ledger.read(run.pool, ["id", "tags"]).to_pylist()
    tagged = [row for row in pool if row["tags"]]
    if not tagged:
        return []
    return [tagged, [part.marker.stats["content"] for part in run.tables["queries"].parts]]


def _groups(run: Run, pool: Sequence[str]) -> list[Any]:
    """The groups of pool and queries; nothing where either side has none."""
    assert run.pool is not None
    queries = [part.marker.stats["sides"]["group"] for part in run.tables["queries"].parts]
    known = run.ledger.read(run.pool, ["id", "group"])
    found = dict(zip(known["id"].to_pylist(), known["group"].to_pylist(), strict=True))
    groups = [found[row_id] for row_id in pool]
    both = any(queries) and any(group is not None for group in groups)
    return [queries, groups] if both else []


def _ground_unit(run: Run, arm: Arm) -> tuple[Unit, dict[str, Any]]:
    markers, size = run.vectors[arm.encoder, "corpus"], arm.stage2.ground
    n_total = sum_counts(markers, "status").get("ok", 0)
    mark = fingerprint("ground", VERSION, size, [marker.fingerprint for marker in markers])
    unit = Unit(f"demonstrations/ground-{mark}", "ground", mark)
    payload = {
        "unit": asdict(unit),
        "partitions": [
            [marker.as_dict() for marker in partition]
            for partition in run.vectors_by_partition(arm.encoder)
        ],
        "size": n_total if size == "all" else size,
    }
    return unit, payload


def _finish_sparse(run: Run, needs: list[Need], payloads: dict[str, dict[str, Any]]) -> None:
    """Have the sparse vectors of queries and pools where a sparse encoder takes part."""
    run.manifest.pop("sparse", None)
    by_name: dict[str, list[Need]] = {}
    for need in needs:
        name = sparse_encoder_of(need.arm)
        if name is not None and need.pool:
            by_name.setdefault(name, []).append(need)
    for name, mine in by_name.items():
        pools = [Marker(**payloads[need.mark]["pool"]) for need in mine]
        queries, records = sparse_vectors(run, name, pools)
        for need, record in zip(mine, records, strict=True):
            both = {"queries": [one.as_dict() for one in queries], "pool": record.as_dict()}
            payloads[need.mark]["sparse"] = both


def _finish_scores(run: Run, needs: list[Need], payloads: dict[str, dict[str, Any]]) -> None:
    """Where one set serves all queries, score the pool against all of them."""
    mine = [need for need in needs if need.pool and need.arm.stage2.condition_on == "all"]
    units = []
    for need in mine:
        unit = need.unit("scores")
        queries = [marker.as_dict() for marker in run.vectors[need.arm.encoder, "queries"]]
        units.append((unit, payloads[need.mark] | {"unit": asdict(unit), "queries": queries}))
    markers = _finish(run, units, ScoreWork(run.out))
    for need, marker in zip(mine, markers, strict=True):
        payloads[need.mark]["scores"] = marker.as_dict()
        if marker.stats["tied"]:
            run.progress.warn(
                f"{need.arm.name}: stage2.method {need.arm.stage2.method} scores every candidate "
                "the same against all queries together, so the first by id are shown; raise "
                "stage2.lambda or condition on each query"
            )


def _finish_parts(
    run: Run, needs: list[Need], payloads: dict[str, dict[str, Any]]
) -> dict[str, list[Marker]]:
    parts = run.tables["queries"].parts
    units = []
    for need in needs:
        for number, part in enumerate(parts):
            unit = need.unit(part.name)
            vectors = run.vectors[need.arm.encoder, "queries"][number]
            own: dict[str, Any] = {
                "unit": asdict(unit),
                "rows": part.marker.as_dict(),
                "vectors": vectors.as_dict(),
            }
            sparse = payloads[need.mark]["sparse"]
            if sparse is not None:
                own["sparse"] = sparse | {"queries": sparse["queries"][number]}
            if need.fold is not None and run.folds is not None:
                own["only"] = run.folds.queries_of(need.fold)
            units.append((unit, payloads[need.mark] | own))
    markers = _finish(run, units, RankWork(run.out))
    made = {
        need.mark: markers[i * len(parts) : (i + 1) * len(parts)] for i, need in enumerate(needs)
    }
    for need in needs:
        _warn_of_nothing_found(run, need.arm, made[need.mark])
        _warn_of_few(run, need.arm, made[need.mark])
    return made


def _warn_of_nothing_found(run: Run, arm: Arm, markers: list[Marker]) -> None:
    alone = arm.stage2.recall_by != "hybrid"
    instead = "dense recall alone" if alone else "the other lists"
    for what, by in (("words", "lexical"), ("sparse", "sparse")):
        n = sum(marker.stats.get(f"n_without_{what}", 0) for marker in markers)
        if n:
            run.progress.warn(
                f"{arm.name}: {by} recall found nothing for {n} queries; {instead} served them"
            )


def _warn_of_few(run: Run, arm: Arm, markers: list[Marker]) -> None:
    n = sum(marker.stats.get("n_short", 0) for marker in markers)
    if n:
        run.progress.warn(
            f"{arm.name}: {n} queries have fewer than stage2.k = {arm.stage2.k} demonstrations: no "
            "more were found that they may see"
        )


def _finish(
    run: Run,
    units: list[tuple[Unit, dict[str, Any]]],
    work: RankWork | GroundWork | ScoreWork,
) -> list[Marker]:
    return finish(
        run,
        units,
        work,
        stage="rank",
        workers=run.config.file.cluster.rank,
    )
