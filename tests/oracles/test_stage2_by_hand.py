"""Stage 2 on q = (1, 0) and four candidates: every figure by hand."""

import numpy as np
import pytest

from selection.stage2 import (
    FOR_ALL,
    PER_QUERY,
    Pool,
    Queries,
    QuerySummary,
    RankOptions,
    Recalled,
)

Q = np.array([(1, 0)], dtype=np.float32)
POOL = np.array([(0.8, 0.6), (0.6, 0.8), (0, 1), (-1, 0)], dtype=np.float32)
COVERAGE = np.array([1.36, 1.76, 2.20, 2.00])
LOG_DET = {
    0.0: np.array([-1.021651, -0.446287, 0.0, -np.inf]),
    0.1: np.array([-0.730641, -0.344746, 0.0, -1.660731]),
}


def scores_per_query(name, *, lam=1.0, ridge=0.0):
    ranking = PER_QUERY[name](
        Queries(Q, np.zeros(1, dtype=np.uint64)),
        Pool(POOL, np.arange(4), ground=POOL),
        options=RankOptions(k=4, lam=lam, ridge=ridge),
    )
    assert sorted(ranking.indices[0].tolist()) == [0, 1, 2, 3]
    scores = np.empty(4)
    scores[ranking.indices[0]] = ranking.scores[0]
    return scores, ranking.indices[0].tolist()


def scores_for_all(name, *, ridge):
    summary = QuerySummary(POOL, 2)
    summary.add(Q)
    options = RankOptions(k=4, ridge=ridge)
    return FOR_ALL[name](summary, POOL, options=options, tie_rank=np.arange(4))


def test_coverage_gains_of_s3():
    scores, order = scores_per_query("s3")
    np.testing.assert_allclose(scores, COVERAGE, atol=1e-5)
    assert order == [2, 3, 1, 0]
    np.testing.assert_allclose(scores_for_all("s3", ridge=0.0), COVERAGE, atol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_equation_12_term_by_term(ridge):
    scores, order = scores_per_query("dual-div", ridge=ridge)
    np.testing.assert_allclose(scores, COVERAGE + LOG_DET[ridge], atol=1e-5)
    # Read literally, the equation puts the candidate orthogonal to the query first.
    assert order[0] == 2
    np.testing.assert_allclose(
        scores_for_all("dual-div", ridge=ridge), COVERAGE + LOG_DET[ridge], atol=1e-5
    )


def test_similar_is_the_cosine_to_a_single_query():
    np.testing.assert_allclose(scores_for_all("similar", ridge=0.0), [0.8, 0.6, 0, -1], atol=1e-6)


def alone(name, candidate, **options):
    """The score of the only candidate that is recalled."""
    own = options.pop("query_in_ground", False)
    ranking = PER_QUERY[name](
        Queries(Q, np.zeros(1, dtype=np.uint64)),
        Pool(POOL, np.arange(4), ground=POOL, query_in_ground=own),
        options=RankOptions(k=1, **options),
        recalled=Recalled(np.array([[candidate]]), np.ones((1, 1))),
    )
    return ranking.scores[0, 0]


def picks(name, **options):
    ranking = PER_QUERY[name](
        Queries(Q, np.zeros(1, dtype=np.uint64)),
        Pool(POOL, np.arange(4), ground=POOL),
        options=RankOptions(**options),
    )
    return ranking.indices[0].tolist()


# C({x}) - C(x | q) = sum_i min(w_ix, w_iq): 1.76 - 1.36, 2.16 - 1.76, 2.4 - 2.2, -0.4 - 2.
SHARED = np.array([0.4, 0.4, 0.2, -2.4])


@pytest.mark.parametrize(("ridge", "n"), [(0.0, 3), (0.1, 4)])
def test_what_one_candidate_shares_is_its_value_less_its_gain(ridge, n):
    for candidate in range(n):
        # Coverage of the four points counts from -1; the log-determinant part is minus the gain.
        expected = SHARED[candidate] + 4 - LOG_DET[ridge][candidate]
        found = alone("mutual-information", candidate, ridge=ridge)
        assert found == pytest.approx(expected, abs=1e-5)
        own = alone("mutual-information", candidate, ridge=ridge, query_in_ground=True)
        cosine = float(POOL[candidate] @ Q[0])
        assert own == pytest.approx(expected + cosine + 1, abs=1e-5)


def test_the_query_among_the_ground_points_adds_nothing_to_a_gain():
    assert alone("s3", 2, query_in_ground=True) == pytest.approx(2.20, abs=1e-5)


def test_the_lowest_half_of_the_gains_is_the_ancestors():
    # Gains 1.36, 1.76 | 2.00, 2.20: the first two, most similar first.
    assert picks("s3-lowest", k=2, recall=4) == [0, 1]


def test_knn_and_mmr():
    assert picks("knn", k=4) == [0, 1, 2, 3]
    # After 0, at one half: .3 - .48, 0 - .3, -.5 + .4; after 3: -.18, -.3.
    assert picks("mmr", k=3) == [0, 3, 1]
