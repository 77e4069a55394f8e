"""A node or an actor killed in the middle of a stage: the run ends, as if nothing had been."""

import signal

import pytest

from tests.faults.driving import (
    ANSWERED,
    CHOSEN,
    CHOSEN_LOCALLY,
    EMBEDDED,
    N_PARTITIONS,
    answers,
    candidates,
    ended,
    found,
    shown,
    start,
    vectors,
    wait_for,
)

pytestmark = pytest.mark.ray
AFTER_EMBED = ("candidates", "demonstrations", "prompts", "outputs")


def lose_one_at(nodes, project, verb, pattern, *, n=1, unfinished=None):
    """Run a stage, and kill a node as soon as n files are there; some were still to come."""
    child = start(project, verb, nodes)
    wait_for(project, pattern, child, n=n)
    nodes.lose_one()
    still = found(project, unfinished or pattern)
    told = ended(child)
    assert len(still) < len(found(project, unfinished or pattern)), "too late to disturb anything"
    return told


def test_a_node_killed_during_embed_costs_no_vector(nodes, calm, begun):
    project = begun("embeddings", *AFTER_EMBED)
    lose_one_at(nodes, project, "embed", EMBEDDED)
    assert vectors(project) == vectors(calm)


def test_a_node_killed_during_the_local_greedy_changes_no_candidate(nodes, calm, begun):
    project = begun("candidates")
    lose_one_at(nodes, project, "select", CHOSEN_LOCALLY)
    assert candidates(project) == candidates(calm)


def test_a_node_killed_during_the_merge_changes_no_candidate(nodes, calm, begun):
    project = begun("candidates")
    lose_one_at(nodes, project, "select", CHOSEN_LOCALLY, n=N_PARTITIONS, unfinished=CHOSEN)
    assert candidates(project) == candidates(calm)


def test_a_node_killed_during_generate_costs_and_doubles_no_answer(nodes, calm, begun):
    project = begun("outputs")
    lose_one_at(nodes, project, "generate", ANSWERED)
    assert shown(project) == shown(calm)
    assert answers(project) == answers(calm)


def test_an_actor_killed_during_embed_costs_no_vector(nodes, calm, begun):
    project = begun("embeddings", *AFTER_EMBED)
    child = start(project, "embed", nodes)
    wait_for(project, EMBEDDED, child)
    worker = nodes.workers("UnitActor")[0]
    worker.send_signal(signal.SIGKILL)
    made = len(found(project, EMBEDDED))
    ended(child)
    assert made < len(found(project, EMBEDDED)), "too late to disturb anything"
    assert vectors(project) == vectors(calm)


def test_an_actor_killed_during_the_merge_changes_no_candidate(nodes, calm, begun):
    project = begun("candidates")
    child = start(project, "select", nodes)
    wait_for(project, CHOSEN_LOCALLY, child, n=N_PARTITIONS)
    nodes.workers("SelectWorker")[0].send_signal(signal.SIGKILL)
    assert not found(project, CHOSEN), "too late to disturb anything"
    ended(child)
    assert candidates(project) == candidates(calm)
