"""The extra pass of a certificate: the gains that every row of the corpus still has."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.config.stage1 import Stage1Config
from jobs.ledger import Ledger, Marker
from jobs.selecting.actor import Floats
from jobs.selecting.inputs import Wishes, limits_of
from jobs.selecting.mapped import Mapped, Stored
from jobs.selecting.oracle import ActorCoverage
from jobs.selecting.side_columns import read_sides
from jobs.selecting.workers import Workers
from jobs.vectors import Matrix
from selection.diversity import LogDet
from selection.kernels import excess, lift_cover
from selection.objective import Objective
from selection.top_gains import TopGains, joined, top_gains

# Rows whose gains are asked for together: 12 MiB of float32 at 384 dimensions.
BLOCK_ROWS = 8192


@dataclass(frozen=True)
class Question:
    """What the rows of a partition could still add to a set.

    Attributes:
        config: The Stage 1 setting.
        wishes: The ids it names.
        objective: What the set is judged by.
        k: Picks wanted.
        scale: Factor by which a coverage sum enters f.
        ids: Ids of the set.
        picks: (s, d) float32, their vectors.
        given: (a, d) float32 vectors that were there before, or None.
        budget: What a set may cost, less what its required rows cost, or None.
    """

    config: Stage1Config
    wishes: Wishes
    objective: Objective
    k: int
    scale: float
    ids: tuple[str, ...]
    picks: Matrix
    given: Matrix | None = None
    budget: float | None = None

    @property
    def before(self) -> Matrix:
        """All that is chosen already, (a + s, d)."""
        return self.picks if self.given is None else np.concatenate([self.given, self.picks])


@dataclass(frozen=True)
class Sample:
    """Ground points that stand for the corpus, with how well a set covers them.

    Attributes:
        vectors: (m, d) as stored.
        weights: (m,) float64, or None.
        cover: (m,) float32.
    """

    vectors: Stored
    weights: Floats | None
    cover: Matrix


def covered_sample(vectors: Stored, weights: Floats | None, *, by: Matrix) -> Sample:
    """A sample with the cover of a set; O(m d s)."""
    cover = np.full(len(vectors), -1.0, np.float32)
    lift_cover(vectors, by, cover)
    return Sample(vectors, weights, cover)


def sampled_bounds(
    ledger: Ledger,
    parts: Sequence[Marker],
    rows: Mapped,
    question: Question,
    sample: Sample,
    threads: int = 1,
) -> TopGains:
    """The largest gains on a sample that rows of one partition have; O(n m d).

    Args:
        ledger: Of the output tree.
        parts: Row parts of the partition.
        rows: Its n rows.
        question: The set, and what bounds are wanted.
        sample: What gains are counted on; `question.scale` belongs to it.
        threads: Threads to use.

    Returns:
        What `selection.certificate` needs of this partition.
    """
    coverage = np.empty(len(rows), np.float64)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows.vectors[start : start + BLOCK_ROWS]
        coverage[start : start + len(block)] = excess(
            sample.vectors, sample.cover, block, weights=sample.weights, threads=threads
        )
    return bounds_of(ledger, parts, rows, question, coverage)


def bounds_of(
    ledger: Ledger, parts: Sequence[Marker], rows: Mapped, question: Question, coverage: Floats
) -> TopGains:
    """The largest gains that rows of one partition have, from their coverage gains; O(n d^2).

    Args:
        ledger: Of the output tree.
        parts: Row parts of the partition.
        rows: Its n rows.
        question: The set, and what bounds are wanted.
        coverage: (n,) float64 coverage sums, before `question.scale`.

    Returns:
        What `selection.certificate` needs of this partition.
    """
    sides = read_sides(ledger, parts, rows.ids, _names(question.config))
    limits = limits_of(question.config, question.wishes, rows, sides)
    assert limits.allowed is not None
    assert limits.required is not None
    # Every set holds those: they are no choice.
    limits.allowed[limits.required] = False
    picked = rows.find(pa.array(question.ids, pa.string()))
    return top_gains(
        question.scale * coverage,
        _diversity(rows, question),
        k=question.k,
        objective=question.objective,
        quality=sides.quality,
        picked=picked[picked >= 0],
        allowed=limits.allowed,
        groups=limits.groups,
        max_per_group=limits.max_per_group,
        costs=limits.costs,
        budget=question.budget,
    )


def _names(config: Stage1Config) -> list[str]:
    return sorted(config.columns_needed().keys() - {"weight"})


def _diversity(rows: Mapped, question: Question) -> Floats | None:
    if question.objective.lam == 0 or question.objective.ridge == 0:
        return None
    if not len(rows):
        return np.zeros(0, np.float64)
    term = LogDet(rows.vectors, question.objective.ridge)
    term.begin_with(question.before)
    return term.gains(np.arange(len(rows), dtype=np.int64))


def from_sample(workers: Workers, question: Question, sample: Sample) -> TopGains:
    """One pass of all rows over a sample of ground points: each actor looks at its own rows."""
    import ray

    sent = ray.put(question), ray.put(sample)
    return joined(list(workers.each(sampled_bounds, *sent, workers.threads).values()))


def from_all(
    workers: Workers, oracle: ActorCoverage, question: Question, counts: Sequence[int]
) -> TopGains:
    """One pass of all rows over all ground points: O(N^2 d), the price of a proof.

    Args:
        workers: Hold the rows.
        oracle: Sums over all rows, covered by the set in question (and by nothing else).
        question: The set, and what bounds are wanted.
        counts: Rows of each partition, in their order.

    Returns:
        The largest gains of all rows.
    """
    import ray

    coverage = {p: _summed(workers, oracle, partition=p, n=n) for p, n in enumerate(counts)}
    return joined(list(workers.each(bounds_of, ray.put(question), own=coverage).values()))


def _summed(workers: Workers, oracle: ActorCoverage, *, partition: int, n: int) -> Floats:
    gains = np.empty(n, np.float64)
    for start in range(0, n, BLOCK_ROWS):
        block = workers.block(partition, start, min(n, start + BLOCK_ROWS))
        gains[start : start + len(block)] = oracle.gains_of(block)
    return gains
