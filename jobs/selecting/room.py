"""What Stage 1 holds in memory, counted from sizes alone, and the merge tree that fits a worker.

Declared memory is for what grows with the data; a process with its imports and buffers is beside
it. Vectors of a partition are mapped from a file: their pages are resident and can be given up.
"""

import bisect
import math
from dataclasses import dataclass, replace

from jobs.errors import ConfigError
from jobs.selecting.sizes import MIB, Sizes
from selection.crowd import VOTERS_MOST
from selection.lazy_greedy import MOST_AT_ONCE
from selection.modes import Effort, middle_points
from selection.running import CANDIDATE_BYTES, POINT_BYTES
from selection.stage1 import WIDE_SHARE
from selection.tiles import CANDIDATE_BLOCK, CANDIDATE_TILE, GROUND_TILE
from selection.tree import BYTES_BESIDE, MergePlan, candidate_bytes, plan_merges

# A row's id as Arrow keeps it; cover (float32) and owner (int64) of a ground point.
ID_BYTES = 32
COVER_BYTES = 12
# Arrays of one number a candidate that live for a step, or for a look for the certificate.
STEP_BYTES = 80
# Of the log-determinant, 8 + 8 + 4 bytes a candidate.
LOG_DET_BYTES = 20
# A candidate's text, hash and numbers in a merge; its id as Python objects, in lists and a dict.
ROW_BYTES = 512
# A vote, in the graph and by its candidate; a block of voters beside a block of points, a thread.
VOTE_BYTES = 32
VOTE_TILE = 32 * MIB
OBJECT_BYTES = 250
# Copies of a merge's vectors: as read, as rows in order, as a matrix.
UNION_COPIES = 3
MOST_PARTITIONS = 65_536


@dataclass(frozen=True)
class Memory:
    """Bytes that processes hold at most.

    Attributes:
        process: A worker without data: imports, compiled kernels, tile buffers, 2 d^2 numbers.
        mapped: Vectors of the worker that holds most, in mapped files.
        partition: The largest partition while it chooses, its mapped vectors among it, by part.
        judging: What the worker that holds most keeps for the last merge, without vectors.
        merge: One merge below the last, by part; empty where there is none.
        shared: Candidates of the last merge, in the object store of every node.
        driver: The process that merges last.
        worker: Most that is resident in one worker, pages of files and object store included.
    """

    process: int
    mapped: int
    partition: dict[str, int]
    judging: int
    merge: dict[str, int]
    shared: int
    driver: int
    worker: int


def memory_of(sizes: Sizes, merges: MergePlan) -> Memory:
    """Count what every kind of process holds.

    Args:
        sizes: Of the setting.
        merges: Its tree.
    """
    process, mapped = _process(sizes), sizes.share * sizes.vector_bytes
    partition, merge = _partition(sizes, merges.local_k), _merge(sizes, merges)
    judging = _judging(sizes, sizes.root_effort(merges))
    shared = _root_rows(sizes, merges) * sizes.vector_bytes
    beside = sum(partition.values()) - partition["vectors"]
    ids = sizes.share * ID_BYTES
    most = max(beside + ids, judging + shared, sum(merge.values()) + ids)
    driver = process + shared + _driver(sizes, merges)
    return Memory(
        process, mapped, partition, judging, merge, shared, driver, process + mapped + most
    )


def _process(sizes: Sizes) -> int:
    tiles = sizes.threads * GROUND_TILE * (sizes.dim + CANDIDATE_TILE)
    return sizes.process_bytes + 4 * (tiles + 2 * CANDIDATE_BLOCK * sizes.dim) + 16 * sizes.dim**2


def _partition(sizes: Sizes, local_k: int) -> dict[str, int]:
    """Of the larger of its two phases: choosing, and writing what was chosen with its texts."""
    n = sizes.largest
    effort = sizes.local_effort(n, local_k)
    beside = 8 * len(sizes.stage1.columns_needed())
    choosing = {"arrays": n * (BYTES_BESIDE + COVER_BYTES + STEP_BYTES + beside)}
    if effort.mode == "dense":
        choosing["W"] = 4 * n**2
    if effort.mode == "screened":
        m2 = effort.m2 if isinstance(effort.m2, int) else 0
        samples = [m for m in (effort.m1, middle_points(effort, n), m2) if m]
        choosing["samples"] = sum(samples) * (4 * sizes.dim + COVER_BYTES + POINT_BYTES)
        choosing["sums"] = len(samples) * n * CANDIDATE_BYTES
    if effort.mode != "dense":
        choosing["gathered"] = _gathered(sizes, n)
        wide = 4 * n * sizes.dim
        if sizes.storage == "float16" and wide <= effort.memory_bytes // WIDE_SHARE:
            choosing["widened"] = wide
    choosing |= _own_rule(sizes, n, local_k)
    answer = 2 * min(local_k, n) * (2 * sizes.vector_bytes + _row(sizes))
    writing = {"texts": math.ceil(n * (sizes.text_bytes + 64)), "answer": answer}
    larger = max(choosing, writing, key=lambda parts: sum(parts.values()))
    return {"vectors": n * sizes.vector_bytes, "ids": n * ID_BYTES, **larger}


