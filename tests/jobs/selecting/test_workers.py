"""Coverage sums over actors: equal to one process, and to themselves after an actor is lost."""

import numpy as np
import pytest

from jobs.config.cluster import WorkersConfig
from jobs.errors import ClusterError, DataError, InvariantError
from jobs.ledger import Ledger
from jobs.selecting import workers as crew_module
from jobs.selecting.actor import Ground
from jobs.selecting.oracle import oracles
from jobs.selecting.workers import MAX_RESTARTS, Workers
from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import lazy_greedy
from selection.objective import Objective
from tests.jobs.selecting.embedded_parts import embed_part, row_part, unit_rows
from tests.selection.asking import ask

pytestmark = pytest.mark.ray
SIZES = (40, 0, 25, 60)
GIVEN = unit_rows(2, 77)
TWO = {"all": Ground(), "screen": Ground(rows={0: 7, 1: 0, 2: 4, 3: 9}, seed=3)}


def ids_of(p):
    return [f"{p}-{i:03d}" for i in range(SIZES[p])]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, embedded_ray):
    """Four partitions on disk, one of them empty: folder, vectors' markers, rows' markers."""
    folder = str(tmp_path_factory.mktemp("corpus"))
    ledger, parts, rows = Ledger(folder), {}, {}
    for p, n in enumerate(SIZES):
        parts[p] = [embed_part(ledger, str(p), ids_of(p), unit_rows(n, p)).as_dict()]
        weights = [1.0 + i % 3 for i in range(n)]
        rows[p] = [row_part(ledger, str(p), ids_of(p), weight=weights).as_dict()]
    return folder, parts, rows


def start(corpus, n_actors):
    out, parts, rows = corpus
    return Workers(out, parts, resources=WorkersConfig(cpus=0.25), n_actors=n_actors, rows=rows)


@pytest.fixture(scope="module")
def crew(corpus):
    """Two actors that no test harms: starting one takes seconds."""
    crew = start(corpus, 2)
    yield crew
    crew.stop()


@pytest.fixture
def workers(corpus):
    """Starts actors that a test may kill."""
    started = []

    def _start(n_actors):
        started.append(start(corpus, n_actors))
        return started[-1]

    yield _start
    for one in started:
        one.stop()


def pick(oracle, candidates, k=12):
    request = ask(len(candidates), k, Objective(lam=2.0), n_total=sum(SIZES), given=GIVEN)
    return lazy_greedy(oracle, candidates, request)


def pick_locally(candidates):
    blocks = [unit_rows(n, p) for p, n in enumerate(SIZES)]
    return pick(LocalCoverage([CoverageShard(block) for block in blocks], candidates), candidates)


def test_any_number_of_actors_gives_the_sums_of_one_process(crew, workers):
    candidates = unit_rows(30, 9)
    here = pick_locally(candidates)
    for some in (crew, workers(1), workers(4)):
        there = pick(oracles(some, candidates)["all"], candidates)
        assert there.picks.tolist() == here.picks.tolist()
        assert there.objective.tolist() == here.objective.tolist()
        assert there.n_covered.tolist() == here.n_covered.tolist()


def killing(crew, at):
    """Lets an actor die before the calls of these numbers; gives the list of calls."""
    import ray

    real, calls = crew._everywhere, []

    def _everywhere(method, *args):
        calls.append(method)
        if len(calls) in at:
            ray.kill(crew._actors[len(calls) % len(crew._actors)])
        return real(method, *args)

    crew._everywhere = _everywhere
    return calls


def test_a_lost_actor_is_replaced_and_the_picks_are_the_same(workers):
    candidates = unit_rows(30, 9)
    expected = pick_locally(candidates)
    crew = workers(2)
    oracle = oracles(crew, candidates)["all"]
    calls = killing(crew, (3, 8, 15))
    disturbed = pick(oracle, candidates)
    assert len(calls) > 15
    assert disturbed.picks.tolist() == expected.picks.tolist()
    assert disturbed.objective.tolist() == expected.objective.tolist()


def test_a_lost_actor_gets_the_picks_of_every_ground_back(workers):
    import ray

    candidates, some = unit_rows(30, 9), np.arange(30, dtype=np.int64)
    crew = workers(1)
    both = oracles(crew, candidates, TWO)
    both["screen"].cover_with(GIVEN)
    for index in (4, 9):
        both["all"].add(index)
    both["screen"].add_many(np.array([1, 2], np.int64))
    before = {name: one.gains(some).tolist() for name, one in both.items()}
    ray.kill(crew._actors[0])
    assert {name: one.gains(some).tolist() for name, one in both.items()} == before
    both["screen"].reset()
    fresh = both["screen"].gains(some).tolist()
    ray.kill(crew._actors[0])
    assert both["screen"].gains(some).tolist() == fresh != before["screen"]
    assert both["all"].gains(some).tolist() == before["all"]


