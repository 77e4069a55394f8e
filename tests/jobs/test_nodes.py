"""The same candidates from two and three nodes as from one, on a real local cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.conftest import Project

pytestmark = [pytest.mark.ray, pytest.mark.model]
ROOT = Path(__file__).parents[2]


def candidates(project):
    tables = [pq.read_table(path) for path in project.out.glob("candidates/*/candidates.parquet")]
    assert tables
    return sorted(
        (table.select(["id", "objective", "n_covered"]).to_pydict() for table in tables), key=str
    )


@pytest.fixture
def cluster():
    """A cluster with one CPU on each of two nodes, that can get a third."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20},
    )
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    yield cluster
    cluster.shutdown()


def test_two_and_three_nodes_choose_what_one_does(ray_project, cluster, tmp_path_factory):
    far = Project(tmp_path_factory.mktemp("far"))
    for project in (ray_project, far):
        project.config["arms"] = [{"name": "dual-div"}, {"name": "random", "stage1": "random"}]
    ray_project.execute("select")
    for n_nodes in (2, 3):
        if n_nodes == 3:
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            # What is embedded stays; only the choice is made anew, on all three.
            shutil.rmtree(far.out / "candidates")
        for stage in ("embed", "select"):
            far.config["cluster"][stage] = {"actors": n_nodes}
        done = subprocess.run(
            [sys.executable, "-m", "jobs", "select", far.path],
            cwd=ROOT,
            env=os.environ | {"RAY_ADDRESS": cluster.address},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert candidates(far) == candidates(ray_project)
