"""What the labels of the picks say of other rows."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from selection.probes import PROBE_C, linear_probe, nearest_label


@pytest.fixture(scope="module")
def digits():
    """100 labelled rows and 400 others; labels with gaps between their codes."""
    rows, labels = load_digits(return_X_y=True)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(rows))[:500]
    rows, labels = rows[order], labels[order].astype(np.int64) * 3
    return rows[:100], labels[:100], rows[100:], labels[100:]


def test_the_nearest_pick_gives_its_label_and_of_equals_the_first():
    chosen = np.float32([(1, 0), (0, 1), (0, 1)])
    rows = np.float32([(0.8, 0.6), (0.6, 0.8), (0, 1), (-1, 0)])
    assert nearest_label(chosen, np.array([7, 5, 6]), rows).tolist() == [7, 5, 5, 5]


def test_nearest_labels_are_those_of_scikit_learn(digits):
    chosen, labels, rows, _ = digits
    oracle = KNeighborsClassifier(1, metric="cosine").fit(chosen, labels)
    assert nearest_label(chosen, labels, rows).tolist() == oracle.predict(rows).tolist()


def test_the_probe_is_a_logistic_regression_that_tells_digits_apart(digits):
    chosen, labels, rows, gold = digits
    found = linear_probe(chosen, labels, rows)
    oracle = LogisticRegression(C=PROBE_C, solver="newton-cg", tol=1e-8).fit(
        chosen.astype(float), labels
    )
    assert (found == oracle.predict(rows.astype(float))).mean() > 0.99
    assert (found == gold).mean() > 0.8
    assert set(found.tolist()) <= set(labels.tolist())


def test_the_probe_does_not_depend_on_the_order_of_the_rows(digits):
    chosen, labels, rows, _ = digits
    assert linear_probe(chosen, labels, rows[::-1]).tolist() == (
        linear_probe(chosen, labels, rows)[::-1].tolist()
    )


def test_of_one_label_everything_gets_it(digits):
    chosen, _, rows, _ = digits
    same = np.full(len(chosen), 4)
    assert set(linear_probe(chosen, same, rows).tolist()) == {4}


@pytest.mark.parametrize("probe", [nearest_label, linear_probe])
def test_no_rows_give_no_labels_and_no_picks_are_refused(probe, digits):
    chosen, labels, rows, _ = digits
    assert probe(chosen, labels, rows[:0]).shape == (0,)
    with pytest.raises(ValueError, match="no labelled picks"):
        probe(chosen[:0], labels[:0], rows)
    with pytest.raises(ValueError, match=r"probe: labels: found shape \(99,\), wanted \(100,\)"):
        probe(chosen, labels[1:], rows)
