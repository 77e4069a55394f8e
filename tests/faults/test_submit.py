"""`ray job submit` of the checkout itself: the quickstart, stopped and resumed, and failing."""

import gzip
import json
import time

import pyarrow.parquet as pq
import pytest
import yaml

from tests.faults.head_node import ROOT, HeadNode

pytestmark = [pytest.mark.ray, pytest.mark.model]
N_ROWS, N_QUERIES = 400, 8
IN_ENVIRONMENT, IN_CONFIG = "canary-9b1f0c77ae", "canary-5d20e814c3"


@pytest.fixture(scope="module")
def head():
    pytest.importorskip("simple_icd_10_cm", reason="the quickstart's corpus is not installed")
    node = HeadNode(AWS_SECRET_ACCESS_KEY=IN_ENVIRONMENT, HF_TOKEN=IN_ENVIRONMENT)
    yield node
    node.end()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The quickstart's tables, small, where every node would see them."""
    from jobs.prepare import prepare

    folder = tmp_path_factory.mktemp("data")
    prepare("icd10", out=str(folder), rows=N_ROWS)
    queries = folder / "queries.parquet"
    pq.write_table(pq.read_table(queries).slice(0, N_QUERIES), queries)
    return folder


@pytest.fixture(scope="module")
def calm(head, data, tmp_path_factory):
    """The quickstart as it is shipped, with nothing but paths changed: (out, what was said)."""
    out = tmp_path_factory.mktemp("calm") / "out"
    done = head.submit(
        *("calm", "-m", "jobs", "run", "configs/quickstart.yaml", "--out", str(out)),
        *("--set", f"corpus.path={data}/corpus.parquet"),
        *("--set", f"queries.path={data}/queries.parquet"),
    )
    assert done.returncode == 0, done.stdout
    return out, done.stdout


@pytest.fixture(scope="module")
def config(data, tmp_path_factory):
    """The quickstart with a credential in it that no engine needs, writing to `out`."""
    root = tmp_path_factory.mktemp("config")

    def write(name, **changes):
        plain = yaml.safe_load((ROOT / "configs/quickstart.yaml").read_text())
        plain["corpus"]["path"] = changes.pop("corpus", f"{data}/corpus.parquet")
        plain["queries"]["path"] = f"{data}/queries.parquet"
        plain["engines"]["smollm2"]["extra"] = {"hf_token": IN_CONFIG}
        plain["out"] = str(root / name)
        path = root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plain | changes))
        return path, root / name

    return write


def tables(out, pattern, columns=None):
    found = [pq.read_table(path, columns=columns) for path in sorted(out.glob(pattern))]
    assert found, pattern
    return found


def answers(out):
    columns = ["id", "arm", "prompt", "demonstration_ids", "status"]
    rows = [r for t in tables(out, "outputs/*/part-*.parquet", columns) for r in t.to_pylist()]
    return sorted(rows, key=lambda row: (row["arm"], row["id"]))


def test_the_quickstart_runs_from_the_working_directory(calm, head):
    out, told = calm
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["result"], manifest["exit_code"]) == ("done", 0)
    assert (out / "report.html").stat().st_size > 10_000
    assert len(answers(out)) == 5 * N_QUERIES
    assert "\r" not in told
    assert head.state("calm") == "SUCCEEDED"


def test_driver_and_workers_import_what_was_shipped_and_nothing_installed(head):
    script = (
        "import ray, jobs; ray.init(); "
        "where = ray.remote(lambda: __import__('inference').__file__); "
        "print('FROM', jobs.__file__, ray.get(where.remote()))"
    )
    told = head.submit("where", "-c", script).stdout
    line = next(line for line in told.splitlines() if line.startswith("FROM "))
    assert line.count("/working_dir_files/_ray_pkg_") == 2


def test_a_stopped_job_resumes_and_equals_an_undisturbed_one(calm, head, config):
    path, out = config("stopped")
    head.submit("stopped", "-m", "jobs", "generate", str(path), wait=False)
    deadline = time.monotonic() + 240
    while len(list(out.glob("embeddings/*/*/part.done.json"))) < 2:
        assert head.state("stopped") in ("PENDING", "RUNNING"), head.job("logs", "stopped").stdout
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopped = head.job("stop", "stopped")
    assert head.state("stopped") == "STOPPED", stopped.stdout
    assert not list(out.glob("outputs/*/part-*.parquet"))
    kept = {p: p.stat().st_mtime_ns for p in out.glob("embeddings/*/*/part.*")}
    assert kept

    again = head.submit("again", "-m", "jobs", "generate", str(path))
    assert again.returncode == 0, again.stdout
    assert "there already" in again.stdout
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    undisturbed, _ = calm
    for kind in ("candidates/*/candidates.parquet", "demonstrations/*/part-*.parquet"):
        columns = ["rank", "id"] if kind.startswith("candidates") else ["id"]
        assert tables(out, kind, columns) == tables(undisturbed, kind, columns)
    assert answers(out) == answers(undisturbed)
    assert_no_canary(out, again.stdout + head.job("logs", "stopped").stdout)


def test_a_failing_job_is_1_for_ray_and_its_own_code_in_manifest_and_log(head, config, tmp_path):
    bad = tmp_path / "bad.jsonl.gz"
    bad.write_bytes(
        gzip.compress(b'{"id": "a", "input": "b", "label": "c", "group": "d"}\n' * 99)[:-9]
    )
    path, out = config("failing", corpus=str(bad))
    done = head.submit("failing", "-m", "jobs", "run", str(path))
    assert done.returncode == 1
    assert head.state("failing") == "FAILED"
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["result"], manifest["exit_code"]) == ("failed", 3)
    log = head.job("logs", "failing").stdout
    lines = [line for line in log.splitlines() if line.startswith("exit code ")]
    assert lines == ["exit code 3"]
    assert_no_canary(out, done.stdout + log)


def test_a_config_mistake_writes_nothing_and_its_code_is_in_the_log(head, config):
    path, out = config("mistake", stage9={"password": IN_CONFIG})
    done = head.submit("mistake", "-m", "jobs", "run", str(path))
    assert done.returncode == 1
    assert "exit code 2" in done.stdout.splitlines()
    assert not out.exists()
    assert_no_canary(out, done.stdout)


def test_more_actors_than_the_cluster_has_room_for_are_refused_before_work(head, config):
    path, out = config("greedy", cluster={"embed": {"actors": 3}, "generate": {"gpus": 1.0}})
    done = head.submit("greedy", "-m", "jobs", "run", str(path))
    assert "embed: needs 3 CPUs, cluster has 2 CPUs" in done.stdout
    assert "generate: needs 1 GPUs, cluster has 0 GPUs" in done.stdout
    assert "exit code 4" in done.stdout.splitlines()
    assert not (out / "corpus").exists()


def assert_no_canary(out, told):
    """Every byte of an output and everything that was said is free of credentials."""
    for canary in (IN_ENVIRONMENT, IN_CONFIG):
        assert canary not in told
        for path in out.rglob("*"):
            if path.is_file():
                assert canary.encode() not in path.read_bytes(), path


def test_the_quickstarts_output_and_log_hold_no_credential(calm):
    out, told = calm
    assert_no_canary(out, told)
