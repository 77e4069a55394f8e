import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.objective import TIE_TOLERANCE
from selection.ranking import RankOptions, full_order, query_chunks, top_k


def literal_order(scores, allowed, tie_rank, k):
    left, order = list(np.flatnonzero(allowed)), []
    while left and len(order) < k:
        best = max(scores[i] for i in left)
        least = best - TIE_TOLERANCE * abs(best) - TIE_TOLERANCE
        tied = [i for i in left if scores[i] >= least]
        pick = min(tied, key=lambda i: tie_rank[i])
        order.append(int(pick))
        left.remove(pick)
    return order


SCORES = st.lists(
    st.sampled_from([0.0, 0.5, 0.5 + 4e-7, 0.5 + 8e-7, 0.5 + 3e-6, -2.0, 1e4, 1e4 + 5e-3, -np.inf])
    | st.floats(-3, 3),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=150)
@given(scores=SCORES, k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_top_k_is_its_definition_ties_included(scores, k, seed):
    rng = np.random.default_rng(seed)
    scores = np.array(scores)
    allowed = rng.random(len(scores)) < 0.7
    rank = rng.permutation(len(scores))
    with np.errstate(invalid="ignore"):
        ranking = top_k(scores[None], k=k, allowed=allowed[None], tie_rank=rank)
        expected = literal_order(scores, allowed, rank, k)
    n_valid = ranking.n_valid[0]
    assert n_valid == len(expected) == min(k, allowed.sum())
    assert ranking.indices[0, :n_valid].tolist() == expected
    np.testing.assert_array_equal(ranking.scores[0, :n_valid], scores[expected])
    assert (ranking.indices[0, n_valid:] == -1).all()
    assert np.isnan(ranking.scores[0, n_valid:]).all()


@settings(deadline=None, max_examples=100)
@given(scores=SCORES, seed=st.integers(0, 1000))
def test_the_full_order_is_top_k_of_everything(scores, seed):
    rank = np.random.default_rng(seed).permutation(len(scores))
    scores = np.array(scores)
    everything = top_k(scores[None], k=len(scores), allowed=None, tie_rank=rank)
    assert full_order(scores, rank).tolist() == everything.indices[0].tolist()


def test_nothing_to_rank():
    none = top_k(np.empty((3, 0)), k=2, allowed=None, tie_rank=np.empty(0, dtype=np.int64))
    assert none.n_valid.tolist() == [0, 0, 0]
    assert (none.indices == -1).all()
    assert top_k(np.empty((0, 4)), k=2, allowed=None, tie_rank=np.arange(4)).indices.shape == (0, 2)


@pytest.mark.parametrize(
    ("n", "width"), [(0, 10), (1, 10), (5000, 10), (70, 1 << 21), (3, 1 << 30)]
)
def test_chunks_cover_every_query_once_in_bounded_memory(n, width):
    chunks = list(query_chunks(n, width))
    assert [i for chunk in chunks for i in range(chunk.start, chunk.stop)] == list(range(n))
    assert all((c.stop - c.start) * width <= max(width, 1 << 22) for c in chunks)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "found k 0"),
        ({"k": 1, "recall": 0}, "recall 0"),
        ({"k": 1, "mmr_lambda": 1.5}, "mmr_lambda 1.5"),
        ({"k": 1, "ridge": 1.0}, "ridge: found 1.0"),
        ({"k": 1, "lam": -1.0}, "lam: found -1.0"),
    ],
)
def test_impossible_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        RankOptions(**fields)
