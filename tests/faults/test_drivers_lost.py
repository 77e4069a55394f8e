"""The driver killed or interrupted, two drivers at once, and the lock of a dead one."""

import json
import signal

import pytest

from tests.faults.driving import (
    ANSWERED,
    EMBEDDED,
    PATIENCE_S,
    answers,
    ended,
    found,
    kill,
    reason,
    shown,
    start,
    vectors,
    wait_for,
)
from tests.faults.test_nodes_lost import AFTER_EMBED

pytestmark = pytest.mark.ray


def times(project, pattern):
    return {path: path.stat().st_mtime_ns for path in found(project, pattern)}


def test_a_driver_killed_while_generating_is_started_again_and_goes_on(nodes, calm, begun):
    project = begun("outputs")
    child = start(project, "generate", nodes)
    wait_for(project, ANSWERED, child)
    kill(child)
    kept = times(project, ANSWERED)
    assert 0 < len(kept) < len(found(calm, ANSWERED)), "too late to disturb anything"
    dead = json.loads((project.out / "run.lock").read_text())["run_id"]
    told = ended(start(project, "generate", nodes))
    assert f"took over the lock of run {dead} (pid {child.pid}), which is dead" in told
    now = times(project, ANSWERED)
    assert {path: now[path] for path in kept} == kept
    assert shown(project) == shown(calm)
    assert answers(project) == answers(calm)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_with_130_without_a_lock_and_goes_on(nodes, calm, begun, sent):
    project = begun("embeddings", *AFTER_EMBED)
    child = start(project, "embed", nodes)
    wait_for(project, EMBEDDED, child)
    kill(child, sent)
    told = ended(child, code=130)
    assert "Interrupted: interrupted; the same command goes on" in told
    assert "Traceback" not in told
    assert not (project.out / "run.lock").exists()
    assert project.manifest["exit_code"] == 130
    kept = times(project, EMBEDDED)
    assert 0 < len(kept) < len(found(calm, EMBEDDED)), "too late to disturb anything"
    ended(start(project, "embed", nodes))
    now = times(project, EMBEDDED)
    assert {path: now[path] for path in kept} == kept
    assert vectors(project) == vectors(calm)


def test_of_two_runs_started_at_once_one_works_and_the_other_names_it(nodes, calm, begun):
    project = begun("embeddings", *AFTER_EMBED)
    both = [start(project, "embed", nodes) for _ in range(2)]
    told = [child.communicate(timeout=PATIENCE_S)[0] for child in both]
    codes = [child.returncode for child in both]
    assert sorted(codes) == [0, 4], told
    winner, loser = codes.index(0), codes.index(4)
    refusal = reason(told[loser])
    assert refusal.startswith("ClusterError: ")
    assert f"run {project.manifest['run_id']} (pid {both[winner].pid} on" in refusal
    assert "is working on this output" in refusal
    assert not (project.out / "run.lock").exists()
    assert vectors(project) == vectors(calm)
