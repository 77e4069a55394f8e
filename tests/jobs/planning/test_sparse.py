"""What sparse encoders will read is planned from sizes."""

import pytest

from jobs.config.load import load
from jobs.planning.sparse import plan_sparse, sparse_lines
from tests.inference.tiny_models import tiny_splade
from tests.jobs.conftest import Project

TABLES = {"corpus": {"rows": 1000}, "queries": {"rows": 40}}
ENCODERS = {"minilm": {"tokens_mean": 2.5}}


@pytest.fixture
def config(tmp_path):
    project = Project(tmp_path)
    project.config["sparse_encoders"] = {"s": {"model": str(tiny_splade(tmp_path / "model"))}}
    project.config["stage2"] = {"k": 2, "recall_by": "sparse", "sparse_encoder": "s"}
    project.config["arms"] = [
        {"name": "a", "stage1": {"k1": 20}},
        {"name": "b", "stage1": {"k1": 20}, "stage2": "mmr"},
        {"name": "c", "stage1": {"k1": 5000}},
        {"name": "d", "stage1": {"k1": 7}, "stage2": {"recall_by": "dense"}},
        {"name": "e", "stage1": {"k1": 9}, "stage2": "zero-shot"},
    ]
    return project


def test_queries_and_each_pool_are_read_once_whatever_the_number_of_arms(config):
    planned = plan_sparse(load(config.path), TABLES, ENCODERS)
    assert planned["s"].pop("sparse_encoder_id").startswith("s-")
    assert planned == {"s": {"queries": 40, "records": 20 + 1000, "tokens": 2650}}
    assert sparse_lines(planned) == [
        "s: about 2,650 tokens of 40 queries and at most 1,020 records of pools, sparse"
    ]


def test_a_selection_repeated_for_each_fold_has_a_pool_in_each(config):
    config.config["report"] = {"folds_of": "selection", "folds": 3}
    planned = plan_sparse(load(config.path), TABLES, ENCODERS)
    assert planned["s"]["records"] == 3 * (20 + 1000)


def test_no_arm_that_recalls_by_one_plans_none(config):
    config.config["arms"] = config.config["arms"][3:]
    assert plan_sparse(load(config.path), TABLES, ENCODERS) == {}
