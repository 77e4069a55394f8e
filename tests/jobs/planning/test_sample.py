"""What `plan --calibrate` runs on, and on which device a pace was measured."""

from dataclasses import replace

import pytest

from jobs.checks import check_config
from jobs.config.cluster import ClusterConfig, NodesConfig
from jobs.config.load import load
from jobs.planning import cluster
from jobs.planning.calibrate import _encoders, engines_of, sample_of
from jobs.planning.cluster import Machines, Node, machines_of, machines_of_run
from jobs.planning.cost import Planned
from tests.jobs.conftest import Project

GPU, NONE = (Machines((Node(8, gpus),), "told") for gpus in (2, 0))


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def marker(rows, **stats):
    own = {"rows": rows, "bytes": 1, "checksum": "c", "stats": stats}
    return {"folder": "f", "name": "n", "fingerprint": "m"} | own


@pytest.mark.parametrize(
    ("machines", "of_encoder", "of_engine"),
    [(NONE, {"core": 50.0}, {"core": 20.0}), (GPU, {"gpu": 100.0}, {"gpu": 20.0})],
)
def test_a_pace_counts_for_the_gpus_that_workers_take_without_being_told(
    project, machines, of_encoder, of_engine
):
    project.config["cluster"] |= {"embed": {"cpus": 2}, "generate": {"cpus": 2}}
    project.config["engines"]["smollm2"]["tensor_parallel_size"] = 2
    config = load(project.path)
    work = {"worker_seconds": 4.0, "load_seconds": 2.0, "workers": 1}
    entry = {"n_tokens": 100, "parts": [marker(10)]}
    found = {
        "stages": {name: {"stretches": [work]} for name in ("embed", "generate")},
        "embeddings": {"minilm": {"corpus": entry, "queries": entry}},
        "outputs": {"main": [marker(4, prompt_tokens=120, wall_s=3.0)]},
    }
    planned = Planned(config, {}, {"minilm": {}}, {}, {}, {})
    assert _encoders(planned, found, machines)["minilm"]["tokens_per_s"] == of_encoder
    assert engines_of(config, found, machines)["smollm2"]["tokens_per_s"] == of_engine


def test_a_sample_names_no_arm_fold_or_row_that_it_may_be_without(project):
    stage1 = {"given": str(project.root / "ids.txt"), "required": ["r99"], "forbidden": ["r98"]}
    (project.root / "ids.txt").write_text("r97\n")
    project.config["arms"] = [
        {"name": "first", "stage1": stage1},
        {"name": "second", "stage1": "random", "stage2": {"epr": {"also": ["r96"]}}},
    ]
    project.config["report"] = {"baselines": ["second"]}
    sample = sample_of(load(project.path), 5)
    check_config(replace(sample, arms=sample.arms[:1]), until="generate")
    for arm in sample.arms:
        own = arm.stage1
        assert (own.given, own.required, own.forbidden) == (None, None, None)
        assert arm.stage2.epr.also is None
    project.config["report"] = {"folds_of": "selection"}
    assert sample_of(load(project.path), 5).file.report.folds_of == "queries"


def test_this_machine_has_its_gpus_and_a_ray_of_its_own_does_not_grow(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "_gpus_here", lambda: 2.0, raising=False)
    grows = ClusterConfig(nodes=[NodesConfig(count=3, cpus=8, gpus=4)])
    assert machines_of(ClusterConfig()).gpus == 2
    assert machines_of(grows).gpus == 12
    assert machines_of_run(grows).gpus == 2
    # Of nodes that are told by their CPUs, all that is not told is not there.
    assert machines_of(ClusterConfig(), nodes=2, cpus=4).gpus == 0
