"""Folds of the corpus beside folds of the queries: who is in which, and what they refuse."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.comparing.candidates import mean_of
from jobs.config.load import load
from jobs.errors import ConfigError, DataError
from jobs.folds import LeftOut, corpus_folds, fold_seed
from jobs.ledger import Ledger, Unit
from jobs.selecting.mapped import map_vectors
from jobs.selection_folds import check_folds, join_rankings, plan_folds

NAMES = st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), max_size=40)


@settings(deadline=None, max_examples=30)
@given(NAMES, st.integers(2, 5), st.integers(0, 3))
def test_a_group_of_the_corpus_lies_in_one_fold_that_of_its_queries(groups, n_folds, seed):
    dealt = LeftOut(0, n_folds, seed, {"a": 1, "b": 0})
    ids = [f"r{i}" for i in range(len(groups))]
    folds = corpus_folds(ids, groups, dealt).tolist()
    assert all(0 <= fold < n_folds for fold in folds)
    by_group = {}
    for group, fold in zip(groups, folds, strict=True):
        if group is not None:
            assert by_group.setdefault(group, fold) == fold
    assert by_group.get("a", 1) == 1
    assert by_group.get("b", 0) == 0
    # A row's fold does not hang on the rows beside it.
    for at in range(len(groups)):
        assert corpus_folds(ids[at : at + 1], groups[at : at + 1], dealt)[0] == folds[at]


def test_rows_without_a_group_spread_evenly_and_otherwise_for_another_seed():
    ids = [f"r{i}" for i in range(3000)]
    folds = corpus_folds(ids, [None] * 3000, LeftOut(0, 3, 0, {}))
    others = corpus_folds(ids, [None] * 3000, LeftOut(0, 3, 1, {}))
    # 1,000 a fold expected, sd 26.
    assert all(abs((folds == fold).sum() - 1000) < 130 for fold in range(3))
    assert abs((folds == others).sum() - 1000) < 130


def test_each_fold_draws_with_a_seed_of_its_own():
    seeds = {fold_seed(seed, fold) for seed in range(3) for fold in range(10)}
    assert len(seeds) == 30


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "out"))


def test_the_rows_of_a_fold_are_not_there_when_it_selects(ledger):
    rows = pa.table({"id": ["r0", "r1", "r2", "r3"], "group": ["a", None, "b", "a"]})
    vectors = pa.table(
        {
            "id": ["r0", "r1", "r2", "r3"],
            "vector": pa.array([[1, 0], [0, 1], [0.6, 0.8], [0.8, 0.6]], pa.list_(pa.float32(), 2)),
            "status": ["ok", "ok", "ok", "too_long"],
        }
    )
    part, embedded = (
        ledger.commit(Unit(name, "part", name), table)
        for name, table in (("rows", rows), ("vectors", vectors))
    )
    barred = LeftOut(1, 2, 0, {"a": 1, "b": 0})(ledger, [part])
    assert {"r0", "r3"} <= set(barred.to_pylist()) <= {"r0", "r1", "r3"}
    mapped = map_vectors(ledger, [embedded], barred=pa.array(["r0", "r3"]))
    assert mapped.ids.to_pylist() == ["r1", "r2"]
    np.testing.assert_array_equal(mapped.vectors, np.array([[0, 1], [0.6, 0.8]], np.float32))
    assert mapped.excluded == {"too_long": 1}
    assert map_vectors(ledger, [embedded]).ids.to_pylist() == ["r0", "r1", "r2"]


def run_of(ledger, ids, groups, *, folds=3, folds_of="selection"):
    """The little of a run that folds are dealt from."""
    table = pa.table({"id": ids, "group": pa.array(groups, pa.string())})
    marker = ledger.commit(Unit("queries", "part", "queries"), table)
    report = SimpleNamespace(folds=folds, folds_of=folds_of)
    file = SimpleNamespace(report=report, seed=0)
    part = SimpleNamespace(marker=marker, name="part")
    tables = {"queries": SimpleNamespace(parts=(part,))}
    return SimpleNamespace(ledger=ledger, config=SimpleNamespace(file=file), tables=tables)


def test_queries_are_dealt_evenly_and_their_groups_with_them(ledger):
    ids = [f"q{i}" for i in range(12)]
    plan = plan_folds(run_of(ledger, ids, [f"g{i // 2}" for i in range(12)]))
    sizes = [len(plan.queries_of(fold)) for fold in range(3)]
    assert sizes == [4, 4, 4]
    assert all(plan.of_query[f"q{i}"] == plan.of_group[f"g{i // 2}"] for i in range(12))
    assert plan_folds(run_of(ledger, ids, [None] * 12, folds_of="queries")) is None


def test_one_group_of_queries_makes_no_folds(ledger):
    with pytest.raises(DataError, match="found 1 groups among 3 queries, wanted at least 2"):
        plan_folds(run_of(ledger, ["q0", "q1", "q2"], ["g"] * 3))


def test_a_query_takes_the_ranking_of_its_fold(ledger):
    run = run_of(ledger, ["q0", "q1", "q2"], [None] * 3)
    run.folds = plan_folds(run)
    by_fold = []
    for fold in range(3):
        table = pa.table({"id": ["q0", "q1", "q2"], "demonstration_ids": [[f"of {fold}"]] * 3})
        unit = Unit(f"ranked-{fold}", "part", "x")
        stats = {"n_short": 1 + fold, "recall": None}
        by_fold.append([ledger.commit(unit, table, stats=stats)])
    (joined,) = join_rankings(run, SimpleNamespace(name="main"), by_fold)
    rows = ledger.read(joined).to_pylist()
    expected = [[f"of {run.folds.of_query[row['id']]}"] for row in rows]
    assert [row["demonstration_ids"] for row in rows] == expected
    assert len({tuple(row) for row in expected}) == 3
    assert joined.stats == {"n_short": 6}


def test_measures_of_folds_are_means_and_say_so():
    rows = [
        {"arms": ["a"], "k1": 10, "coverage": 0.2, "vendi": None, "notes": ["n"]},
        {"arms": ["a"], "k1": 9, "coverage": 0.4, "vendi": 3.0, "notes": []},
    ]
    found = mean_of(rows)
    assert (found["arms"], found["k1"], found["vendi"]) == (["a"], 10, 3.0)
    assert found["coverage"] == pytest.approx(0.3)
    assert found["notes"] == ["means over the selections of 2 folds", "n"]
    assert mean_of(rows[:1]) == rows[0]


@pytest.fixture
def config(tmp_path):
    def make(arm):
        raw = {
            "out": str(tmp_path / "out"),
            "corpus": {"path": "c.jsonl"},
            "queries": {"path": "q.jsonl"},
            "tasks": {"t": {"instruction": "Say.", "labels": ["x", "y"]}},
            "encoders": {"minilm": {"preset": "minilm"}},
            "engines": {"small": {"model": "m"}},
            "report": {"folds_of": "selection"},
            "arms": [{"name": "main", **arm}],
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(raw))
        return load(str(path))

    return make


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"stage1": {"required": ["r1"]}}, "does not go with stage1.required"),
        ({"stage1": {"forbidden": ["r1"]}}, "does not go with stage1.forbidden"),
        (
            {"stage2": {"recall_by": "epr", "epr": {"also": ["r1"]}}},
            "does not go with stage2.epr.also",
        ),
        ({"prompt": {"layout": "anchor"}}, "does not go with prompt.layout = anchor"),
    ],
)
def test_what_names_rows_or_shares_them_over_folds_is_refused(config, arm, words):
    with pytest.raises(ConfigError, match=words):
        check_folds(config(arm))
    check_folds(config({}))
    check_folds(config({"stage2": {"epr": {"also": ["r1"]}}}))