def test_an_actor_whose_node_is_gone_starts_beside_another(workers, monkeypatch):
    import ray

    candidates, cpus = unit_rows(30, 9), []
    expected = pick_locally(candidates)
    crew = workers(2)
    oracle = oracles(crew, candidates)["all"]
    # As on a cluster that has lost a node: nothing starts in time, and one place is left for two.
    monkeypatch.setattr(crew_module, "ROOM_TIMEOUT_S", 0.0)
    monkeypatch.setattr(crew_module, "n_workers", lambda *_: 1)
    real = crew._new

    def note(number, **options):
        cpus.append(options.get("cpus"))
        return real(number, **options)

    monkeypatch.setattr(crew, "_new", note)
    ray.kill(crew._actors[0])
    assert pick(oracle, candidates).picks.tolist() == expected.picks.tolist()
    assert cpus == [None, 0]


def test_an_actor_that_always_dies_ends_with_a_cluster_error(workers):
    import ray

    crew = workers(1)
    oracle = oracles(crew, unit_rows(5, 1))["all"]
    real = crew._revive

    def doomed(number, *, starting):
        real(number, starting=starting)
        ray.kill(crew._actors[number])

    crew._revive = doomed
    ray.kill(crew._actors[0])
    with pytest.raises(ClusterError, match=rf"died {MAX_RESTARTS + 1} times"):
        oracle.column_sum()


def test_an_oracle_knows_its_rows_weight_members_and_points(crew):
    grounds = TWO | {"weighted": Ground(weighted=True)}
    found = oracles(crew, unit_rows(6, 9), grounds)
    assert (found["all"].n_points, found["all"].total_weight) == (125, 125.0)
    weight = sum(1.0 + i % 3 for n in SIZES for i in range(n))
    assert (found["weighted"].n_points, found["weighted"].total_weight) == (125, weight)
    assert (found["screen"].n_points, found["screen"].total_weight) == (20, 20.0)
    everybody = [row_id for p in range(4) for row_id in ids_of(p)]
    members = found["screen"].members(["elsewhere", *everybody])
    assert not members[0]
    assert members.sum() == 20
    ids, vectors, weights = found["screen"].points()
    assert ids.to_pylist() == [everybody[i] for i in np.flatnonzero(members[1:])]
    everything = np.concatenate([unit_rows(n, p) for p, n in enumerate(SIZES)])
    assert vectors.tolist() == everything[members[1:]].tolist()
    assert weights is None
    assert len(found["weighted"].points()[2]) == 125


def test_moments_and_explicit_vectors_are_summed_over_all_partitions(crew):
    candidates = unit_rows(6, 9)
    oracle = oracles(crew, candidates)["all"]
    whole = LocalCoverage([CoverageShard(unit_rows(n, p)) for p, n in enumerate(SIZES)], candidates)
    indices = np.array([4, 0], np.int64)
    for here, there in zip(oracle.moments(indices), whole.moments(indices), strict=True):
        assert here.tolist() == there.tolist()
    assert oracle.gains_of(candidates[indices]).tolist() == whole.gains(indices).tolist()


def test_rows_are_found_and_blocks_fetched_wherever_they_live(crew):
    found = crew.find(["3-059", "nowhere", "0-000"])
    assert found.partition.tolist() == [3, -1, 0]
    assert found.there.tolist() == [True, False, True]
    assert found.vectors[0].tolist() == unit_rows(60, 3)[59].tolist()
    assert not found.vectors[1].any()
    assert crew.block(2, 10, 12).tolist() == unit_rows(25, 2)[10:12].tolist()


def test_an_oracle_of_earlier_candidates_is_refused(crew):
    old = oracles(crew, unit_rows(6, 9))["all"]
    oracles(crew, unit_rows(6, 8))
    with pytest.raises(InvariantError, match="other candidates"):
        old.gains(np.array([0], np.int64))


def complain(ledger, parts, rows):
    raise DataError(f"{parts[0].table}: {len(rows)} rows")


def test_an_error_of_work_on_a_partition_arrives_as_what_it_is(crew):
    with pytest.raises(DataError, match=r"^r/0/part\.parquet: 40 rows$"):
        crew.each(complain)


def count(ledger, parts, rows, factor, own):
    return factor * len(rows) + own


def test_work_on_every_partition_comes_back_in_their_order(crew):
    found = crew.each(count, 10, own={3: 3, 1: 1, 2: 2, 0: 0})
    assert list(found.items()) == [(0, 400), (1, 1), (2, 252), (3, 603)]
