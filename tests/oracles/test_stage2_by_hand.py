"""Stage 2 on q = (1, 0) and four candidates: every figure by hand."""

import numpy as np
import pytest

from selection.stage2 import FOR_ALL, PER_QUERY, Pool, Queries, QuerySummary, RankOptions

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
