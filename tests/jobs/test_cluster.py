"""Units of work through Ray Data: errors that travel, workers that die, resources that lack."""

import os
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pytest

from jobs import cluster
from jobs.cluster import connected
from jobs.config.cluster import ClusterConfig, WorkersConfig
from jobs.errors import ClusterError, DataError
from jobs.ledger import Ledger, Unit
from jobs.units import n_workers, run_units

pytestmark = pytest.mark.ray


@dataclass
class Work:
    out: str
    n_made: int = 0

    def __call__(self, payload):
        ledger, name = Ledger(self.out), payload["name"]
        if payload.get("fail"):
            raise DataError(f"{name}: a file that cannot be read")
        if payload.get("bug"):
            with ledger.store.path("tries").open("a") as file:
                file.write("x")
            raise ValueError(f"{name}: our own mistake")
        flag = ledger.store.path(f"died-{name}")
        if payload.get("die") and not flag.exists():
            flag.touch()
            os._exit(9)
        self.n_made += 1
        table = pa.table({"n": [self.n_made]})
        return ledger.commit(Unit("made", name, name), table)


@pytest.mark.parametrize("stateful", [True, False])
def test_every_unit_is_made_even_when_a_worker_dies(tmp_path, embedded_ray, stateful):
    payloads = [{"name": f"u{i}", "die": i == 3} for i in range(6)]
    made = run_units(Work(str(tmp_path)), payloads, workers=WorkersConfig(), stateful=stateful)
    assert sorted(marker.name for marker in made) == [f"u{i}" for i in range(6)]


def test_actors_keep_their_state_from_unit_to_unit(tmp_path, embedded_ray):
    payloads = [{"name": f"u{i}"} for i in range(6)]
    workers = WorkersConfig(actors=1)
    made = list(run_units(Work(str(tmp_path)), payloads, workers=workers, stateful=True))
    ledger = Ledger(str(tmp_path))
    assert sorted(ledger.read(m)["n"][0].as_py() for m in made) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("stateful", [True, False])
def test_an_error_the_user_can_act_on_keeps_its_class_and_text(tmp_path, embedded_ray, stateful):
    payloads = [{"name": "u0", "fail": True}]
    with pytest.raises(DataError, match="u0: a file that cannot be read"):
        list(run_units(Work(str(tmp_path)), payloads, workers=WorkersConfig(), stateful=stateful))


@pytest.mark.parametrize("stateful", [True, False])
def test_a_bug_in_a_unit_ends_the_run_at_once_and_is_not_tried_again(
    tmp_path, embedded_ray, stateful
):
    payloads = [{"name": "u0", "bug": True}]
    with pytest.raises(Exception, match="u0: our own mistake"):
        list(run_units(Work(str(tmp_path)), payloads, workers=WorkersConfig(), stateful=stateful))
    assert (tmp_path / "tries").read_text() == "x"


def test_a_worker_that_asked_for_no_gpu_sees_none(monkeypatch):
    from ray._private.utils import set_visible_accelerator_ids

    monkeypatch.delenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    monkeypatch.setattr(cluster, "_calm_ray_data", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    told = {}
    monkeypatch.setattr("ray.init", lambda **options: told.update(options["runtime_env"]))
    with connected(ClusterConfig()):
        pass
    for name, value in told["env_vars"].items():
        monkeypatch.setenv(name, value)
    ids = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": []})
    monkeypatch.setattr("ray.get_runtime_context", lambda: ids)
    set_visible_accelerator_ids()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("address", "message"),
    [("local", "local: Ray does not start: LookupError: slow"), ("a:1", "a:1: no Ray there")],
)
def test_whatever_ray_raises_at_its_start_is_told_as_of_the_cluster(monkeypatch, address, message):
    def refuse(**_):
        raise LookupError("slow")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(ClusterError, match=message), connected(ClusterConfig(address=address)):
        pass


def test_what_cannot_fit_is_refused_with_the_sum(embedded_ray):
    with pytest.raises(ClusterError, match=r"needs 4 CPUs, 0 GPUs; the cluster has 2 CPUs"):
        n_workers(WorkersConfig(cpus=4), 10)
    with pytest.raises(ClusterError, match=r"needs 1 CPUs, 2 GPUs; .*, 0 GPUs"):
        n_workers(WorkersConfig(gpus=2), 10)
    with pytest.raises(ClusterError, match=r"1 CPUs, 0 GPUs, 1 tpu; .*, 0 tpu, on no node"):
        n_workers(WorkersConfig(resources={"tpu": 1.0}), 10)


def test_never_more_workers_than_units_or_than_fit(embedded_ray):
    assert n_workers(WorkersConfig(), 1) == 1
    assert n_workers(WorkersConfig(actors=8), 10) == 2
    assert n_workers(WorkersConfig(cpus=0.5), 10) == 4
