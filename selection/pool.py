"""What Stage 2 is given: the queries, and the records that may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from selection.arrays import Float32, Float64, Int64, UInt64

# Pools up to this size keep all their cosines: 32 MiB.
GRAM_MOST = 2048


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
        query_in_ground: Each query counts as one more ground point, to itself alone.
        clusters: (n,) int64 codes of their clusters, -1 for none; None where no method reads them.
    """

    vectors: Float32
    tie_rank: Int64
    labels: Int64 | None = None
    ground: Float32 | None = None
    n_total: int | None = None
    query_in_ground: bool = False
    clusters: Int64 | None = None

    @cached_property
    def gram(self) -> Float64:
        """All cosines of a pool of at most GRAM_MOST, (n, n); of a larger one (0, 0).

        Computed once, O(n^2 d), by whoever asks first.
        """
        if len(self.vectors) > GRAM_MOST:
            return np.empty((0, 0), dtype=np.float64)
        wide = self.vectors.astype(np.float64)
        # Two buffers: a float64 matrix times its own transpose view has crashed OpenBLAS.
        return wide @ wide.copy().T


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
