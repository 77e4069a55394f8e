"""Merge trees: declared memory so small that partitions are merged over several levels."""

import json
from collections import Counter

import numpy as np
import pytest

from jobs.errors import ConfigError
from selection.tree import candidate_bytes, plan_merges
from tests.jobs.embedded_corpus import EmbeddedCorpus, clustered, ids_for

N, P, DIM, K1 = 320, 16, 12, 12
EMPTY = [4, 5]
IDS = ids_for(N, partitions=P, without=EMPTY)
SIDES = {
    "weight": [1.0 + i % 3 for i in range(N)],
    "group": [None if i % 11 == 0 else f"g{i % 15}" for i in range(N)],
    "cost": [1.0 + i % 4 for i in range(N)],
}
GROUP, COST = (dict(zip(IDS, SIDES[name], strict=True)) for name in ("group", "cost"))


def memory_for(candidates, width=4):
    """Declared bytes of a worker that hold so many candidates in a merge."""
    return 2 * candidates * candidate_bytes(DIM, width)


# Candidates that a worker holds -> levels of the tree.
LEVELS = {10_000: 1, 50: 2, 36: 3}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    vectors = clustered(N, dim=DIM)
    return EmbeddedCorpus(
        tmp_path_factory.mktemp("corpus"), vectors, ids=IDS, partitions=P, **SIDES
    )


def choose(corpus, candidates, *, actors=1, sample=131_072, **setting):
    spread = {"memory": memory_for(candidates), "actors": actors, "sample": sample}
    return corpus.select(spread=spread, **{"k1": K1} | setting)


@pytest.fixture(scope="module")
def flat(corpus):
    """The answer of a single merge."""
    return choose(corpus, 10_000)


@pytest.mark.parametrize("candidates", LEVELS)
def test_the_tree_is_that_of_the_plan(corpus, candidates):
    plan = plan_merges(N, P, K1, dim=DIM, memory_bytes=memory_for(candidates))
    levels = [
        {"nodes": level.nodes, "candidates": level.candidates, "k": level.k}
        for level in plan.levels
    ]
    facts = choose(corpus, candidates).facts
    assert facts["merge_levels"] == levels
    assert len(levels) == LEVELS[candidates]
    assert all(level["candidates"] <= candidates for level in levels)


@pytest.mark.parametrize("candidates", [50, 36])
@pytest.mark.parametrize("sample", [131_072, 100])
def test_more_levels_lose_little_and_any_number_of_workers_gives_the_same(
    corpus, flat, candidates, sample
):
    found = choose(corpus, candidates, sample=sample)
    assert found.facts["objective"] >= 0.97 * flat.facts["objective"]
    assert found.facts["objective"] > found.facts["random_merged_objective"]
    assert found.facts["certificate"]["bound"] >= flat.facts["objective"]
    assert choose(corpus, candidates, sample=sample, actors=3).answer == found.answer


@pytest.mark.parametrize("number", [1, 3])
def test_a_worker_lost_in_the_tree_changes_nothing(corpus, number):
    setting = {"k1": K1, "max_per_group": 2, "weighted": True}
    spread = {"memory": memory_for(36), "actors": 3, "sample": 100}
    whole = corpus.select(spread=spread, **setting)
    found = corpus.select(spread=spread, lose=[("run", number), ("points", 1)], **setting)
    assert len(found.ray.deaths) == 2
    assert found.answer == whole.answer


def test_merges_that_are_there_are_not_done_again(corpus):
    first = choose(corpus, 36)
    merges = sorted(path.name for path in first.folder.glob("merge-*.done.json"))
    made = sum(level["nodes"] for level in first.facts["merge_levels"][:-1])
    assert len(merges) == made
    (first.folder / "candidates.done.json").unlink()
    (first.folder / merges[-1]).unlink()
    before = {path: path.stat().st_mtime_ns for path in first.folder.glob("*-*.parquet")}
    spread = {"memory": memory_for(36)}
    again = corpus.select(spread=spread, resume=True, k1=K1)
    changed = [path.name for path, then in before.items() if path.stat().st_mtime_ns != then]
    assert changed == [merges[-1].replace(".done.json", ".parquet")]
    assert again.answer == first.answer
    assert not corpus.select(spread=spread, resume=True, k1=K1).ray.calls


def test_the_work_of_every_level_is_counted(corpus):
    def count(name, found):
        markers = [json.loads(path.read_text()) for path in found.folder.glob(name)]
        return sum(marker["stats"]["evaluations"] for marker in markers)

    found = choose(corpus, 36)
    below = count("local-*.done.json", found) + count("merge-*.done.json", found)
    flat = choose(corpus, 10_000)
    at_root = flat.facts["evaluations"] - count("local-*.done.json", flat)
    assert below < found.facts["evaluations"] < below + at_root


@pytest.mark.parametrize("method", ["dual-div", "coverage", "random"])
@pytest.mark.parametrize("candidates", [50, 36])
def test_required_rows_groups_and_budgets_survive_the_levels(corpus, method, candidates):
    required = [IDS[100], IDS[7], IDS[300]]
    found = choose(
        corpus,
        candidates,
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
    found = choose(corpus, 36, sample=150, **setting)
    assert found.facts["k1_used"] == K1
    assert found.facts["coverage"] >= 0.95 * flat.facts["coverage"]
    assert choose(corpus, 36, sample=150, actors=2, **setting).answer == found.answer


def test_given_rows_are_built_upon_at_every_level(corpus, tmp_path):
    first = choose(corpus, 36, lam=0.0)
    (tmp_path / "ids.txt").write_text("\n".join(first.ids))
    found = choose(corpus, 36, lam=0.0, given=str(tmp_path / "ids.txt"))
    assert not set(found.ids) & set(first.ids)
    both = choose(corpus, 10_000, lam=0.0, k1=2 * K1).facts["coverage"]
    assert first.facts["coverage"] + found.facts["coverage"] >= 0.99 * both


def test_16_bit_vectors_are_planned_by_their_size(tmp_path):
    vectors = clustered(N, dim=DIM)
    corpus = EmbeddedCorpus(tmp_path, vectors, ids=IDS, partitions=P, storage="float16")
    spread = {"memory": memory_for(50, width=2)}
    found = corpus.select(k1=K1, spread=spread)
    assert len(found.facts["merge_levels"]) == 2
    assert found.facts["k1_used"] == K1
    wide = EmbeddedCorpus(tmp_path, vectors, ids=IDS, partitions=P).select(k1=K1, spread=spread)
    assert len(wide.facts["merge_levels"]) == 3


def test_a_node_with_nothing_to_choose_from_hands_on_nothing(corpus):
    barred = [row_id for row_id, p in zip(IDS, corpus.where, strict=True) if p < 8]
    found = choose(corpus, 36, forbidden=barred)
    assert found.facts["k1_used"] == K1
    assert not set(found.ids) & set(barred)
    assert min(np.unique(found.table["partition"].to_numpy())) >= 8


def test_memory_for_no_tree_at_all_is_refused_with_the_key_to_raise(corpus):
    with pytest.raises(ConfigError, match=r"select.memory_per_worker = .*Raise it, or lower"):
        choose(corpus, 15)
