"""The pipeline: every stage in its order, each found or made, the manifest written after each."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jobs import (
    annotate,
    assemble,
    capacity,
    embed,
    evaluate,
    generate,
    ingest,
    interrupts,
    lock,
    manifest,
    rank,
)
from jobs import select as stage1
from jobs.checks import check_config, remote_code
from jobs.cluster import connected, nodes, ray_errors
from jobs.config.load import Config
from jobs.config.storage import use
from jobs.errors import INTERRUPTED, ClusterError, DataError, DualdivError, InvariantError
from jobs.ledger import Ledger, fingerprint
from jobs.nights import nightly
from jobs.progress import Progress
from jobs.run import Run
from jobs.status import STAGE_ENTRIES, markers_in
from jobs.watching.watch import Watch


def _report(run: Run) -> None:
    # Imported late: its pictures take seconds to import, and most runs end or fail before it.
    from jobs import report

    report.run_stage(run)


def _select(run: Run) -> None:
    (nightly if run.config.file.annotate.nightly else stage1).run_stage(run)


STAGES: dict[str, Callable[[Run], None]] = {
    "ingest": ingest.run_stage,
    "embed": embed.run_stage,
    "select": _select,
    "annotate": annotate.run_stage,
    "rank": rank.run_stage,
    "assemble": assemble.run_stage,
    "generate": generate.run_stage,
    "evaluate": evaluate.run_stage,
    "report": _report,
}
# What a run that goes less far, or fails, must not make unlisted; each stage overwrites its own.
KEPT_FROM_LAST_RUN = ("ingests", "overlap", *STAGE_ENTRIES)


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        result: `done`, `done_with_rejects`, or `nothing_new` where a nightly run found all that it
            would have made.
        out: Output folder.
        stage: Last stage that was made or found.
        n_rejected: Rows set aside or marked on the way in.
        report: Path of the report, None before it is made.
        warnings: What the user should know.
    """

    result: str
    out: str
    stage: str
    n_rejected: int
    report: str | None
    warnings: tuple[str, ...]


def execute(
    config: Config, *, until: str, progress: Progress, fail_on_rejects: float | None = None
) -> Result:
    """Make everything that is missing, up to and including a stage.

    Args:
        config: The resolved config.
        until: A key of `STAGES`.
        progress: Where lines and warnings go.
        fail_on_rejects: Largest share of rejected rows that is accepted; None: any.

    Returns:
        How it ended.

    Raises:
        ConfigError: Before any work.
        DataError: An input cannot be read, or too many rows were rejected.
        ClusterError: Another run is live on the output, Ray or the disk gave out.
    """
    use(config.file.storage)
    check_config(config, until=until)
    ledger = Ledger(config.out)
    ledger.store.create()
    with lock.held(ledger.store, warn=progress.warn) as hold:
        watch = Watch(progress, stall_s=config.file.timeouts.stall_s)
        run = Run(config=config, ledger=ledger, progress=progress, watch=watch)
        run.manifest = _begin(run, hold.run_id)
        for text in remote_code(config):
            progress.warn(text)
        before = _listed(manifest.load(ledger.store))
        try:
            with connected(config.file.cluster), watch.begun(ledger.store, hold.run_id):
                here = nodes()
                capacity.check(capacity.needs(config, here, until=until), here)
                for name in list(STAGES)[: list(STAGES).index(until) + 1]:
                    interrupts.check()
                    hold.check()
                    _stage(run, name)
                    if name == "ingest":
                        run.ledger.store.remove_tree(ingest.SPILLS)
                        _judge_rejects(run, fail_on_rejects)
        except (DualdivError, KeyboardInterrupt) as error:
            _fail(run, error)
            raise
        except ray_errors() as error:
            lost = ClusterError(f"Ray gave out: {str(error).strip().splitlines()[0]}")
            _fail(run, lost)
            raise lost from error
        except Exception as error:
            _fail(run, error)
            raise
        interrupts.check()
        return _end(run, until, before)


def _begin(run: Run, run_id: str) -> dict[str, Any]:
    last = manifest.load(run.ledger.store)
    plain = run.config.as_dict()
    return {
        "run_id": run_id,
        "started": manifest.now(),
        "result": "running",
        "stage": None,
        "config": plain,
        "config_fingerprint": fingerprint(plain),
        "versions": manifest.versions(),
        "timings_s": {},
        "stages": {},
        "made": [],
        **{key: last[key] for key in KEPT_FROM_LAST_RUN if key in last},
    }


def _stage(run: Run, name: str) -> None:
    started = time.monotonic()
    run.manifest["working_on"] = name
    run.watch.enter(name)
    STAGES[name](run)
    run.manifest["made"].append(name)
    seconds = round(time.monotonic() - started, 3)
    run.manifest["timings_s"][name] = seconds
    run.manifest["stages"][name] = {"seconds": seconds, **run.watch.left()}
    run.manifest["stage"] = name
    run.manifest["warnings"] = run.progress.warnings
    manifest.save(run.ledger.store, run.manifest)


def _judge_rejects(run: Run, most: float | None) -> None:
    rejected = _n_rejected(run)
    # Rows that were labelled are in the tables; lines that are no row are not.
    entries = run.manifest["tables"].values()
    seen = sum(entry["counts"]["rows"] + entry["counts"]["left_out"] for entry in entries)
    if most is not None and seen and rejected / seen > most:
        raise DataError(
            f"{rejected} of {seen} rows were set aside or marked, a share of "
            f"{rejected / seen:.4f}; --fail-on-rejects allows {most:g}. See {run.out}/rejected/."
        )


def _n_rejected(run: Run) -> int:
    tables = run.manifest["tables"].values()
    return sum(sum(table["counts"]["rejected"].values()) for table in tables)


def _fail(run: Run, error: BaseException) -> None:
    """Leave the reason in the manifest: `ray job` reports every failure as exit code 1."""
    result = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    message, code = str(error) or result, INTERRUPTED
    if isinstance(error, DualdivError):
        code = error.exit_code
    elif result == "failed":
        message, code = f"a bug of dualdiv: {error!r}", InvariantError.exit_code
    run.manifest |= {"result": result, "exit_code": code, "message": message}
    run.manifest["finished"] = manifest.now()
    with contextlib.suppress(DualdivError):
        manifest.save(run.ledger.store, run.manifest)


def _listed(found: dict[str, Any]) -> set[tuple[str, str]]:
    """The tables that a manifest lists, with their checksums."""
    return {(marker.table, marker.checksum) for marker in markers_in(found)}


def _end(run: Run, until: str, before: set[tuple[str, str]]) -> Result:
    run.ledger.store.remove_tree("tmp")
    rejected = _n_rejected(run)
    result = "done_with_rejects" if rejected else "done"
    if run.config.file.annotate.nightly and _listed(run.manifest) <= before:
        result = "nothing_new"
    run.manifest |= {"result": result, "finished": manifest.now(), "exit_code": 0}
    run.manifest["warnings"] = run.progress.warnings
    manifest.save(run.ledger.store, run.manifest)
    page = run.ledger.store.where("report.html")
    return Result(
        result=result,
        out=run.out,
        stage=until,
        n_rejected=rejected,
        report=page if until == "report" else None,
        warnings=tuple(run.progress.warnings),
    )
