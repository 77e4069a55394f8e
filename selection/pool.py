"""What Stage 2 is given: the queries, and the records that may be shown."""

from __future__ import annotations

from dataclasses import dataclass

from selection.arrays import Float32, Float64, Int64, UInt64


@dataclass(frozen=True)
class Pool:
    """The records that may be shown, in the order they were picked.

    Attributes:
        vectors: (n, d) float32 unit vectors.
        tie_rank: (n,) int64, the rank of each id among the ids.
        labels: (n,) int64 codes of their labels, -1 for none; None where no task labels them.
        ground: (m, d) float32 unit vectors, the corpus or a uniform sample of it; None where no
            method sums over it.
        n_total: N of the whole corpus; None means m.
    """

    vectors: Float32
    tie_rank: Int64
    labels: Int64 | None = None
    ground: Float32 | None = None
    n_total: int | None = None


@dataclass(frozen=True)
class Queries:
    """Queries that are ranked together; what is ranked for one never depends on the others.

    Attributes:
        vectors: (q, d) float32 unit vectors.
        keys: (q,) uint64 hashes of their ids, for draws that no batch or order changes.
    """

    vectors: Float32
    keys: UInt64


@dataclass(frozen=True)
class Recalled:
    """Candidates of each query, the most relevant first, that a selector chooses among.

    Attributes:
        indices: (q, r) int64 into the pool, distinct within a row; -1 behind the last.
        relevance: (q, r) float64, larger is more relevant: cosines, BM25 scores, fused ranks; nan
            behind the last.
    """

    indices: Int64
    relevance: Float64
