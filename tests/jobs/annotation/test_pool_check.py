"""What a check of the pool finds, and states: staged, active, retired."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import annotate, manifest
from jobs.annotation.curate import promote, retire
from jobs.annotation.export import Wanted, export
from jobs.annotation.near_duplicates import (
    Pair,
    Shingles,
    jaccard,
    near_between,
    near_pairs,
    same_groups,
    similar_pairs,
)
from jobs.annotation.pool_check import Limits, check_pool, limits_of
from jobs.annotation.states import changes_of, record_change, retired_ids, states
from jobs.cli import main
from jobs.errors import ConfigError, DataError
from jobs.ledger import Unit
from jobs.reporting.metric_tables import AUDIT_SCHEMA
from tests.jobs.annotation.tree import QUIET, Tree, colours, unit

LONG = "the old harbour master wrote a letter to the town about the flood of last spring"
POOL = [
    {"id": "a", "input": LONG, "label": "red"},
    {"id": "b", "input": f"{LONG.upper()}.", "label": "crimson"},
    {"id": "c", "input": LONG, "label": "blue"},
    {"id": "d", "input": LONG.replace("last", "the last"), "label": "blue"},
    {"id": "e", "input": "grass grows", "label": "green"},
    {"id": "f", "input": "lawns get taller", "label": "red"},
    {"id": "g", "input": "a lone kite", "label": "red"},
]
QUERIES = [({"id": "q1", "input": "Grass  GROWS."}, 40), ({"id": "q2", "input": "kites"}, 91)]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """a, b, c are copies, d is nearly; e and f are near by vectors; e and g are given away."""
    root = tmp_path_factory.mktemp("pool")
    angles = [0, 0, 0, 20, 40, 41, 90]
    arms = {"main": [row["id"] for row in POOL]}
    tree = Tree(root, POOL, angles=angles, candidates=arms, queries=QUERIES)
    tree.annotate()
    return tree


def found(answer):
    return {(one["check"], one["id"], one["other"]) for one in answer["findings"]}


def test_every_kind_of_finding_is_found_once_and_nothing_else(checked):
    answer = check_pool(checked.out, limits=Limits(), progress=QUIET, quiet=True)
    assert found(answer) == {
        ("same_text", "a", "b"),
        ("same_text", "a", "c"),
        ("near_duplicate", "a", "d"),
        ("near_duplicate_cosine", "e", "f"),
        ("conflicting_labels", "a", "c"),
        ("conflicting_labels", "a", "d"),
        ("conflicting_labels", "e", "f"),
        ("evaluation_text", "e", "q1"),
        ("evaluation_paraphrase", "d", "q1"),
        ("evaluation_paraphrase", "f", "q1"),
        ("evaluation_paraphrase", "g", "q2"),
    }
    table, report = answer["files"]
    written = json.loads(checked.ledger.store.read_bytes(report.split("/out/")[1]))
    assert written["counts"] == answer["counts"]
    assert pq.read_table(table).num_rows == len(answer["findings"])


def test_limits_say_what_counts_as_the_same(checked):
    strict = limits_of(jaccard=0.95, cosine=0.99999, query_cosine=0.99999, shingle="word-3")
    answer = check_pool(checked.out, limits=strict, progress=QUIET, quiet=True)
    assert {check for check, *_ in found(answer)} == {
        "same_text",
        "conflicting_labels",
        "evaluation_text",
    }
    for wrong in ({"jaccard": 0}, {"cosine": 1.1}, {"shingle": "line-3"}, {"shingle": "char-0"}):
        with pytest.raises(ConfigError, match="wanted"):
            limits_of(**wrong)


def test_findings_are_an_error_only_where_that_is_asked_for(checked, capsys):
    assert main(["pool", "check", checked.out]) == 0
    told = capsys.readouterr().out
    assert "7 records: 3 conflicting_labels, 3 evaluation_paraphrase" in told
    assert main(["pool", "check", checked.out, "--fail-on-findings"]) == 3
    assert "11 findings" in capsys.readouterr().err


def test_records_that_the_audit_suspects_are_listed(tmp_path):
    tree = colours(tmp_path)
    tree.annotate()
    row = dict.fromkeys(AUDIT_SCHEMA.names) | {
        **{"arm": "main", "demonstration_id": "a", "suspect": True, "high": 0.25},
        **{"n_scored": 20, "n_right": 1, "accuracy_otherwise": 0.75},
    }
    gone = row | {"demonstration_id": "zz"}
    fine = row | {"demonstration_id": "h", "suspect": False}
    table = pa.Table.from_pylist([row, gone, fine], schema=AUDIT_SCHEMA)
    marker = tree.ledger.commit(Unit("metrics", "audit", "x"), table)
    kept = manifest.load(tree.ledger.store)
    manifest.save(tree.ledger.store, kept | {"metrics": {"audit": marker.as_dict()}})
    answer = check_pool(tree.out, limits=Limits(), progress=QUIET, quiet=True)
    (one,) = [one for one in answer["findings"] if one["check"] == "failing_demonstration"]
    assert (one["id"], one["score"], one["by"]) == ("a", 0.5, "main")
    assert one["detail"] == "1 of 20 queries right that saw it, 0.750 of the others"


def test_without_a_pool_there_is_nothing_to_check(tmp_path):
    tree = colours(tmp_path)
    with pytest.raises(DataError, match="no pool yet"):
        check_pool(tree.out, limits=Limits(), progress=QUIET)


# Near duplicates.


def test_jaccard_of_shingles_by_hand():
    cut = Shingles("char", 3)
    assert cut("Abcd.") == {"abc", "bcd"}
    assert cut("ab") == {"ab"}
    assert cut("") == {""}
    assert Shingles("word", 2)("one two, three") == {"one two", "two three"}
    assert jaccard(cut("abcd"), cut("bcde")) == 1 / 3


def test_similar_pairs_are_those_of_all_comparisons():
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(40)]
    texts = []
    for _ in range(30):
        base = list(rng.choice(words, 14))
        other = [*base[:13], "changed"]
        texts += [" ".join(base), " ".join(other)]
    cut = Shingles("word", 2)
    sets = [cut(text) for text in texts]
    wanted = {
        (one, other)
        for one in range(len(texts))
        for other in range(one + 1, len(texts))
        if jaccard(sets[one], sets[other]) >= 0.7
    }
    pairs = similar_pairs(texts, cut, threshold=0.7)
    assert {(pair.first, pair.second) for pair in pairs} <= wanted
    assert len(pairs) >= 0.9 * len(wanted) > 0
    assert all(pair.score == jaccard(sets[pair.first], sets[pair.second]) for pair in pairs)
    assert similar_pairs([], cut, threshold=0.7) == []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 90), max_size=8), st.sampled_from([0.5, 0.9, 0.999]))
def test_near_pairs_are_those_of_all_comparisons(angles, threshold):
    vectors = unit(*angles).reshape(-1, 2)
    pairs = near_pairs(vectors, threshold=threshold)
    wanted = [
        (one, other)
        for one in range(len(angles))
        for other in range(one + 1, len(angles))
        if np.float32(vectors[one] @ vectors[other]) >= np.float32(threshold)
    ]
    near = abs(np.cos(np.radians(np.subtract.outer(angles, angles))) - threshold) < 1e-6
    if not near.any():
        assert [(pair.first, pair.second) for pair in pairs] == wanted


def test_pairs_across_tiles_are_found(monkeypatch):
    monkeypatch.setattr("jobs.annotation.near_duplicates.TILE_ROWS", 2)
    vectors = unit(0, 30, 60, 90, 1)
    assert near_pairs(vectors, threshold=0.99) == [Pair(0, 4, pytest.approx(0.999848, abs=1e-5))]
    assert list(near_between(vectors[:0], vectors, threshold=0)) == []
    assert same_groups(["x", "y", "x", "z", "y"]) == [[0, 2], [1, 4]]


# States.


def test_the_last_change_counts_and_a_repeated_one_is_not_logged(tmp_path):
    ledger = colours(tmp_path).ledger
    assert (changes_of(ledger), retired_ids(ledger)) == ({}, [])
    assert record_change(ledger, ["b", "a"], "retired", reason="doubt").name == "changes-0001"
    assert record_change(ledger, ["a"], "retired", reason="again") is None
    assert record_change(ledger, ["a", "c"], "active", reason=None).rows == 2
    assert changes_of(ledger) == {"a": "active", "b": "retired", "c": "active"}
    assert retired_ids(ledger) == ["b"]
    assert states("abd", changes_of(ledger), promote="auto") == ["active", "retired", "active"]
    assert states("abd", changes_of(ledger), promote="manual") == ["active", "retired", "staged"]


def test_retired_records_are_neither_shown_nor_exported_nor_checked(tmp_path):
    tree = colours(tmp_path)
    tree.annotate()
    retire(tree.out, ["a", "b"], reason="a quoted one", progress=QUIET)
    records = tree.annotate()
    assert {i: row["state"] for i, row in records.items()} == {"a": "retired", "h": "active"}
    assert records["a"]["version"] == "v0002"
    run = tree.run()
    (arm,) = run.arms
    task = annotate.task_of(run, "colour")
    assert annotate.usable_candidates(run, arm.name, task) == []
    shown = annotate.shown_records(run, arm.name)
    made = export(tree.out, wanted=Wanted("jsonl", everything=True), progress=QUIET)
    ids = [json.loads(line)["id"] for line in made.text.splitlines()]
    assert ids == ["c", "f", " g ", "h"]
    assert made.facts["retired"] == 2
    assert check_pool(tree.out, limits=Limits(), progress=QUIET, quiet=True)["records"] == 1
    promote(tree.out, ["a"], reason=None, progress=QUIET)
    tree.annotate()
    run = tree.run()
    assert annotate.usable_candidates(run, arm.name, task) == ["a"]
    assert annotate.shown_records(run, arm.name) != shown


def test_with_manual_promotion_records_wait_until_they_are_promoted(tmp_path):
    tree = colours(tmp_path, annotate={"promote": "manual"})
    assert {row["state"] for row in tree.annotate().values()} == {"staged"}
    run = tree.run()
    task = annotate.task_of(run, "colour")
    assert annotate.usable_candidates(run, "main", task) == []
    assert main(["pool", "retire", tree.out, "h"]) == 0
    assert main(["pool", "promote", tree.out, "--all"]) == 0
    records = tree.annotate()
    assert {i: row["state"] for i, row in records.items()} == {"a": "active", "h": "retired"}
    assert promote(tree.out, None, reason=None, progress=QUIET)["change"] is None


def test_strange_ids_change_nothing(tmp_path, capsys):
    tree = colours(tmp_path)
    tree.annotate()
    assert main(["pool", "retire", tree.out, "a", "zz"]) == 3
    assert "1 of 2 ids are no record of the pool and no candidate: 'zz'" in capsys.readouterr().err
    assert changes_of(tree.ledger) == {}
    assert main(["pool", "promote", tree.out]) == 2
    assert main(["pool", "promote", tree.out, "a", "--all"]) == 2
