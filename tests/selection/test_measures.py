"""Measures of candidates: by hand, beside other formulas, and what must hold of any set."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.measures import (
    coverage,
    facility_location,
    label_coverage,
    log_det,
    mean_cosine,
    rare_class_recall,
    rare_labels,
    vendi_score,
)

SHAPES = {"k": st.integers(1, 12), "d": st.integers(2, 8), "seed": st.integers(0, 999)}


def at(*degrees):
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def drawn(n, d, seed):
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def counts(*numbers):
    return np.array(numbers, np.int64)


def test_coverage_by_hand():
    # Cosines to the pick at 0 degrees: 1, 1/2, 0 and -1; the last counts 0, or -1.
    ground = at(0, 60, 90, 180)
    assert coverage(ground, at(0)) == pytest.approx(1.5 / 4, abs=1e-6)
    assert facility_location(ground, at(0)) == pytest.approx(0.5 / 4, abs=1e-6)
    assert coverage(ground, at(0, 90)) == pytest.approx((1 + math.sqrt(0.75) + 1 + 0) / 4, abs=1e-6)
    assert coverage(ground, at()) == 0


@settings(deadline=None, max_examples=30)
@given(**SHAPES)
def test_coverage_is_the_mean_best_cosine_whatever_the_number_of_threads(k, d, seed):
    ground, chosen = drawn(40, d, seed), drawn(k, d, seed + 1)
    best = (ground.astype(float) @ chosen.T.astype(float)).max(axis=1)
    assert coverage(ground, chosen) == pytest.approx(np.maximum(best, 0).mean(), abs=1e-6)
    assert facility_location(ground, chosen) == pytest.approx(best.mean(), abs=1e-5)
    assert coverage(ground, chosen, threads=2) == coverage(ground, chosen)
    assert coverage(ground, ground) == pytest.approx(1, abs=1e-6)
    assert facility_location(ground, ground) == pytest.approx(1, abs=1e-6)


def test_spread_by_hand():
    # Two at 60 degrees: W has eigenvalues 3/2 and 1/2.
    pair = at(0, 60)
    assert mean_cosine(pair) == pytest.approx(0.5, abs=1e-6)
    assert vendi_score(pair) == pytest.approx(
        math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)), abs=1e-5
    )
    ridge = 0.1
    wanted = (math.log(0.9 * 1.5 + 0.1) + math.log(0.9 * 0.5 + 0.1)) / 2
    assert log_det(pair, ridge=ridge) == pytest.approx(wanted, abs=1e-5)
    # Three in the plane, one of them twice: eigenvalues 2, 1 and 0.
    assert log_det(at(0, 0, 90), ridge=ridge) == pytest.approx(
        (math.log(0.9 * 2 + 0.1) + math.log(ridge)) / 3, abs=1e-5
    )


@settings(deadline=None, max_examples=30)
@given(**SHAPES)
def test_spread_of_many_and_of_few_dimensions_is_that_of_the_cosines(k, d, seed):
    chosen = drawn(k, d, seed)
    cosines = chosen.astype(float) @ chosen.T.astype(float)
    np.fill_diagonal(cosines, 1.0)
    inner = 0.99 * cosines + 0.01 * np.eye(k)
    assert log_det(chosen, ridge=0.01) == pytest.approx(np.linalg.slogdet(inner)[1] / k, abs=1e-4)
    shares = np.linalg.eigvalsh(cosines / k)
    shares = shares[shares > 1e-9]
    assert vendi_score(chosen) == pytest.approx(math.exp(-(shares @ np.log(shares))), abs=1e-4)
    assert 1 - 1e-6 <= vendi_score(chosen) <= min(k, d) + 1e-6
    if k > 1:
        pairs = cosines[np.triu_indices(k, 1)]
        assert mean_cosine(chosen) == pytest.approx(pairs.mean(), abs=1e-5)


def test_equal_picks_are_worth_one_and_picks_at_right_angles_their_number():
    assert vendi_score(at(30, 30, 30, 30)) == pytest.approx(1, abs=1e-5)
    right = np.eye(7, dtype=np.float32)
    assert vendi_score(right) == pytest.approx(7)
    assert log_det(right) == pytest.approx(0, abs=1e-12)
    assert mean_cosine(right) == pytest.approx(0, abs=1e-12)


def test_vectors_stored_in_16_bits_are_measured_as_directions():
    chosen = drawn(20, 16, 3)
    half = chosen.astype(np.float16)
    assert vendi_score(half) == pytest.approx(vendi_score(chosen), rel=1e-3)
    assert mean_cosine(half) == pytest.approx(mean_cosine(chosen), abs=1e-3)
    assert coverage(half, half) == pytest.approx(1, abs=2e-3)


def test_what_is_not_defined_is_none_and_not_a_number():
    none, one = at(), at(10)
    assert [f(none) for f in (log_det, mean_cosine, vendi_score)] == [None] * 3
    assert mean_cosine(one) is None
    assert (vendi_score(one), log_det(one)) == (pytest.approx(1), pytest.approx(0, abs=1e-6))
    assert facility_location(at(1), none) is None
    assert coverage(none, one) is facility_location(none, one) is None
    assert label_coverage(counts(0, 0), counts(0, 0)) is None


def test_labels_by_hand():
    # Four labels that occur, 100 rows: rare are those with fewer than 12.5.
    corpus = counts(70, 12, 13, 5, 0)
    assert rare_labels(corpus).tolist() == [1, 3]
    assert label_coverage(corpus, counts(9, 0, 1, 0, 0)) == 0.5
    assert rare_class_recall(corpus, counts(9, 0, 1, 0, 0)) == 0
    assert rare_class_recall(corpus, counts(9, 0, 0, 2, 0)) == 0.5
    assert label_coverage(corpus, counts(1, 1, 1, 1, 0)) == 1


def test_exactly_half_an_even_share_is_not_rare_and_a_balanced_corpus_has_nothing_rare():
    assert rare_labels(counts(75, 25)).tolist() == []
    assert rare_labels(counts(76, 24)).tolist() == [1]
    assert rare_class_recall(counts(10, 11, 10), counts(0, 0, 0)) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 99))
def test_more_picks_never_lower_what_was_found(corpus, seed):
    corpus = np.array(corpus)
    rng = np.random.default_rng(seed)
    fewer = rng.integers(0, 2, len(corpus)) * corpus
    more = np.maximum(fewer, rng.integers(0, 2, len(corpus)) * corpus)
    for measure in (label_coverage, rare_class_recall):
        a, b, every = (measure(corpus, chosen) for chosen in (fewer, more, corpus))
        assert (a is None) == (b is None) == (every is None)
        assert a is None or 0 <= a <= b <= every == 1


@pytest.mark.parametrize("ridge", [0.0, 1.0, -0.1, float("nan")])
def test_a_ridge_that_means_nothing_is_refused(ridge):
    with pytest.raises(ValueError, match=f"ridge of {ridge}"):
        log_det(at(0), ridge=ridge)
