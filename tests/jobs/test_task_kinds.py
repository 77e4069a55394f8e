"""Tasks whose answer is more than one label, from their config to the page."""

import dataclasses
import functools
import json

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml

from inference.engine import EngineSpec, VllmEngine
from inference.tasks import Task
from jobs import generate
from jobs.annotate import pool_records
from jobs.config.load import load
from jobs.config.schema import TaskConfig
from jobs.config.stage2 import GenerateConfig
from jobs.config.tables import TableConfig
from jobs.errors import ConfigError
from jobs.evaluate import _mark
from jobs.generate import GenerateWork
from jobs.kind_rules import check_kind
from jobs.ledger import Ledger, Unit
from jobs.progress import Progress
from jobs.prompting.pool_texts import demonstration_of
from jobs.reporting.answer_metrics import AnswerYardstick, compare_answers, summarise_answers
from jobs.reporting.metric_tables import ANSWERS_SCHEMA, SCORES_SCHEMA, SUMMARY_SCHEMA, to_arrow
from jobs.reporting.model import ReportModel
from jobs.reporting.page import build_page
from jobs.run import Run, Table
from jobs.spill import SpillWork
from jobs.tasks import build, label_spellings, plain_task, task_from
from tests.inference import dirty_entities, sql_fixture
from tests.inference.llm_fakes import Factory
from tests.jobs.config.test_load import MINIMAL
from tests.jobs.conftest import Project, write_jsonl
from tests.jobs.test_annotate import candidates

NER = Task("parts", ("METAL", "TOOL"), kind="ner", verbalizers={"METAL": "metal"})
SET = Task("themes", ("trade", "floods"), kind="multi-label")
SQL = Task("towns", (), kind="sql")


def entity(text, kind, start):
    return {"text": text, "type": kind, "start": start, "end": start + len(text)}


# What a config may say.


def config_of(tmp_path, *, task, **changes):
    columns = {"id": "id", "output": "output", "label": "label"}
    file = MINIMAL | {
        "corpus": {"path": "c.jsonl", "columns": columns},
        "queries": {"path": "q.jsonl", "columns": columns},
        "tasks": {"it": {"instruction": "Do it."} | task},
        "generate": {"decoder": "generate"},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(file | changes))
    return load(str(path))


TYPES = {"kind": "ner", "labels": ["METAL", "TOOL"]}


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            TYPES,
            {"generate": {"decoder": "choice"}},
            "ner, which generate.decoder = choice",
        ),
        (TYPES, {"generate": {"decoder": "likelihood"}}, "Set generate.decoder: generate"),
        (TYPES, {"prompt": {"order": "calibrated"}}, "prompt.order = calibrated"),
        (TYPES, {"stage2": {"recall_by": "epr"}}, "stage2.recall_by = epr"),
        (TYPES, {"corpus": {"path": "c"}}, "corpus.columns.output, which maps no column"),
        ({"kind": "sql"}, {}, "tasks.it.databases: not given"),
        ({"kind": "sql", "databases": "nowhere"}, {}, "databases = nowhere: no such folder"),
        (
            {"kind": "sql", "databases": ".", "database_column": "db"},
            {},
            "database_column = db: no such column of the queries; known: label",
        ),
    ],
)
def test_what_a_kind_cannot_go_with_is_refused(tmp_path, task, changes, message):
    config = config_of(tmp_path, task=task, **changes)
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        check_kind(config.arms[0], config.file)


def test_every_kind_has_a_config_that_is_accepted(tmp_path):
    tasks = (TYPES, {"kind": "sql", "databases": "."}, {"kind": "multi-label"})
    for task in tasks:
        config = config_of(tmp_path, task=task)
        check_kind(config.arms[0], config.file)
    with pytest.raises(ConfigError, match="classification', 'multi-label', 'ner' or 'sql'"):
        config_of(tmp_path, task={"kind": "poem"})


