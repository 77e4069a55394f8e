"""`dualdiv pool check`: what is wrong with the records of the pool, and between them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from inference.entities import from_json
from inference.kinds import ANSWERED_BY_OUTPUT, gold_answer
from inference.tasks import Task
from jobs.annotation.finished import finished
from jobs.annotation.near_duplicates import Shingles
from jobs.annotation.pool_findings import (
    FINDING_SCHEMA,
    Finding,
    Record,
    contradictions,
    duplicates,
    failing,
    leaks,
)
from jobs.annotation.states import changes_of, pool_states
from jobs.errors import ConfigError, DataError
from jobs.ledger import Unit, fingerprint
from jobs.progress import Progress
from jobs.run import Run
from jobs.tasks import task_of

VERSION = 1
SHOWN = 20
COLUMNS = ["id", "input", "label", "output"]


@dataclass(frozen=True)
class Limits:
    """From where on two texts count as the same.

    Attributes:
        jaccard: Of their shingles.
        cosine: Of the vectors of two records.
        query_cosine: Of the vectors of a record and a query: a paraphrase of what is asked gives it
            away before it is a duplicate.
        shingles: How texts are cut.
    """

    jaccard: float = 0.8
    cosine: float = 0.95
    query_cosine: float = 0.9
    shingles: Shingles = field(default_factory=Shingles)


def limits_of(
    *,
    jaccard: float | None = None,
    cosine: float | None = None,
    query_cosine: float | None = None,
    shingle: str | None = None,
) -> Limits:
    """Limits from the command line, where None leaves the default.

    Raises:
        ConfigError: No such limit.
    """
    given = {"jaccard": jaccard, "cosine": cosine, "query_cosine": query_cosine}
    numbers: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, value in numbers.items():
        if not 0 < value <= 1:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} {value}: wanted a number above 0, at most 1.")
    limits = replace(Limits(), **numbers)
    if shingle is None:
        return limits
    unit, _, size = shingle.partition("-")
    if unit not in ("char", "word") or not size.isdecimal() or int(size) < 1:
        raise ConfigError(f"--shingle {shingle}: wanted char-N or word-N, as char-5 or word-3.")
    cut = Shingles("char" if unit == "char" else "word", int(size))
    return replace(limits, shingles=cut)


def check_pool(
    out: str, *, limits: Limits, progress: Progress, quiet: bool = False, fail: bool = False
) -> dict[str, Any]:
    """Check the pool of the last run; findings are written to `pool_checks/` and listed.

    Args:
        out: Output of a run that came as far as its pool.
        limits: From where on texts count as the same.
        progress: Where warnings go.
        quiet: Print no table.
        fail: Whether findings are an error.

    Returns:
        Plain data: counts by check, the findings, the files.

    Raises:
        DataError: There is no pool; or, with `fail`, there are findings.
    """
    run = finished(out, progress=progress)
    if run.pool is None:
        raise DataError(f"{run.out}: no pool yet. Run `dualdiv rank` or `dualdiv run` first.")
    records = pool_of(run)
    found = sorted({*_all_findings(run, records, limits)}, key=_order)
    answer = _write(run, records, found, limits)
    if not quiet:
        print("\n".join(_lines(answer)))
    if fail and found:
        raise DataError(
            f"{run.out}: the pool has {len(found)} findings ({_told(answer['counts'])}); see "
            f"{answer['files'][0]}."
        )
    return answer


def pool_of(run: Run) -> list[Record]:
    """The records that are not retired, by id."""
    assert run.pool is not None
    written, changes = pool_states(run.ledger, run.pool), changes_of(run.ledger)
    rows = run.ledger.read(run.pool, COLUMNS).to_pylist()
    there = [row for row in rows if changes.get(row["id"], written[row["id"]]) != "retired"]
    tasks = [task_of(run, name) for name in sorted({arm.task for arm in run.arms})]
    return sorted((_record(row, tasks) for row in there), key=lambda record: record.id)


def _record(row: dict[str, Any], tasks: Sequence[Task]) -> Record:
    """A row with its answer by the first task that has it."""
    for task in tasks:
        answer = gold_answer(task, row).value
        if answer is not None:
            if task.kind == "ner":
                answer = str(sorted((one.text, one.type) for one in from_json(answer)))
            own_text = task.kind in ANSWERED_BY_OUTPUT
            return Record(row["id"], row["input"] or "", answer, own_text)
    return Record(row["id"], row["input"] or "", None, own_text=False)


def _all_findings(run: Run, records: Sequence[Record], limits: Limits) -> list[Finding]:
    near = duplicates(run, records, limits.shingles, jaccard=limits.jaccard, cosine=limits.cosine)
    return [
        *near,
        *contradictions(records, near),
        *leaks(run, records, cosine=limits.query_cosine),
        *failing(run, records),
    ]


def _order(one: Finding) -> tuple[str, float, str, str]:
    return (one.check, -one.score, one.id, one.other or "")


def _write(
    run: Run, records: Sequence[Record], found: Sequence[Finding], limits: Limits
) -> dict[str, Any]:
    table = pa.Table.from_pylist([one._asdict() for one in found], schema=FINDING_SCHEMA)
    assert run.pool is not None
    plain = {
        "pool": run.pool.stats.get("version"),
        "records": len(records),
        "limits": asdict(limits),
        "counts": dict(sorted(Counter(one.check for one in found).items())),
        "findings": [one._asdict() for one in found],
    }
    mark = fingerprint("pool check", VERSION, plain)
    unit = Unit(f"pool_checks/{mark}", "findings", mark)
    body = json.dumps(plain, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    if run.ledger.find(unit) is None:
        run.ledger.commit(unit, table, files={"report.json": body})
    store = run.ledger.store
    files = [store.where(name) for name in (unit.table, f"{unit.folder}/report.json")]
    return plain | {"files": files}


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _lines(answer: dict[str, Any]) -> list[str]:
    found = answer["findings"]
    told = _told(answer["counts"]) or "nothing found"
    lines = [f"pool {answer['pool']}: {answer['records']:,} records: {told}"]
    widths = {
        name: max([len(name), *(len(str(one[name])) for one in found[:SHOWN])])
        for name in ("check", "id", "other")
    }
    names = ("check", "id", "other", "score", "detail")
    rows = [dict(zip(names, names, strict=True)), *found[:SHOWN]] if found else []
    for row in rows:
        cells = [str(row[name] or "").ljust(widths[name]) for name in ("check", "id", "other")]
        score = row["score"] if isinstance(row["score"], str) else f"{row['score']:.3f}"
        lines.append("  ".join([*cells, score, " ".join(str(row["detail"] or "").split())]))
    if len(found) > SHOWN:
        lines.append(f"... and {len(found) - SHOWN:,} more")
    return [*lines, *answer["files"]]
