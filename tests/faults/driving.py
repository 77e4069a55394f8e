"""Runs of the command line on a small cluster, disturbed at a moment that their files tell."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.jobs.conftest import Project, sentences, write_jsonl

ROOT = Path(__file__).parents[2]
N_ROWS, N_PARTITIONS, N_QUERIES, K1 = 4000, 24, 96, 60
STORE_MIB = 100
# On a machine that nobody else uses a run takes less than one; this is for one that is crowded.
PATIENCE_S = 600
STARTED: list[subprocess.Popen] = []
EMBEDDED = "embeddings/*/*/part.done.json"
CHOSEN_LOCALLY = "candidates/*/local-*.done.json"
CHOSEN = "candidates/*/candidates.done.json"
ANSWERED = "outputs/*/part-*.done.json"


class Nodes:
    """A Ray cluster: a head that only keeps the books, and nodes of one CPU that can be killed."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self._store, self._dead = STORE_MIB << 20, []
        # A dead node is missed after three seconds; Ray's own patience is a quarter of a minute.
        patience = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": self._store,
                "_system_config": patience,
            },
        )
        self.heal()

    @property
    def address(self):
        return self.cluster.address

    def heal(self, n=2):
        """Have n nodes, whatever was killed before."""
        while self._dead:
            self.cluster.remove_node(self._dead.pop(), allow_graceful=False)
        while len(self.cluster.worker_nodes) < n:
            self.cluster.add_node(num_cpus=1, object_store_memory=self._store)
        self.cluster.wait_for_nodes()

    def lose_one(self):
        """Kill a node with all its processes, as a spot node goes."""
        node = sorted(self.cluster.worker_nodes, key=str)[0]
        # At once: Ray's own removal of a node takes its time, and the books can wait for `heal`.
        for raylet in _raylets([node]):
            doomed = [*raylet.children(recursive=True), raylet]
            for process in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._dead.append(node)

    def spilled(self):
        """Files that Ray's object stores had no room for."""
        session = Path(self.cluster.head_node.get_session_dir_path())
        folders = session.glob("ray_spilled_objects*")
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]

    def workers(self, kind):
        """Worker processes of a kind of actor, on all nodes."""
        return [
            child
            for raylet in _raylets(self.cluster.worker_nodes)
            for child in raylet.children(recursive=True)
            if kind in " ".join(child.cmdline())
        ]


def _raylets(nodes):
    infos = [info for node in nodes for info in node.all_processes["raylet"]]
    return [psutil.Process(info.process.pid) for info in infos]


def make_project(root, models, *, n_rows=N_ROWS):
    """A corpus that two CPUs need seconds for at every stage, in more parts than there are CPUs."""
    project = Project(root)
    write_jsonl(root / "corpus" / "a.jsonl", sentences(n_rows))
    write_jsonl(root / "queries.jsonl", sentences(N_QUERIES, seed=1, prefix="q"))
    config = project.config
    config["corpus"]["partition"] = {"count": N_PARTITIONS}
    config["queries"]["partition"] = {"count": 6}
    # One text at a time: slow enough that there is a middle to be killed in.
    config["encoders"] = {"tiny": {"model": models["encoder"], "pooling": "mean", "batch_size": 1}}
    config["engines"] = {
        "tiny": {"model": models["llm"], "max_model_len": 1024, "kv_cache_memory_bytes": 32 << 20}
    }
    config["stage1"] = {"k1": K1}
    config["cluster"] = {"cpus": 2, "object_store_mib": 100}
    config["arms"] = [{"name": "main"}]
    config["report"] = {"map_rows": 0, "bootstrap": 10}
    return project


def begin(calm, root, *, without):
    """The project of a run that is through all stages but these, of which nothing is left."""
    project = Project(root)
    project.config = calm.config | {"out": str(project.out)}
    shutil.copytree(calm.out, project.out)
    for folder in without:
        shutil.rmtree(project.out / folder)
    return project


def start(project, verb, nodes=None, **environment):
    """Start the command line on the cluster, or on a Ray of its own."""
    env = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | environment
    if nodes is not None:
        env["RAY_ADDRESS"] = nodes.address
    child = subprocess.Popen(
        [sys.executable, "-m", "jobs", verb, project.path],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(child)
    return child


def stop_all():
    """End what a failed test left running: it would disturb the next one."""
    while STARTED:
        child = STARTED.pop()
        if child.poll() is None:
            child.kill()
            child.communicate()


def ended(child, *, code=0, timeout_s=PATIENCE_S):
    """What a run said, which must end with this code."""
    try:
        told, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        told, _ = child.communicate()
        raise AssertionError(f"did not end within {timeout_s} s:\n{told}") from None
    assert child.returncode == code, f"exit code {child.returncode}, wanted {code}:\n{told}"
    return told


def found(project, pattern):
    return sorted(project.out.glob(pattern))


def wait_for(project, pattern, child, *, n=1, timeout_s=PATIENCE_S):
    """Wait until n files of this kind are there, while the run goes on."""
    deadline = time.monotonic() + timeout_s
    while len(found(project, pattern)) < n:
        assert child.poll() is None, f"ended before {n} {pattern}:\n{child.communicate()[0]}"
        assert time.monotonic() < deadline, f"{pattern}: never {n}"
        time.sleep(0.01)


def kill(child, number=signal.SIGKILL):
    child.send_signal(number)
    if number == signal.SIGKILL:
        child.wait()


# What must be equal however a run was disturbed; times and cached tokens may differ.


def candidates(project):
    return _tables(project, "candidates/*/candidates.parquet")


def shown(project):
    """Demonstrations and prompts."""
    return [
        *_tables(project, "demonstrations/*/part-*.parquet"),
        *_tables(project, "prompts/*/part.parquet"),
    ]


def answers(project):
    """Rows of the outputs, by id, without what an engine may count differently."""
    rows = [
        {key: row[key] for key in ("id", "arm", "demonstration_ids", "prompt", "status", "gold")}
        for path in found(project, "outputs/*/part-*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["arm"], row["id"]))


def _tables(project, pattern):
    tables = [pq.read_table(path) for path in found(project, pattern)]
    assert tables, pattern
    assert all(isinstance(table, pa.Table) for table in tables)
    return tables


def vectors(project):
    """Committed vectors of both tables."""
    return _tables(project, "embeddings/*/*/part.parquet")


def reason(told):
    """What a command that failed says before its last line, which is its exit code."""
    *_, why, code = told.strip().splitlines()
    assert code.startswith("exit code "), told
    return why