def test_labels_come_from_where_the_kind_has_them():
    themes = TaskConfig(instruction="", kind="multi-label", label_separator="|")
    task = build("themes", themes, {"trade|floods": 3, "floods | ice": 1})
    assert task.labels == ("floods", "ice", "trade")
    assert task_from(plain_task(task)) == task
    assert build("towns", TaskConfig(instruction="", kind="sql"), {"db": 3}).labels == ()
    with pytest.raises(ConfigError, match="name the entity types"):
        build("parts", TaskConfig(instruction="", kind="ner"), {"METAL": 3})
    counts = {"Trade; floods": 2, "trade;ice": 1}
    merged, strange = label_spellings(SET, counts)
    assert (merged, strange) == ({"'Trade; floods' = trade;floods": 2}, {"trade;ice": 1})
    assert label_spellings(SQL, counts) == ({}, {})


# On the way in.


def test_rows_whose_entities_are_not_in_their_text_are_rejected_and_the_others_kept(tmp_path):
    good = dirty_entities.rows(5)
    bad = [
        {"id": f"bad{i}", "input": "the old axe", "output": output}
        for i, (output, _) in enumerate(dirty_entities.broken())
    ]
    unanswered = [{"id": "none", "input": "a text", "output": None}]
    path = tmp_path / "rows.jsonl"
    rows = [*good, *bad, *unanswered]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = TableConfig(path=str(path), columns={"id": "id", "output": "output"})
    payload = {
        "unit": dataclasses.asdict(Unit("spills", "a", "m")),
        "rejects": dataclasses.asdict(Unit("rejected", "a", "m")),
        "table": table.model_dump(),
        "files": [str(path)],
        "limit": None,
    }
    marker = SpillWork(str(tmp_path / "out"))(payload | {"entities": True})
    ledger = Ledger(str(tmp_path / "out"))
    kept = ledger.read(marker, ["id"])["id"].to_pylist()
    assert sorted(kept) == sorted([row["id"] for row in good] + ["none"])
    rejected = ledger.read(ledger.find(Unit("rejected", "a", "m"))).to_pylist()
    assert [row["id"] for row in rejected] == [row["id"] for row in bad]
    assert {(row["reason"], row["status"]) for row in rejected} == {("bad_entities", "rejected")}
    assert [row["source_line"] for row in rejected] == list(range(6, 6 + len(bad)))
    for row, (_, reason) in zip(rejected, dirty_entities.broken(), strict=True):
        assert reason in row["detail"]
    assert marker.stats["notes"]["bad_entities"] == len(bad)


# In the pool and in prompts.


def test_demonstrations_show_outputs_in_the_form_that_is_parsed():
    iron = json.dumps([entity("iron", "METAL", 0), entity("axe", "TOOL", 5)])
    record = {"id": "a", "input": "iron axe", "output": iron, "label": None}
    record |= {"wrong_output": None, "why": None}
    assert demonstration_of(NER, record, contrast=True).output == "iron | metal\naxe | TOOL"
    themes = record | {"label": "floods;trade", "wrong_output": "trade"}
    shown = demonstration_of(SET, themes, contrast=True)
    assert (shown.output, shown.wrong_output) == ("trade; floods", "trade")
    query = record | {"output": "SELECT 1\n\nFROM t ;", "wrong_output": "SELECT 1\nFROM t;"}
    shown = demonstration_of(SQL, query, contrast=True)
    assert (shown.output, shown.wrong_output) == ("SELECT 1\nFROM t;", None)


def test_candidates_without_an_answer_of_the_task_say_why():
    rows = [
        {"id": "a", "input": "iron", "output": json.dumps([entity("iron", "METAL", 0)])},
        {"id": "b", "input": "rain", "output": json.dumps([entity("rain", "WEATHER", 0)])},
        {"id": "c", "input": "axe", "label": "TOOL"},
    ]
    records, n_unlabelled = pool_records(candidates(rows), [NER])
    assert n_unlabelled == 0
    assert records["bad_reason"].to_pylist() == [
        None,
        "has an output that cannot be used: entity type 'WEATHER' is none of task 'parts'",
        "has no output",
    ]


# Answers.


