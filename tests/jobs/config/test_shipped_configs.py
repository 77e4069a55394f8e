"""`dualdiv plan` on every config that is shipped, with rows of the right shape and no network."""

import sqlite3
from pathlib import Path

import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inference import models
from jobs.config.load import load
from jobs.errors import ConfigError, ModelOutOfReach
from jobs.plan import plan
from jobs.planning.cluster import Machines, Node
from jobs.progress import Progress

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
N_ROWS = 30


@pytest.fixture(autouse=True)
def no_network(tmp_path, monkeypatch):
    """An empty hub cache on a machine without a network, in a folder of its own."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    models._commit.cache_clear()
    yield
    models._commit.cache_clear()


def make_data(config):
    """Rows as `dualdiv prepare` writes them, with synthetic texts."""
    file = config.file
    task = file.tasks[config.arms[0].task]
    for table in (file.corpus, file.queries):
        mapped = {name: getattr(table.columns, name) for name in ("output", "label", "group")}
        names = [name for name in mapped.values() if name] + table.columns.keep
        labels = task.labels or ["shop"]
        columns = {"id": [f"r{i}" for i in range(N_ROWS)]}
        columns |= {name: [f"{name} {i}" for i in range(N_ROWS)] for name in names}
        columns["input"] = [f"text number {i} about nothing" for i in range(N_ROWS)]
        columns["label"] = [labels[i % len(labels)] for i in range(N_ROWS)]
        Path(table.path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), table.path)
    if task.databases is not None:
        Path(task.databases).mkdir(parents=True)
        with sqlite3.connect(Path(task.databases) / "shop.sqlite") as connection:
            connection.execute("CREATE TABLE item(name TEXT)")


@pytest.mark.model
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_plan_accepts_every_config_that_is_shipped(path, capsys):
    config = load(str(path))
    make_data(config)
    answer = plan(config, progress=Progress())
    assert answer["arms"].keys() == {arm.name for arm in config.arms}
    assert all(arm["prompts"] == N_ROWS for arm in answer["arms"].values())
    for_gpu = path.stem.endswith("-gpu")
    assert len(answer["models_not_looked_up"]) == (5 if for_gpu else 0)
    assert ("no copy in the local hub cache" in capsys.readouterr().err) == for_gpu


@pytest.mark.model
def test_a_plan_without_a_network_still_refuses_what_can_be_seen_to_be_wrong():
    path = next(str(path) for path in CONFIGS if path.stem == "ddi-gpu")
    make_data(load(path))
    for setting, said in (
        ("engines.qwen.model=package:qwen", "no such packaged model"),
        ("engines.qwen.model=/models/qwen", "wanted a folder"),
        ("encoders.medcpt.preset=medcp", "is none of bge-large"),
        ("generate.max_tokens=5000", "max_model_len 4096 leaves no prompt"),
        ("grid.engine=[qwem]", "'qwem' is not among engines"),
        ("corpus.path=nowhere.parquet", "no such file"),
    ):
        with pytest.raises(ConfigError, match=said):
            plan(load(path, settings=[setting]), progress=Progress())


@pytest.mark.model
def test_a_worker_must_have_the_gpus_that_share_its_model():
    path = next(str(path) for path in CONFIGS if path.stem == "ddi-gpu")
    make_data(load(path))
    two = ["engines.qwen.tensor_parallel_size=2"]
    with pytest.raises(ConfigError, match=r"generate\.gpus = 1: engines\.qwen .* among 2 GPUs"):
        plan(load(path, settings=[*two, "cluster.generate.gpus=1"]), progress=Progress())
    # Engines that fit one GPU may share it.
    half = load(path, settings=["cluster.generate.gpus=0.5"])
    plan(half, progress=Progress(), machines=Machines((Node(64, 8),), "told"))


def test_a_run_needs_the_models_that_a_plan_can_do_without():
    from jobs.checks import check_config

    config = load(next(str(path) for path in CONFIGS if path.stem == "ddi-gpu"))
    make_data(config)
    with pytest.raises(ModelOutOfReach, match=r"encoders\.bge-large: .*hf download"):
        check_config(config, until="embed")
