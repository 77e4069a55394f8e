"""What a run costs on a cluster: workers, hours, memory and disk, by hand from rates."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from jobs.config.cluster import ClusterConfig, WorkersConfig
from jobs.config.load import load
from jobs.errors import ConfigError
from jobs.planning.cluster import Machines, Node, machines_of
from jobs.planning.cost import Planned, cost, disk, memory, on_nodes, resident
from jobs.planning.rates import GPU_CORES, Rates, read_rates, write_rates

MIB = 2**20


@pytest.fixture
def config(tmp_path):
    plain = {
        "out": str(tmp_path / "out"),
        "corpus": {"path": "c.jsonl", "partition": {"count": 8}},
        "queries": {"path": "q.jsonl"},
        "tasks": {"t": {"instruction": "?", "labels": ["a", "b"]}},
        "encoders": {"mini": {"model": "nowhere"}},
        "engines": {"llm": {"model": "nowhere", "tensor_parallel_size": 2}},
        "stage1": "none",
        "arms": [{"name": "a"}],
        "cluster": {"embed": {"cpus": 2}},
    }
    plain["stage1"] = {"method": "none"}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return load(str(path))


def table(rows, partitions, *, characters=80.0, files=1):
    return {
        "rows": rows,
        "partitions": partitions,
        "characters_mean": characters,
        "files": files,
    }


def planned(config, *, rows=1_000_000):
    tables = {"corpus": table(rows, 8), "queries": table(1000, 2)}
    encoder = {
        "tokens": 20 * rows,
        "weights": 10.6e6,
        "model_bytes": 90 * MIB,
        "dimension": 384,
        "vector_bytes": rows * 1536,
    }
    arm = {
        "prompt_tokens": 200_000,
        "content_free_prompts": 0,
        "epr_prompts": 0,
        "epr_prompt_tokens": 0,
        "order_prompt_tokens": 0,
        "calibration_prompt_tokens": 0,
    }
    return Planned(config, tables, {"mini": encoder}, {}, {"a": arm}, {})


def nodes(n, cpus, gpus=0.0, memory=None):
    return Machines((Node(cpus, gpus, memory),) * n, "told")


def test_workers_are_those_that_fit_node_by_node():
    uneven = Machines((Node(8, 1), Node(3, 0), Node(16, 4)), "told")
    three = WorkersConfig(cpus=3)
    assert uneven.n_workers(three, gpus=0.0, n_units=99) == 2 + 1 + 5
    assert uneven.n_workers(three, gpus=1.0, n_units=99) == 1 + 0 + 4
    assert uneven.n_workers(three, gpus=0.0, n_units=4) == 4
    assert uneven.n_workers(WorkersConfig(actors=2), gpus=0.0, n_units=99) == 2
    assert uneven.n_workers(WorkersConfig(cpus=32), gpus=0.0, n_units=99) == 0
    # Memory counts where it is known, and what only some nodes have.
    large = WorkersConfig(memory="40GiB", resources={"tpu": 1.0})
    with_tpu = Machines(
        (Node(8, 0, 100 * 2**30, {"tpu": 4.0}), Node(8), Node(3, 0, None, {"tpu": 9.0})), "told"
    )
    assert with_tpu.n_workers(large, gpus=0.0, n_units=99) == 2 + 0 + 3
    # On a cluster without a GPU nobody asks for one unless the config does.
    assert nodes(1, 4).n_workers(WorkersConfig(), gpus=1.0, n_units=9) == 4
    assert nodes(1, 4).n_workers(WorkersConfig(gpus=1), gpus=1.0, n_units=9) == 0


def test_a_cluster_is_told_by_its_nodes_and_nonsense_is_refused():
    told = machines_of(ClusterConfig(), nodes=3, cpus=16, gpus=2, memory="64GiB")
    assert told.as_dict() == {
        "nodes": 3,
        "cpus": 48,
        "gpus": 6,
        "smallest_memory_bytes": 64 * 2**30,
        "source": "told",
    }
    assert told.line() == "3 nodes of 16 CPUs, 2 GPUs, 64 GiB (told)"
    assert machines_of(ClusterConfig(cpus=2)).line().endswith("(this machine)")
    for wrong in ({"nodes": 0}, {"cpus": 0}, {"gpus": -1}, {"memory": "much"}):
        with pytest.raises(ConfigError, match=f"--{next(iter(wrong))} "):
            machines_of(ClusterConfig(), **wrong)


def test_time_is_tokens_by_the_pace_of_all_workers(config):
    one, four = (cost(planned(config), nodes(n, 4), Rates()) for n in (1, 4))
    # Two cores a worker at 2,500 tokens a second each; ten parts, so ten workers at most.
    assert one["workers"]["embed"] == 2
    assert one["seconds"]["embed"] == pytest.approx(20e6 / 5000 / 2)
    assert four["workers"]["embed"] == 8
    assert four["seconds"]["embed"] == pytest.approx(20e6 / 5000 / 8)
    assert one["seconds"]["generate"] == pytest.approx(200_000 / 250 / 2)
    assert one["gpu_hours"] == 0


def test_gpu_hours_are_those_of_the_gpus_that_are_held(config):
    found = cost(planned(config), nodes(2, 8, gpus=2), Rates())
    assert found["workers"] == {"embed": 4, "select": 8, "generate": 2}
    embed_s = 20e6 / (2500 * GPU_CORES) / 4
    generate_s = 200_000 / (250 * GPU_CORES * 2) / 2
    hours = (4 * embed_s + 2 * 2 * generate_s) / 3600
    assert found["gpu_hours"] == pytest.approx(hours, abs=1e-3)


def test_engines_take_turns_each_with_the_gpus_that_it_shares_its_model_among(config):
    """The small one on four workers of one GPU, then the large one on two of two."""
    base = planned(config)
    small = config.file.engines["llm"].model_copy(update={"tensor_parallel_size": 1})
    file = config.file.model_copy(update={"engines": {**config.file.engines, "small": small}})
    more = config.arms[0].model_copy(update={"name": "b", "engine": "small"})
    both = replace(
        base,
        config=replace(config, file=file, arms=(config.arms[0], more)),
        tables={**base.tables, "queries": table(1000, 8)},
        arms={"a": base.arms["a"], "b": base.arms["a"]},
    )
    found = cost(both, nodes(2, 8, gpus=2), Rates())
    pace = 250 * GPU_CORES
    assert found["workers"]["generate"] == 4
    assert found["seconds"]["generate"] == pytest.approx(
        200_000 / (2 * pace) / 2 + 200_000 / pace / 4, abs=0.06
    )
    embed_s = 20e6 / (2500 * GPU_CORES) / 4
    hours = (4 * embed_s + 2 * 2 * 200_000 / (2 * pace) / 2 + 4 * 200_000 / pace / 4) / 3600
    assert found["gpu_hours"] == pytest.approx(hours, abs=1e-3)


def test_a_pace_that_was_measured_counts_for_its_device_alone():
    measured = {"encoders": {"mini": {"tokens_per_s": {"gpu": 5e5}}}, "engines": {}}
    rates = Rates({"measured": "now", "rows": 5000, **measured}, "rates.json")
    assert rates.embed_tokens("mini", weights=1e6, cpus=4, gpus=2) == 1e6
    assert rates.embed_tokens("mini", weights=10.6e6, cpus=4, gpus=0) == 4 * 2500
    assert not rates.gpu_assumed()
    assert "measured now on 5,000 rows" in rates.line()
    assert Rates().gpu_assumed()
    # An encoder of ten times the weights is ten times slower, as long as nobody measured.
    assert Rates().embed_tokens("big", weights=106e6, cpus=1, gpus=0) == pytest.approx(250)


def test_measured_memory_grows_by_what_more_rows_are_predicted_to_hold(config):
    small, large = planned(config, rows=5_000), planned(config, rows=4_000_000)
    then, now = resident(small), resident(large)
    found = {name: 500 * MIB for name in then}
    rates = Rates({"memory": {"measured": found, "predicted": then}})
    assert memory(small, rates) == found
    grown = memory(large, rates)
    assert grown == {name: 500 * MIB + now[name] - then[name] for name in then}
    # Half a million rows a partition, 200 bytes each, six times over.
    assert grown["ingest"] - found["ingest"] == pytest.approx(6 * 500_000 * 200, rel=0.01)
    assert memory(large, Rates()) == now


def test_disk_goes_by_measured_bytes_a_row_where_there_are_some(config):
    plain = disk(planned(config), Rates())
    assert plain["rows"] == 1_001_000 * 200
    assert plain["vectors"] == 1_000_000 * 1536
    assert plain["prompts"] == 2 * 200_000 * 5
    rates = {"bytes_per_row": {"corpus": 50.0}, "encoders": {"mini": {"bytes_per_row": 1600.0}}}
    found = disk(planned(config), Rates(rates))
    assert found["rows"] == 1_000_000 * 50 + 1000 * 200
    assert found["vectors"] == 1_001_000 * 1600


def test_the_memory_of_a_node_is_that_of_all_its_workers(config):
    machines = nodes(2, 4, memory=2**30)
    found = on_nodes(planned(config), machines, {"embed": 700 * MIB, "select": 100 * MIB})
    assert found["embed"] == {"workers": 2, "bytes": 1400 * MIB, "node_bytes": 2**30}
    assert found["select"] == {"workers": 4, "bytes": 400 * MIB, "node_bytes": 2**30}


def test_rates_are_kept_in_the_output_or_in_a_file_of_choice(config, tmp_path):
    assert read_rates(config, None).source == "assumed"
    measured = {"rows": 5000, "ingest": {"read_rows": 123.0}}
    write_rates(config, measured, None)
    assert read_rates(config, None).per_core("read_rows") == 123.0
    assert read_rates(config, None).per_core("partition_rows") == 40_000
    path = str(tmp_path / "mine.json")
    write_rates(config, measured, path)
    assert read_rates(config, path).source == path


@pytest.mark.parametrize("content", ["", "[]", '{"version": 0}'])
def test_a_file_that_is_none_of_rates_is_refused(config, tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="is no file of rates, version 1"):
        read_rates(config, str(path))
    with pytest.raises(ConfigError, match=r"--rates nowhere: cannot be read"):
        read_rates(config, "nowhere")


def test_what_a_plan_says_is_plain_data(config):
    found = cost(planned(config), nodes(1, 4), Rates())
    assert json.loads(json.dumps(found)) == found
    assert SimpleNamespace(**found).disk["candidates"] == 0
