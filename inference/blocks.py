"""Few fixed blocks of demonstrations that serve many queries, for prompts that share a prefix."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MAX_ROUNDS = 20
_QUERIES_AT_A_TIME = 65_536


@dataclass(frozen=True)
class Blocks:
    """Blocks of demonstrations, and what queries keep of their own lists in them.

    Args:
        members: per block the records, most relevant first; a block may be short.
        relevance: of the members, summed over the block's queries.
        n_queries: queries per block.
        kept: relevance that all queries keep, over that of their whole lists; 0 to 1.
    """

    members: list[list[int]]
    relevance: list[list[float]]
    n_queries: list[int]
    kept: float


def find_blocks(ranked: Ints, *, n_records: int, n_blocks: int, size: int) -> Blocks:
    """Choose blocks so that queries keep as much relevance as can be, each query in one block.

    The relevance of a record to a query is 1 / (its place in the query's list), whatever the
    ranking's scores mean. Seeds are the records that cover most of what is uncovered, greedily;
    then queries go to the block that keeps most of their list and blocks take the records with the
    highest summed relevance, in turns until nothing changes. No turn lowers the relevance kept.

    Args:
        ranked: (q, k) records per query, most relevant first; -1 where a list has ended.
        n_records: records are numbered 0 to n_records - 1; ties go to the lower number.
        n_blocks: most blocks.
        size: records in a block.

    Returns:
        Blocks with at least one query each; none where no query has a list. The order of queries
        does not matter. O(q k b) time a turn, O(q k) memory.
    """
    ranked = ranked[(ranked >= 0).any(axis=1)]
    ranked = ranked[np.lexsort(ranked.T[::-1])]
    if not len(ranked):
        return Blocks([], [], [], 0.0)
    routes = _seeded(ranked, n_records=n_records, n_blocks=n_blocks)
    members: list[list[int]] = []
    sums = np.zeros((0, n_records))
    for _ in range(_MAX_ROUNDS):
        # A block that has lost its queries is gone.
        routes = np.unique(routes, return_inverse=True)[1]
        sums = _sums(ranked, routes, n_records=n_records)
        members = [_top(row, size) for row in sums]
        after = route(ranked, members)
        if np.array_equal(after, routes):
            break
        routes = after
    counts = np.bincount(routes, minlength=len(members))
    used = [block for block in range(len(members)) if counts[block]]
    total = float(np.sum(_weights(ranked)))
    kept = float(sum(_kept(part, members).max(axis=1).sum() for part in _parts(ranked)))
    return Blocks(
        members=[members[block] for block in used],
        relevance=[sums[block, members[block]].tolist() for block in used],
        n_queries=[int(counts[block]) for block in used],
        kept=kept / total,
    )


def route(ranked: Ints, members: list[list[int]]) -> Ints:
    """Return for each query the block that keeps most of its list; ties to the first block.

    Args:
        ranked: (q, k) as for `find_blocks`.
        members: at least one block.

    Returns:
        (q,) numbers of blocks. O(q k b) time.
    """
    parts = [_kept(part, members).argmax(axis=1) for part in _parts(ranked)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _weights(ranked: Ints) -> Floats:
    """Relevance of every entry, (q, k)."""
    return np.where(ranked >= 0, 1.0 / np.arange(1, ranked.shape[1] + 1), 0.0)


def _parts(ranked: Ints) -> list[Ints]:
    starts = range(0, len(ranked), _QUERIES_AT_A_TIME)
    return [ranked[start : start + _QUERIES_AT_A_TIME] for start in starts]


def _kept(ranked: Ints, members: list[list[int]]) -> Floats:
    """Relevance that each query keeps in each block, (q, b)."""
    weights, found = _weights(ranked), np.zeros((len(ranked), len(members)))
    for block, records in enumerate(members):
        found[:, block] = np.where(np.isin(ranked, records), weights, 0.0).sum(axis=1)
    return found


def _seeded(ranked: Ints, *, n_records: int, n_blocks: int) -> Ints:
    """Route each query to the seed record that is most relevant to it."""
    weights = _weights(ranked)
    best, routes = np.zeros(len(ranked)), np.zeros(len(ranked), np.int64)
    for block in range(n_blocks):
        gains = np.maximum(0.0, weights - best[:, None])
        valid = ranked >= 0
        total = np.bincount(ranked[valid], weights=gains[valid], minlength=n_records)
        seed = int(total.argmax())
        if total[seed] <= 0:
            break
        own = np.where(ranked == seed, weights, 0.0).max(axis=1)
        routes[own > best] = block
        best = np.maximum(best, own)
    return routes


def _sums(ranked: Ints, routes: Ints, *, n_records: int) -> Floats:
    """Relevance of each record summed over the queries of each block, (b, n_records)."""
    n_blocks, valid = int(routes.max()) + 1, ranked >= 0
    cells = (routes[:, None] * n_records + ranked)[valid]
    sums = np.bincount(cells, weights=_weights(ranked)[valid], minlength=n_blocks * n_records)
    return np.asarray(sums.reshape(n_blocks, n_records), np.float64)


def _top(sums: Floats, size: int) -> list[int]:
    """Return the records with the highest sums above 0."""
    order = np.argsort(-sums, kind="stable")[:size]
    return [int(record) for record in order if sums[record] > 0]
