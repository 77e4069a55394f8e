"""An output as its last run left it, opened for those who go on with what it chose."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from jobs import lock, manifest
from jobs.config.load import Config
from jobs.config.schema import Arm, ConfigFile
from jobs.errors import DataError
from jobs.folds import fold_name
from jobs.ledger import Ledger, Marker
from jobs.progress import Progress
from jobs.run import Part, Run, Table
from jobs.selection_folds import together


def finished(out: str, *, progress: Progress) -> Run:
    """The state of the last run on an output: config, tables, vectors, candidates, pool.

    Args:
        out: Output folder.
        progress: Where lines and warnings go.

    Returns:
        What the manifest lists; what no stage has made yet is absent.

    Raises:
        DataError: No run came as far as choosing candidates there.
    """
    ledger = Ledger(out)
    found = manifest.load(ledger.store)
    where = ledger.store.where(manifest.NAME)
    missing = [name for name in ("config", "tables", "selections") if not found.get(name)]
    if missing or "corpus" not in found["tables"]:
        what = (
            "is not there or cannot be read" if not found else f"has no {(*missing, 'corpus')[0]}"
        )
        raise DataError(
            f"{where}: {what}, so there are no candidates. Give the output folder of a run that "
            "came as far as `dualdiv select`."
        )
    config = _config(found["config"], where=where)
    run = Run(config=config, ledger=ledger, progress=progress, manifest=found)
    run.tables = {name: _table(name, entry) for name, entry in found["tables"].items()}
    for name, entry in found.get("embeddings", {}).items():
        run.encoder_ids[name] = entry["encoder_id"]
        for table in run.tables:
            parts = entry.get(table, {}).get("parts", [])
            run.vectors[name, table] = [Marker(**part) for part in parts]
    run.candidates = _candidates(run, found["selections"])
    run.pool = marker_in(found.get("pool"))
    return run


@contextlib.contextmanager
def held(out: str, *, progress: Progress) -> Iterator[Run]:
    """The same for those who write: the output's lock is held for the length of the block.

    Args:
        out: Output folder.
        progress: Where lines and warnings go.

    Raises:
        DataError: As `finished`; no lock is left in a folder that is no output.
        ClusterError: A run is live on the output.
    """
    store = finished(out, progress=progress).ledger.store
    with lock.held(store, warn=progress.warn):
        # Read again: a run may have ended between the first reading and the lock.
        yield finished(out, progress=progress)


def marker_in(entry: Mapping[str, Any] | None) -> Marker | None:
    """The marker that an entry of the manifest holds, whatever else stands beside it."""
    names = Marker.__dataclass_fields__
    return None if entry is None else Marker(**{k: v for k, v in entry.items() if k in names})


def _candidates(run: Run, selections: Mapping[str, Any]) -> dict[str, Marker]:
    """The candidates of each arm; of one that selected in each fold, those of all its folds."""
    made = {
        name: Marker(**entry["candidates"])
        for entry in selections.values()
        for name in entry["arms"]
    }
    found: dict[str, Marker] = {}
    for arm in run.arms:
        names = [fold_name(arm.name, fold) for fold in range(run.config.file.report.folds)]
        folds = [made[name] for name in names if name in made]
        if folds:
            found[arm.name] = together(run, folds)
        elif arm.name in made:
            found[arm.name] = made[arm.name]
    return found


def _table(name: str, entry: Mapping[str, Any]) -> Table:
    parts = tuple(
        Part(part["segment"], part["partition"], Marker(**part["marker"]))
        for part in entry["parts"]
    )
    return Table(name, parts, entry["partition"]["count"])


def _config(plain: Mapping[str, Any], *, where: str) -> Config:
    rest = {key: value for key, value in plain.items() if key not in ("arms", "limit")}
    try:
        file = ConfigFile.model_validate(rest)
        arms = tuple(Arm.model_validate(arm) for arm in plain["arms"])
    except (ValidationError, KeyError, TypeError) as error:
        told = str(error).splitlines()[0]
        raise DataError(
            f"{where}: its config is not one of this version of dualdiv ({told}). Run the same "
            "config again; what is there is found and the manifest is written anew."
        ) from None
    return Config(file=file, arms=arms, limit=plain.get("limit"))
