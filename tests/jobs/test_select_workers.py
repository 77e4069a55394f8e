"""Coverage sums over actors: equal to one process, and to themselves after an actor is lost."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.config_schema import WorkersConfig
from jobs.errors import ClusterError
from jobs.ledger import Ledger, Unit
from jobs.select_workers import MAX_RESTARTS, ActorCoverage, Workers
from jobs.vectors import to_lists, vector_schema
from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import lazy_greedy
from selection.objective import Objective

pytestmark = pytest.mark.ray
DIMENSION = 8


def unit_rows(n, seed):
    rows = np.random.default_rng(seed).standard_normal((n, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def corpus(tmp_path, embedded_ray):
    """Four partitions on disk, one of them empty; their vectors by partition."""
    ledger, markers, blocks = Ledger(str(tmp_path)), {}, []
    for p, n in enumerate((40, 0, 25, 60)):
        vectors = unit_rows(n, p)
        table = pa.table(
            [
                pa.array([f"{p}-{i:03d}" for i in range(n)], pa.string()),
                to_lists(vectors, "float32"),
                pa.array(np.ones(n, np.int32)),
                pa.array([False] * n, pa.bool_()),
                pa.array(["ok"] * n, pa.string()),
            ],
            schema=vector_schema(DIMENSION, "float32"),
        )
        markers[p] = [ledger.commit(Unit(f"e/{p}", "part", str(p)), table).as_dict()]
        blocks.append(vectors)
    return str(tmp_path), markers, blocks


@pytest.fixture
def workers(corpus):
    started = []

    def _start(n_actors):
        workers = Workers(
            corpus[0], corpus[1], resources=WorkersConfig(cpus=0.5), n_actors=n_actors
        )
        started.append(workers)
        return workers

    yield _start
    for one in started:
        one.stop()


def pick(oracle, candidates, k=12):
    return lazy_greedy(
        oracle,
        candidates,
        k=k,
        objective=Objective(lam=2.0),
        tie_rank=np.arange(len(candidates), dtype=np.int64),
    )


@pytest.mark.parametrize("n_actors", [1, 2, 4])
def test_any_number_of_actors_gives_the_sums_of_one_process(corpus, workers, n_actors):
    candidates = unit_rows(30, 9)
    local = LocalCoverage([CoverageShard(block) for block in corpus[2]], candidates)
    here = pick(local, candidates)
    there = pick(ActorCoverage(workers(n_actors), candidates), candidates)
    assert there.picks.tolist() == here.picks.tolist()
    assert there.objective.tolist() == here.objective.tolist()
    assert there.n_covered.tolist() == here.n_covered.tolist()


def test_a_lost_actor_is_replaced_and_the_picks_are_the_same(corpus, workers):
    import ray

    candidates = unit_rows(30, 9)
    local = LocalCoverage([CoverageShard(block) for block in corpus[2]], candidates)
    expected = pick(local, candidates)
    crew = workers(2)
    oracle = ActorCoverage(crew, candidates)
    real, calls = crew.everywhere, []

    def killing(method, *args):
        calls.append(method)
        if len(calls) in (4, 9, 15):
            ray.kill(crew._actors[len(calls) % 2])
        return real(method, *args)

    crew.everywhere = killing
    disturbed = pick(oracle, candidates)
    assert len(calls) > 15
    assert disturbed.picks.tolist() == expected.picks.tolist()
    assert disturbed.objective.tolist() == expected.objective.tolist()


def test_an_actor_that_always_dies_ends_with_a_cluster_error(corpus, workers):
    import ray

    crew = workers(1)
    oracle = ActorCoverage(crew, unit_rows(5, 1))
    real = crew._revive

    def doomed(number, *, starting):
        real(number, starting=starting)
        ray.kill(crew._actors[number])

    crew._revive = doomed
    ray.kill(crew._actors[0])
    with pytest.raises(ClusterError, match=rf"died {MAX_RESTARTS + 1} times"):
        oracle.column_sum()
