"""Report: everything the run found, on one self-contained page with its pictures beside it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from inference.kinds import gold_answer
from jobs.annotate import pool_labels
from jobs.comparing.cases import read_cases
from jobs.comparing.sweeps import sweeps_of
from jobs.embed import ROLES
from jobs.evaluate import TABLES as METRIC_TABLES
from jobs.findings import rejected_rows
from jobs.folds import fold_name
from jobs.ledger import Marker, Unit, fingerprint
from jobs.reporting.model import CandidateMap, Coverage, ReportModel, Sample
from jobs.reporting.page import build_page, draw_pictures, page_tables
from jobs.reporting.projection import Projection, project
from jobs.reporting.table_files import as_csv
from jobs.reporting.tables import EPR
from jobs.reporting.words import records
from jobs.run import Run
from jobs.selection_folds import folds_of
from jobs.tasks import task_of
from jobs.vectors import Matrix, sample, to_lists, to_matrix

VERSION = 5
MAP_VERSION = 1
PAGE = "report.html"
HIDDEN_FACTS = (
    "night",
    "encoder_id",
    "excluded",
    "merge",
    "best_local_partition",
    "rank_exhausted_at",
)
CERTIFICATE_FACTS = ("kind", "bound", "ratio", "lift", "coverage_ratio", "sample", "z")
N_EXAMPLES = 20


# What it needs: everything.


def run_stage(run: Run) -> None:
    """Draw the page, or find that nothing it shows has changed."""
    maps = {name: _map(run, name) for name in sorted(run.encoder_ids)}
    mark = _mark(run, maps)
    unit = Unit("report", "pictures", mark)
    marker = run.ledger.find(unit)
    if marker is None or not run.ledger.store.exists(PAGE):
        marker = _draw(run, unit, maps)
    run.manifest["report"] = {"page": PAGE, "pictures": marker.as_dict()}


def _mark(run: Run, maps: Mapping[str, Marker | None]) -> str:
    assert run.metrics is not None
    return fingerprint(
        "report",
        VERSION,
        {name: marker and marker.checksum for name, marker in maps.items()},
        {name: marker.checksum for name, marker in run.candidates.items()},
        [run.manifest["metrics"][name]["checksum"] for name in METRIC_TABLES],
        {name: entry["map"]["checksum"] for name, entry in run.manifest.get("epr", {}).items()},
        {name: [one.checksum for one in markers] for name, markers in run.outputs.items()},
        # Cases and samples show gold answers and labels in their own words.
        [[part.content for part in run.tables["queries"].parts], run.pool and run.pool.checksum],
        [part.content for part in run.tables["corpus"].parts],
        {
            name: [one["checksum"] for one in run.manifest["tables"][name]["rejected"]]
            for name in ROLES
        },
        run.progress.warnings,
        run.config.as_dict(),
        run.manifest["versions"],
    )


def _draw(run: Run, unit: Unit, maps: Mapping[str, Marker | None]) -> Marker:
    model = page_model(run, maps)
    pictures = draw_pictures(model)
    page = build_page(model, pictures)
    run.ledger.store.write_bytes(PAGE, page.encode("utf-8"))
    names = pa.table({"picture": pa.array([picture.name for picture in pictures], pa.string())})
    files = {f"{picture.name.removesuffix('.png')}.png": picture.png for picture in pictures}
    tables = {f"{name}.csv": as_csv(table) for name, table in page_tables(model).items()}
    files |= {name: text.encode("utf-8", "replace") for name, text in tables.items()}
    return run.ledger.commit(
        unit, names, stats={"tables": sorted(t.removesuffix(".csv") for t in tables)}, files=files
    )


# The map: which rows are on it, and where they lie.


def _names(run: Run, encoder: str) -> dict[str, Marker]:
    """The distinct Stage 1 settings of an encoder, each under a name that tells them apart."""
    found: dict[str, Marker] = {}
    for arm in run.arms:
        marker = run.candidates.get(arm.name)
        if marker is None or arm.encoder != encoder or marker in found.values():
            continue
        name = arm.stage1.method
        folds = folds_of(run, arm)
        if folds:
            name = f"{name}, {len(folds)} folds together"
        if name in found:
            name = f"{name} ({arm.name})"
        found[name] = marker
    return found


def _map(run: Run, encoder: str) -> Marker | None:
    """Sample, project and keep the points: a map is made once."""
    settings, size = _names(run, encoder), run.config.file.report.map_rows
    if not size:
        return None
    vectors = [marker.fingerprint for marker in run.vectors[encoder, "corpus"]]
    chosen = {name: marker.checksum for name, marker in settings.items()}
    content = [part.content for part in run.tables["corpus"].parts]
    mark = fingerprint("map", MAP_VERSION, vectors, content, chosen, size, run.config.file.seed)
    unit = Unit(f"report/map-{mark}", "points", mark)
    found = run.ledger.find(unit)
    if found is not None:
        return found
    ids, matrix, labels = _map_rows(run, encoder, settings)
    run.progress.line("report", f"map of {len(ids):,} rows with {encoder}")
    projection = project(matrix, seed=run.config.file.seed)
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "label": pa.array(labels, pa.string()),
            "point": to_lists(projection.points, "float32"),
        }
    )
    stats = {"method": projection.method, "note": projection.note, "n_sampled": size}
    return run.ledger.commit(unit, table, stats=stats)


def _map_rows(
    run: Run, encoder: str, settings: Mapping[str, Marker]
) -> tuple[list[str], Matrix, list[str | None]]:
    """A uniform sample of the corpus and every candidate, by id."""
    ids, matrix = sample(
        run.ledger,
        run.vectors_by_partition(encoder),
        size=run.config.file.report.map_rows,
        seed=run.config.file.seed,
    )
    rows = dict(zip(ids, matrix, strict=True))
    labels: dict[str, str | None] = _labels(run, ids)
    for marker in settings.values():
        table = run.ledger.read(marker, ["id", "vector"])
        rows |= dict(zip(table["id"].to_pylist(), to_matrix(table["vector"]), strict=True))
    labels |= pool_labels(run)
    order = sorted(rows)
    return order, np.stack([rows[i] for i in order]), [labels.get(i) for i in order]


def _labels(run: Run, ids: list[str]) -> dict[str, str | None]:
    wanted = pa.array(ids, pa.string())
    found: dict[str, str | None] = {}
    for part in run.tables["corpus"].parts:
        if len(found) == len(ids):
            break
        table = run.ledger.read(part.marker, ["id", "label"])
        table = table.filter(pc.is_in(table["id"], value_set=wanted))
        found.update(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
    return found


def _candidate_map(run: Run, encoder: str, marker: Marker) -> CandidateMap:
    table = run.ledger.read(marker)
    place = {row_id: i for i, row_id in enumerate(table["id"].to_pylist())}
    # The map is made once, and labels come in later.
    labels = dict(zip(place, table["label"].to_pylist(), strict=True)) | pool_labels(run)
    positions: dict[str, npt.NDArray[np.int64]] = {}
    for name, candidates in _names(run, encoder).items():
        ids = run.ledger.read(candidates, ["id"])["id"].to_pylist()
        positions[name] = np.array([place[row_id] for row_id in ids], np.int64)
    n_corpus = sum(m.rows for m in run.vectors[encoder, "corpus"])
    return CandidateMap(
        encoder=encoder,
        projection=Projection(
            to_matrix(table["point"]), marker.stats["method"], marker.stats["note"]
        ),
        labels=[labels[row_id] for row_id in place],
        candidates=positions,
        n_corpus=n_corpus,
        n_sampled=min(n_corpus, int(marker.stats["n_sampled"])),
    )


# The model of the page.


def page_model(run: Run, maps: Mapping[str, Marker | None]) -> ReportModel:
    """Everything the page shows, read from what the manifest lists."""
    metrics = {
        name: run.ledger.read(Marker(**run.manifest["metrics"][name])).to_pandas(
            integer_object_nulls=True
        )
        for name in METRIC_TABLES
        if name != "answers"
    }
    return ReportModel(
        title="dualdiv report",
        facts=_facts(run),
        **metrics,
        answers=_queries_written(run),
        sweeps=sweeps_of(run.arms, records(metrics["summary"])),
        maps=[_candidate_map(run, name, marker) for name, marker in maps.items() if marker],
        coverage=[_coverage(run, name) for name in sorted(run.encoder_ids)],
        stage1=_stage1(run),
        epr=_epr(run),
        samples=[one for arm in run.arms for one in _samples(run, arm.name)],
        cases=read_cases(run),
        rejected=_rejected(run),
        rejected_examples=_rejected_examples(run),
        warnings=run.progress.warnings,
        config_yaml=run.config.as_yaml(),
        versions=run.manifest["versions"] | run.encoder_ids,
    )


def _queries_written(run: Run) -> pd.DataFrame:
    """What came of each query that an LLM wrote; other answers are not read, they may be many."""
    tasks = [name for name, task in run.config.file.tasks.items() if task.kind == "sql"]
    table = run.ledger.read(Marker(**run.manifest["metrics"]["answers"]))
    kept = pc.is_in(table["task"], value_set=pa.array(tasks, pa.string()))
    return table.filter(kept).to_pandas(integer_object_nulls=True)


def _facts(run: Run) -> dict[str, str]:
    facts = {
        "run": run.manifest["run_id"],
        "started": run.manifest["started"],
        "output": run.out,
    }
    for name in ROLES:
        table = run.tables[name]
        ok = table.counts("status").get("ok", 0)
        facts[name] = f"{table.n_rows:,} rows, {ok:,} usable"
    return facts


def _coverage(run: Run, encoder: str) -> Coverage:
    labels = pool_labels(run)
    candidates: dict[str, Counter[str]] = {}
    for name, marker in _names(run, encoder).items():
        ids = run.ledger.read(marker, ["id"])["id"].to_pylist()
        candidates[name] = Counter(label for row_id in ids if (label := labels.get(row_id)))
    return Coverage(encoder, run.tables["corpus"].counts("labels"), candidates)


def _stage1(run: Run) -> list[dict[str, Any]]:
    """The facts of every selection; where it is repeated, of each fold."""
    rows = []
    for encoder in sorted(run.encoder_ids):
        for marker in _selections(run, encoder):
            # A night's batch is no arm's: they show from the whole pool, and there are no folds.
            arms = [arm for arm in run.arms if run.candidates.get(arm.name) == marker]
            folds = folds_of(run, arms[0]) if arms else []
            parts = [run.candidates[fold_name(arms[0].name, fold)] for fold in folds] or [marker]
            for number, part in enumerate(parts, 1):
                row = _shown(part.stats) | {"encoder": encoder}
                rows.append(row | ({"fold": f"{number} of {len(folds)}"} if folds else {}))
    return rows


def _epr(run: Run) -> list[dict[str, Any]]:
    """What the maps of the learned retrievers were learned from, and what came of it."""
    rows = []
    for arm, entry in run.manifest.get("epr", {}).items():
        facts = entry["map"]["stats"]
        row = {"arm": arm} | {name: facts.get(name) for name in EPR if name != "arm"}
        for name in ("loss", "held_out"):
            losses = facts.get(name)
            row[name] = losses and f"{losses['before']:.3f} to {losses['after']:.3f}"
        row["shape"] = " x ".join(str(n) for n in facts["shape"])
        rows.append(row)
    return rows


def _selections(run: Run, encoder: str) -> list[Marker]:
    """Where Stage 1 settings left what they found: by night in tonight's batch, if it has any."""
    if not run.config.file.annotate.nightly:
        return list(_names(run, encoder).values())
    batch = Marker(**run.manifest["night"]["batch"])
    return [batch] if batch.stats.get("encoder_id") == run.encoder_ids[encoder] else []


