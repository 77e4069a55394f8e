"""Stage 1 repeated for each fold of the paired test (`report.folds_of: selection`).

A fold is a share of the queries and a share of the corpus. Its selection is made as if its corpus
share were not there, and answers its queries and no others; so every query is still answered once
an arm. A group lies in one fold, whichever of the two tables its rows are in.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from inference.folds import fold_of
from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.config.stage1 import NO_STAGE1
from jobs.errors import ConfigError, DataError
from jobs.folds import VERSION, FoldPlan, fold_name
from jobs.ledger import Marker, Unit, fingerprint
from jobs.run import Run


def check_folds(config: Config) -> None:
    """Refuse what a selection repeated per fold cannot go with.

    Raises:
        ConfigError: Names the arm and the key.
    """
    if config.file.report.folds_of != "selection":
        return
    for arm in config.arms:
        where = f"arm {arm.name}: report.folds_of = selection"
        names = {f"stage1.{k}": getattr(arm.stage1, k) for k in ("required", "given", "forbidden")}
        if arm.stage2.recall_by == "epr" and not arm.stage2.shows_nothing:
            names["stage2.epr.also"] = arm.stage2.epr.also
        for key, named in names.items():
            if named is not None:
                raise ConfigError(
                    f"{where} does not go with {key}, which names rows that a fold may leave out. "
                    "Leave one of them out."
                )
        if arm.prompt.layout in ("anchor", "clustered") and not arm.stage2.shows_nothing:
            raise ConfigError(
                f"{where} does not go with prompt.layout = {arm.prompt.layout}, whose queries "
                "share demonstrations over all folds. Set layout: dynamic or by-id."
            )


def plan_folds(run: Run) -> FoldPlan | None:
    """Deal the queries, and with them the corpus, to folds; None where selection is not repeated.

    Labels are not looked at: which demonstrations a query is shown must not hang on its answer.

    Raises:
        DataError: Fewer than two groups of queries.
    """
    report = run.config.file.report
    if report.folds_of != "selection":
        return None
    ids: list[str] = []
    groups: list[str | None] = []
    for part in run.tables["queries"].parts:
        rows = run.ledger.read(part.marker, ["id", "group"])
        ids += rows["id"].to_pylist()
        groups += rows["group"].to_pylist()
    seed = run.config.file.seed
    folds = fold_of(ids, groups, [""] * len(ids), n_folds=report.folds, seed=seed)
    if folds.n_folds < 2:
        raise DataError(
            f"report.folds_of = selection: found {folds.n_folds} groups among {len(ids)} queries, "
            "wanted at least 2. Set folds_of: queries, or check queries.columns.group."
        )
    number = folds.number.tolist()
    of_group = {g: fold for g, fold in zip(groups, number, strict=True) if g is not None}
    return FoldPlan(dict(zip(ids, number, strict=True)), of_group, folds.n_folds, seed)


def folds_of(run: Run, arm: Arm) -> list[int]:
    """The folds that an arm selects in; empty where it selects once or not at all."""
    if run.folds is None or arm.stage1.method == NO_STAGE1:
        return []
    return list(range(run.folds.n_folds))


def fold_arms(run: Run, arm: Arm) -> list[tuple[Arm, int | None]]:
    """An arm as it is in each fold, under a name of its own; or just the arm.

    What shows nothing has nothing to repeat.
    """
    folds = [] if arm.stage2.shows_nothing else folds_of(run, arm)
    if not folds:
        return [(arm, None)]
    return [(arm.model_copy(update={"name": fold_name(arm.name, fold)}), fold) for fold in folds]


def join_candidates(run: Run) -> None:
    """Give each arm the candidates of all its folds together, each once, under its own name."""
    for arm in run.arms:
        folds = folds_of(run, arm)
        if folds:
            parts = [run.candidates[fold_name(arm.name, fold)] for fold in folds]
            run.candidates[arm.name] = together(run, parts)


def together(run: Run, parts: Sequence[Marker]) -> Marker:
    """The candidates of the folds of an arm as one table, each once, found or made."""
    mark = fingerprint("fold candidates", VERSION, [part.checksum for part in parts])
    unit = Unit(f"candidates/{mark}", "candidates", mark)
    found = run.ledger.find(unit)
    if found is not None:
        return found
    table = pa.concat_tables([run.ledger.read(part) for part in parts])
    first: dict[str, int] = {}
    for place, row_id in enumerate(table["id"].to_pylist()):
        first.setdefault(row_id, place)
    stats = {"n_folds": len(parts), "k1_used": [part.rows for part in parts]}
    kept = table.take(pa.array(list(first.values()), pa.int64()))
    return run.ledger.commit(unit, kept.combine_chunks(), stats=stats)


def join_rankings(run: Run, arm: Arm, by_fold: Sequence[Sequence[Marker]]) -> list[Marker]:
    """Take each query's demonstrations from the ranking of its fold.

    Args:
        run: The run, with folds.
        arm: The arm.
        by_fold: Of each fold, one marker per query part.

    Returns:
        One marker per query part.
    """
    assert run.folds is not None
    made = []
    for number, part in enumerate(run.tables["queries"].parts):
        markers = [mine[number] for mine in by_fold]
        checksums = [marker.checksum for marker in markers]
        mark = fingerprint("fold rankings", VERSION, checksums, run.folds.digest)
        unit = Unit(f"demonstrations/{mark}", part.name, mark)
        found = run.ledger.find(unit)
        if found is None:
            tables = [run.ledger.read(marker) for marker in markers]
            n, ids = tables[0].num_rows, tables[0]["id"].to_pylist()
            places = [run.folds.of_query[row_id] * n + i for i, row_id in enumerate(ids)]
            table = pa.concat_tables(tables).take(pa.array(places, pa.int64()))
            found = run.ledger.commit(unit, table.combine_chunks(), stats=_summed(markers))
        made.append(found)
    return made


def _summed(markers: Sequence[Marker]) -> dict[str, Any]:
    """The counts of the folds, each of which looked at its own queries."""
    names = {name for marker in markers for name, n in marker.stats.items() if type(n) is int}
    return {name: sum(marker.stats.get(name, 0) for marker in markers) for name in sorted(names)}
