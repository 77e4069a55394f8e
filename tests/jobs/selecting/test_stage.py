"""Stage 1 from vectors on disk to candidates.parquet: one answer, and what is said about it."""

import json
import math
from itertools import combinations

import numpy as np
import pytest

from jobs import select
from jobs.config.load import Config
from jobs.errors import DataError
from jobs.vectors import ENCODER_KEY, random_keys
from selection.modes import Effort
from selection.objective import Objective
from selection.stage1 import select_local
from tests.jobs.selecting.embedded_corpus import (
    ENCODER_ID,
    EmbeddedCorpus,
    clustered,
    ids_for,
    without_times,
)
from tests.jobs.selecting.inline_workers import InlineRay, KilledForMemory
from tests.selection.asking import ask
from tests.selection.literal import terms

N, P, EMPTY = 160, 4, 2
IDS = ids_for(N, partitions=P, without=[EMPTY])
VECTORS = clustered(N)
STATUS = ["too_long" if i % 40 == 7 else "ok" for i in range(N)]
SIDES = {
    "weight": [float(i % 4) for i in range(N)],
    "group": [None if i % 9 == 0 else f"g{i % 20}" for i in range(N)],
    "cost": [None if i % 31 == 3 else 1.0 + i % 5 for i in range(N)],
    "quality": [0.5 + (i % 7) / 4 for i in range(N)],
}
SETTINGS = {
    "plain": {"k1": 12},
    "limited": {
        "k1": 12,
        "lam": "auto",
        "weighted": True,
        "quality": True,
        "budget": 25.0,
        "max_per_group": 1,
        "required": [IDS[40], IDS[5]],
        "forbidden": [IDS[50], IDS[51]],
        "certificate": "full",
    },
    "screened": {
        "k1": 12,
        "mode": "screened",
        "m1": 30,
        "m2": 70,
        "max_per_group": 2,
        "certificate": "sampled",
    },
}
ARMS = {
    name: {"lambda" if key == "lam" else key: value for key, value in setting.items()}
    for name, setting in SETTINGS.items()
}


