"""Ingest: input files to tables of rows in hash partitions, new rows as a new segment."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.cluster import finish
from jobs.config_schema import TableConfig, WorkersConfig
from jobs.errors import DataError
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.readers.duplicates import overlap, resolve_duplicates
from jobs.readers.row_tables import REJECTED_SCHEMA, row_schema
from jobs.readers.sources import SourceFile, find, grouped
from jobs.run import Part, Run, Table
from jobs.spill import SpillWork, rows_of_partition, value_counts
from jobs.tasks import label_spellings, task_of

VERSION = 1
MOST_LISTED = 25
Units = list[tuple[Unit, dict[str, Any]]]
TABLES = ("corpus", "queries")


# What it needs: the input files, and the segments of the last ingest.


@dataclass(frozen=True)
class Intake:
    """One table on its way in.

    Attributes:
        name: `corpus` or `queries`.
        config: Of the table.
        files: Its input files.
        identity: Fingerprint of how it is read.
        source: Fingerprint of identity and files.
        previous: Parts of the last ingest that still hold, by partition and segment.
    """

    name: str
    config: TableConfig
    files: list[SourceFile]
    identity: str
    source: str
    previous: list[Part]

    @property
    def segment(self) -> int:
        """Number of the segment that new rows become."""
        return max((part.segment for part in self.previous), default=-1) + 1


def run_stage(run: Run) -> None:
    """Ingest both tables, or find them unchanged; warn of what they share."""
    intakes = [_intake(run, name) for name in TABLES]
    fresh = [intake for intake in intakes if not _reused(run, intake)]
    if fresh:
        _ingest(run, fresh)
    _check(run)
    _warn_of_overlap(run)
    for name in TABLES:
        _tell(run, name)


def _intake(run: Run, name: str) -> Intake:
    config: TableConfig = getattr(run.config.file, name)
    files = find(config.path, key=f"{name}.path")
    identity = fingerprint(VERSION, config.model_dump(exclude={"path"}), run.config.limit)
    source = fingerprint(identity, [asdict(file) for file in files])
    last = run.manifest.get("tables", {}).get(name, {})
    previous = _parts(run.ledger, last) if last.get("identity") == identity else []
    return Intake(name, config, files, identity, source, previous)


def _parts(ledger: Ledger, entry: dict[str, Any]) -> list[Part]:
    """The parts a manifest lists; none of them when one is gone."""
    parts = [Part(p["segment"], p["partition"], Marker(**p["marker"])) for p in entry["parts"]]
    units = [Unit(p.marker.folder, p.marker.name, p.marker.fingerprint) for p in parts]
    return parts if all(ledger.find(unit) for unit in units) else []


def _reused(run: Run, intake: Intake) -> bool:
    """Take the table of the last run when its input is the same."""
    last = run.manifest.get("tables", {}).get(intake.name, {})
    if not intake.previous or last.get("source") != intake.source:
        total = sum(file.bytes for file in intake.files)
        run.progress.line(
            "ingest", f"{intake.name}: {len(intake.files):,} files, {total / 2**20:,.1f} MiB"
        )
        return False
    count = intake.config.partition.count
    table = run.tables[intake.name] = Table(intake.name, tuple(intake.previous), count)
    run.progress.line("ingest", f"{intake.name}: {table.n_rows:,} rows, unchanged")
    return True


# The Ray-free function on one partition.


@dataclass(frozen=True)
class PartitionWork:
    """Turns the spilled rows of one partition into its segments."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Resolve duplicate ids, keep what earlier segments hold, write the rest as a new one.

        Args:
            payload: `unit`, `rejects`, `partition`, `keep`, `on_duplicate_id`, `spills`,
                `previous` ([segment, marker]).

        Returns:
            Marker of the new segment; its `stats.kept` lists the earlier ones.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        spills = [Marker(**spill) for spill in payload["spills"]]
        empty = row_schema(payload["keep"]).empty_table()
        rows = pa.concat_tables([empty, *rows_of_partition(ledger, spills, payload["partition"])])
        rows, rejected, counts = resolve_duplicates(
            rows, on_duplicate_id=payload["on_duplicate_id"]
        )
        rows = rows.sort_by("id")
        kept, rows = _divide(ledger, rows, payload)
        if rejected.num_rows:
            ledger.commit(Unit(**payload["rejects"]), rejected)
        stats = part_stats(rows) | {"kept": kept, "duplicates": dict(counts)}
        stats["n_rejected"] = rejected.num_rows
        return ledger.commit(unit, rows, stats=stats)


def part_stats(rows: pa.Table) -> dict[str, Any]:
    """What is counted of a part, with the fingerprints of its rows and of their texts alone."""
    flags = Counter(flag for flags in rows.column("flags").to_pylist() for flag in flags or ())
    return {
        "content": _digest(rows, ("id", "row_hash", "status")),
        # A label that arrives later changes the row, but not what there is to embed.
        "texts": _digest(rows, ("id", "input", "status")),
        "status": value_counts(rows.column("status")),
        "labels": value_counts(rows.column("label")),
        "n_unlabelled": rows.column("label").null_count,
        "flags": dict(flags),
    }


