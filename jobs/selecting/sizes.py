"""What memory and time of a Stage 1 setting depend on: numbers only."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from jobs.config.stage1 import SelectConfig, Stage1Config
from selection.modes import Effort, resolve
from selection.stage1 import MAXIMISE_F
from selection.tree import MergePlan

MIB = 2**20
# Measured: resident memory after importing Ray and the select actor and one small greedy of each
# mode, so that the kernels are compiled.
PROCESS_BYTES = 267 * MIB
# Standard deviations by which the largest of many random partitions is above the mean.
SPREAD = 4


@dataclass(frozen=True)
class Sizes:
    """What the memory and the time of one Stage 1 setting depend on.

    Attributes:
        n_rows: Rows that have a vector, N.
        dim: d.
        k: Picks wanted.
        stage1: The setting; `k` counts, not its k1.
        select: Declared memory, and what merges judge on.
        n_partitions: P.
        storage: `float32` or `float16`, as vectors are stored.
        n_workers: Select workers that the partitions are dealt to.
        threads: Threads of a worker.
        n_largest: Rows of the largest partition, where that is known.
        text_bytes: Mean length of a text.
        process_bytes: Of a process that holds no data.
    """

    n_rows: int
    dim: int
    k: int
    stage1: Stage1Config
    select: SelectConfig
    n_partitions: int = 1
    storage: str = "float32"
    n_workers: int = 1
    threads: int = 1
    n_largest: int | None = None
    text_bytes: float = 200.0
    process_bytes: int = PROCESS_BYTES

    @property
    def width(self) -> int:
        """Bytes of one stored number."""
        return 2 if self.storage == "float16" else 4

    @property
    def vector_bytes(self) -> int:
        """Bytes of one stored vector."""
        return self.dim * self.width

    @property
    def declared(self) -> int:
        """Declared memory of a worker."""
        return self.select.memory_bytes

    @property
    def sample(self) -> int:
        """Ground points of the merges below the last."""
        return min(self.select.sample, self.n_rows)

    @property
    def mean(self) -> int:
        """Mean rows of a partition, rounded up."""
        return -(-self.n_rows // self.n_partitions)

    @property
    def largest(self) -> int:
        """Rows of the largest partition; by hash they differ as random ones do."""
        if self.n_largest is not None:
            return self.n_largest
        spread = SPREAD * math.sqrt(self.mean) if self.n_partitions > 1 else 0.0
        return min(self.n_rows, math.ceil(self.mean + spread))

    @property
    def share(self) -> int:
        """Rows of the worker that holds most."""
        each = -(-self.n_partitions // min(self.n_workers, self.n_partitions))
        spread = (self.largest - self.mean) * math.sqrt(each)
        return min(self.n_rows, math.ceil(self.mean * each + spread))

    def local_effort(self, n: int, local_k: int) -> Effort:
        """How gains are computed inside a partition of n rows."""
        effort = self._effort(self.stage1.m2)
        found = resolve(effort, n_ground=n, n_candidates=n, k=local_k, square=True)
        # What f did not choose is only judged by it.
        return found if self.stage1.method in MAXIMISE_F else replace(found, mode="exact")

    def merge_effort(self, n_candidates: int, k: int) -> Effort:
        """How gains are computed in a merge below the last."""
        effort = self._effort(self.stage1.m2)
        return resolve(effort, n_ground=self.sample, n_candidates=n_candidates, k=k, square=False)

    def root_effort(self, merges: MergePlan) -> Effort:
        """How gains are computed in the last merge."""
        m2 = self.stage1.m2
        if self.select.merge_ground == "sample":
            m2 = max(self.select.sample, self.stage1.m1)
        elif self.select.merge_ground == "all":
            m2 = "all"
        return resolve(
            self._effort(m2),
            n_ground=self.n_rows,
            n_candidates=min(self.n_rows, merges.levels[-1].candidates),
            k=self.k,
            square=False,
        )

    def root_sample(self, root: Effort) -> int | None:
        """Rows that the last merge judges candidates on; None: all."""
        if not isinstance(root.m2, int):
            return None
        # One that was asked for is used also where gains are not screened.
        asked = self.select.merge_ground == "sample"
        return root.m2 if root.mode == "screened" or asked else None

    def _effort(self, m2: int | Literal["all"] | None) -> Effort:
        config = self.stage1
        return Effort(
            config.mode, config.m1, m2, config.z, config.unseen, memory_bytes=self.declared
        )