@pytest.mark.parametrize(
    ("task", "query", "answer", "prediction", "gold", "stop"),
    [
        (
            NER,
            {"input": "iron axe", "output": json.dumps([entity("iron", "METAL", 0)])},
            "iron | metal\nsaw | tool",
            '[{"text": "iron", "type": "METAL"}, {"text": "saw", "type": "TOOL"}]',
            '[{"text": "iron", "type": "METAL", "start": 0, "end": 4}]',
            ("\n\n", "\nInput:"),
        ),
        (SET, {"label": "floods; trade"}, "Floods, trade", "trade;floods", "trade;floods", ("\n",)),
        (
            SQL,
            {"output": "SELECT 1 ;"},
            "```sql\nSELECT 2;\n```",
            "SELECT 2",
            "SELECT 1",
            ("\n\n", "\nInput:"),
        ),
        (NER, {"input": "a", "output": None}, "no idea at all", None, None, ("\n\n", "\nInput:")),
    ],
)
def test_the_prediction_is_the_canonical_answer(
    tmp_path, task, query, answer, prediction, gold, stop
):
    asked = []
    factory = Factory(lambda text, sampling: asked.append(sampling.stop) or answer)
    ledger = Ledger(str(tmp_path))
    prompts = pa.table(
        {
            "id": ["q"],
            "prompt": pa.array(["Input: x\nAnswer:"], pa.large_string()),
            "demonstration_ids": pa.array([["a"]], pa.list_(pa.string())),
            "pool_version": ["v0001"],
            "prompt_tokens": [5],
            "status": ["ok"],
            "detail": pa.nulls(1, pa.string()),
        }
    )
    row = {name: query.get(name) for name in ("input", "output", "label")}
    schema = pa.schema([(name, pa.string()) for name in row])
    rows = pa.Table.from_pylist([row], schema=schema)
    payload = {
        "unit": dataclasses.asdict(Unit("outputs/arm", "part", "mark")),
        "arm": "arm",
        "prompts": ledger.commit(Unit("prompts", "part", "x"), prompts).as_dict(),
        "rows": ledger.commit(Unit("rows", "part", "x"), rows).as_dict(),
        "task": plain_task(task),
        "generate": GenerateConfig(decoder="generate").model_dump(),
        "seed": 0,
        "prompt": {"format": "completion"},
        "run_id": "r",
    }
    spec = EngineSpec("fake", max_model_len=512)
    work = GenerateWork(str(tmp_path), spec, lambda s: VllmEngine(s, start=factory))
    (made,) = ledger.read(work(payload)).to_pylist()
    assert (made["prediction"], made["gold"], made["raw_output"]) == (prediction, gold, answer)
    assert made["status"] == ("ok" if prediction else "parse_error")
    assert made["detail"]
    assert asked == [stop]


# Scores.


def outputs(rows):
    frame = pd.DataFrame(rows)
    frame["id"] = [f"q{i}" for i in range(len(rows))]
    blank = {"prompt_tokens": 5, "cached_tokens": 0, "engine_s": 0.1, "queue_s": 0.0}
    for name, value in ({"input": None, "database": None, "status": "ok"} | blank).items():
        if name not in frame:
            frame[name] = value
    frame["demonstration_ids"] = [["a"]] * len(rows)
    return frame


def measure(rows, task, name="arm", **more):
    arm = {"task": task.name, "encoder": "e", "engine": "l", "arm": name}
    yardstick = AnswerYardstick(task, n_resamples=50, **more)
    return summarise_answers(outputs(rows), arm=arm, yardstick=yardstick)


def value(measured, metric):
    (row,) = [row for row in measured.metrics.scores if row["metric"] == metric]
    return row["value"]


def said(*entities):
    return json.dumps([dict(zip(("text", "type"), one, strict=True)) for one in entities])


GOLD = json.dumps([entity("iron", "METAL", 0), entity("axe", "TOOL", 5)])


