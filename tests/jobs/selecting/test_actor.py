"""One actor's partitions and grounds, called without Ray: against sums over the same rows here."""

import numpy as np
import pyarrow as pa
import pytest

from jobs.errors import DataError
from jobs.ledger import Ledger
from jobs.selecting.actor import Failure, Ground, SelectWorker
from jobs.selecting.mapped import map_vectors
from jobs.vectors import drawn, random_keys
from selection.coverage import CoverageShard
from tests.jobs.selecting.embedded_parts import embed_part, row_part, unit_rows

SIZES = {0: 40, 1: 0, 2: 25}
WEIGHTS = {p: np.random.default_rng(p).integers(1, 5, n).astype(float) for p, n in SIZES.items()}


def ids_of(p):
    return [f"{p}-{i:03d}" for i in range(SIZES[p])]


@pytest.fixture
def tree(tmp_path):
    ledger, parts, rows = Ledger(str(tmp_path)), {}, {}
    for p, n in SIZES.items():
        parts[p] = [embed_part(ledger, str(p), ids_of(p), unit_rows(n, p)).as_dict()]
        rows[p] = [row_part(ledger, str(p), ids_of(p), weight=WEIGHTS[p].tolist()).as_dict()]
    return str(tmp_path), parts, rows


@pytest.fixture
def worker(tree):
    return SelectWorker(tree[0], tree[1], rows=tree[2])


CANDIDATES = unit_rows(12, 9)
PICKS = np.array([3, 1], np.int64)
SOME = np.array([5, 0, 7], np.int64)


def test_sums_of_every_partition_are_those_of_its_own_shard(worker):
    facts = worker.start(CANDIDATES, {"all": Ground()})
    assert facts == {p: {"all": (n, float(n))} for p, n in SIZES.items()}
    for p, n in SIZES.items():
        shard = CoverageShard(unit_rows(n, p))
        worker.reset("all")
        assert worker.column_sum("all")[p].tolist() == shard.column_sum().tolist()
        assert (
            worker.add_many("all", PICKS)[p].tolist() == shard.add_many(CANDIDATES[PICKS]).tolist()
        )
        assert worker.gains("all", SOME)[p].tolist() == shard.gains(CANDIDATES[SOME]).tolist()
        assert worker.n_covered("all", 2)[p].tolist() == shard.n_covered(2).tolist()
        here, there = worker.moments("all", SOME)[p], shard.moments(CANDIDATES[SOME])
        assert [one.tolist() for one in here] == [one.tolist() for one in there]
        assert worker.gains_of("all", CANDIDATES)[p].tolist() == shard.gains(CANDIDATES).tolist()


def test_a_sample_holds_the_rows_with_the_smallest_keys_of_its_own_seed(worker):
    ground = Ground(rows={0: 6, 2: 3}, seed=4)
    worker.start(CANDIDATES, {"screen": ground, "verify": Ground(rows={0: 6, 2: 3}, seed=5)})
    for p, size in ((0, 6), (1, 0), (2, 3)):
        chosen = drawn(random_keys(ids_of(p), 4), size)
        ids, vectors, weights = worker.points("screen")[p]
        assert ids.to_pylist() == [ids_of(p)[i] for i in chosen]
        assert vectors.tolist() == unit_rows(SIZES[p], p)[chosen].tolist()
        assert weights is None
        shard = CoverageShard(vectors)
        assert worker.gains("screen", SOME)[p].tolist() == shard.gains(CANDIDATES[SOME]).tolist()
    members = {
        p: set(worker.members(name, ids_of(0))[0]) for p, name in ((4, "screen"), (5, "verify"))
    }
    assert len(members[4]) == len(members[5]) == 6
    assert members[4] != members[5]


def test_members_are_places_in_the_ids_that_were_asked_for(worker):
    worker.start(CANDIDATES, {"all": Ground(), "screen": Ground(rows={0: 6, 2: 3}, seed=4)})
    chosen = drawn(random_keys(ids_of(0), 4), 6)
    asked = ["elsewhere", ids_of(0)[chosen[2]], ids_of(2)[0], ids_of(0)[chosen[0]]]
    assert worker.members("screen", asked)[0].tolist() == [1, 3]
    assert worker.members("all", asked)[2].tolist() == [2]


