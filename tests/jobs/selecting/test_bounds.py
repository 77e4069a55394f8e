"""Bounds collected partition by partition are those of all rows in one place."""

import numpy as np
import pytest

from jobs.config.cluster import WorkersConfig
from jobs.config.stage1 import Stage1Config
from jobs.ledger import Ledger
from jobs.selecting.bounds import (
    Question,
    bounds_of,
    covered_sample,
    from_all,
    from_sample,
    sampled_bounds,
)
from jobs.selecting.inputs import read_wishes
from jobs.selecting.mapped import map_vectors
from jobs.selecting.oracle import oracles
from jobs.selecting.workers import Workers
from selection.coverage import CoverageShard
from selection.diversity import LogDet
from selection.objective import Objective
from selection.top_gains import joined, top_gains
from tests.jobs.selecting.embedded_parts import embed_part, row_part, unit_rows

SIZES = (12, 0, 9)
ROWS = np.concatenate([unit_rows(n, p) for p, n in enumerate(SIZES)])
IDS = [f"{p}-{i:02d}" for p, n in enumerate(SIZES) for i in range(n)]
PICKED = np.array([3, 14], np.int64)
GIVEN = unit_rows(2, 50)
OBJECTIVE = Objective(lam=3.0, ridge=1e-3)
QUALITY = [1.0 + i % 4 for i in range(len(IDS))]


@pytest.fixture
def tree(tmp_path):
    ledger, parts, rows, at = Ledger(str(tmp_path)), {}, {}, 0
    for p, n in enumerate(SIZES):
        ids, vectors = IDS[at : at + n], ROWS[at : at + n]
        parts[p] = [embed_part(ledger, str(p), ids, vectors)]
        rows[p] = [row_part(ledger, str(p), ids, quality=QUALITY[at : at + n])]
        at += n
    return ledger, parts, rows


@pytest.fixture
def question():
    config = Stage1Config(k1=5, quality=True, forbidden=["0-01", "2-08"], required=["2-04"])
    return Question(
        config=config,
        wishes=read_wishes(config, encoder_id="e"),
        objective=OBJECTIVE,
        k=5,
        scale=0.5,
        ids=tuple(IDS[i] for i in PICKED),
        picks=ROWS[PICKED],
        given=GIVEN,
    )


def bounds_in_one_place(ground):
    shard, term = CoverageShard(ground), LogDet(ROWS, OBJECTIVE.ridge)
    shard.cover_with(np.concatenate([GIVEN, ROWS[PICKED]]))
    term.begin_with(np.concatenate([GIVEN, ROWS[PICKED]]))
    allowed = np.array([row_id not in ("0-01", "2-08", "2-04") for row_id in IDS])
    return top_gains(
        0.5 * shard.gains(ROWS),
        term.gains(np.arange(len(ROWS))),
        k=5,
        objective=OBJECTIVE,
        allowed=allowed,
        quality=2 * np.log(QUALITY),
        picked=PICKED,
    )


def assert_same(found, expected):
    for name in ("coverage", "diversity", "quality", "both"):
        values = getattr(found, name).values
        assert values.tolist() == pytest.approx(getattr(expected, name).values, abs=1e-5)
    assert found.sizes == expected.sizes


def test_bounds_on_a_sample_are_those_of_all_rows_in_one_place(tree, question):
    ledger, parts, rows = tree
    ground = unit_rows(7, 60)
    sample = covered_sample(ground, None, by=question.before)
    found = joined(
        [
            sampled_bounds(ledger, rows[p], map_vectors(ledger, parts[p]), question, sample)
            for p in parts
        ]
    )
    assert_same(found, bounds_in_one_place(ground))


def test_without_a_diversity_term_only_coverage_is_bounded(tree, question):
    ledger, parts, rows = tree
    alone = Question(**{**vars(question), "objective": Objective(lam=0.0)})
    found = bounds_of(ledger, rows[0], map_vectors(ledger, parts[0]), alone, np.arange(12.0))
    assert found.coverage.values.tolist() == [5.5, 5.0, 4.5, 4.0, 3.5]
    assert found.diversity is None


@pytest.mark.ray
def test_actors_find_the_bounds_of_one_process(tree, question, embedded_ray, monkeypatch):
    monkeypatch.setattr("jobs.selecting.bounds.BLOCK_ROWS", 5)
    ledger, parts, rows = tree
    plain = [{p: [m.as_dict() for m in made[p]] for p in made} for made in (parts, rows)]
    crew = Workers(
        str(ledger.store.root),
        plain[0],
        resources=WorkersConfig(cpus=0.5),
        n_actors=2,
        rows=plain[1],
    )
    try:
        oracle = oracles(crew, ROWS[PICKED])["all"]
        oracle.cover_with(GIVEN)
        oracle.add_many(np.array([0, 1], np.int64))
        assert_same(from_all(crew, oracle, question, SIZES), bounds_in_one_place(ROWS))
        sample = covered_sample(ROWS, None, by=question.before)
        assert_same(from_sample(crew, question, sample), bounds_in_one_place(ROWS))
    finally:
        crew.stop()
