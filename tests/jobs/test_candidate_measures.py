"""Candidates measured without an LLM: what is known of a set, and why something is not."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from jobs.candidate_measures import Chosen, Labelled, labels_of, spread
from jobs.reporting.metric_tables import CANDIDATES_SCHEMA, MEASURES, to_arrow
from jobs.reporting.metrics import Yardstick

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
