from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection import vote_k
from selection.crowd import Crowd, Voters, votes_among
from selection.vote_k import vote_k_picks
from tests.selection.asking import ask
from tests.selection.own_rules import chosen, neighbours, on_circle


def graph_of(vectors, k):
    """The k nearest others of each row, ties to the first, from all cosines."""
    rows = vectors.astype(np.float64)
    cosines = np.round(rows @ rows.T.copy(), 8)
    np.fill_diagonal(cosines, -9)
    return np.argsort(-cosines, axis=1, kind="stable")[:, : min(k, len(vectors) - 1)]


def literal(vectors, k, n_neighbours, *, weights=None):
    """Graph-based vote-k as the paper defines it."""
    graph = graph_of(vectors, n_neighbours)
    weights = np.ones(len(vectors)) if weights is None else weights
    supporters = defaultdict(list)
    for voter, votes in enumerate(graph.tolist()):
        for target in votes:
            supporters[target].append(voter)
    picks, discount = [], np.zeros(len(vectors), dtype=int)
    while len(picks) < k:
        left = [u for u in range(len(vectors)) if u not in picks]
        scores = {
            u: round(
                sum(weights[v] * 10.0 ** -discount[v] for v in supporters[u] if v not in picks), 9
            )
            for u in left
        }
        pick = max(left, key=lambda u: (scores[u], -u))
        picks.append(pick)
        discount[supporters[pick]] += 1
    return picks


def test_a_case_by_hand():
    # Nearest two of 0: 10, 20; of 10: 0 and 20 (a tie of distance, both in); of 20: 10, 0;
    # of 90: 100, 20; of 100: 90, 20. Votes: 0 has 2, 10 has 2, 20 has 4, 90 has 1, 100 has 1.
    # 20 is picked: all its voters now count a tenth, and its own votes for 0 and 10 end. Then
    # 0 and 10 have .1, 90 and 100 have .1: the first by rank.
    vectors = on_circle(0, 10, 20, 90, 100)
    assert chosen("vote-k", vectors, 2, crowd=neighbours(2)).picks.tolist() == [2, 0]
    last = chosen("vote-k", vectors, 2, crowd=neighbours(2), tie_rank=np.arange(5)[::-1])
    assert last.picks.tolist() == [2, 4]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 50),
    k=st.integers(1, 15),
    votes=st.integers(1, 12),
    seed=st.integers(0, 999),
    copies=st.booleans(),
)
def test_the_picks_are_those_of_the_definition(unit_vectors, n, k, votes, seed, copies):
    vectors = unit_vectors(n, 5, seed=seed)
    if copies:
        vectors = vectors[np.arange(n) % max(1, n // 3)]
    picks = chosen("vote-k", vectors, min(k, n), crowd=neighbours(votes)).picks.tolist()
    assert picks == literal(vectors, min(k, n), votes)


def test_votes_count_by_weight(unit_vectors):
    vectors, weights = unit_vectors(40, 5), np.random.default_rng(1).integers(1, 9, 40) / 8
    found = chosen("vote-k", vectors, 8, weights=weights, n_total=40.0, crowd=neighbours(6))
    assert found.picks.tolist() == literal(vectors, 8, 6, weights=weights)


def test_blocks_of_voters_and_points_change_nothing(unit_vectors, monkeypatch):
    vectors = unit_vectors(150, 6)
    whole = chosen("vote-k", vectors, 20, crowd=neighbours(9)).picks.tolist()
    monkeypatch.setattr(vote_k, "_VOTER_BLOCK", 7)
    monkeypatch.setattr(vote_k, "_POINT_BLOCK", 11)
    assert chosen("vote-k", vectors, 20, crowd=neighbours(9)).picks.tolist() == whole


def test_given_rows_count_as_picks_of_those_near_to_them():
    # The given row is among the two nearest of each of the first four: their votes are tenths.
    vectors = on_circle(0, 10, 20, 30, 120, 130, 140)
    plain = chosen("vote-k", vectors, 1, crowd=neighbours(2)).picks.tolist()
    beside = chosen("vote-k", vectors, 1, given=on_circle(15), crowd=neighbours(2)).picks.tolist()
    assert plain == [1]
    assert beside == [4]


def test_many_points_are_voted_on_by_some_of_them(unit_vectors, monkeypatch):
    vectors = unit_vectors(400, 6, n_topics=4, spread=0.3)
    monkeypatch.setattr(vote_k, "VOTERS_MOST", 120)
    found = chosen("vote-k", vectors, 4, crowd=neighbours(60))
    apart = vectors[found.picks] @ vectors[found.picks].T.copy() - np.eye(4)
    assert apart.max() < 0.7


def test_voters_of_the_whole_corpus_give_the_votes_of_the_whole_graph(unit_vectors):
    """With all rows as voters a merge counts what the full graph says of its candidates."""
    vectors, union = unit_vectors(120, 6), np.arange(0, 120, 3)
    own = np.full(120, -1)
    own[union] = np.arange(len(union))
    crowd = Crowd(voters=Voters(vectors, own, None, 15), neighbours=15)
    found = union[vote_k_picks(vectors[union], ask(40, 6, crowd=crowd))]
    allowed = np.isin(np.arange(120), union)
    assert (
        found.tolist()
        == chosen("vote-k", vectors, 6, crowd=neighbours(15), allowed=allowed).picks.tolist()
    )


def test_candidates_outside_a_merge_take_no_votes(unit_vectors):
    vectors = unit_vectors(60, 4)
    inside = np.arange(60) < 20
    own = np.where(inside, np.arange(60), -1)
    voters = Voters(vectors, own, None, 30)
    alone = vote_k_picks(vectors[:20], ask(20, 6, crowd=Crowd(voters=voters, neighbours=3)))
    among = vote_k_picks(
        vectors, ask(60, 6, crowd=Crowd(voters=voters, neighbours=3), allowed=inside)
    )
    assert among.tolist() == alone.tolist()


def test_more_voters_than_scores_can_add_up_are_refused(unit_vectors, monkeypatch):
    monkeypatch.setattr(vote_k, "VOTERS_MOST", 5)
    voters = Voters(unit_vectors(6, 3), np.arange(6))
    with pytest.raises(ValueError, match=r"found 6, wanted at most 5"):
        vote_k_picks(unit_vectors(6, 3), ask(6, 2, crowd=Crowd(voters=voters)))


@pytest.mark.parametrize(
    ("points", "total", "votes"),
    [(1000, 1000, 150), (250, 1000, 38), (10, 1000, 10), (0, 0, 10)],
)
def test_a_part_of_the_corpus_holds_its_part_of_a_neighbourhood(points, total, votes):
    assert votes_among(150, points, total) == votes
    assert votes_among(5, points, total) == 5
