"""Ingest: input files to tables of rows in hash partitions, new rows as a new segment."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jobs.config.cluster import WorkersConfig
from jobs.config.tables import TableConfig
from jobs.findings import check_tables, tell, warn_of_overlap
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.partition import PartitionWork
from jobs.readers.sources import SourceFile, find, grouped
from jobs.run import Part, Run, Table
from jobs.spill import SpillWork
from jobs.units import finish

VERSION = 2
SPILLS = "tmp/spills"
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
        entities: Whether its outputs are lists of entities, which must be in their text.
    """

    name: str
    config: TableConfig
    files: list[SourceFile]
    identity: str
    source: str
    previous: list[Part]
    entities: bool

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
    check_tables(run)
    warn_of_overlap(run)
    for name in TABLES:
        tell(run, name)


def _intake(run: Run, name: str) -> Intake:
    config: TableConfig = getattr(run.config.file, name)
    files = find(config.path, key=f"{name}.path")
    kinds = {run.config.file.tasks[arm.task].kind for arm in run.arms}
    entities = "ner" in kinds and config.columns.output is not None
    limit = run.config.limit_of(name)
    how = [config.model_dump(exclude={"path"}), limit, *["entities"] * entities]
    identity = fingerprint(VERSION, *how)
    source = fingerprint(identity, [file.identity() for file in files])
    # A look at fewer rows, or other columns, must not make the segments of the rest forgotten.
    last = run.manifest.get("ingests", {}).get(name, {}).get(identity)
    previous = _parts(run.ledger, last) if last else []
    return Intake(name, config, files, identity, source, previous, entities)


def _parts(ledger: Ledger, entry: dict[str, Any]) -> list[Part]:
    """The parts a manifest lists; none of them when one is gone."""
    parts = [Part(p["segment"], p["partition"], Marker(**p["marker"])) for p in entry["parts"]]
    units = [Unit(p.marker.folder, p.marker.name, p.marker.fingerprint) for p in parts]
    return parts if all(ledger.find_all(units).values()) else []


def _reused(run: Run, intake: Intake) -> bool:
    """Take the table of the last run when its input is the same."""
    last = run.manifest.get("ingests", {}).get(intake.name, {}).get(intake.identity, {})
    if not intake.previous or last["source"] != intake.source:
        total = sum(file.bytes for file in intake.files)
        run.progress.line(
            "ingest", f"{intake.name}: {len(intake.files):,} files, {total / 2**20:,.1f} MiB"
        )
        return False
    run.manifest.setdefault("tables", {})[intake.name] = last
    count = intake.config.partition.count
    table = run.tables[intake.name] = Table(intake.name, tuple(intake.previous), count)
    run.progress.line("ingest", f"{intake.name}: {table.n_rows:,} rows, unchanged")
    return True


# The Ray wiring; the Ray-free functions are in `spill` (a group of files) and `partition`.


def _ingest(run: Run, intakes: list[Intake]) -> None:
    spills = _finish_all(
        run, [_spill_units(run, intake) for intake in intakes], SpillWork(run.out), "read"
    )
    units = [_partition_units(i, s) for i, s in zip(intakes, spills, strict=True)]
    made = _finish_all(run, units, PartitionWork(run.out), "ingest")
    for number, intake in enumerate(intakes):
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
    entry = {
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
    run.manifest.setdefault("tables", {})[intake.name] = entry
    remembered = run.manifest.setdefault("ingests", {}).setdefault(intake.name, {})
    remembered[intake.identity] = entry


def _spill_units(run: Run, intake: Intake) -> Units:
    limit = run.config.limit_of(intake.name)
    groups = [intake.files] if limit is not None else grouped(intake.files)
    units = []
    for number, group in enumerate(groups):
        place = f"{intake.name}-{intake.source}"
        unit = Unit(f"{SPILLS}/{place}", f"spill-{number:05d}", intake.source)
        rejects = Unit(f"rejected/{place}", f"read-{number:05d}", intake.source)
        payload = {
            "unit": asdict(unit),
            "rejects": asdict(rejects),
            "table": intake.config.model_dump(),
            "files": [file.path for file in group],
            "limit": limit,
            "entities": intake.entities,
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
            "keep": intake.config.columns.carried(),
            "on_duplicate_id": intake.config.on_duplicate_id,
            "spills": [asdict(Unit(s.folder, s.name, s.fingerprint)) for s in spills],
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
    found = ledger.find_all(wanted).values()
    return [marker for marker in found if marker is not None and marker.rows]
