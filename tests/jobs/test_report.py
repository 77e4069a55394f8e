"""What the page is told of a run."""

import pyarrow as pa
import yaml

from jobs.config.load import load
from jobs.ledger import Ledger, Unit
from jobs.progress import Progress
from jobs.report import _samples
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