def _own_rule(sizes: Sizes, n: int, k: int) -> dict[str, int]:
    """What methods with a rule of their own hold beside arrays over the n points."""
    if sizes.stage1.method == "vote-k":
        voters = min(n, VOTERS_MOST)
        votes = voters * min(n, sizes.stage1.neighbours) * VOTE_BYTES
        drawn = 0 if voters == n else voters * sizes.vector_bytes
        # Rows of a block of points and of one of voters, as float64.
        tiles = sizes.threads * (VOTE_TILE + 8 * 4352 * sizes.dim)
        return {"votes": votes + drawn + tiles}
    if sizes.stage1.method == "kmeans":
        return {"centres": min(n, k) * (20 * sizes.dim + 64) + n * 8 * _trials(min(n, k))}
    return {}


def _trials(k: int) -> int:
    return 2 + math.ceil(math.log(max(1, k)))


def _judging(sizes: Sizes, effort: Effort) -> int:
    """Ids and covers of all its rows, its part of the samples, and the certificate's arrays."""
    weight = 8 if sizes.stage1.weighted else 0
    points = min(effort.m1, sizes.n_rows) + (sizes.root_sample(effort) or 0)
    part = math.ceil(points * sizes.share / max(1, sizes.n_rows))
    kept = sizes.share * (ID_BYTES + COVER_BYTES + weight)
    kept += part * (sizes.vector_bytes + COVER_BYTES + 8 + weight)
    return kept + sizes.largest * (STEP_BYTES + LOG_DET_BYTES + 8)


def _gathered(sizes: Sizes, n: int) -> int:
    """Vectors of the candidates that are looked at together, as stored and as float32."""
    return min(n, MOST_AT_ONCE) * (sizes.vector_bytes + 4 * sizes.dim)


def _row(sizes: Sizes) -> int:
    return max(ROW_BYTES, math.ceil(sizes.text_bytes) + 150)


def _union_bytes(sizes: Sizes) -> int:
    """Of a candidate while a union is made: vectors and rows as read and in order, and objects."""
    return UNION_COPIES * sizes.vector_bytes + 2 * _row(sizes) + OBJECT_BYTES


def _greedy_bytes(sizes: Sizes) -> int:
    return BYTES_BESIDE + STEP_BYTES


def _merge(sizes: Sizes, merges: MergePlan) -> dict[str, int]:
    """Of the largest; the lowest level reads the partitions' random rows too."""
    below = [
        (level.candidates, level.candidates * (1 if number else 2))
        for number, level in enumerate(merges.levels[:-1])
    ]
    if not below:
        return {}
    n = max(candidates for candidates, _ in below)
    rows = max(min(rows, sizes.n_rows) for _, rows in below)
    return {
        "candidates": rows * _union_bytes(sizes),
        "greedy": n * _greedy_bytes(sizes) + _gathered(sizes, n),
        "sample": _ground_bytes(sizes) + n * CANDIDATE_BYTES,
        **_own_rule_of_merge(sizes, n),
    }


def _own_rule_of_merge(sizes: Sizes, n: int) -> dict[str, int]:
    """The same in a merge, where voters are drawn from the corpus."""
    voters = min(sizes.n_rows, VOTERS_MOST)
    own = _own_rule(sizes, max(n, voters) if sizes.stage1.method == "vote-k" else n, sizes.k)
    if sizes.stage1.method == "vote-k":
        own["votes"] += voters * 2 * sizes.vector_bytes
    return own


def _ground_bytes(sizes: Sizes) -> int:
    return sizes.sample * (2 * sizes.vector_bytes + 2 * ID_BYTES + COVER_BYTES + POINT_BYTES)


def controls_kept(merges: MergePlan, k: int) -> int:
    """Random rows of each partition that the last merge needs for its two controls.

    Args:
        merges: The tree.
        k: Picks wanted.

    Returns:
        As many as give it the same number of random candidates, and surely those k rows of all
        that have the smallest keys.
    """
    if len(merges.levels) == 1:
        return merges.local_k
    fair = k / merges.partitions
    most = max(merges.levels[-1].candidates / merges.partitions, fair + 8 * math.sqrt(fair) + 8)
    return min(merges.local_k, math.ceil(most))


def _root_rows(sizes: Sizes, merges: MergePlan) -> int:
    controls = merges.partitions * controls_kept(merges, sizes.k)
    return min(sizes.n_rows, merges.levels[-1].candidates + controls)


def _driver(sizes: Sizes, merges: MergePlan) -> int:
    held = _root_rows(sizes, merges) * _union_bytes(sizes)
    n = merges.levels[-1].candidates
    held += n * _greedy_bytes(sizes) + _gathered(sizes, n)
    held += min(sizes.stage1.m1, sizes.n_rows) * (2 * sizes.vector_bytes + COVER_BYTES)
    held += sum(_own_rule_of_merge(sizes, n).values())
    return held + (8 * sizes.n_rows if sizes.stage1.certificate == "full" else 0)