def _shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of a selection: facts that are there, nested ones as a few words."""
    shown = {k: v for k, v in facts.items() if k not in HIDDEN_FACTS and v is not None}
    shown["merge_levels"] = ", ".join(
        f"{level['nodes']:,} x {level['candidates']:,} to {level['k']:,}"
        for level in facts["merge_levels"]
    )
    if facts["certificate"] is not None:
        said = {name: facts["certificate"][name] for name in CERTIFICATE_FACTS}
        shown["certificate"] = {name: value for name, value in said.items() if value is not None}
    shown["peak_memory_bytes"] = f"{facts['peak_memory_bytes'] / 2**20:,.0f} MiB"
    return shown


def _samples(run: Run, arm: str) -> list[Sample]:
    """The first queries of an arm, the same for every arm, with today's gold labels."""
    wanted = run.config.file.report.samples_per_arm
    task = task_of(run, next(one.task for one in run.arms if one.name == arm))
    found: list[Sample] = []
    names = ["arm", "id", "status", "prompt", "raw_output", "prediction"]
    for marker, part in zip(run.outputs[arm], run.tables["queries"].parts, strict=True):
        n = wanted - len(found)
        if n <= 0:
            break
        rows = run.ledger.read(marker, names).slice(0, n).to_pylist()
        asked = run.ledger.read(part.marker, ["input", "output", "label"]).slice(0, n).to_pylist()
        golds = [gold_answer(task, query).value for query in asked]
        found += [Sample(**row, gold=gold) for row, gold in zip(rows, golds, strict=True)]
    return found


def _rejected(run: Run) -> list[dict[str, Any]]:
    rows = []
    for name in ROLES:
        table = rejected_rows(run, name, ["status", "reason"])
        counted = table.group_by(["status", "reason"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            n = row.pop("count_all")
            rows.append(row | {"table": name, "n": n})
    return sorted(rows, key=lambda row: (row["table"], -row["n"], row["reason"]))


def _rejected_examples(run: Run) -> list[dict[str, Any]]:
    rows = []
    for name in ROLES:
        table = rejected_rows(run, name).slice(0, N_EXAMPLES)
        rows += [{"table": name, **row} for row in table.to_pylist()]
    return rows