def test_entities_are_located_scored_and_what_is_not_in_the_text_is_counted():
    rows = [
        {"input": "iron axe", "gold": GOLD, "prediction": said(("iron", "METAL"), ("axe", "TOOL"))},
        {"input": "iron axe", "gold": GOLD, "prediction": said(("tin", "METAL"))},
        {"input": "iron axe", "gold": GOLD, "prediction": None, "status": "parse_error"},
        {"input": "rain", "gold": "[]", "prediction": "[]"},
        {"input": "rain", "gold": None, "prediction": "[]"},
    ]
    measured = measure([{"status": "ok"} | row for row in rows], NER)
    # 2 right of 6 gold and 3 predicted.
    assert value(measured, "strict_micro_f1") == pytest.approx(4 / 9)
    summary = measured.metrics.summary
    assert (summary["metric"], summary["score"]) == ("strict_micro_f1", pytest.approx(4 / 9))
    assert (summary["n"], summary["n_scored"], summary["n_parse_error"]) == (5, 4, 1)
    assert (summary["accuracy"], summary["macro_f1"]) == (None, None)
    answers = measured.metrics.answers
    assert [row["score"] for row in answers] == [1.0, 0.0, 0.0, 1.0, None]
    assert [row["detail"] for row in answers] == [
        *(None, "1 not in the text: 'tin'", None, None, "has no gold answer"),
    ]
    assert len(summary["notes"]) == 2
    slices = {(r["slice"], r["value"]): r["support"] for r in measured.metrics.slices}
    assert slices[("strict span", "TOOL")] == 3
    for name, schema in (("scores", SCORES_SCHEMA), ("answers", ANSWERS_SCHEMA)):
        assert to_arrow(getattr(measured.metrics, name), schema).num_rows
    assert to_arrow([summary], SUMMARY_SCHEMA).num_rows == 1


def test_queries_are_run_and_their_failures_have_a_status(tmp_path):
    sql_fixture.write(tmp_path / "towns.sqlite")
    right, gold = "SELECT name FROM town", "SELECT name FROM town ORDER BY name"
    rows = [
        {"database": "towns", "gold": gold, "prediction": right},
        {"database": "towns", "gold": gold, "prediction": right + " ORDER BY name DESC"},
        {"database": "towns", "gold": gold, "prediction": "DROP TABLE town"},
        {"database": "towns", "gold": "SELECT x FROM town", "prediction": right},
        {"database": "../towns", "gold": gold, "prediction": right},
        {"database": "rivers", "gold": gold, "prediction": right},
        {"database": None, "gold": gold, "prediction": right},
        {"database": "towns.sqlite", "gold": gold, "prediction": None, "status": "empty_output"},
    ]
    measured = measure([{"status": "ok"} | row for row in rows], SQL, databases=tmp_path)
    assert value(measured, "execution_accuracy") == pytest.approx(1 / 4)
    assert value(measured, "execution_accuracy_unordered") == pytest.approx(2 / 4)
    summary = measured.metrics.summary
    assert (summary["n_sql_error"], summary["n_ok"], summary["n_empty_output"]) == (1, 6, 1)
    assert (summary["n_scored"], summary["n_unscored"]) == (4, 4)
    details = [row["detail"] for row in measured.metrics.answers]
    assert details[2] == "not allowed: DELETE sqlite_master"
    assert details[3] == "the gold query does not run: no such column: x"
    assert details[4] == "database '../towns' is no plain name"
    assert "database 'rivers' has no file in" in details[5]
    assert details[6] == "the row names no database"


def test_another_column_that_names_databases_is_scored_anew(tmp_path):
    (tmp_path / "dbs").mkdir()
    sql_fixture.write(tmp_path / "dbs" / "towns.sqlite")
    project, marks = Project(tmp_path), []
    project.config["queries"]["columns"] |= {"keep": ["db"]}
    task = {"kind": "sql", "instruction": "?", "databases": str(tmp_path / "dbs")}
    for column in ("label", "db", "label"):
        project.config["tasks"] = {"topic": task | {"database_column": column}}
        config = load(project.path)
        run = Run(config, Ledger(config.out), Progress(quiet=True))
        run.tables = {name: Table(name, (), 1) for name in ("corpus", "queries")}
        run.vectors = {("minilm", name): [] for name in ("corpus", "queries")}
        marks.append(_mark(run))
    assert marks[0] == marks[2] != marks[1]