# The tree, and what is refused.


def merges_of(sizes: Sizes) -> MergePlan:
    """Plan the merges so that what one of them really holds fits a worker.

    Args:
        sizes: Of the setting.

    Raises:
        ConfigError: No tree fits; says how much memory would.
    """
    found = _merges(sizes, sizes.declared)
    if found is not None:
        return found
    enough = sizes.declared
    while _merges(sizes, enough) is None:
        enough += enough // 8
    raise ConfigError(
        f"select.memory_per_worker = {sizes.select.memory_per_worker}: merging {sizes.k:,} picks "
        f"of {sizes.n_partitions:,} partitions needs {_mib(enough)} MiB in a worker, "
        f"{_mib(sizes.declared)} MiB are declared. Raise it to that, or lower stage1.k1 or "
        f"select.sample (now {sizes.select.sample:,})."
    )


def _merges(sizes: Sizes, memory_bytes: int) -> MergePlan | None:
    # A partition's random rows are read with its choice. Texts count as ROW_BYTES, whatever they
    # are: the tree decides on the picks, and must not follow an estimate.
    plain = replace(sizes, text_bytes=0.0)
    each = 2 * _union_bytes(plain) + _greedy_bytes(plain)
    most = min(sizes.n_rows, sizes.k * sizes.n_partitions)
    gathered = _gathered(plain, most) + sum(_own_rule_of_merge(plain, most).values())
    for beside in (gathered, gathered + _ground_bytes(sizes)):
        room = max(0, memory_bytes - beside) // each
        try:
            merges = plan_merges(
                sizes.n_rows,
                sizes.n_partitions,
                sizes.k,
                dim=sizes.dim,
                memory_bytes=2 * room * candidate_bytes(sizes.dim, sizes.width),
                width=sizes.width,
            )
        except ValueError:
            return None
        if len(merges.levels) == 1:
            return merges
    return merges


def require_room(sizes: Sizes) -> MergePlan:
    """Refuse a setting of which a partition, a merge or a worker's share does not fit.

    Args:
        sizes: Of the setting; in a run with the real `n_largest` and `n_workers`.

    Returns:
        The merge tree.

    Raises:
        ConfigError: It does not fit; says what would.
    """
    merges = merges_of(sizes)
    memory = memory_of(sizes, merges)
    if sum(memory.partition.values()) > sizes.declared:
        raise ConfigError(
            _refusal(sizes, f"a partition of {sizes.largest:,} rows", memory.partition)
            + _more_partitions(sizes)
        )
    if sum(memory.merge.values()) > sizes.declared:
        n = merges.levels[0].candidates
        raise ConfigError(
            _refusal(sizes, f"a merge of {n:,} candidates", memory.merge)
            + "Raise it, or lower stage1.k1 or select.sample."
        )
    if memory.judging > sizes.declared:
        rows = {"ids, covers and samples": memory.judging}
        raise ConfigError(
            _refusal(sizes, f"a worker with {sizes.share:,} of {sizes.n_rows:,} rows", rows)
            + f"Have {least_workers(sizes, merges):,} workers (cluster.select, more nodes), or "
            "raise it."
        )
    return merges


def least_workers(sizes: Sizes, merges: MergePlan) -> int:
    """Fewest workers whose shares of the rows fit; as many as partitions where none do.

    Args:
        sizes: Of the setting.
        merges: Its tree.
    """
    effort = sizes.root_effort(merges)

    def fits(n_workers: int) -> bool:
        return _judging(replace(sizes, n_workers=n_workers), effort) <= sizes.declared

    every = range(1, sizes.n_partitions + 1)
    return min(sizes.n_partitions, 1 + bisect.bisect_left(every, True, key=fits))


def _refusal(sizes: Sizes, what: str, parts: dict[str, int]) -> str:
    shown = ", ".join(f"{name} {_mib(n)}" for name, n in parts.items())
    return (
        f"select.memory_per_worker = {sizes.select.memory_per_worker}: {what} needs "
        f"{_mib(sum(parts.values()))} MiB ({shown}) in a worker, {_mib(sizes.declared)} MiB are "
        "declared. "
    )


def _more_partitions(sizes: Sizes) -> str:
    enough = _mib(sum(_partition(sizes, merges_of(sizes).local_k).values()))
    count = 2 * sizes.n_partitions
    while count <= MOST_PARTITIONS:
        more = replace(sizes, n_partitions=count, n_largest=None)
        merges = _merges(more, more.declared)
        if merges and sum(_partition(more, merges.local_k).values()) <= more.declared:
            return (
                f"Set corpus.partition.count to {count:,} (now {sizes.n_partitions:,}), or raise "
                f"it to {enough} MiB."
            )
        count *= 2
    return (
        f"No number of partitions helps with select.sample = {sizes.select.sample:,}: raise it to "
        f"{enough} MiB, or lower the sample."
    )


def _mib(n_bytes: int) -> str:
    return f"{math.ceil(n_bytes / MIB):,}"