def _digest(rows: pa.Table, columns: tuple[str, ...]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for column in columns:
        for value in rows.column(column).to_pylist():
            data = (value or "").encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _divide(
    ledger: Ledger, rows: pa.Table, payload: dict[str, Any]
) -> tuple[list[list[Any]], pa.Table]:
    """Give each earlier segment the texts it already holds; what is left is new."""
    kept: list[list[Any]] = []
    keys = pa.array(_keys(rows), pa.string())
    for segment, plain in payload["previous"]:
        marker = Marker(**plain)
        old = ledger.read(marker, ["id", "input", "row_hash"])
        here = pc.is_in(keys, value_set=pa.array(_keys(old), pa.string()))
        held = rows.filter(here)
        if not held.column("row_hash").equals(old.column("row_hash")):
            # Rows were changed or removed in the input: the segment follows.
            name = f"part-s{segment:04d}-p{payload['partition']:05d}"
            unit = Unit(payload["unit"]["folder"], name, payload["unit"]["fingerprint"])
            marker = ledger.commit(unit, held, stats=part_stats(held))
        kept.append([segment, marker.as_dict()])
        rows, keys = rows.filter(pc.invert(here)), keys.filter(pc.invert(here))
    return kept, rows


def _keys(rows: pa.Table) -> list[str]:
    """Id and exact text of every row, short."""
    pairs = zip(rows.column("id").to_pylist(), rows.column("input").to_pylist(), strict=True)
    return [
        f"{hashlib.blake2b((text or '').encode(), digest_size=8).hexdigest()}{i}"
        for i, text in pairs
    ]


# The Ray wiring.


def _ingest(run: Run, intakes: list[Intake]) -> None:
    spills = _finish_all(
        run, [_spill_units(run, intake) for intake in intakes], SpillWork(run.out), "read"
    )
    units = [_partition_units(i, s) for i, s in zip(intakes, spills, strict=True)]
    made = _finish_all(run, units, PartitionWork(run.out), "ingest")
    for number, intake in enumerate(intakes):
        run.ledger.store.remove_tree(f"tmp/{intake.name}-{intake.source}")
        _record(run, intake, spills[number], units[number], made[number])


def _finish_all(
    run: Run, groups: list[Units], work: SpillWork | PartitionWork, stage: str
) -> list[list[Marker]]:
    """Make the units of both tables in one go, and give them back table by table."""
    markers = finish(
        run,
        [unit for group in groups for unit in group],
        work,
        stage=stage,
        workers=WorkersConfig(),
    )
    ends = np.cumsum([len(group) for group in groups]).tolist()
    return [markers[end - len(group) : end] for end, group in zip(ends, groups, strict=True)]


def _record(
    run: Run, intake: Intake, spills: list[Marker], units: Units, markers: list[Marker]
) -> None:
    parts = _collect(markers, segment=intake.segment)
    rejected = _rejected(run.ledger, spills, units)
    notes: Counter[str] = sum((Counter(s.stats["notes"]) for s in spills), Counter())
    run.tables[intake.name] = Table(intake.name, tuple(parts), intake.config.partition.count)
    run.manifest.setdefault("tables", {})[intake.name] = {
        "identity": intake.identity,
        "source": intake.source,
        "rejected": [marker.as_dict() for marker in rejected],
        "notes": dict(notes),
        "duplicates": sum_counts(markers, "duplicates"),
        "partition": intake.config.partition.model_dump(),
        "parts": [
            {"segment": p.segment, "partition": p.partition, "marker": p.marker.as_dict()}
            for p in parts
        ],
    }


def _spill_units(run: Run, intake: Intake) -> Units:
    limited = run.config.limit is not None
    groups = [intake.files] if limited else grouped(intake.files)
    units = []
    for number, group in enumerate(groups):
        place = f"{intake.name}-{intake.source}"
        unit = Unit(f"tmp/{place}", f"spill-{number:05d}", intake.source)
        rejects = Unit(f"rejected/{place}", f"read-{number:05d}", intake.source)
        payload = {
            "unit": asdict(unit),
            "rejects": asdict(rejects),
            "table": intake.config.model_dump(),
            "files": [file.path for file in group],
            "limit": run.config.limit,
        }
        units.append((unit, payload))
    return units


def _partition_units(intake: Intake, spills: list[Marker]) -> Units:
    before = [(part.segment, part.partition, part.content) for part in intake.previous]
    mark = fingerprint(VERSION, intake.source, before)
    units = []
    for partition in range(intake.config.partition.count):
        name = f"part-s{intake.segment:04d}-p{partition:05d}"
        unit = Unit(f"{intake.name}/{mark}", name, mark)
        place = f"rejected/{intake.name}-{intake.source}"
        payload = {
            "unit": asdict(unit),
            "rejects": asdict(Unit(place, f"duplicates-{partition:05d}", mark)),
            "partition": partition,
            "keep": intake.config.columns.keep,
            "on_duplicate_id": intake.config.on_duplicate_id,
            "spills": [spill.as_dict() for spill in spills],
            "previous": [
                [p.segment, p.marker.as_dict()] for p in intake.previous if p.partition == partition
            ],
        }
        units.append((unit, payload))
    return units


def _collect(markers: list[Marker], *, segment: int) -> list[Part]:
    """Parts by (partition, segment); a new segment without any row is none."""
    fresh = any(marker.rows for marker in markers) or segment == 0
    parts = []
    for partition, marker in enumerate(markers):
        for number, plain in marker.stats["kept"]:
            parts.append(Part(number, partition, Marker(**plain)))
        if fresh:
            parts.append(Part(segment, partition, marker))
    return parts


def _rejected(ledger: Ledger, spills: list[Marker], units: Units) -> list[Marker]:
    wanted = [Unit(**spill.stats["rejects"]) for spill in spills]
    wanted += [Unit(**payload["rejects"]) for _, payload in units]
    found = [ledger.find(unit) for unit in wanted]
    return [marker for marker in found if marker is not None and marker.rows]


def rejected_rows(run: Run, name: str) -> pa.Table:
    """Every row of a table that was rejected or labelled on the way in, with file and line."""
    entries = run.manifest["tables"][name]["rejected"]
    return pa.concat_tables(
        [REJECTED_SCHEMA.empty_table(), *(run.ledger.read(Marker(**entry)) for entry in entries)]
    )


def _check(run: Run) -> None:
    corpus = run.tables["corpus"]
    if not corpus.counts("status").get("ok"):
        rejected = rejected_rows(run, "corpus").num_rows
        raise DataError(
            f"corpus.path = {run.config.file.corpus.path}: no rows to choose from "
            f"({corpus.n_rows} rows kept, {rejected} labelled or rejected; see rejected/). "
            "Check corpus.columns and the files."
        )
    if not run.tables["queries"].n_rows:
        run.progress.warn("queries: no rows; every later table is valid and empty")


def _warn_of_overlap(run: Run) -> None:
    """Count queries whose text, normalised, stands in the corpus too."""
    queries = _text_hashes(run, "queries")
    n_shared = 0
    if len(queries):
        # The corpus is streamed: only what may be shared is kept.
        wanted = pc.unique(queries)
        shared = [pa.array([], pa.string())]
        for part in run.tables["corpus"].parts:
            column = run.ledger.read(part.marker, ["text_hash"]).column(0)
            shared += column.filter(pc.is_in(column, value_set=wanted)).chunks
        n_shared = overlap(pa.chunked_array(shared), queries)
    run.manifest["overlap"] = n_shared
    if n_shared:
        run.progress.warn(
            f"{n_shared} of {run.tables['queries'].n_rows} query texts stand in the corpus too "
            "(case, spacing and final punctuation apart); stage2.exclude_same_text keeps a "
            "query's own copy out of its demonstrations"
        )


def _text_hashes(run: Run, name: str) -> pa.ChunkedArray:
    chunks = [pa.array([], pa.string())]
    for part in run.tables[name].parts:
        chunks += run.ledger.read(part.marker, ["text_hash"]).column(0).chunks
    return pa.chunked_array(chunks)


def _tell(run: Run, name: str) -> None:
    """Record and print what was counted; a table found unchanged is told like a new one."""
    table, entry = run.tables[name], run.manifest["tables"][name]
    rejected = value_counts(rejected_rows(run, name).column("reason"))
    entry["counts"] = {
        "rows": table.n_rows,
        "status": table.counts("status"),
        "labels": table.counts("labels"),
        "unlabelled": sum(int(part.marker.stats["n_unlabelled"]) for part in table.parts),
        "flags": table.counts("flags"),
        "rejected": rejected,
        "segments": len({part.segment for part in table.parts}),
    }
    for note, number in sorted(entry["notes"].items()):
        if " " in note:
            run.progress.warn(f"{name}: {note}" + (f" ({number:,})" if number > 1 else ""))
    for what, counts in (
        ("rows labelled or rejected", rejected),
        ("ids that stand more than once", entry["duplicates"]),
    ):
        if counts:
            run.progress.warn(f"{name}: {what}: {listed(counts)}")
    _tell_labels(run, name, entry["counts"]["labels"])


def _tell_labels(run: Run, name: str, counts: dict[str, int]) -> None:
    """Show the labels with their counts, and which mean a label of a task, or none."""
    if counts:
        run.progress.line("ingest", f"{name}: {len(counts)} labels: {listed(counts)}")
    for task_name in sorted({arm.task for arm in run.arms}) if counts else ():
        task = task_of(run, task_name)
        merged, strange = label_spellings(task, counts)
        if merged:
            run.progress.warn(
                f"{name}: spellings taken for a label of {task_name}: {listed(merged)}"
            )
        if strange:
            run.progress.warn(
                f"{name}: labels that are none of {task_name}'s: {listed(strange)}. These rows are "
                f"no demonstrations and have no gold; add tasks.{task_name}.labels or .aliases."
            )


def listed(counts: Mapping[str, int]) -> str:
    """The largest counts of a table, and how many more there are."""
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{key} {number:,}" for key, number in shown[:MOST_LISTED])
    return text + (f" and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else "")
