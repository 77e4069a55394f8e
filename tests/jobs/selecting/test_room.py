"""Memory of Stage 1 is counted from sizes, and what does not fit is refused before any work."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.errors import ConfigError
from jobs.selecting.room import (
    controls_kept,
    least_workers,
    memory_of,
    merges_of,
    require_room,
)
from jobs.selecting.sizes import MIB, Sizes

HUGE = 10**8


def sized(n, k, *, memory="2GiB", stage1=None, select=None, **more):
    """Sizes of 384 numbers in 16 bits, 64 workers."""
    return Sizes(
        n_rows=n,
        dim=384,
        k=k,
        stage1=Stage1Config(k1=k, **(stage1 or {})),
        select=SelectConfig(memory_per_worker=memory, **(select or {})),
        storage="float16",
        **({"n_workers": 64} | more),
    )


def fits(sizes):
    memory = memory_of(sizes, merges_of(sizes))
    held = [sum(memory.partition.values()), sum(memory.merge.values()), memory.judging]
    return max(held) <= sizes.declared


@pytest.mark.parametrize(("partitions", "nodes"), [(1024, 4), (4096, 16)])
def test_a_hundred_million_rows_fit_workers_of_two_gib(partitions, nodes):
    sizes = sized(HUGE, 1000, n_partitions=partitions)
    merges = require_room(sizes)
    assert [level.nodes for level in merges.levels] == [nodes, 1]
    assert merges.local_k == merges.levels[0].k == merges.levels[1].k == 1000
    memory = memory_of(sizes, merges)
    assert sum(memory.partition.values()) < 352 * MIB
    assert sum(memory.merge.values()) < 2048 * MIB
    assert memory.judging < 128 * MIB
    assert memory.driver < 1024 * MIB
    assert least_workers(sizes, merges) == 3
    assert memory.mapped == pytest.approx(HUGE / 64 * 768, rel=0.01)


def test_a_partition_that_is_too_large_names_a_number_of_partitions_that_fits():
    sizes = sized(HUGE, 1000, n_partitions=8)
    with pytest.raises(ConfigError, match=r"partition of 12,5.* MiB are declared") as refused:
        require_room(sizes)
    count = int(re.search(r"count to ([\d,]+)", str(refused.value))[1].replace(",", ""))
    require_room(replace(sizes, n_partitions=count))
    assert not fits(replace(sizes, n_partitions=count // 2))


def test_a_partition_that_is_too_large_names_a_memory_that_fits():
    sizes = sized(20_000, 100, memory="8MiB", n_workers=1)
    with pytest.raises(ConfigError, match=r"raise it to [\d,]+ MiB") as refused:
        require_room(sizes)
    enough = re.search(r"raise it to ([\d,]+) MiB", str(refused.value))[1].replace(",", "")
    require_room(replace(sizes, select=SelectConfig(memory_per_worker=f"{enough}MiB")))


def test_a_sample_that_no_merge_holds_is_named_where_more_partitions_do_not_help():
    sizes = sized(1_000_000, 100, memory="40MiB", n_partitions=8)
    with pytest.raises(ConfigError, match=r"No number of partitions .* select\.sample = 131,072"):
        require_room(sizes)
    fewer = replace(sizes, select=SelectConfig(memory_per_worker="40MiB", sample=4096))
    with pytest.raises(ConfigError, match=r"Set corpus\.partition\.count to 64 ") as refused:
        require_room(fewer)
    assert "select.sample" not in str(refused.value)
    require_room(replace(fewer, n_partitions=64))


def test_a_dense_mode_that_was_asked_for_is_refused_when_w_does_not_fit():
    with pytest.raises(ConfigError, match=r"W 38,147"):
        require_room(sized(100_000, 10, stage1={"mode": "dense"}))
    require_room(sized(100_000, 10))


def test_merges_that_fit_no_tree_name_a_memory_that_does():
    sizes = sized(200_000, 20_000, memory="128MiB", n_partitions=16)
    with pytest.raises(ConfigError, match=r"needs ([\d,]+) MiB in a worker, 128 MiB") as refused:
        require_room(sizes)
    enough = re.search(r"needs ([\d,]+) MiB", str(refused.value))[1].replace(",", "")
    require_room(replace(sizes, select=SelectConfig(memory_per_worker=f"{enough}MiB")))


def test_too_few_workers_are_refused_with_the_number_that_fits():
    sizes = sized(HUGE, 1000, n_partitions=4096, n_workers=1)
    with pytest.raises(ConfigError, match=r"Have 3 workers"):
        require_room(sizes)
    require_room(replace(sizes, n_workers=3))


def test_a_real_partition_size_counts_instead_of_the_expected_one():
    even = sized(1_000_000, 100, n_partitions=64)
    require_room(even)
    with pytest.raises(ConfigError, match=r"a partition of 990,000 rows"):
        require_room(
            replace(even, n_largest=990_000, select=SelectConfig(memory_per_worker="1GiB"))
        )


def test_small_corpora_fit_the_smallest_memory():
    stage1, select = Stage1Config(k1=10), SelectConfig(memory_per_worker="2MiB")
    sizes = Sizes(400, 384, 10, stage1, select, n_partitions=8)
    assert len(require_room(sizes).levels) == 1
    more = require_room(replace(sizes, dim=8, n_rows=2000, k=50, n_partitions=16))
    assert len(more.levels) == 2


@settings(deadline=None, max_examples=100)
@given(
    n=st.integers(1, HUGE),
    parts=st.integers(1, 4096),
    k=st.integers(1, 30_000),
    mode=st.sampled_from(["auto", "dense", "exact", "screened"]),
    memory=st.sampled_from(["64MiB", "2GiB"]),
    width=st.sampled_from(["float16", "float32"]),
)
def test_what_is_not_refused_fits(n, parts, k, mode, memory, width):
    sizes = sized(n, min(k, n), memory=memory, stage1={"mode": mode}, n_partitions=parts)
    sizes = replace(sizes, storage=width)
    try:
        merges = require_room(sizes)
    except ConfigError:
        return
    assert fits(sizes)
    memory = memory_of(sizes, merges)
    assert memory.worker >= memory.process + memory.mapped
    assert 1 <= least_workers(sizes, merges) <= min(parts, sizes.n_workers)
    assert 1 <= controls_kept(merges, sizes.k) <= merges.local_k


def test_the_texts_of_a_partition_do_not_change_the_tree():
    short = sized(HUGE, 1000, n_partitions=4096)
    assert merges_of(short) == merges_of(replace(short, text_bytes=100_000.0))


def test_no_more_workers_than_are_needed_change_the_tree():
    few = sized(HUGE, 1000, n_partitions=4096, n_workers=4)
    assert require_room(few) == require_room(replace(few, n_workers=4096, threads=8))


def test_votes_and_centres_are_counted_where_they_are_held():
    def partition(method, **more):
        stage1 = {"method": method, **more}
        sizes = sized(10_000, 100, stage1=stage1, n_workers=1)
        return memory_of(sizes, merges_of(sizes)).partition

    assert partition("vote-k")["votes"] > 10_000 * 150 * 32
    assert partition("vote-k", neighbours=15)["votes"] < partition("vote-k")["votes"]
    assert partition("kmeans")["centres"] > 100 * 384 * 20
    assert not {"votes", "centres", "W"} & {*partition("kcenter"), *partition("random")}
    tree = sized(HUGE, 1000, n_partitions=1024, stage1={"method": "vote-k"})
    assert fits(tree)
    assert memory_of(tree, require_room(tree)).merge["votes"] > 16_384 * 150 * 32