def make(root, **changes):
    options = {"ids": IDS, "partitions": P, "status": STATUS, **SIDES} | changes
    return EmbeddedCorpus(root, options.pop("vectors", VECTORS), **options)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same rows in one partition."""
    return make(tmp_path_factory.mktemp("alone"), partitions=1)


@pytest.fixture(scope="module")
def expected(corpus):
    """The answer of one worker to each setting."""
    return {name: corpus.select(**setting).answer for name, setting in SETTINGS.items()}


# One answer, however the work is spread.


@pytest.mark.parametrize("actors", [2, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_any_number_of_workers_gives_the_same_answer(corpus, expected, name, actors):
    assert corpus.select(**SETTINGS[name], spread={"actors": actors}).answer == expected[name]


@pytest.mark.parametrize(
    ("name", "method", "number"),
    [
        ("plain", "local", 2),
        ("plain", "start", 2),
        ("plain", "gains", 60),
        ("plain", "add_many", 14),
        ("plain", "gains_of", 4),
        ("plain", "on", 2),
        ("limited", "find", 3),
        ("limited", "add_many", 20),
        ("limited", "gains_of", 2),
        ("limited", "on", 11),
        ("screened", "moments", 11),
        ("screened", "members", 2),
        ("screened", "points", 3),
        ("screened", "on", 1),
    ],
)
def test_a_lost_worker_changes_nothing(corpus, expected, name, method, number):
    found = corpus.select(**SETTINGS[name], spread={"actors": 3}, lose=[(method, number)])
    assert found.ray.deaths == [(method, number)]
    assert found.answer == expected[name]


def test_a_worker_that_ray_killed_for_memory_is_replaced_too(corpus, expected, monkeypatch):
    monkeypatch.setattr(InlineRay, "death", KilledForMemory)
    found = corpus.select(**SETTINGS["plain"], spread={"actors": 3}, lose=[("add_many", 14)])
    assert found.ray.deaths
    assert found.answer == expected["plain"]


def test_arms_that_share_their_workers_do_not_disturb_each_other(corpus, expected):
    corpus.ledger.store.remove_tree("candidates")
    configs = {name: corpus.config(dict(setting), actors=2) for name, setting in ARMS.items()}
    arms = [config.arms[0].model_copy(update={"name": name}) for name, config in configs.items()]
    run = corpus.run(Config(configs["plain"].file, tuple(arms)))
    with InlineRay(lose=[("add_many", 30)]) as ray:
        select.run_stage(run)
    assert ray.deaths
    for name in SETTINGS:
        assert without_times(run.candidates[name].stats) == expected[name][0]


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_that_arrived_in_several_files_give_the_same_answer(tmp_path, expected, name):
    assert make(tmp_path, segments=3).select(**SETTINGS[name]).answer == expected[name]


@pytest.mark.parametrize("name", SETTINGS)
def test_vectors_in_16_bits_give_one_answer_too(tmp_path, name):
    corpus = make(tmp_path, storage="float16")
    found = corpus.select(**SETTINGS[name])
    lost = corpus.select(**SETTINGS[name], spread={"actors": 2}, lose=[("add_many", 9)])
    assert lost.ray.deaths
    assert lost.answer == found.answer
    assert found.table.schema.field("vector").type.value_type == "halffloat"
    assert found.facts["ridge"] == 1e-2


def test_one_partition_gives_the_picks_of_one_search_over_all_rows(alone):
    rows = alone.rows(alone.usable)
    request = ask(len(rows), 12, Objective(lam=2.0))
    here = select_local("dual-div", rows, request, effort=Effort("exact")).selection
    found = alone.select(k1=12, lam=2.0)
    assert found.ids == [alone.usable[i] for i in here.picks]
    assert found.table["gain"].to_numpy() == pytest.approx(here.gains, rel=1e-4, abs=1e-4)
    assert found.facts["objective"] == pytest.approx(here.value, rel=1e-5)


def test_many_partitions_come_close_to_one(corpus, alone):
    for setting in SETTINGS["plain"], SETTINGS["screened"] | {"m2": "all"}:
        merged, central = corpus.select(**setting).facts, alone.select(**setting).facts
        assert merged["objective"] >= 0.97 * central["objective"]
        assert merged["objective"] >= merged["best_local_objective"]


@pytest.mark.parametrize("seed", range(4))
def test_of_texts_that_are_in_every_partition_the_first_rows_are_chosen(tmp_path, seed):
    """Every partition has a set that is worth the same."""
    texts, partitions, copies = 5, 3, 12
    vectors = np.tile(clustered(texts, seed=seed, dim=32, spread=3.0), (copies, 1))
    corpus = EmbeddedCorpus(tmp_path, vectors, partitions=partitions)
    homes = {(p, i % texts) for i, p in enumerate(corpus.where)}
    assert len(homes) == texts * partitions
    found = corpus.select(k1=texts, lam=0.5)
    assert sorted(found.ids) == corpus.ids[:texts]
    assert found.facts["merge"] == "merged"
    assert len(set(found.table["partition"].to_pylist())) > 1


def test_an_exact_last_merge_may_judge_on_a_sample_and_loses_little(corpus):
    setting = {"k1": 12, "m1": 40, "mode": "exact"}
    spread = {"merge_ground": "sample", "sample": 80}
    whole = corpus.select(**setting, spread={"merge_ground": "all"})
    found = corpus.select(**setting, spread=spread)
    assert found.facts["merge_mode"] == whole.facts["merge_mode"] == "exact"
    assert (found.facts["m2"], whole.facts["m2"]) == (80, None)
    assert found.ray.calls["moments"] > whole.ray.calls["moments"] == 0
    assert found.ids != whole.ids
    assert found.facts["objective"] == pytest.approx(literal(corpus, found.ids, lam=1.0), rel=1e-5)
    assert found.facts["objective"] >= 0.98 * whole.facts["objective"]
    assert corpus.select(**setting, spread=spread | {"actors": 3}).answer == found.answer


# What is said about it.


def literal(corpus, ids, *, lam, given=(), scale="absolute", ridge=1e-3):
    """f of a set, or f(S | given), from its definition."""
    rows, place = corpus.rows(corpus.usable), {i: n for n, i in enumerate(corpus.usable)}
    objective = Objective(lam=lam, scale=scale, ridge=ridge)
    before = corpus.rows(given) if given else None
    covered, spread, _ = terms(rows, [place[i] for i in ids], objective, given=before)
    return covered + lam * spread - (0.0 if given else len(rows) if scale == "absolute" else 1.0)


@pytest.mark.parametrize("scale", ["absolute", "mean"])
def test_objective_and_terms_are_those_of_the_definition(corpus, scale):
    facts = (found := corpus.select(k1=10, lam=3.0, lambda_scale=scale)).facts
    value = literal(corpus, found.ids, lam=3.0, scale=scale)
    assert facts["objective"] == pytest.approx(value, rel=1e-5)
    assert facts["coverage"] + 3.0 * facts["diversity"] == pytest.approx(value, rel=1e-5)
    assert found.table["objective"].to_pylist()[-1] == pytest.approx(value, rel=1e-5)


def test_the_controls_are_random_rows_and_random_candidates(corpus):
    facts = corpus.select(k1=12).facts
    keys = random_keys(corpus.usable, seed=0)
    random = [corpus.usable[i] for i in np.argsort(keys)[:12]]
    assert facts["random_objective"] == pytest.approx(literal(corpus, random, lam=1.0), rel=1e-4)
    assert facts["random_objective"] < facts["random_merged_objective"] < facts["objective"]


def test_one_partition_and_the_random_method_have_no_merge_to_control(corpus, alone):
    assert alone.select(k1=5).facts["random_merged_objective"] is None
    facts = corpus.select(k1=5, method="random").facts
    assert facts["random_merged_objective"] is None
    assert facts["objective"] == pytest.approx(facts["random_objective"])


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ({}, "proved"),
        ({"certificate": "full"}, "proved"),
        ({"certificate": "sampled", "m1": 50}, "sampled"),
        ({"certificate": "sampled"}, "proved"),
        ({"certificate": "none"}, None),
        ({"method": "random"}, None),
        ({"mode": "screened", "m1": 40, "certificate": "sampled"}, "sampled"),
        ({"mode": "screened", "m1": 40, "certificate": "full"}, "proved"),
    ],
)
def test_a_certificate_is_called_by_its_evidence(corpus, setting, kind):
    found = corpus.select(k1=10, **setting).facts["certificate"]
    assert (found and found["kind"]) == kind
    if kind == "sampled":
        assert found["sample"] == setting["m1"]


def test_one_partition_has_a_proof_without_a_pass_and_none_when_screened(alone):
    exact = alone.select(k1=10)
    assert exact.facts["certificate"]["kind"] == "proved"
    assert exact.ray.calls["gains_of"] == exact.ray.calls["block"] == 0
    screened = alone.select(k1=10, mode="screened", m1=40, z=2.5).facts["certificate"]
    assert (screened["kind"], screened["z"]) == ("statistical", 2.5)
    assert alone.select(k1=10, certificate="full").ray.calls["gains_of"] > 0


@pytest.mark.parametrize("partitions", [1, P])
def test_ratio_and_lift_follow_from_bound_value_and_control(corpus, alone, partitions):
    facts = (alone if partitions == 1 else corpus).select(k1=12, lam=0.5).facts
    found, random = facts["certificate"], facts["random_objective"]
    assert found["bound"] >= facts["objective"]
    assert found["ratio"] == pytest.approx(facts["objective"] / found["bound"])
    gap = (facts["objective"] - random) / (found["bound"] - random)
    assert found["lift"] == pytest.approx(gap, abs=1e-5)
    assert found["coverage_bound"] >= facts["coverage"]


def test_a_merged_answer_is_bounded_above_the_central_one(corpus, alone):
    for setting in {"lam": 0.0}, {"lam": 1.0}, {"lam": 1.0, "max_per_group": 1}:
        bound = corpus.select(k1=12, **setting).facts["certificate"]["bound"]
        assert bound >= alone.select(k1=12, **setting).facts["objective"]


FEW = 9
TINY_IDS = ids_for(FEW, partitions=3)
TINY = {
    "plain": {"k1": 3},
    "coverage": {"k1": 3, "method": "coverage"},
    "mean": {"k1": 3, "lambda_scale": "mean", "lam": 0.3},
    "groups": {"k1": 3, "max_per_group": 1},
    "required": {"k1": 3, "required": [TINY_IDS[4]]},
    "forbidden": {"k1": 3, "forbidden": TINY_IDS[:5]},
    "given": {"k1": 3},
    "budget": {"k1": None, "budget": 5.0},
    "budget for some": {"k1": 2, "budget": 6.0, "required": [TINY_IDS[8]]},
    "stop": {"k1": 4, "stop_at_negative": True, "lam": 2.0},
}


def allowed_sets(setting, given):
    """Every set that a tiny setting allows; with a budget or a stop also those that are smaller."""
    costs, groups = [1.0 + i % 3 for i in range(FEW)], [i % 4 for i in range(FEW)]
    barred = {*setting.get("forbidden", ()), *given}
    most = setting["k1"] or FEW
    any_size = "budget" in setting or "stop_at_negative" in setting
    for size in range(1 if any_size else most, most + 1):
        for some in combinations(range(FEW), size):
            ids, codes = {TINY_IDS[i] for i in some}, [groups[i] for i in some]
            ok = not ids & barred and set(setting.get("required", ())) <= ids
            ok &= sum(costs[i] for i in some) <= setting.get("budget", math.inf)
            if ok and len(set(codes)) >= len(codes) - (setting.get("max_per_group", 9) - 1):
                yield [TINY_IDS[i] for i in some]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("name", TINY)
def test_no_allowed_set_is_better_than_its_proved_bound(tmp_path, name, partitions):
    setting, given = dict(TINY[name]), TINY_IDS[6:8] if name == "given" else []
    sides = {"cost": [1.0 + i % 3 for i in range(FEW)], "group": [f"{i % 4}" for i in range(FEW)]}
    vectors = clustered(FEW, seed=5, dim=4)
    corpus = EmbeddedCorpus(tmp_path, vectors, ids=TINY_IDS, partitions=partitions, **sides)
    if given:
        (tmp_path / "given").write_text("\n".join(given))
        setting["given"] = str(tmp_path / "given")
    facts = (found := corpus.select(**setting, certificate="full")).facts
    lam, scale = facts["lambda"], facts["lambda_scale"]
    per_pick = -lam * math.log(1e-3)
    baseline = 0.0 if given else 1.0 if scale == "mean" else FEW

    def worth(ids, *, of_g):
        value = literal(corpus, ids, lam=lam, given=given, scale=scale)
        return value + baseline + per_pick * len(ids) if of_g else value

    sets = list(allowed_sets(TINY[name], given))
    assert sorted(found.ids) in [sorted(some) for some in sets]
    certificate, slack = facts["certificate"], 1e-4
    assert certificate["kind"] == "proved"
    best = max(worth(some, of_g=True) for some in sets)
    assert certificate["bound_of_g"] >= best - slack
    assert best + slack >= worth(found.ids, of_g=True) >= 0.63 * best
    if name in ("budget", "budget for some", "stop"):
        assert certificate["bound"] is certificate["ratio"] is None
    else:
        assert certificate["bound"] >= max(worth(some, of_g=False) for some in sets) - slack


def test_a_lambda_that_changes_is_certified_term_by_term(corpus):
    found = corpus.select(k1=10, lam="auto").facts["certificate"]
    assert found["bound"] is found["bound_of_g"] is found["ratio"] is None
    assert found["coverage_ratio"] is not None
    assert found["diversity_bound"] is not None


# The files.


@pytest.mark.parametrize("setting", [*SETTINGS.values(), {"k1": 3, "method": "random"}])
def test_selection_json_holds_the_facts_and_no_number_that_json_has_not(corpus, setting):
    found = corpus.select(**setting)
    text = (found.folder / "selection.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == json.loads(json.dumps(found.facts))


def test_candidates_have_their_columns_and_name_their_encoder(corpus):
    table = corpus.select(k1=6, quality=True).table
    assert table.schema.names == [
        *("rank", "id", "input", "gain", "coverage_gain", "diversity_gain", "quality_gain"),
        *("lambda", "objective", "partition", "n_covered", "cost", "text_hash", "vector"),
    ]
    assert table.schema.metadata[ENCODER_KEY] == ENCODER_ID.encode()
    assert table["rank"].to_pylist() == list(range(6))
    ids = table["id"].to_pylist()
    assert table["input"].to_pylist() == [f"text of {row_id}" for row_id in ids]
    assert table["partition"].to_pylist() == [int(corpus.where[IDS.index(i)]) for i in ids]
    assert table["cost"].to_pylist() == [SIDES["cost"][IDS.index(i)] for i in ids]
    assert sum(table["n_covered"].to_pylist()) == len(corpus.usable)
    parts = [table[name].to_numpy() for name in ("coverage_gain", "diversity_gain")]
    quality = table["quality_gain"].to_numpy()
    assert table["gain"].to_numpy() == pytest.approx(parts[0] + parts[1] + quality)
    wanted = [2 * math.log(SIDES["quality"][IDS.index(i)]) for i in ids]
    assert quality == pytest.approx(wanted)


def test_rows_without_a_vector_are_counted_and_never_chosen(corpus):
    found = corpus.select(k1=N)
    assert found.facts["excluded"] == {"too_long": STATUS.count("too_long")}
    assert sorted(found.ids) == corpus.usable
    assert found.facts["N"] == found.facts["k1_used"] == len(corpus.usable)


# Work that is there is not done again.


def test_a_second_run_asks_no_worker(corpus):
    first = corpus.select(k1=6)
    again = corpus.select(k1=6, resume=True, spread={"actors": 3})
    assert not again.ray.calls
    assert again.marker == first.marker


def test_local_answers_outlive_a_run_that_died_while_merging(corpus):
    first = corpus.select(k1=6)
    (first.folder / "candidates.done.json").unlink()
    (first.folder / "local-00001.done.json").unlink()
    again = corpus.select(k1=6, resume=True)
    assert again.ray.calls["local"] == 1
    assert again.answer == first.answer


def test_another_content_of_a_file_is_another_choice_and_another_place_is_not(corpus, tmp_path):
    here, there = tmp_path / "bad.txt", tmp_path / "moved.txt"
    here.write_text(f"{IDS[0]}\n{IDS[1]}\n")
    first = corpus.select(k1=6, forbidden=str(here))
    here.rename(there)
    moved = corpus.select(k1=6, forbidden=str(there), resume=True)
    assert not moved.ray.calls
    assert moved.ids == first.ids
    there.write_text(f"{first.ids[0]}\n")
    changed = corpus.select(k1=6, forbidden=str(there), resume=True)
    assert changed.ray.calls["local"] == P
    assert first.ids[0] not in changed.ids


def test_a_new_weight_moves_only_a_choice_that_heeds_weights(tmp_path):
    corpus = make(tmp_path)
    plain, weighted = corpus.select(k1=6), corpus.select(k1=6, weighted=True, resume=True)
    changed = make(tmp_path, weight=[float((i + 1) % 4) for i in range(N)])
    assert not changed.select(k1=6, resume=True).ray.calls
    again = changed.select(k1=6, weighted=True, resume=True)
    assert again.ray.calls["local"] == P
    assert again.marker.fingerprint != weighted.marker.fingerprint != plain.marker.fingerprint


# Corpora that are hardly any.


def repeated(n, texts):
    return clustered(texts, seed=3)[np.arange(n) % texts]


CORPORA = {
    "all rows the same": repeated(60, 1),
    "hundreds of copies of four texts": repeated(400, 4),
    "one line": clustered(1)[np.zeros(50, int)] * np.where(np.arange(50) % 3, 1, -1)[:, None],
    "two dimensions": clustered(60, dim=2),
}


@pytest.mark.parametrize("storage", ["float32", "float16"])
@pytest.mark.parametrize("name", CORPORA)
def test_copies_and_low_rank_give_distinct_picks_and_finite_numbers(tmp_path, name, storage):
    vectors = CORPORA[name].astype(np.float32)
    corpus = EmbeddedCorpus(tmp_path, vectors, partitions=3, storage=storage)
    for setting in {"lam": 1.0}, {"lam": 1.0, "ridge": 0.0}, {"method": "coverage"}:
        found = corpus.select(k1=15, **setting)
        assert len(set(found.ids)) == found.facts["k1_used"] == 15
        # One search over the rows of all partitions, and one over what they handed on.
        assert found.facts["evaluations"] <= (len(vectors) + 3 * 15) * 15
        json.dumps(found.facts, allow_nan=False)
        assert np.isfinite(found.table["gain"].to_numpy()).all()
    assert found.facts["certificate"]["coverage_bound"] >= found.facts["coverage"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_text_is_taken_once_before_any_is_taken_twice(tmp_path, partitions):
    corpus = EmbeddedCorpus(tmp_path, repeated(400, 4), partitions=partitions)
    found = [corpus.ids.index(row_id) for row_id in corpus.select(k1=4).ids]
    assert sorted(i % 4 for i in found) == [0, 1, 2, 3]
    if partitions == 1:  # and the first by id of its copies
        assert sorted(found) == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["dual-div", "coverage", "random"])
@pytest.mark.parametrize("k1", [1, len([s for s in STATUS if s == "ok"]), N + 1])
def test_from_one_pick_to_more_than_there_are(corpus, method, k1):
    found = corpus.select(k1=k1, method=method)
    n = len(corpus.usable)
    assert len(set(found.ids)) == len(found.ids) == min(k1, n)
    assert (found.facts["k1"], found.facts["k1_used"]) == (k1, min(k1, n))
    assert any("all 156 are" in text for text in found.run.progress.warnings) == (k1 > n)


def test_a_partition_with_fewer_rows_than_it_may_hand_on_gives_all_it_has(tmp_path):
    corpus = EmbeddedCorpus(tmp_path, clustered(30), partitions=8)
    found = corpus.select(k1=20)
    assert min(np.bincount(corpus.where, minlength=8)) < found.facts["local_k"]
    assert found.facts["k1_used"] == 20


def test_a_vector_of_nan_under_status_ok_is_refused_by_name(tmp_path):
    vectors = clustered(30)
    vectors[11] = np.nan
    corpus = EmbeddedCorpus(tmp_path, vectors, partitions=2)
    with pytest.raises(DataError, match=f"row '{corpus.ids[11]}' has status ok"):
        corpus.select(k1=3)


def test_nothing_left_to_choose_is_an_error_and_not_an_empty_choice(corpus):
    with pytest.raises(DataError, match=r"none of 156 rows can be chosen \(stage1.k1 = 5\)"):
        corpus.select(k1=5, forbidden=IDS)
