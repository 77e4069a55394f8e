"""Candidates measured without an LLM: what is known of a set, and why something is not."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import f1_score

from jobs import select
from jobs.comparing import candidates as candidate_measures
from jobs.comparing.candidates import Chosen, Labelled, candidate_rows, labels_of, spread
from jobs.config.load import Config
from jobs.ledger import Unit
from jobs.reporting.metric_tables import CANDIDATES_SCHEMA, MEASURES, to_arrow
from jobs.reporting.metrics import Yardstick
from jobs.run import Part, Table
from jobs.vectors import to_matrix
from tests.jobs.selecting.embedded_corpus import EmbeddedCorpus, clustered
from tests.jobs.selecting.inline_workers import InlineRay

AXES = np.eye(4, dtype=np.float32)
# 100 rows, half an even share of 3 labels is 16.7: c is rare.
YARDSTICK = Yardstick(["a", "b", "c", "unused"], {"a": 60, "b": 30, "c": 10})


def near(*axes, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    rows = AXES[list(axes)] + noise * rng.standard_normal((len(axes), 4))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_a_row_of_the_table_by_hand():
    chosen = Chosen(AXES[:3], ["a", "b", None])
    rows = np.float32([(1, 0, 0, 0), (0.8, 0.6, 0, 0), (0, 1, 0, 0), (0.6, 0, 0.8, 0)])
    held_out = Labelled(rows, ["a", "a", "b", "c"])
    row = spread(chosen.vectors, AXES) | labels_of(chosen, held_out, YARDSTICK)
    assert row["n_labelled"] == 2
    assert (row["n_ground"], row["n_queries"], row["n_rare"]) == (4, 4, 1)
    assert row["coverage"] == pytest.approx(3 / 4)
    assert row["label_coverage"] == pytest.approx(2 / 3)
    assert row["rare_class_recall"] == 0
    assert row["vendi"] == pytest.approx(3)
    assert row["mean_cosine"] == row["log_det"] == pytest.approx(0, abs=1e-9)
    # The query of c is nearest to the pick of a: F1 4 / 5, 1 and 0.
    assert row["nearest_macro_f1"] == pytest.approx(0.6)
    assert row["notes"] == []
    assert to_arrow([row], CANDIDATES_SCHEMA).num_rows == 1


def test_probes_learn_from_the_labelled_candidates_and_are_scored_like_scikit_learn():
    axes = [0, 1, 2] * 6
    chosen = Chosen(near(*axes), [None if i == 0 else "abc"[a] for i, a in enumerate(axes)])
    gold = ["abc"[a] for a in axes]
    rows = Labelled(near(*axes, seed=1, noise=0.4), gold)
    found = labels_of(chosen, rows, YARDSTICK)
    cosines = rows.vectors.astype(float) @ chosen.vectors[1:].T.astype(float)
    nearest = [chosen.labels[1:][i] for i in cosines.argmax(axis=1)]
    assert found["nearest_macro_f1"] == pytest.approx(f1_score(gold, nearest, average="macro"))
    assert 0.6 < found["probe_macro_f1"] <= 1
    wrong = labels_of(chosen, Labelled(rows.vectors, gold[1:] + gold[:1]), YARDSTICK)
    assert wrong["probe_macro_f1"] < 0.3


NONE = Labelled(AXES[:0], [])


@pytest.mark.parametrize(
    ("labels", "held_out", "corpus", "missing", "note"),
    [
        ([None, None], NONE, {"a": 9, "b": 1}, MEASURES[5:], "no candidate has a label"),
        (["a", "b"], NONE, {"a": 9, "b": 1}, MEASURES[7:], "no query has a label"),
        (["a", "b"], Labelled(AXES[:2], ["a", "b"]), {}, MEASURES[5:7], "corpus has no labels"),
        (
            ["a", "b"],
            Labelled(AXES[:2], ["a", "b"]),
            {"a": 5, "b": 5},
            MEASURES[6:7],
            "none is rare",
        ),
    ],
)
def test_what_is_not_known_is_left_out_with_its_reason(labels, held_out, corpus, missing, note):
    found = labels_of(Chosen(AXES[:2], labels), held_out, Yardstick(["a", "b"], corpus))
    row = spread(AXES[:2], AXES) | found
    assert [name for name in MEASURES if row.get(name) is None] == list(missing)
    assert note in " ".join(row["notes"])


def test_a_label_that_no_corpus_row_has_is_no_label_to_be_found():
    found = labels_of(Chosen(AXES[:1], ["unused"]), NONE, YARDSTICK)
    assert found["label_coverage"] == 0


# A run: what is read, and which rows there are.

N, N_QUERIES = 120, 30
CORPUS, QUERIES = np.split(clustered(N + N_QUERIES), [N])


def sided(vectors, *, unlabelled=()):
    """Labels by the sign of the first coordinate."""
    labels = ["a" if row[0] > 0 else "b" for row in vectors]
    return [None if i in unlabelled else label for i, label in enumerate(labels)]


def arms_of(config, settings):
    (one,) = config.arms
    arms = []
    for name, (task, method) in settings.items():
        stage1 = one.stage1.model_copy(update={"method": method})
        arms.append(one.model_copy(update={"name": name, "task": task, "stage1": stage1}))
    return tuple(arms)


@pytest.fixture
def run(tmp_path):
    """A run up to its pool, without encoder, Ray and LLM; four queries have no label or vector."""
    vectors, asked = CORPUS, QUERIES
    corpus = EmbeddedCorpus(
        tmp_path, vectors, status=["empty", *["ok"] * (N - 1)], label=sided(vectors)
    )
    queries = EmbeddedCorpus(
        tmp_path,
        asked,
        ids=[f"q{i:02d}" for i in range(N_QUERIES)],
        partitions=2,
        status=["not_finite", *["ok"] * (N_QUERIES - 1)],
        label=sided(asked, unlabelled=(0, 3, 4, 5)),
    )
    config = corpus.config({"k1": 10})
    other = config.file.tasks["t"].model_copy(update={"labels": ["b", "c"]})
    tasks = config.file.tasks | {"b-only": other}
    arms = {
        "none": ("t", "none"),
        "first": ("t", "random"),
        "second": ("t", "random"),
        "other": ("b-only", "random"),
        "kcenter": ("t", "kcenter"),
    }
    file = config.file.model_copy(update={"tasks": tasks})
    run = corpus.run(Config(file, arms_of(config, arms)))
    parts = tuple(Part(s, p, rows) for p, s, rows, _ in queries._made)
    run.tables["queries"] = Table("queries", parts, 2)
    run.vectors["mini", "queries"] = [marker for *_, marker in queries._made]
    with InlineRay():
        select.run_stage(run)
    pool = pa.table({"id": corpus.ids, "label": sided(vectors), "state": ["active"] * len(vectors)})
    run.pool = run.ledger.commit(Unit("pool/v0001", "pool", "x"), pool)
    return run


def rows_of(run):
    counts = run.tables["corpus"].counts("labels")
    yardsticks = {
        "t": Yardstick(["a", "b"], counts),
        "b-only": Yardstick(["b", "c"], {"b": counts["b"]}),
    }
    return {(row["stage1"], row["task"]): row for row in candidate_rows(run, yardsticks)}


def test_a_run_has_a_row_for_every_selection_and_task_that_an_arm_uses(run):
    rows = rows_of(run)
    assert {key: row["arms"] for key, row in rows.items()} == {
        ("random", "t"): ["first", "second"],
        ("random", "b-only"): ["other"],
        ("kcenter", "t"): ["kcenter"],
    }
    random, odd, kcenter = rows.values()
    assert (random["k1"], random["n_labelled"], random["n_ground"]) == (10, 10, N - 1)
    assert random["n_queries"] == N_QUERIES - 4
    assert 0 < odd["n_labelled"] < 10
    assert 0 < odd["n_queries"] < N_QUERIES - 4
    assert odd["label_coverage"] == 1
    assert odd["coverage"] == random["coverage"] != kcenter["coverage"]
    picked = to_matrix(run.ledger.read(run.candidates["first"])["vector"])
    kept = [i for i in range(N_QUERIES) if i not in (0, 3, 4, 5)]
    nearest = (QUERIES[kept] @ picked.T).argmax(axis=1)
    wanted = f1_score(sided(QUERIES[kept]), sided(picked[nearest]), average="macro")
    assert random["nearest_macro_f1"] == pytest.approx(wanted)
    assert to_arrow(list(rows.values()), CANDIDATES_SCHEMA).num_rows == 3


def test_many_queries_and_a_large_corpus_are_sampled_and_it_says_how_many(run, monkeypatch):
    whole = rows_of(run)["random", "t"]
    monkeypatch.setattr(candidate_measures, "QUERY_ROWS", 7)
    monkeypatch.setattr(candidate_measures, "GROUND_ROWS", 40)
    few = rows_of(run)["random", "t"]
    assert (few["n_queries"], few["n_ground"]) == (7, 40)
    assert few["coverage"] == pytest.approx(whole["coverage"], abs=0.1)
    assert few["coverage"] != whole["coverage"]
    assert few["vendi"] == whole["vendi"]
    assert rows_of(run)["random", "t"] == few
