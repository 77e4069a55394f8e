"""Merge trees: declared memory so small that partitions are merged over several levels."""

import json
from collections import Counter

import numpy as np
import pytest

from jobs.errors import ConfigError
from jobs.selecting.room import memory_of, require_room
from tests.jobs.selecting.embedded_corpus import EmbeddedCorpus, clustered, ids_for

N, P, DIM, K1 = 320, 16, 12, 12
EMPTY = [4, 5]
IDS = ids_for(N, partitions=P, without=EMPTY)
SIDES = {
    "weight": [1.0 + i % 3 for i in range(N)],
    "group": [None if i % 11 == 0 else f"g{i % 15}" for i in range(N)],
    "cost": [1.0 + i % 4 for i in range(N)],
}
GROUP, COST = (dict(zip(IDS, SIDES[name], strict=True)) for name in ("group", "cost"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    vectors = clustered(N, dim=DIM)
    return EmbeddedCorpus(
        tmp_path_factory.mktemp("corpus"), vectors, ids=IDS, partitions=P, **SIDES
    )


def spread_for(corpus, levels, *, k1=K1, sample=131_072, **more):
    """Declared memory so small that what partitions found is merged over so many levels."""
    memory = corpus.memory_for(levels, k1=k1, sample=sample)
    return {"memory": memory, "sample": sample} | more


def choose(corpus, levels, *, actors=1, sample=131_072, k1=K1, resume=False, lose=(), **setting):
    spread = spread_for(corpus, levels, k1=k1, sample=sample, actors=actors)
    found = corpus.select(spread=spread, resume=resume, lose=lose, k1=k1, **setting)
    assert len(found.facts["merge_levels"]) == levels
    return found


@pytest.fixture(scope="module")
def flat(corpus):
    """The answer of a single merge."""
    return choose(corpus, 1)


def merges_in(found):
    """What is known of each merge below the last, in the order of their names."""
    paths = sorted(found.folder.glob("merge-*.done.json"))
    return [json.loads(path.read_text())["stats"] for path in paths]


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_tree_is_that_of_the_plan_and_no_merge_gets_more_than_fits(corpus, levels):
    sizes = corpus.sizes(k1=K1, **spread_for(corpus, levels, sample=64))
    plan = require_room(sizes)
    found = choose(corpus, levels, sample=64)
    assert found.facts["merge_levels"] == [
        {"nodes": level.nodes, "candidates": level.candidates, "k": level.k}
        for level in plan.levels
    ]
    made = merges_in(found)
    assert len(made) == sum(level.nodes for level in plan.levels[:-1])
    # The lowest merges read the partitions' random rows too; the memory they fit counts those.
    assert all(merge["candidates"] <= 2 * plan.levels[0].candidates for merge in made)
    assert sum(memory_of(sizes, plan).merge.values()) <= sizes.declared


def test_less_memory_makes_more_levels_of_smaller_merges(corpus):
    spreads = [spread_for(corpus, levels) for levels in (1, 2, 3)]
    plans = [require_room(corpus.sizes(k1=K1, **spread)) for spread in spreads]
    assert [len(plan.levels) for plan in plans] == [1, 2, 3]
    largest = [max(level.candidates for level in plan.levels) for plan in plans]
    for sizes in largest, [spread["memory"] for spread in spreads]:
        assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("sample", [131_072, 100])
def test_more_levels_lose_little_and_any_number_of_workers_gives_the_same(
    corpus, flat, levels, sample
):
    found = choose(corpus, levels, sample=sample)
    assert found.facts["objective"] >= 0.97 * flat.facts["objective"]
    assert found.facts["objective"] > found.facts["random_merged_objective"]
    assert found.facts["certificate"]["bound"] >= flat.facts["objective"]
    assert choose(corpus, levels, sample=sample, actors=3).answer == found.answer


@pytest.mark.parametrize("number", [1, 3])
def test_a_worker_lost_in_the_tree_changes_nothing(corpus, number):
    setting = {"actors": 3, "sample": 100, "max_per_group": 2, "weighted": True}
    whole = choose(corpus, 3, **setting)
    found = choose(corpus, 3, lose=[("run", number), ("points", 1)], **setting)
    assert len(found.ray.deaths) == 2
    assert found.answer == whole.answer


def test_merges_that_are_there_are_not_done_again(corpus):
    first = choose(corpus, 3)
    merges = sorted(path.name for path in first.folder.glob("merge-*.done.json"))
    made = sum(level["nodes"] for level in first.facts["merge_levels"][:-1])
    assert len(merges) == made > 1
    (first.folder / "candidates.done.json").unlink()
    (first.folder / merges[-1]).unlink()
    before = {path: path.stat().st_mtime_ns for path in first.folder.glob("*-*.parquet")}
    again = choose(corpus, 3, resume=True)
    changed = [path.name for path, then in before.items() if path.stat().st_mtime_ns != then]
    assert changed == [merges[-1].replace(".done.json", ".parquet")]
    assert again.answer == first.answer
    assert not choose(corpus, 3, resume=True).ray.calls


def test_the_work_of_every_level_is_counted(corpus):
    def count(name, found):
        markers = [json.loads(path.read_text()) for path in found.folder.glob(name)]
        return sum(marker["stats"]["evaluations"] for marker in markers)

    found = choose(corpus, 3)
    below = count("local-*.done.json", found) + count("merge-*.done.json", found)
    flat = choose(corpus, 1)
    at_root = flat.facts["evaluations"] - count("local-*.done.json", flat)
    assert below < found.facts["evaluations"] < below + at_root


@pytest.mark.parametrize("method", ["dual-div", "coverage", "random"])
@pytest.mark.parametrize("levels", [2, 3])
def test_required_rows_groups_and_budgets_survive_the_levels(corpus, method, levels):
    required = [IDS[100], IDS[7], IDS[300]]
    found = choose(
        corpus,
        levels,
        method=method,
        required=required,
        forbidden=IDS[200:230],
        max_per_group=2,
        budget=28.0,
    )
    assert found.ids[:3] == required
    assert not set(found.ids) & set(IDS[200:230])
    assert sum(COST[row_id] for row_id in found.ids) <= 28.0
    counts = Counter(GROUP[row_id] for row_id in found.ids if GROUP[row_id])
    assert max(counts.values()) <= 2
    assert len(set(found.ids)) == found.facts["k1_used"] > 6


@pytest.mark.parametrize("setting", [{"lam": "auto"}, {"mode": "screened", "m1": 40, "m2": 80}])
def test_rules_and_screening_go_through_the_levels(corpus, flat, setting):
    found = choose(corpus, 3, sample=150, **setting)
    assert found.facts["k1_used"] == K1
    assert found.facts["coverage"] >= 0.95 * flat.facts["coverage"]
    assert choose(corpus, 3, sample=150, actors=2, **setting).answer == found.answer


def test_given_rows_are_built_upon_at_every_level(corpus, tmp_path):
    first = choose(corpus, 3, lam=0.0)
    (tmp_path / "ids.txt").write_text("\n".join(first.ids))
    found = choose(corpus, 3, lam=0.0, given=str(tmp_path / "ids.txt"))
    assert not set(found.ids) & set(first.ids)
    both = choose(corpus, 1, lam=0.0, k1=2 * K1).facts["coverage"]
    assert first.facts["coverage"] + found.facts["coverage"] >= 0.99 * both


def test_16_bit_vectors_are_planned_by_their_size(tmp_path):
    vectors = clustered(N, dim=DIM)
    corpus = EmbeddedCorpus(tmp_path, vectors, ids=IDS, partitions=P, storage="float16")
    spread = spread_for(corpus, 2)
    found = corpus.select(k1=K1, spread=spread)
    assert len(found.facts["merge_levels"]) == 2
    assert found.facts["k1_used"] == K1
    wide = EmbeddedCorpus(tmp_path, vectors, ids=IDS, partitions=P).select(k1=K1, spread=spread)
    assert len(wide.facts["merge_levels"]) == 3


def test_a_node_with_nothing_to_choose_from_hands_on_nothing(corpus):
    barred = [row_id for row_id, p in zip(IDS, corpus.where, strict=True) if p < 8]
    found = choose(corpus, 3, forbidden=barred)
    assert found.facts["k1_used"] == K1
    assert not set(found.ids) & set(barred)
    assert min(np.unique(found.table["partition"].to_numpy())) >= 8


def test_memory_for_no_tree_at_all_is_refused_with_the_key_to_raise(corpus):
    least = corpus.memory_for(P, k1=K1, sample=64)
    corpus.select(k1=K1, spread={"memory": least, "sample": 64})
    with pytest.raises(ConfigError, match=r"select.memory_per_worker = .*Raise it to that, or low"):
        corpus.select(k1=K1, spread={"memory": least - 1, "sample": 64})
