"""The merge tree depends on sizes alone, fits its memory, and hands on enough."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selection.tree import candidate_bytes, plan_merges

MIB = 2**20


def planned(n, parts, k1, memory):
    """The plan, or None where no tree fits; whether that is said well is tested below."""
    with contextlib.suppress(ValueError):
        return plan_merges(n, parts, k1, dim=384, memory_bytes=memory)
    return None


@settings(deadline=None, max_examples=200)
@given(
    n=st.integers(1, 10**8),
    parts=st.integers(1, 4096),
    k1=st.integers(1, 50_000),
    memory=st.sampled_from([64 * MIB, 512 * MIB, 2048 * MIB]),
)
def test_every_merge_fits_and_the_root_can_fill_k1(n, parts, k1, memory):
    plan = planned(n, parts, k1, memory)
    if plan is None:
        return
    below, each = parts, plan.local_k
    for number, level in enumerate(plan.levels):
        groups = plan.groups(number)
        assert sorted(i for group in groups for i in group) == list(range(below))
        assert level.nodes == len(groups)
        assert max(map(len, groups)) == min(level.fan_in, below)
        if below > 1:
            assert level.candidates * candidate_bytes(384) <= memory / 2 + candidate_bytes(384)
        assert level.nodes * level.k >= min(k1, n * level.nodes // max(1, parts) // 2)
        below, each = level.nodes, level.k
    assert below == 1
    assert plan.levels[-1].k == each == k1
    assert parts * plan.local_k >= min(k1, n)


def test_a_small_k1_is_handed_on_whole_and_merged_once():
    plan = plan_merges(100_000, 64, 300, dim=384, memory_bytes=2048 * MIB)
    assert plan.local_k == 300
    assert [(level.nodes, level.candidates, level.k) for level in plan.levels] == [(1, 19_200, 300)]


def test_a_k1_above_the_partitions_is_handed_on_in_shares_over_two_levels():
    plan = plan_merges(200_000, 16, 20_000, dim=384, memory_bytes=192 * MIB)
    assert plan.local_k == 6_250
    assert len(plan.levels) == 2
    assert plan.levels[-1].k == 20_000


def test_a_hundred_million_rows_fit_small_workers():
    plan = plan_merges(10**8, 1024, 1000, dim=384, memory_bytes=1024 * MIB)
    assert plan.local_k == 1000
    assert len(plan.levels) == 2


def test_a_memory_that_no_tree_fits_is_refused_with_the_sum():
    with pytest.raises(ValueError, match=r"needs .* MiB in a worker, 16 MiB are declared"):
        plan_merges(10**6, 8, 20_000, dim=384, memory_bytes=16 * MIB)


def test_k1_of_all_rows_hands_everything_on():
    plan = plan_merges(1000, 4, 1000, dim=8, memory_bytes=MIB)
    assert plan.local_k >= 500  # whatever a partition may hold
    assert plan.levels[-1].k == 1000
