"""What the page is told of a run."""

import dataclasses

import pyarrow as pa
import yaml

from jobs.config.load import load
from jobs.ledger import Ledger, Unit
from jobs.progress import Progress
from jobs.report import METRIC_TABLES, _candidate_map, _mark, _samples
from jobs.run import Part, Run, Table
from tests.jobs.config.test_load import MINIMAL


def test_samples_have_the_gold_labels_of_today_and_not_those_they_were_answered_with(tmp_path):
    path = tmp_path / "config.yaml"
    labels = ["one", "two"]
    tasks = {"topic": {"instruction": "Name the topic.", "labels": labels}}
    path.write_text(yaml.safe_dump(MINIMAL | {"tasks": tasks}))
    ledger = Ledger(str(tmp_path / "out"))
    run = Run(load(str(path)), ledger, Progress())
    (arm,) = run.arms
    asked = pa.table({"input": ["a", "b"], "output": [None, None], "label": [labels[1], "strange"]})
    said = {name: ["x", "x"] for name in ("prompt", "raw_output", "prediction")}
    said |= {"arm": [arm.name] * 2, "id": ["q0", "q1"], "status": ["ok", "ok"]}
    said |= {"gold": [labels[0]] * 2}
    rows = ledger.commit(Unit("rows", "part", "m"), asked, stats={})
    run.tables["queries"] = Table("queries", (Part(0, 0, rows),), 1)
    run.tables["corpus"] = Table("corpus", (), 1)
    run.outputs[arm.name] = [ledger.commit(Unit("outputs", "part", "m"), pa.table(said), stats={})]
    assert [(one.id, one.gold) for one in _samples(run, arm.name)] == [
        ("q0", labels[1]),
        ("q1", None),
    ]


def begun(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return Run(load(str(path)), Ledger(str(tmp_path / "out")), Progress())


def test_the_page_is_drawn_anew_when_a_gold_answer_is_another_that_scores_the_same(tmp_path):
    run = begun(tmp_path)
    run.metrics = run.ledger.commit(Unit("metrics", "summary", "m"), pa.table({"n": [1]}), stats={})
    run.manifest = {"versions": {}, "metrics": {name: {"checksum": "c"} for name in METRIC_TABLES}}

    def mark_of(queries, corpus="rows", rejected="r"):
        for name, content in (("queries", queries), ("corpus", corpus)):
            marker = dataclasses.replace(run.metrics, stats={"content": content})
            run.tables[name] = Table(name, (Part(0, 0, marker),), 1)
        lines = {"queries": [], "corpus": [{"checksum": rejected}]}
        run.manifest["tables"] = {name: {"rejected": lines[name]} for name in lines}
        return _mark(run, {})

    assert mark_of("SELECT 1") == mark_of("SELECT 1") != mark_of("select 1")
    # Labels of rows that nothing shows, and lines that were set aside, stand on it too.
    assert mark_of("SELECT 1", corpus="other labels") != mark_of("SELECT 1")
    assert mark_of("SELECT 1", rejected="another line") != mark_of("SELECT 1")


def test_a_map_that_was_made_before_labels_came_in_shows_them(tmp_path):
    run = begun(tmp_path)
    points = pa.FixedSizeListArray.from_arrays(pa.array([0.0] * 6, pa.float32()), 2)
    columns = {"id": ["a", "b", "c"], "label": ["x", None, None], "point": points}
    stats = {"method": "PCA", "note": "", "n_sampled": 3}
    made = run.ledger.commit(Unit("report/map", "points", "m"), pa.table(columns), stats=stats)
    pool = pa.table({"id": ["b", "z"], "label": ["y", "y"]})
    run.pool = run.ledger.commit(Unit("pool/v0002", "pool", "m"), pool, stats={})
    run.vectors["minilm", "corpus"] = []
    assert _candidate_map(run, "minilm", made).labels == ["x", "y", None]
