"""A whole run through the command line with real Ray, encoder and vLLM, and what kills it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.browser import inspect_page
from tests.jobs.conftest import Project

pytestmark = [pytest.mark.ray, pytest.mark.model]
ROOT = Path(__file__).parents[2]
ARMS = [
    {"name": "zero-shot", "stage1": "none", "stage2": "zero-shot"},
    {"name": "random+knn", "stage1": "random"},
    {"name": "dual-div", "stage2": {"method": "dual-div", "condition_on": "all"}},
]


def start(project, verb="run"):
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    return subprocess.Popen(
        [sys.executable, "-m", "jobs", verb, project.path],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(child):
    told, _ = child.communicate(timeout=600)
    assert child.returncode == 0, told
    return told


def kill_when(project, pattern, child):
    """SIGKILL the driver as soon as a file of this kind is there."""
    deadline = time.monotonic() + 300
    while not list(project.out.glob(pattern)):
        assert child.poll() is None, f"ended before {pattern}: {child.communicate()[0]}"
        assert time.monotonic() < deadline, f"{pattern} never came"
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


def table_files(project, skip=()):
    """Content and time of every committed table."""
    found = {}
    for marker in project.out.rglob("*.done.json"):
        path = marker.with_name(marker.name.replace(".done.json", ".parquet"))
        name = str(path.relative_to(project.out))
        if not name.startswith("tmp/"):
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found


def ids_by_arm(project):
    found = {}
    for path in sorted(project.out.glob("outputs/*/part-*.parquet")):
        found.setdefault(path.parent.name, []).extend(pq.read_table(path)["id"].to_pylist())
    return {arm: sorted(ids) for arm, ids in found.items()}


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """The same project run undisturbed, and beside it killed at three moments and resumed."""
    calm, disturbed = (Project(tmp_path_factory.mktemp(name)) for name in ("calm", "disturbed"))
    for project in (calm, disturbed):
        project.config["arms"] = ARMS
    undisturbed = start(calm)
    try:
        disturb(disturbed)
        calm.told = finish(undisturbed)
    finally:
        undisturbed.kill()
    return calm, disturbed


def disturb(project):
    """Kill the run as soon as each of three stages has something, then let it end."""
    project.kept = []
    for moment in (
        "embeddings/*/*/part.done.json",
        "candidates/*/local-*.done.json",
        "outputs/*/part-*.done.json",
    ):
        kill_when(project, moment, start(project))
        project.kept.append(table_files(project))
    project.told = finish(start(project))


@pytest.fixture(scope="module")
def calm(projects):
    return projects[0]


def test_a_run_killed_three_times_ends_like_an_undisturbed_one(projects):
    calm, disturbed = projects
    assert "took over the lock" in disturbed.told
    assert ids_by_arm(calm) == ids_by_arm(disturbed)
    for kind in ("candidates/*/candidates", "demonstrations/*/part-*", "prompts/*/part"):
        tables = [
            [pq.read_table(path) for path in sorted(project.out.glob(f"{kind}.parquet"))]
            for project in projects
        ]
        assert tables[0]
        assert all(a.equals(b) for a, b in zip(*tables, strict=True))


def test_what_was_finished_before_a_kill_is_never_touched_again(projects):
    _, disturbed = projects
    now = table_files(disturbed)
    for kept in disturbed.kept:
        assert kept
        assert {name: now[name] for name in kept} == kept


def test_every_query_appears_exactly_once_in_every_arm(calm):
    expected = sorted(f"q{i}" for i in range(12))
    assert ids_by_arm(calm) == {arm["name"]: expected for arm in ARMS}


def test_manifest_status_and_files_agree(calm):
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "status", str(calm.out), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert answer["result"] == calm.manifest["result"] == "done"
    assert answer["holder"] is None
    assert {name: arm["rows"] for name, arm in answer["arms"].items()} == {
        arm["name"]: 12 for arm in ARMS
    }
    assert [stage["missing"] for stage in answer["stages"].values()] == [[]] * 9
    summary = pq.read_table(calm.out / "metrics" / "summary.parquet").to_pylist()
    assert {row["arm"]: row["n"] for row in summary} == {arm["name"]: 12 for arm in ARMS}
    tests = pq.read_table(calm.out / "metrics" / "paired_tests.parquet").to_pylist()
    assert [(row["arm_a"], row["arm_b"]) for row in tests if row["metric"] == "accuracy"] == [
        *(("random+knn", "zero-shot"), ("dual-div", "zero-shot"), ("dual-div", "random+knn"))
    ]
    audit = pq.read_table(calm.out / "metrics" / "audit.parquet")
    assert sum(row["n_shown"] for row in audit.to_pylist()) == 2 * 2 * 12


def test_outputs_carry_what_was_asked_answered_and_spent(calm):
    rows = [
        row
        for path in calm.out.glob("outputs/random+knn/part-*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    for row in rows:
        assert row["status"] == "ok"
        assert row["prediction"] in ("water", "metal", "music")
        assert row["gold"] in ("water", "metal", "music")
        assert len(row["demonstration_ids"]) == 2
        assert row["prompt"].startswith("Name the topic.")
        assert row["prompt_tokens"] > row["cached_tokens"] >= 0
        assert row["engine_s"] > 0
        assert row["queue_s"] >= 0
        assert row["pool_version"] == "v0001"


def test_the_report_opens_without_errors_or_requests(calm):
    facts = inspect_page(calm.out / "report.html")
    assert facts.console_errors == []
    assert facts.requests == []
    assert facts.images
    for words in ("McNemar", "nearest demonstration", *(arm["name"] for arm in ARMS)):
        assert words in facts.text


def test_progress_is_a_few_plain_lines_without_carriage_returns(calm):
    body = calm.told.rpartition("---\n")[2]
    assert "\r" not in calm.told
    assert len(body.splitlines()) < 45
    assert body.splitlines()[-1].endswith("report.html")


def test_an_interrupt_ends_with_130_and_leaves_no_lock(tmp_path):
    project = Project(tmp_path)
    child = start(project, "embed")
    while not list(project.out.glob("corpus/*/part-*.done.json")):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    told, _ = child.communicate(timeout=60)
    assert child.returncode == 130, told
    assert "Traceback" not in told.rpartition("---\n")[2]
    assert not (project.out / "run.lock").exists()
    assert project.manifest["exit_code"] == 130
