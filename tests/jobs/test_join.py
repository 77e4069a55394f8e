"""`dualdiv table1` over outputs of which only the metrics are there."""

import json

import pyarrow.parquet as pq
import pytest

from jobs.cli import main
from jobs.ledger import Ledger, Unit
from jobs.reporting.metric_tables import (
    PAIRED_TESTS_SCHEMA,
    SCORES_SCHEMA,
    SUMMARY_SCHEMA,
    to_arrow,
)
from jobs.reporting.table1 import TABLE1_SCHEMA
from tests.jobs.metric_rows import paired_row, summary_row


def run_of(root, task, *, engine="small", suffix=""):
    """An output with the metrics of two arms."""
    scores = {"random": ("random", 0.25, 0.125), "dual-div": ("dual-div", 0.5, 0.375)}
    names = {arm: f"{arm}+task={task}{suffix}" for arm in scores}
    summary = [summary_row(names[arm], task, engine, *found) for arm, found in scores.items()]
    tests = [
        paired_row(names["dual-div"], names["random"], task, engine)
        | {"metric": metric, "mean_difference": 0.25, "p_holm": 0.003}
        for metric in ("accuracy", "macro_f1")
    ]
    ledger = Ledger(str(root))
    ledger.store.create()
    tables = {
        "summary": to_arrow(summary, SUMMARY_SCHEMA),
        "paired_tests": to_arrow(tests, PAIRED_TESTS_SCHEMA),
        "scores": to_arrow([], SCORES_SCHEMA),
    }
    markers = {
        name: ledger.commit(Unit("metrics", name, "f"), table).as_dict()
        for name, table in tables.items()
    }
    ledger.store.write_bytes("manifest.json", json.dumps({"metrics": markers}).encode())
    return str(root)


@pytest.fixture
def outs(tmp_path):
    return [run_of(tmp_path / task, task) for task in ("ddi", "relation", "advice")]


def test_several_runs_become_one_table_in_the_order_given(outs, capsys):
    assert main(["table1", *outs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "| method | ddi: accuracy | ddi: macro-F1 | relation: accuracy | relation: macro-F1 "
        "| advice: accuracy | advice: macro-F1 |"
    )
    assert lines[2:] == [
        "| majority label |" + " 0.100 | 0.050 |" * 3,
        "| random |" + " 0.250 | 0.125 |" * 3,
        "| dual-div |" + " 0.500 | 0.375 |" * 3,
        "| Diff to random |" + r" +0.250\*\* |" * 6,
    ]


def test_it_is_written_in_four_forms(outs, tmp_path, capsys):
    assert main(["table1", *outs, "--to", str(tmp_path / "joined"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    written = sorted(path.name for path in (tmp_path / "joined").iterdir())
    assert written == ["table1.csv", "table1.html", "table1.md", "table1.parquet"]
    assert len(answer["files"]) == 4
    table = pq.read_table(tmp_path / "joined" / "table1.parquet")
    assert table.schema.equals(TABLE1_SCHEMA)
    assert table.num_rows == len(answer["rows"]) == 3 * 2 * 2
    assert "+0.250**" in (tmp_path / "joined" / "table1.html").read_text()


def test_two_runs_of_one_task_by_two_llms_are_two_blocks(tmp_path, capsys):
    outs = [run_of(tmp_path / engine, "ddi", engine=engine) for engine in ("one", "two")]
    assert main(["table1", *outs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| LLM | method | ddi: accuracy | ddi: macro-F1 |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| one"] * 4 + ["| two"] * 4


def test_arms_of_two_runs_that_would_be_one_line_are_refused(tmp_path, capsys):
    outs = [run_of(tmp_path / "a", "ddi"), run_of(tmp_path / "b", "ddi", suffix="+engine=small")]
    assert main(["table1", *outs]) == 2
    assert "Give a run once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ddi", "ddi"], 2, ("arm random+task=ddi of task ddi", "Give a run once")),
        (["ddi", "--against", "knn"], 2, ("no arm was tested against it", "random")),
        (["nothing"], 3, ("nothing", "lists no metrics table summary")),
    ],
)
def test_what_cannot_be_joined_is_said(outs, tmp_path, capsys, arguments, code, words):
    paths = [str(tmp_path / a) if a in ("ddi", "nothing") else a for a in arguments]
    assert main(["table1", *paths]) == code
    told = capsys.readouterr().err
    assert all(word in told for word in words)


def test_a_table_that_was_changed_after_it_was_committed_is_refused(outs, capsys):
    with open(f"{outs[0]}/metrics/summary.parquet", "ab") as file:
        file.write(b"x")
    assert main(["table1", *outs]) == 3
    assert "that were committed" in capsys.readouterr().err
