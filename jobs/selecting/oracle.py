"""Coverage sums over the select actors, in the shape that `selection` asks them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.errors import InvariantError
from jobs.selecting.actor import Floats, Ground, Ints
from jobs.selecting.mapped import Stored
from jobs.selecting.workers import WHOLE, Workers
from jobs.vectors import Matrix


class ActorCoverage:
    """A `selection.coverage.CoverageOracle` over one ground of the actors.

    Partial sums are reduced in partition order in float64, so they do not depend on the actors.
    """

    def __init__(self, workers: Workers, ground: str, facts: tuple[int, float]) -> None:
        """Keep the ground.

        Args:
            workers: Started with the candidates that indices point into.
            ground: Name of the ground.
            facts: Its rows and weight, as `Workers.start` gave them.

        `heard` is called before every pick, for whoever wants to know that work goes on.
        """
        self.workers, self.ground = workers, ground
        self.n_points, self.total_weight = facts
        self._session = workers.n_sessions
        self.heard: Callable[[], None] | None = None

    def column_sum(self) -> Floats:
        """Weighted sum of all ground vectors, (d,)."""
        return _total(self._ask("column_sum"))

    def gains(self, indices: Ints) -> Floats:
        """Coverage gains of these candidates, (c,)."""
        return _total(self._ask("gains", indices))

    def gains_of(self, vectors: Stored) -> Floats:
        """Coverage gains of any vectors, (c,)."""
        import ray

        return _total(self._ask("gains_of", ray.put(vectors)))

    def moments(self, indices: Ints) -> tuple[Floats, Floats]:
        """Sum and sum of squares of what each candidate adds to the ground points, (c,) each."""
        parts = self._ask("moments", indices)
        sums = {p: one for p, (one, _) in parts.items()}
        return _total(sums), _total({p: squares for p, (_, squares) in parts.items()})

    def add(self, index: int) -> float:
        """Take a candidate as the next pick; returns its coverage gain."""
        return float(self.add_many(np.array([index], np.int64))[0])

    def add_many(self, indices: Ints) -> Floats:
        """Take candidates as the next picks, in order; their coverage gains, (c,)."""
        self._require_current()
        if self.heard is not None:
            self.heard()
        return _total(self.workers.add_many(self.ground, np.asarray(indices, np.int64)))

    def cover_with(self, vectors: Matrix) -> float:
        """Let vectors that are no candidates cover the ground; what they cover above -1."""
        self._require_current()
        return float(sum(self.workers.cover_with(self.ground, vectors).values()))

    def n_covered(self, k: int) -> Ints:
        """Points each of the first k picks covers best, (k,)."""
        parts = list(self._ask("n_covered", k).values())
        return np.sum(np.stack(parts), axis=0, dtype=np.int64)

    def reset(self) -> None:
        """Forget all picks, and what covered the ground before them."""
        self._require_current()
        self.workers.reset(self.ground)

    def members(self, ids: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which of these ids are ground points, (m,)."""
        found = np.zeros(len(ids), np.bool_)
        for places in self._ask("members", list(ids)).values():
            found[places] = True
        return found

    def points(self) -> tuple[pa.StringArray, Stored, Floats | None]:
        """The ground points in partition order: ids, vectors as stored, weights."""
        parts = [part for part in self._ask("points").values() if len(part[0])]
        if not parts:
            return pa.array([], pa.string()), np.zeros((0, 0), np.float32), None
        ids = pa.concat_arrays([part[0] for part in parts])
        weights = [part[2] for part in parts if part[2] is not None]
        joined = np.concatenate(weights) if weights else None
        return ids, np.concatenate([part[1] for part in parts]), joined

    def _ask(self, method: str, *args: Any) -> dict[int, Any]:
        self._require_current()
        return self.workers.ask(method, self.ground, *args)

    def _require_current(self) -> None:
        if self._session != self.workers.n_sessions:
            raise InvariantError("an oracle was used after its actors got other candidates")


def oracles(
    workers: Workers, candidates: Stored, grounds: Mapping[str, Ground] = WHOLE
) -> dict[str, ActorCoverage]:
    """Send candidates to the actors and give one oracle for each ground; earlier ones end here."""
    facts = workers.start(candidates, grounds)
    return {name: ActorCoverage(workers, name, one) for name, one in facts.items()}


def _total(parts: dict[int, Floats]) -> Floats:
    ordered = list(parts.values())
    total = np.zeros(ordered[0].shape, np.float64)
    for part in ordered:
        total += part
    return total
