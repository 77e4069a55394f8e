"""The learned map: what it learns where the answer is known, and what its result may depend on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.epr import EprOptions, held_out, mapped, train
from selection.lessons import Lessons, chosen
from selection.stage2 import Pool, Queries, dense

N_TOPICS, N_NOISE = 4, 20


def planted(n, *, seed):
    """Vectors of which 4 numbers say the topic and 20, all together louder, say nothing."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, N_TOPICS, n)
    vectors = np.hstack([np.eye(N_TOPICS)[topics], rng.normal(size=(n, N_NOISE))])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), topics


def nearest(rows, records, *, r=1):
    queries = Queries(rows, np.arange(len(rows), dtype=np.uint64))
    return dense(queries, Pool(records, np.arange(len(records))), r=r).indices


def taught(m=80, n=160, *, seed=0, told=True):
    """Lessons of an LLM that answers right where it is shown the topic; or at random."""
    rng = np.random.default_rng(seed)
    (rows, own), (records, theirs) = planted(m, seed=seed + 1), planted(n, seed=seed + 2)
    near = nearest(rows, records, r=20)
    scores = (theirs[near] == own[:, None]) + 0.01 * rng.normal(size=near.shape)
    if not told:
        scores = rng.normal(size=near.shape)
    rank = np.arange(n)
    best, worst = chosen(near, scores, tie_rank=rank, positives=3, negatives=3)
    open_ = own[:, None] != theirs if told else np.ones((m, n), bool)
    keys = rng.permutation(m).astype(np.uint64)
    return Lessons(rows, records, keys, rank, best, worst, open_), theirs


def test_what_says_nothing_is_learned_to_be_ignored():
    lessons, theirs = taught()
    weights = train(lessons, EprOptions(pull=0.01)).weights
    queries, own = planted(300, seed=9)
    plain = theirs[nearest(queries, lessons.records)[:, 0]] == own
    near = nearest(mapped(queries, weights), mapped(lessons.records, weights))[:, 0]
    learned = theirs[near] == own
    assert plain.mean() < 0.5
    assert learned.mean() > 0.8
    kept, lost = np.abs(weights[:N_TOPICS, :N_TOPICS]), np.abs(weights[N_TOPICS:, N_TOPICS:])
    assert np.diag(kept).mean() > 2 * np.diag(lost).mean()


def test_losses_fall_and_the_held_out_rows_tell_what_helps_from_what_does_not():
    lessons, _ = taught()
    options = EprOptions(pull=0.01)
    seen, unseen = train(lessons, options).losses, held_out(lessons, options)
    assert seen.after < seen.before
    assert unseen.after < unseen.before
    noise, _ = taught(told=False)
    seen, unseen = train(noise, options).losses, held_out(noise, options)
    assert seen.after < seen.before
    assert unseen.after > unseen.before


def test_too_few_rows_are_held_out_from_nothing():
    few, _ = taught(9)
    assert held_out(few) is None


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 1000))
def test_neither_rows_nor_records_in_another_order_change_a_bit(seed):
    lessons, _ = taught(24, 40, seed=seed)
    options = EprOptions(steps=10, batch=7)
    rng = np.random.default_rng(seed)
    rows, records = rng.permutation(24), rng.permutation(40)
    moved = np.append(np.argsort(records), -1)
    mixed = replace(
        lessons[rows],
        records=lessons.records[records],
        tie_rank=lessons.tie_rank[records],
        positives=moved[lessons.positives[rows]],
        negatives=moved[lessons.negatives[rows]],
        open=lessons.open[rows][:, records],
    )
    one, same, other = (train(some, options) for some in (lessons, lessons, mixed))
    np.testing.assert_array_equal(one.weights, same.weights)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.losses == other.losses
    assert held_out(lessons, options) == held_out(mixed, options)


def test_a_strong_pull_leaves_recall_as_it_is():
    lessons, _ = taught()
    weights = train(lessons, EprOptions(pull=1e6)).weights
    np.testing.assert_allclose(weights, np.eye(24), atol=1e-4)
    queries, _ = planted(50, seed=9)
    np.testing.assert_array_equal(
        nearest(mapped(queries, weights), mapped(lessons.records, weights), r=5),
        nearest(queries, lessons.records, r=5),
    )


def test_a_map_of_low_rank_starts_where_the_records_are():
    lessons, _ = taught()
    flat = np.zeros((24, 24), np.float32)
    flat[:5, :5] = np.eye(5)
    rows, records = (
        (some @ flat) / np.linalg.norm(some @ flat, axis=1, keepdims=True)
        for some in (lessons.rows, lessons.records)
    )
    weights = train(
        replace(lessons, rows=rows, records=records), EprOptions(rank=5, pull=1e6)
    ).weights
    assert weights.shape == (5, 24)
    # All that the records have lies in five directions, so five numbers keep every cosine.
    before, after = rows @ records.T, mapped(rows, weights) @ mapped(records, weights).T
    np.testing.assert_allclose(after, before, atol=1e-3)
    assert (np.take_along_axis(weights, np.abs(weights).argmax(1)[:, None], 1) > 0).all()


def test_a_map_is_of_unit_rows_whatever_the_batch(unit_vectors):
    vectors = unit_vectors(40, 24)
    weights = np.random.default_rng(0).normal(size=(7, 24)).astype(np.float32)
    whole = mapped(vectors, weights)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-6)
    wide = vectors.astype(np.float64) @ weights.astype(np.float64).T
    np.testing.assert_allclose(whole, wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=1e-6)
    one = np.concatenate([mapped(vectors[i : i + 1], weights) for i in range(40)])
    np.testing.assert_array_equal(whole, one)
    np.testing.assert_array_equal(mapped(vectors[::-1], weights), whole[::-1])


def test_a_vector_that_the_map_loses_becomes_zero_and_recall_goes_on():
    vectors = np.eye(2, dtype=np.float32)
    weights = np.array([[0, 1]], np.float32)
    found = mapped(vectors, weights)
    np.testing.assert_array_equal(found, [[0], [1]])
    assert nearest(found, found, r=2).tolist() == [[0, 1], [1, 0]]


def test_what_cannot_be_is_refused_with_both_numbers():
    lessons, _ = taught(12, 30)
    with pytest.raises(ValueError, match=r"epr\.rank: found 25, wanted at most d = 24"):
        train(lessons, EprOptions(rank=25))
    with pytest.raises(ValueError, match=r"epr\.vectors: found shape \(12, 24\), wanted \(n, 3\)"):
        mapped(lessons.rows, np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match=r"epr\.weights"):
        mapped(lessons.rows, np.full((24, 24), np.nan, np.float32))
    for name, value in (("temperature", 0), ("pull", np.inf), ("steps", 0), ("rank", 0)):
        with pytest.raises(ValueError, match=rf"epr\.{name}: found {value}"):
            EprOptions(**{name: value})
