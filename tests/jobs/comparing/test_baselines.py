import pytest

from jobs.comparing.baselines import check_baselines, differing, pairs_of, repeats_of, settings_of
from jobs.config.load import load
from jobs.errors import ConfigError

BASE = """
out: out
corpus: {path: x}
queries: {path: y, columns: {keep: [year]}}
tasks: {t: {instruction: i, labels: [a, b]}}
encoders: {e: {preset: minilm}}
engines: {g: {model: m}, h: {model: n}}
"""
USUAL = """
arms:
  - {name: zero, engine: g, stage1: none, stage2: zero-shot}
  - {name: random, engine: g, stage1: random}
  - {name: knn, engine: g}
  - {name: mmr, engine: g, stage2: mmr}
"""


@pytest.fixture
def config(tmp_path):
    def made(arms, **settings):
        path = tmp_path / "config.yaml"
        path.write_text(BASE + arms)
        return load(str(path), settings=[f"{key}={value}" for key, value in settings.items()])

    return made


def test_by_default_arms_meet_zero_shot_random_and_their_knn_twin_each_pair_once(config):
    # The usual baselines are methods, even where another arm has the name of one.
    odd = "  - {name: zero-shot, engine: g, stage2: random}\n"
    assert pairs_of(config(USUAL + odd).arms, None)[-3:] == [
        *(("zero-shot", "zero"), ("zero-shot", "random"), ("zero-shot", "knn"))
    ]
    assert pairs_of(config(USUAL).arms, None) == [
        ("random", "zero"),
        ("knn", "zero"),
        ("knn", "random"),
        ("mmr", "zero"),
        ("mmr", "random"),
        ("mmr", "knn"),
    ]


def test_an_arm_that_shows_nothing_is_zero_shot_whatever_its_method(config):
    arms = """
arms:
  - {name: zero, engine: g, stage1: none, stage2: {method: knn, k: 0}}
  - {name: knn, engine: g, stage1: coverage}
  - {name: dd, engine: g, stage1: coverage, stage2: dual-div}
"""
    found = config(arms, **{"report.baselines": "[zero-shot]"})
    check_baselines(found)
    assert pairs_of(found.arms, None) == [("knn", "zero"), ("dd", "zero"), ("dd", "knn")]


def test_a_twin_is_the_arm_that_differs_in_the_fewest_settings(config):
    arms = config(
        """
arms:
  - {name: far, engine: g, stage1: coverage, stage2: {method: knn, k: 2}}
  - {name: longer, engine: g, stage2: {method: knn, k: 3}}
  - {name: knn, engine: g, stage2: {method: knn, k: 2}}
  - {name: mmr, engine: g, stage2: {method: mmr, k: 2}}
grid: {seed: [0, 1]}
"""
    ).arms
    assert pairs_of(arms, ["knn"]) == [
        *(("mmr+seed=0", "knn+seed=0"), ("mmr+seed=1", "knn+seed=1"))
    ]


def test_arms_of_another_engine_are_compared_only_with_an_arm_that_is_named(config):
    arms = config(
        """
arms:
  - {name: zero, engine: g, stage1: none, stage2: zero-shot}
  - {name: other, engine: h}
"""
    ).arms
    assert pairs_of(arms, None) == []
    assert pairs_of(arms, ["zero"]) == [("other", "zero")]


def test_a_baseline_is_compared_with_those_before_it_only(config):
    repeated = config(USUAL + "grid: {repeat: [0, 1]}").arms
    pairs = [pair for pair in pairs_of(repeated, None) if pair[0].startswith(("zero", "random"))]
    assert pairs == [*(("random+repeat=0", "zero+repeat=0"), ("random+repeat=1", "zero+repeat=1"))]
    assert pairs_of(config(USUAL).arms, ["random"]) == [
        *(("zero", "random"), ("knn", "random"), ("mmr", "random"))
    ]
    assert pairs_of(config(USUAL).arms, []) == []


def test_a_method_of_stage_1_comes_before_one_of_stage_2(config):
    arms = config(
        """
arms:
  - {name: one, engine: g, stage1: kmeans}
  - {name: two, engine: g, stage2: kmeans}
  - {name: three, engine: g, stage2: mmr}
"""
    ).arms
    assert pairs_of(arms, ["kmeans"]) == [("two", "one"), ("three", "one")]


def test_repeats_are_arms_that_differ_in_seed_or_repeat_alone(config):
    arms = config(USUAL + "grid: {seed: [0, 1], repeat: [0, 1]}").arms
    assert [len(group) for group in repeats_of(arms)] == [4, 4, 4, 4]
    assert repeats_of(config(USUAL).arms) == []
    assert differing(settings_of(arms[0]), settings_of(arms[3])) == ["seed", "repeat"]


def test_a_baseline_that_is_no_arm_and_no_method_is_refused(config):
    with pytest.raises(ConfigError, match=r"'kn' is no arm .* Arms: zero, random, knn, mmr.*none"):
        check_baselines(config(USUAL, **{"report.baselines": "[random, kn]"}))
    check_baselines(config(USUAL, **{"report.baselines": "[random, knn]"}))
