"""Evaluate through every stage before it, with an LLM that answers what it was shown last."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from inference.engine import Completion, VllmEngine
from inference.scoring import score
from jobs import generate, units
from jobs.errors import ConfigError
from jobs.evaluate import TABLES
from jobs.generate import GenerateWork
from tests.jobs.conftest import WORDS, Project, inline_units, sentences, write_jsonl
from tests.jobs.selecting.inline_workers import InlineRay
from tests.jobs.test_generate import FakeLlm

ARMS = [
    {"name": "zero-shot", "stage1": "none", "stage2": "zero-shot"},
    {"name": "again", "stage1": "none", "stage2": "zero-shot", "repeat": 1},
    *({"name": f"random-{seed}", "stage1": "random", "seed": seed} for seed in (0, 1, 2)),
    {"name": "main"},
    {"name": "shown-to-all", "stage2": {"method": "dual-div", "condition_on": "all"}},
]


class Imitator(FakeLlm):
    """Gives the answer of the last demonstration; without any it talks nonsense."""

    def generate(self, token_ids, sampling):
        prompts = ["".join(map(chr, ids)) for ids in token_ids]
        found = [re.findall(r"Answer: (\w+)", prompt) for prompt in prompts]
        answers = [(shown or ["mumble"])[-1] for shown in found]
        return [Completion(text, "stop", 9, 0, 1, 0.1, 0.0) for text in answers]


def start(spec):
    return VllmEngine(spec, start=lambda _: Imitator(), start_pause_s=0.0)


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """A project of 40 queries in 10 documents, two of them without a label; all in this process."""
    project = Project(tmp_path)
    monkeypatch.setattr(units, "run_units", inline_units)
    queries = sentences(40, seed=1, prefix="q")
    for i, row in enumerate(queries):
        row |= {"year": str(2020 + i % 2), "document": f"d{i % 10}"}
        row["topic"] = None if i < 2 else row["topic"]
    write_jsonl(project.root / "queries.jsonl", queries)
    columns = project.config["queries"]["columns"]
    project.config["queries"]["columns"] = columns | {"group": "document", "keep": ["year"]}
    project.config |= {"arms": ARMS, "generate": {"decoder": "generate"}}
    project.config["report"] = {"slices": ["year"], "folds": 5, "map_rows": 0}
    project.config["report"]["orders"] = {"queries": 8}
    monkeypatch.setattr(generate, "GenerateWork", lambda out, spec: GenerateWork(out, spec, start))
    with InlineRay():
        yield project


def table(project, name):
    return pq.read_table(project.out / "metrics" / f"{name}.parquet").to_pylist()


def test_a_run_writes_every_table_and_again_only_when_the_report_asks_for_other_figures(answered):
    answered.execute("evaluate")
    assert sorted(p.stem for p in (answered.out / "metrics").glob("*.parquet")) == sorted(TABLES)
    summary = {row["arm"]: row for row in table(answered, "summary")}
    assert {row["n_scored"] for row in summary.values()} == {38}
    assert summary["zero-shot"]["notes"][0].startswith("None of the 38 scored rows has a predict")
    pairs = check_tests(table(answered, "paired_tests"))
    assert pairs == [
        *((f"random-{seed}", "zero-shot") for seed in (0, 1, 2)),
        *(("main", "zero-shot"), ("main", "random-0")),
        *(("shown-to-all", other) for other in ("zero-shot", "random-0", "main")),
    ]
    check_noise(table(answered, "noise"), summary)
    check_slices(answered)
    check_audit(answered)
    check_candidates(table(answered, "candidates"))
    check_orders(answered)
    written = json.loads((answered.out / "metrics" / "metrics.json").read_text())
    assert len(written["paired_tests"]) == 2 * len(pairs)
    before = answered.files()
    answered.execute("evaluate")
    assert answered.files() == before
    answered.config["report"]["folds"] = 4
    answered.execute("evaluate")
    assert {row["n_folds"] for row in table(answered, "paired_tests")} == {4}
    check_report(answered)
    for key, value, words in (
        ("slices", ["month"], "report.slices: 'month' is not among queries.columns.keep: year"),
        ("baselines", ["kmeans"], "report.baselines: 'kmeans' is no arm and no method of one"),
    ):
        answered.config["report"] = {key: value}
        with pytest.raises(ConfigError, match=words):
            answered.execute("ingest")


def check_candidates(rows):
    assert [(row["stage1"], row["arms"]) for row in rows] == [
        *(("random", [f"random-{seed}"]) for seed in (0, 1, 2)),
        ("dual-div", ["main", "shown-to-all"]),
    ]
    for row in rows:
        assert (row["task"], row["encoder"], row["k1"]) == ("topic", "minilm", 10)
        assert (row["n_labelled"], row["n_ground"], row["n_queries"]) == (10, 120, 38)
        assert 0 < row["coverage"] < 1 < row["vendi"] <= 10
        assert 0.3 < row["nearest_macro_f1"] <= 1
        assert 0.3 < row["probe_macro_f1"] <= 1
        assert row["rare_class_recall"] is None
        assert row["notes"] == ["no label has fewer rows than half an even share, so none is rare"]


def check_orders(project):
    """An LLM that says what it was shown last says the other answer in the other order."""
    rows = table(project, "orders")
    arms = ["random-0", "random-1", "random-2", "main", "shown-to-all"]
    assert list(dict.fromkeys(row["arm"] for row in rows)) == arms
    assert [row["order"] for row in rows if row["arm"] == "main"] == ["as run", "1-2", "2-1"]
    own = {row["id"]: row for row in outputs_of_arm(project, "main")}
    folder = project.out / "order_outputs" / "main"
    tried = [row for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(tried) == 16
    labels = {row["id"]: row["topic"] for row in project.rows}
    right = 0
    for row in tried:
        query, order = row["id"].split()
        shown = own[query]["demonstration_ids"]
        assert row["demonstration_ids"] == (shown if order == "1-2" else shown[::-1])
        assert row["prediction"] == labels[row["demonstration_ids"][-1]]
        right += order == "2-1" and row["prediction"] == own[query]["gold"]
    asked = {row["id"].split()[0] for row in tried}
    n = sum(own[query]["gold"] is not None for query in asked)
    (swapped,) = [row for row in rows if (row["arm"], row["order"]) == ("main", "2-1")]
    assert (swapped["n"], swapped["accuracy"]) == (n, pytest.approx(right / n))
    same, swapped = (row["accuracy"] for row in rows if row["arm"] == "main" and not row["own"])
    assert same == next(row["accuracy"] for row in rows if row["arm"] == "main" and row["own"])
    spread = [row for row in table(project, "order_spread") if row["arm"] == "main"]
    assert spread[0]["range"] == pytest.approx(abs(same - swapped))
    assert (spread[0]["floor"], spread[0]["n_possible"], spread[0]["n_orders"]) == (0.0, 2.0, 2)


def check_report(project):
    """The page shows cases that cost no new figures, and its tables lie beside it."""
    before = project.files()
    project.config["report"]["cases"] = ["q7", "nowhere"]
    project.execute("report")
    changed = {name for name, size in project.files().items() if before.get(name) != size}
    assert changed == {"report/pictures.parquet"}
    page = (project.out / "report.html").read_text()
    part = page.partition('id="cases"')[2].partition("<h2")[0]
    assert part.count("<section>") == len(ARMS)
    assert part.count("No query has this id") == 1
    (row,) = [row for row in outputs_of_arm(project, "main") if row["id"] == "q7"]
    assert f"Predicted {row['prediction']}:" in part
    for id_ in row["demonstration_ids"]:
        text = next(one["text"] for one in project.rows if one["id"] == id_)
        assert text in part
    written = sorted(path.stem for path in (project.out / "report").glob("*.csv"))
    assert written == project.manifest["report"]["pictures"]["stats"]["tables"]
    assert {"metrics-1", "tests-1", "cost"} <= set(written)


def outputs_of_arm(project, arm):
    return [
        row
        for path in (project.out / "outputs" / arm).glob("part-*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]


def check_tests(rows):
    assert {row["n_folds"] for row in rows} == {5}
    assert {row["n"] for row in rows} == {38}
    assert {row["n_tests"] for row in rows} == {len(rows)}
    assert all(row["p"] <= row["p_holm"] <= 1 for row in rows)
    # The zero-shot arm was answered again by the same engine, so every arm has a floor.
    assert all(row["below_floor"] == (abs(row["difference"]) <= row["floor"]) for row in rows)
    return list(dict.fromkeys((row["arm_a"], row["arm_b"]) for row in rows))


def check_noise(rows, summary):
    again, seeds = rows
    assert (again["varies"], again["accuracy_range"]) == ("repeat", 0.0)
    assert (seeds["varies"], seeds["arms"]) == ("seed", ["random-0", "random-1", "random-2"])
    scores = [summary[name]["macro_f1"] for name in seeds["arms"]]
    assert seeds["macro_f1_range"] == pytest.approx(max(scores) - min(scores))


def check_slices(project):
    rows = [row for row in table(project, "slices") if row["arm"] == "main"]
    kinds = dict.fromkeys(row["slice"] for row in rows)
    assert list(kinds) == ["label", "query tokens", "column year", "nearest demonstration"]
    for kind in kinds:
        mine = [row for row in rows if row["slice"] == kind]
        assert sum(row["n"] for row in mine) == 38
        assert "unknown" not in {row["value"] for row in mine}
    right = sum(row["n"] * row["accuracy"] for row in rows if row["slice"] == "column year")
    (summary,) = [row for row in table(project, "summary") if row["arm"] == "main"]
    assert right / 38 == pytest.approx(summary["accuracy"])
    shown = {row["value"] for row in table(project, "slices") if row["arm"] == "zero-shot"}
    assert "none shown" in shown
    differences = table(project, "slice_differences")
    assert all(row["low"] <= row["accuracy_difference"] <= row["high"] for row in differences)


def check_audit(project):
    """One set for all queries: each of its records was seen by all, and none is judged."""
    rows = table(project, "audit")
    all_saw = [row for row in rows if row["arm"] == "shown-to-all"]
    assert [(row["n_shown"], row["n_scored"], row["suspect"]) for row in all_saw] == [
        (40, 38, None)
    ] * 2
    outputs = [row for row in outputs_of_arm(project, "main") if row["gold"] is not None]
    for row in [row for row in rows if row["arm"] == "main"]:
        saw = [o for o in outputs if row["demonstration_id"] in o["demonstration_ids"]]
        assert row["n_scored"] == len(saw)
        assert row["n_right"] == sum(o["gold"] == o["prediction"] for o in saw)
        assert row["label"] in WORDS
    whole = score([o["gold"] for o in outputs], [o["prediction"] for o in outputs], list(WORDS))
    assert np.isclose(
        whole.accuracy,
        next(r["accuracy"] for r in table(project, "summary") if r["arm"] == "main"),
    )


def test_a_selection_is_repeated_for_each_fold_and_answers_its_queries_alone(answered):
    """Documents d0 to d9 have rows in corpus and queries, d10 to d19 in the corpus alone."""
    rows = [row | {"document": f"d{i % 20}"} for i, row in enumerate(answered.rows)]
    write_jsonl(answered.root / "corpus" / "a.jsonl", rows)
    columns = answered.config["corpus"]["columns"]
    answered.config["corpus"]["columns"] = columns | {"group": "document"}
    answered.config["report"] = {"folds": 3, "folds_of": "selection", "map_rows": 0}
    fixed = {"method": "fixed", "k": 3}
    answered.config["arms"] = [
        {"name": "zero-shot", "stage1": "none", "stage2": "zero-shot"},
        {"name": "random", "stage1": "random"},
        {"name": "random-fixed", "stage1": "random", "stage2": fixed},
        {"name": "main", "stage1": "coverage"},
    ]
    answered.execute("report")
    selections = answered.manifest["selections"].values()
    assert sorted(one["fold"] for one in selections) == [0, 0, 1, 1, 2, 2]
    document = {row["id"]: row["document"] for row in rows}
    chosen = {}
    for one in selections:
        path = answered.out / one["candidates"]["folder"] / "candidates.parquet"
        for arm in one["arms"]:
            chosen[arm] = pq.read_table(path)["id"].to_pylist()
    # Each leaves out whole documents, and each random draw is one of its own.
    sizes = [one["candidates"]["stats"]["N"] for one in selections if "main fold" in one["arms"][0]]
    assert sum(120 - n for n in sizes) == 120
    assert all(n % 6 == 0 for n in sizes)
    assert len({tuple(chosen[f"random fold {n}"]) for n in (1, 2, 3)}) == 3
    queries = [json.loads(line) for line in (answered.root / "queries.jsonl").open()]
    asked = {row["id"]: row["document"] for row in queries}
    for arm in ("random", "random-fixed", "main"):
        check_folds_of(answered, arm, chosen, asked, document)
    tests = table(answered, "paired_tests")
    assert {(row["folds"], row["n_folds"], row["n"]) for row in tests} == {
        ("selection folds", 3, 38)
    }
    measured = {row["stage1"]: row for row in table(answered, "candidates")}
    assert measured["coverage"]["k1"] == 10
    assert measured["coverage"]["notes"][0] == "means over the selections of 3 folds"
    page = (answered.out / "report.html").read_text()
    assert "Selection folds: queries and corpus" in page
    assert page.count(">1 of 3<") == 2
    before = answered.files()
    answered.execute("report")
    assert answered.files() == before


def check_folds_of(project, arm, chosen, asked, document):
    """Every query is answered once, from the selection of a fold without its document."""
    outputs = outputs_of_arm(project, arm)
    assert sorted(row["id"] for row in outputs) == sorted(asked)
    folds = {}
    for row in outputs:
        shown = set(row["demonstration_ids"])
        assert shown
        fits = {n for n in (1, 2, 3) if shown <= set(chosen[f"{arm} fold {n}"])}
        mine = asked[row["id"]]
        folds[mine] = folds.get(mine, {1, 2, 3}) & fits
    # All queries of a document are served by one and the same fold, which is without it.
    for mine, fits in folds.items():
        without = {n for n in fits if mine not in {document[i] for i in chosen[f"{arm} fold {n}"]}}
        assert without
