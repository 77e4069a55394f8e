"""Stage 1 by vote-k, k-means and k-center: one answer however it is spread, measured by f."""

import json

import numpy as np
import pytest

from jobs import select
from jobs.errors import ConfigError
from jobs.vectors import random_keys
from selection.crowd import Crowd
from selection.modes import Effort
from selection.stage1 import MAXIMISE_F, STAGE1, select_local
from tests.jobs.selecting.embedded_corpus import EmbeddedCorpus, clustered, ids_for
from tests.selection.asking import ask

METHODS = sorted({*STAGE1} - {*MAXIMISE_F, "random"})
N, P, EMPTY = 160, 4, 2
IDS = ids_for(N, partitions=P, without=[EMPTY])
VECTORS = clustered(N)
STATUS = ["too_long" if i % 40 == 7 else "ok" for i in range(N)]
SIDES = {
    "weight": [1.0 + i % 4 for i in range(N)],
    "group": [None if i % 9 == 0 else f"g{i % 20}" for i in range(N)],
}
GROUP = dict(zip(IDS, SIDES["group"], strict=True))
LIMITED = {
    "weighted": True,
    "max_per_group": 1,
    "required": [IDS[40], IDS[5]],
    "forbidden": IDS[50:60],
    "neighbours": 20,
}


def make(root, **changes):
    options = {"ids": IDS, "partitions": P, "status": STATUS, **SIDES} | changes
    return EmbeddedCorpus(root, options.pop("vectors", VECTORS), **options)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def in_files(tmp_path_factory):
    """The same rows, arrived in three files."""
    return make(tmp_path_factory.mktemp("files"), segments=3)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """The same rows in so many partitions that little memory makes a tree."""
    return make(tmp_path_factory.mktemp("deep"), partitions=12)


@pytest.mark.parametrize("setting", [{}, LIMITED], ids=["plain", "limited"])
@pytest.mark.parametrize("method", METHODS)
def test_one_answer_for_any_number_of_workers_and_files(corpus, in_files, method, setting):
    setting = {"k1": 10, "method": method} | setting
    first = corpus.select(**setting)
    spread = {"actors": 3}
    lost = corpus.select(**setting, spread=spread, lose=[("local", 2), ("add_many", 2)])
    assert len(lost.ray.deaths) == 2
    assert lost.answer == first.answer
    assert in_files.select(**setting).answer == first.answer


@pytest.mark.parametrize("method", METHODS)
def test_limits_hold_after_the_merge(corpus, method):
    found = corpus.select(k1=10, method=method, **LIMITED)
    assert found.ids[:2] == LIMITED["required"]
    assert len(set(found.ids)) == found.facts["k1_used"] == 10
    assert not set(found.ids) & set(LIMITED["forbidden"])
    groups = [GROUP[row_id] for row_id in found.ids if GROUP[row_id]]
    assert len(set(groups)) == len(groups)


@pytest.mark.parametrize("method", METHODS)
def test_f_measures_it_beside_the_random_controls_and_nothing_is_proved(corpus, method):
    found = corpus.select(k1=10, method=method, lam=0.5, neighbours=20)
    facts = found.facts
    assert facts["method"] == facts["mode"] == method
    assert (facts["certificate"], facts["merge"], facts["merge_mode"]) == (None, "merged", None)
    assert "none applies" in facts["certificate_none"]
    assert facts["best_local_objective"] is None
    value = facts["coverage"] + 0.5 * facts["diversity"]
    assert facts["objective"] == pytest.approx(value, rel=1e-5)
    assert facts["objective"] > facts["random_objective"]
    assert np.isfinite(facts["random_merged_objective"])
    text = (found.folder / "selection.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == json.loads(json.dumps(facts))
    assert facts["neighbours"] == (20 if method == "vote-k" else None)
    greedy = corpus.select(k1=10, lam=0.5).facts
    assert greedy["random_objective"] == pytest.approx(facts["random_objective"])
    assert greedy["certificate_none"] is None


@pytest.mark.parametrize(("neighbours", "told"), [(150, True), (20, False)])
def test_votes_for_much_of_the_corpus_are_told(corpus, neighbours, told):
    found = corpus.select(k1=2, method="vote-k", neighbours=neighbours)
    assert any("neighbours = 150" in text for text in found.run.progress.warnings) == told


@pytest.mark.parametrize("method", METHODS)
def test_one_partition_picks_as_one_call_over_all_rows(tmp_path, method):
    corpus = make(tmp_path, partitions=1)
    found = corpus.select(k1=10, method=method, neighbours=30)
    rows = corpus.rows(corpus.usable)
    request = ask(len(rows), 10, keys=random_keys(corpus.usable, 0), crowd=Crowd(neighbours=30))
    here = select_local(method, rows, request, effort=Effort("exact")).selection.picks
    assert set(found.ids) == {corpus.usable[i] for i in here}
    if method != "kcenter":  # which may start at another of its own picks
        assert found.ids == [corpus.usable[i] for i in here]


@pytest.mark.parametrize("method", METHODS)
def test_a_tree_of_merges_gives_one_answer_too(deep, method):
    memory = deep.memory_for(3, k1=10, method=method, sample=100)
    spread = {"memory": memory, "sample": 100}
    setting = {"k1": 10, "method": method, "max_per_group": 2, "required": [IDS[33]]}
    found = deep.select(**setting, spread=spread)
    assert len(found.facts["merge_levels"]) == 3
    assert len(set(found.ids)) == 10
    assert found.ids[0] == IDS[33]
    assert deep.select(**setting, spread=spread | {"actors": 3}).answer == found.answer


@pytest.mark.parametrize("method", METHODS)
def test_what_is_given_is_built_upon_and_not_picked_again(corpus, tmp_path, method):
    first = corpus.select(k1=8, method=method)
    (tmp_path / "ids.txt").write_text("\n".join(first.ids))
    found = corpus.select(k1=8, method=method, given=str(tmp_path / "ids.txt"))
    assert len({*found.ids, *first.ids}) == 16
    assert found.facts["given"] == 8


@pytest.mark.parametrize("method", METHODS)
def test_copies_and_all_rows_are_no_trouble(tmp_path, method):
    vectors = clustered(4, seed=3)[np.arange(90) % 4]
    corpus = EmbeddedCorpus(tmp_path, vectors, partitions=3, storage="float16")
    assert len(set(corpus.select(k1=15, method=method).ids)) == 15
    assert sorted(corpus.select(k1=90, method=method).ids) == sorted(corpus.ids)


@pytest.mark.parametrize("method", ["kmeans", "vote-k"])
def test_another_number_of_neighbours_is_another_choice_for_vote_k_alone(corpus, method):
    corpus.select(k1=1, method=method)
    again = corpus.select(k1=1, method=method, neighbours=7, resume=True)
    assert bool(again.ray.calls) == (method == "vote-k")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("key", "value"), [("lambda", "auto"), ("budget", 9.0), ("stop_at_negative", True)]
)
def test_what_it_cannot_heed_is_refused_before_work(corpus, method, key, value):
    (arm,) = corpus.config({"method": method, "k1": 5, key: value}).arms
    with pytest.raises(ConfigError, match=rf"stage1\.{key}.*{method}.*"):
        select.check(arm)
    select.check(corpus.config({"method": method, "k1": 5}).arms[0])