def test_arms_are_compared_on_the_queries_that_both_answer():
    right = {"gold": "trade;floods", "prediction": "trade;floods"}
    half = {"gold": "trade;floods", "prediction": "trade"}
    arms = {
        "random": measure([half] * 6, SET, "random"),
        "chosen": measure([right] * 3 + [half] * 3, SET, "chosen"),
    }
    rows = compare_answers(arms, against=["random"], yardstick=AnswerYardstick(SET, n_resamples=50))
    found = {row["metric"]: row for row in rows}
    assert {row["arm"] for row in rows} == {"chosen"}
    assert found["exact_match"]["value"] == pytest.approx(0.5)
    assert found["micro_f1"]["value"] == pytest.approx(18 / 21 - 12 / 18)
    assert found["micro_f1"]["low"] >= 0
    assert found["micro_f1"]["n"] == 6

    metrics = [arm.metrics for arm in arms.values()]
    model = ReportModel(
        title="themes",
        summary=to_arrow([one.summary for one in metrics], SUMMARY_SCHEMA).to_pandas(),
        scores=to_arrow([*metrics[0].scores, *metrics[1].scores, *rows], SCORES_SCHEMA).to_pandas(),
        slices=pd.DataFrame([row for one in metrics for row in one.slices]),
    )
    page = build_page(model, [])
    assert "chosen has the highest micro-F1 of 2 arms: 0.857" in page
    assert "Against random selection (random), on the 6 queries" in page
    assert "exact match" in page


def test_a_run_scores_entities_and_sets_and_shows_them(project, monkeypatch):
    def rows(n, seed):
        labels = ["trade;floods", "floods", "trade"]
        made = dirty_entities.rows(n, seed=seed)
        return [row | {"label": labels[i % 3]} for i, row in enumerate(made)]

    bad = [
        {"id": f"bad{i}", "input": "the old axe", "output": output, "label": "trade"}
        for i, (output, _) in enumerate(dirty_entities.broken())
    ]
    write_jsonl(project.root / "corpus" / "a.jsonl", rows(30, 0) + bad)
    write_jsonl(project.root / "queries.jsonl", rows(6, 1))
    for name in ("corpus", "queries"):
        columns = {"id": "id", "input": "input", "output": "output", "label": "label"}
        project.config[name]["columns"] = columns
    project.config["tasks"] = {
        "parts": {"kind": "ner", "instruction": "Parts.", "labels": ["METAL", "TOOL"]},
        "themes": {"kind": "multi-label", "instruction": "Themes."},
    }
    project.config["generate"] = {"decoder": "generate"}
    project.config["arms"] = [
        {"name": "parts", "task": "parts"},
        {"name": "parts-random", "task": "parts", "stage1": "random"},
        {"name": "themes", "task": "themes"},
    ]
    factory = Factory(lambda text, _: "iron | METAL" if text.startswith("Parts") else "floods")
    fake = functools.partial(GenerateWork, start=lambda s: VllmEngine(s, start=factory))
    monkeypatch.setattr(generate, "GenerateWork", fake)
    result, manifest = project.execute("report")
    assert result.result == "done_with_rejects"
    assert manifest["tables"]["corpus"]["counts"]["rejected"] == {"bad_entities": len(bad)}
    metrics = json.loads(next(project.out.rglob("metrics.json")).read_text())
    found = {row["arm"]: (row["metric"], row["n_scored"]) for row in metrics["summary"]}
    assert found == {
        "parts": ("strict_micro_f1", 6),
        "parts-random": ("strict_micro_f1", 6),
        "themes": ("micro_f1", 6),
    }
    # Gold is both, floods, trade in turn and "floods" is always said: 4 right of 8 gold, 6 said.
    scores = {(r["arm"], r["metric"]): r["value"] for r in metrics["scores"] if "against" not in r}
    assert scores["themes", "micro_f1"] == pytest.approx(8 / 14)
    assert scores["themes", "exact_match"] == pytest.approx(1 / 3)
    assert {row["against"] for row in metrics["scores"] if "against" in row} == {"parts-random"}
    prompts = ds.dataset(project.out / "prompts", format="parquet", exclude_invalid_files=True)
    shown = prompts.to_table(["prompt"])["prompt"].to_pylist()
    assert any(" | METAL\n" in text for text in shown)
    assert "strict span micro-F1" in (project.out / "report.html").read_text()


def test_an_arm_without_any_gold_has_notes_and_no_scores():
    measured = measure([{"gold": None, "prediction": "trade"}], SET)
    assert measured.metrics.scores == []
    assert measured.metrics.summary["score"] is None
    assert measured.metrics.summary["notes"] == [
        "1 rows have no gold answer of the task: not scored."
    ]
