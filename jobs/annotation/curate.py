"""Retire and promote: what curators decide of records, in force from the next pool version on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.annotation.finished import held
from jobs.annotation.states import State, changes_of, pool_states, record_change
from jobs.errors import DataError
from jobs.nights.candidate_rows import sent_rows
from jobs.progress import Progress
from jobs.run import Run

SHOWN = 5


def retire(
    out: str, ids: Sequence[str], *, reason: str | None, progress: Progress
) -> dict[str, Any]:
    """Retire records of the pool, or candidates that are not in it yet.

    Args:
        out: Output of a run; its lock is held meanwhile.
        ids: Of records or candidates.
        reason: For the log.
        progress: Where the line goes.

    Returns:
        Plain data: the entry of the log (None: nothing changes), the state, the ids.

    Raises:
        DataError: An id is neither a record's nor a candidate's; nothing is changed.
    """
    return _change(out, "retired", lambda run: _known(run, ids), reason=reason, progress=progress)


def promote(
    out: str, ids: Sequence[str] | None, *, reason: str | None, progress: Progress
) -> dict[str, Any]:
    """Make records active: staged ones, and retired ones that are named.

    Args:
        out: Output of a run; its lock is held meanwhile.
        ids: Of records or candidates; None: all that are staged in the pool by now.
        reason: For the log.
        progress: Where the line goes.

    Returns:
        As `retire`.

    Raises:
        DataError: An id is neither a record's nor a candidate's; nothing is changed.
    """

    def chosen(run: Run) -> list[str]:
        return _staged(run) if ids is None else _known(run, ids)

    return _change(out, "active", chosen, reason=reason, progress=progress)


def _change(
    out: str,
    state: State,
    chosen: Callable[[Run], list[str]],
    *,
    reason: str | None,
    progress: Progress,
) -> dict[str, Any]:
    with held(out, progress=progress) as run:
        ids = chosen(run)
        marker = record_change(run.ledger, ids, state, reason=reason)
    if marker is None:
        progress.line("pool", f"{len(ids)} records are {state} already; nothing changes")
        return {"change": None, "state": state, "ids": []}
    changed = run.ledger.read(marker, ["id"])["id"].to_pylist()
    progress.line("pool", f"{marker.name}: {len(changed)} records {state} from the next run on")
    return {"change": marker.name, "state": state, "ids": changed}


def _known(run: Run, ids: Sequence[str]) -> list[str]:
    known = set(_records(run))
    for marker in run.candidates.values():
        known.update(run.ledger.read(marker, ["id"])["id"].to_pylist())
    known.update(sent_rows(run, ids))
    strange = [i for i in ids if i not in known]
    if strange:
        raise DataError(
            f"{run.out}: {len(strange)} of {len(ids)} ids are no record of the pool and no "
            f"candidate: {', '.join(map(repr, strange[:SHOWN]))}. Nothing was changed; ids are "
            "compared as text."
        )
    return list(ids)


def _staged(run: Run) -> list[str]:
    """Records that wait: staged in the pool, and not changed by hand since it was written."""
    changes = changes_of(run.ledger)
    return [i for i, state in _records(run).items() if changes.get(i, state) == "staged"]


def _records(run: Run) -> Mapping[str, str]:
    return {} if run.pool is None else pool_states(run.ledger, run.pool)
