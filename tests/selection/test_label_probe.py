import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from selection.label_probe import LEAST, RIDGE, TEMPERATURE, fit, log_probabilities
from selection.query_parts import checked
from selection.stage2 import PER_QUERY, Pool, Queries, RankOptions, Recalled


def keys(n):
    return np.arange(n).astype(np.uint64)


def pool_of(vectors, labels):
    return Pool(vectors, np.arange(len(vectors)), labels=np.asarray(labels, np.int64))


def probe(queries, pool, *, allowed=None, recalled=None, name="probe", **options):
    return PER_QUERY[name](
        Queries(queries, keys(len(queries))),
        pool,
        options=RankOptions(**{"k": 4, **options}),
        allowed=allowed,
        recalled=recalled,
    )


def guesses(queries, pool, allowed=None):
    part, pool = checked(Queries(queries, keys(len(queries))), pool, allowed, None)
    return log_probabilities(fit(pool), part)


def outputs_of_ridge(vectors, codes, weights, queries, n_labels):
    """scikit-learn's ridge regression with a constant that is not penalised."""
    targets = (codes[:, None] == np.arange(n_labels)).astype(float)
    model = Ridge(alpha=RIDGE, solver="cholesky").fit(vectors, targets, sample_weight=weights)
    return model.predict(queries.astype(np.float64)).reshape(len(queries), n_labels)


def softmax(outputs):
    risen = np.exp(outputs / TEMPERATURE - (outputs / TEMPERATURE).max(axis=1, keepdims=True))
    return risen / risen.sum(axis=1, keepdims=True)


def balanced(codes, n_labels):
    return (len(codes) / (n_labels * np.bincount(codes, minlength=n_labels)))[codes]


@pytest.mark.parametrize("n", [6, 40])
def test_it_is_the_ridge_regression_of_an_established_library(unit_vectors, n):
    vectors, queries = unit_vectors(n, 9, seed=1), unit_vectors(5, 9, seed=2)
    codes = np.arange(n) % 3 // np.where(np.arange(n) < 6, 1, 2)
    n_labels = codes.max() + 1
    wide = vectors.astype(np.float64)
    shares = softmax(outputs_of_ridge(wide, codes, balanced(codes, n_labels), queries, n_labels))
    found = guesses(queries, pool_of(vectors, codes))
    np.testing.assert_allclose(
        found[:, :n_labels], np.log(np.maximum(shares, LEAST)), rtol=1e-8, atol=1e-8
    )
    assert (found[:, n_labels] == np.log(LEAST)).all()


def test_two_opposite_records_by_hand():
    """Rows (1, 0) and (-1, 0): no constant, output .5 +- .5 * 2 / (2 + ridge) * x."""
    pool = pool_of(np.array([[1, 0], [-1, 0]], np.float32), [0, 1])
    query = np.array([[0.6, 0.8]], np.float32)
    slope = 0.5 * 2 / (2 + RIDGE)
    odds = np.exp(2 * slope * 0.6 / TEMPERATURE)
    found = np.exp(guesses(query, pool))[0]
    np.testing.assert_allclose(found, [odds / (1 + odds), 1 / (1 + odds), LEAST], rtol=1e-5)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 500), n=st.integers(4, 30), d=st.sampled_from([3, 8, 40]))
def test_a_query_learns_nothing_from_what_it_must_not_see(unit_vectors, seed, n, d):
    rng = np.random.default_rng(seed)
    vectors, queries = unit_vectors(n, d, seed=seed), unit_vectors(4, d, seed=seed + 1)
    codes = np.arange(n) % 3
    allowed = rng.random((4, n)) < 0.6
    allowed[0] = True
    allowed[1] = codes != 1
    found = guesses(queries, pool_of(vectors, codes), allowed)
    weights = balanced(codes, 3)
    for query in range(4):
        seen = allowed[query]
        if not seen.any():
            assert (found[query] == np.log(LEAST)).all()
            continue
        outputs = outputs_of_ridge(
            vectors[seen].astype(np.float64), codes[seen], weights[seen], queries[[query]], 3
        )
        left = np.isin(np.arange(3), codes[seen])
        shares = np.zeros(3)
        shares[left] = softmax(outputs[:, left])[0]
        np.testing.assert_allclose(
            found[query, :3], np.log(np.maximum(shares, LEAST)), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("d", [5, 300])
def test_picks_are_the_largest_sums_of_cosine_and_weighted_log_probability(unit_vectors, d):
    vectors, queries = unit_vectors(80, d, seed=1), unit_vectors(20, d, seed=2)
    codes = np.arange(80) % 7
    codes[::11] = -1
    allowed = np.random.default_rng(0).random((20, 80)) < 0.9
    pool = pool_of(vectors, codes)
    found = probe(queries, pool, allowed=allowed, probe_weight=0.3)
    told = guesses(queries, pool, allowed)
    own = np.where(codes < 0, 7, codes)
    sums = queries.astype(np.float64) @ vectors.T.astype(np.float64) + 0.3 * told[:, own]
    sums[~allowed] = -np.inf
    np.testing.assert_array_equal(found.indices, np.argsort(-sums, axis=1)[:, :4])
    np.testing.assert_allclose(found.scores, -np.sort(-sums, axis=1)[:, :4], atol=1e-6)


def test_without_a_weight_or_with_one_label_it_is_knn(unit_vectors):
    vectors, queries = unit_vectors(50, 8, seed=1), unit_vectors(9, 8, seed=2)
    near = probe(queries, pool_of(vectors, np.arange(50) % 3), name="knn").indices
    for labels, weight in ((np.arange(50) % 3, 0.0), (np.zeros(50), 0.2), (np.full(50, -1), 0.2)):
        found = probe(queries, pool_of(vectors, labels), probe_weight=weight)
        np.testing.assert_array_equal(found.indices, near)


def test_recalled_candidates_are_weighed_by_the_relevance_they_came_with(unit_vectors):
    vectors, queries = unit_vectors(30, 8, seed=1), unit_vectors(6, 8, seed=2)
    pool = pool_of(vectors, np.arange(30) % 3)
    indices = np.stack([np.random.default_rng(i).permutation(30)[:12] for i in range(6)])
    relevance = np.random.default_rng(9).random((6, 12))
    found = probe(queries, pool, recalled=Recalled(indices, relevance))
    sums = relevance + 0.2 * np.take_along_axis(guesses(queries, pool), indices % 3, axis=1)
    order = np.argsort(-sums, axis=1)[:, :4]
    np.testing.assert_array_equal(found.indices, np.take_along_axis(indices, order, axis=1))
    np.testing.assert_allclose(found.scores, np.take_along_axis(sums, order, axis=1))


def test_a_rare_label_weighs_as_much_as_a_frequent_one():
    """Between the means of 30 records of one label and 3 of another, both are as probable."""
    rng = np.random.default_rng(0)
    left, right = np.eye(6)[0], np.eye(6)[1]
    rows = np.concatenate([left + 1e-3 * rng.normal(size=(30, 6)), np.tile(right, (3, 1))])
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    between = ((left + right) / np.sqrt(2)).astype(np.float32)[None]
    shares = np.exp(guesses(between, pool_of(vectors, [0] * 30 + [1] * 3)))[0]
    assert shares[:2] == pytest.approx([0.5, 0.5], abs=0.01)