def test_a_weighted_ground_counts_rows_by_their_weight(worker):
    ground = Ground(rows={0: 10, 1: 0, 2: 10}, seed=1, weighted=True)
    facts = worker.start(CANDIDATES, {"all": Ground(weighted=True), "sample": ground})
    for p, n in SIZES.items():
        shard = CoverageShard(unit_rows(n, p), weights=WEIGHTS[p])
        assert facts[p]["all"] == (n, WEIGHTS[p].sum())
        assert worker.gains("all", SOME)[p].tolist() == shard.gains(CANDIDATES[SOME]).tolist()
        chosen = drawn(random_keys(ids_of(p), 1), ground.rows[p])
        assert worker.points("sample")[p][2].tolist() == WEIGHTS[p][chosen].tolist()


def test_grounds_keep_their_picks_apart(worker):
    grounds = {"all": Ground(), "screen": Ground(rows={0: 6, 2: 3})}
    worker.start(CANDIDATES, grounds)
    before = worker.gains("screen", SOME)
    worker.add_many("all", PICKS)
    assert worker.gains("screen", SOME)[0].tolist() == before[0].tolist()
    worker.add_many("screen", PICKS)
    assert worker.gains("screen", PICKS)[0] == pytest.approx(0.0, abs=1e-5)


def test_a_new_start_forgets_picks_and_covers_of_every_ground(worker):
    grounds = {"all": Ground(), "screen": Ground(rows={0: 6, 2: 3})}
    worker.start(CANDIDATES, grounds)
    fresh = {name: worker.gains(name, SOME)[0].tolist() for name in grounds}
    for name in grounds:
        worker.cover_with(name, unit_rows(2, 5))
        worker.add_many(name, PICKS)
    worker.start(CANDIDATES, grounds)
    assert {name: worker.gains(name, SOME)[0].tolist() for name in grounds} == fresh


def test_picks_repeated_in_their_groups_leave_the_same_state(worker):
    worker.start(CANDIDATES, {"all": Ground()})
    worker.cover_with("all", unit_rows(3, 5))
    groups = [np.array([4], np.int64), PICKS, np.array([0], np.int64)]
    for group in groups:
        worker.add_many("all", group)
    expected = worker.gains("all", SOME)[2].tolist()
    worker.reset("all")
    worker.cover_with("all", unit_rows(3, 5))
    worker.repeat("all", groups)
    assert worker.gains("all", SOME)[2].tolist() == expected
    assert worker.n_covered("all", 4)[2].sum() <= SIZES[2]


def test_half_precision_candidates_are_judged_as_the_numbers_they_hold(worker):
    half = CANDIDATES.astype(np.float16)
    worker.start(half, {"all": Ground()})
    shard = CoverageShard(unit_rows(SIZES[0], 0))
    wide = half.astype(np.float32)
    assert worker.gains("all", SOME)[0].tolist() == shard.gains(wide[SOME]).tolist()


def test_rows_are_found_by_id_in_the_partition_they_live_in(worker):
    asked = ["2-003", "nowhere", "0-000"]
    found = worker.find(asked)
    assert [found[p][0].tolist() for p in (0, 1, 2)] == [[2], [], [0]]
    assert found[2][1].tolist() == unit_rows(25, 2)[[3]].tolist()
    assert worker.block(2, 20, 30).tolist() == unit_rows(25, 2)[20:].tolist()


def test_a_partition_without_any_part_adds_nothing(tree):
    worker = SelectWorker(tree[0], {0: tree[1][0], 7: []})
    facts = worker.start(CANDIDATES, {"all": Ground()})
    assert facts[7] == {"all": (0, 0.0)}
    assert worker.gains("all", SOME)[7].tolist() == [0.0, 0.0, 0.0]
    assert worker.column_sum("all")[7].tolist() == [0.0] * 8
    assert worker.add_many("all", PICKS)[7].tolist() == [0.0, 0.0]


def test_errors_a_user_can_act_on_travel_as_data_and_bugs_do_not(tree):
    worker = SelectWorker(tree[0], tree[1])
    table = Ledger(tree[0]).store.path(tree[1][0][0]["folder"]) / "part.parquet"
    table.write_bytes(b"short")
    failure = worker.call("start", CANDIDATES, {"all": Ground()})
    assert isinstance(failure, Failure)
    assert failure.kind == DataError.__name__
    assert str(table) in failure.text
    with pytest.raises(KeyError):
        worker.call("gains", "no such ground", SOME)


def test_work_on_a_partition_gets_its_rows_and_markers(worker):
    def count(ledger, parts, rows, factor):
        sides = ledger.read(parts[0], ["weight"])
        return factor * len(rows), sides.num_rows

    assert worker.on(2, count, 10) == (250, 25)


def test_the_mapped_rows_are_those_on_disk(worker, tree):
    rows = map_vectors(Ledger(tree[0]), worker._markers[0])
    assert rows.ids.equals(pa.array(ids_of(0)))
