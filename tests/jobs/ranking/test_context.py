"""What a query may see, before any method chooses among it."""

import numpy as np
import pytest

from jobs.config.stage2 import Stage2Config
from jobs.ranking.context import Guards, QueryTexts
from selection.stage2 import (
    FOR_ALL,
    PER_QUERY,
    Pool,
    Queries,
    QuerySummary,
    RankOptions,
    top_k_for_all,
)

N, Q, D = 24, 6, 8
# Query i is of group g(i mod 3); records of g0 to g3 in turn, every sixth of none.
RECORD_GROUPS = [None if i % 6 == 5 else f"g{i % 4}" for i in range(N)]
QUERY_GROUPS = [f"g{i % 3}" for i in range(Q - 1)] + [None]


@pytest.fixture
def drawn():
    """Queries and a pool whose nearest records of each query are those of its own group."""
    rng = np.random.default_rng(0)
    centres = {f"g{i}": np.eye(D)[i] for i in range(4)} | {None: np.eye(D)[5]}

    def near(groups):
        rows = np.stack([centres[g] for g in groups]) + 0.1 * rng.standard_normal((len(groups), D))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    vectors = near(RECORD_GROUPS)
    pool = Pool(
        vectors,
        np.arange(N),
        labels=np.arange(N) % 3,
        ground=vectors,
        clusters=np.arange(N) % 4,
    )
    return Queries(near(QUERY_GROUPS), np.arange(Q, dtype=np.uint64)), pool


def guards(**stage2):
    texts = [f"record {i}" for i in range(N)]
    return Guards(Stage2Config(exclude_same_text=False, **stage2), texts, RECORD_GROUPS)


def asked(groups=QUERY_GROUPS):
    return QueryTexts([f"query {i}" for i in range(Q)], [None] * Q, groups=groups)


def own_group(picks, query):
    return [i for i in picks if i >= 0 and RECORD_GROUPS[i] == QUERY_GROUPS[query] is not None]


def test_a_query_sees_no_record_of_its_group_and_every_other(drawn):
    allowed = guards()(drawn[0], asked(), drawn[1])
    wanted = [[mine is None or mine != other for other in RECORD_GROUPS] for mine in QUERY_GROUPS]
    assert allowed.tolist() == wanted
    assert not allowed.all()


@pytest.mark.parametrize("method", sorted(PER_QUERY))
def test_no_method_shows_a_query_its_own_group_though_it_is_nearest(drawn, method):
    queries, pool = drawn
    allowed = guards()(queries, asked(), pool)
    ranking = PER_QUERY[method](queries, pool, options=RankOptions(k=5), allowed=allowed)
    assert ranking.n_valid.tolist() == [5] * Q
    assert [own_group(row, i) for i, row in enumerate(ranking.indices)] == [[]] * Q


@pytest.mark.parametrize("method", sorted(FOR_ALL))
def test_of_one_set_for_all_the_next_best_steps_in_where_a_query_must_not_look(drawn, method):
    queries, pool = drawn
    summary = QuerySummary(pool.ground, D)
    summary.add(queries.vectors)
    options = RankOptions(k=5, lam=1.0)
    scores = FOR_ALL[method](
        summary, pool.vectors, options=options, tie_rank=pool.tie_rank, n_total=N
    )
    fields = {"k": 12, "q": Q, "tie_rank": pool.tie_rank}
    free = top_k_for_all(scores, allowed=None, **fields).indices
    order = top_k_for_all(scores, allowed=None, **(fields | {"k": N})).indices[0].tolist()
    shown = top_k_for_all(
        scores, allowed=guards()(queries, asked(), pool), **fields
    ).indices.tolist()
    assert any(own_group(row, i) for i, row in enumerate(free))
    for i, row in enumerate(shown):
        assert row == [j for j in order if not own_group([j], i)][:12]


def test_where_the_group_leaves_too_few_a_query_gets_those_that_are_left(drawn):
    queries, pool = drawn
    allowed = guards()(queries, asked(), pool)
    ranking = PER_QUERY["knn"](queries, pool, options=RankOptions(k=N), allowed=allowed)
    assert ranking.n_valid.tolist() == allowed.sum(axis=1).tolist()
    assert (ranking.n_valid[:-1] < N).all()


def test_without_groups_on_both_sides_or_switched_off_nothing_is_ruled_out(drawn):
    queries, pool = drawn
    plain = Stage2Config(exclude_same_text=False)
    assert guards(exclude_same_group=False)(queries, asked(), pool) is None
    assert guards()(queries, asked(None), pool) is None
    assert Guards(plain, ["x"] * N, [None] * N)(queries, asked(), pool) is None
    assert guards()(queries, asked([None] * Q), pool).all()
