"""Ray actors that hold the vectors of whole partitions, and the coverage sums over all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.config_schema import WorkersConfig
from jobs.errors import ERRORS, ClusterError, DualdivError
from jobs.ledger import Ledger, Marker
from jobs.vectors import Matrix, usable
from selection.coverage import CoverageShard

MAX_RESTARTS = 3
START_TIMEOUT_S = 300.0
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SelectWorker:
    """Holds some partitions: selects inside each, and sums coverage gains over each."""

    def __init__(self, out: str, partitions: dict[int, list[dict[str, Any]]]) -> None:
        """Load the vectors.

        Args:
            out: Output tree.
            partitions: Partition number -> markers of its embedding parts.
        """
        self._ledger = Ledger(out)
        self._markers = {p: [Marker(**m) for m in plain] for p, plain in partitions.items()}
        self._loaded: dict[int, tuple[list[str], Matrix]] = {}
        self._shards: dict[int, CoverageShard] = {}
        self._candidates: Matrix | None = None

    def local(self, work: Callable[..., Marker], payload: dict[str, Any]) -> dict[str, Any]:
        """Run the Ray-free local selection on one partition; user errors travel as data."""
        try:
            ids, vectors = self._partition(payload["partition"])
            return {"marker": work(self._ledger, payload, ids, vectors).as_dict()}
        except DualdivError as error:
            return {"error": type(error).__name__, "text": str(error)}

    def start(self, candidates: Matrix, picks: Sequence[int]) -> dict[int, int]:
        """Get ready to judge candidates, with the picks made so far; gives points per partition."""
        self._candidates = candidates
        for partition in self._markers:
            if partition not in self._shards:
                self._shards[partition] = CoverageShard(self._partition(partition)[1])
            self._shards[partition].reset()
        if picks:
            self.add_many(list(picks))
        return {p: shard.n_points for p, shard in self._shards.items()}

    def reset(self) -> dict[int, int]:
        """Forget the picks."""
        for shard in self._shards.values():
            shard.reset()
        return {p: 0 for p in self._shards}

    def column_sum(self) -> dict[int, Floats]:
        """Sum of the vectors of each partition."""
        return {p: shard.column_sum() for p, shard in self._shards.items()}

    def gains(self, indices: Ints) -> dict[int, Floats]:
        """Coverage gains of these candidates on each partition."""
        block = self._block(indices)
        return {p: shard.gains(block) for p, shard in self._shards.items()}

    def add_many(self, indices: Sequence[int]) -> dict[int, Floats]:
        """Take these candidates as the next picks, in order; their gains on each partition."""
        block = self._block(np.asarray(indices, np.int64))
        return {p: np.array([shard.add(row) for row in block]) for p, shard in self._shards.items()}

    def n_covered(self, k: int) -> dict[int, Ints]:
        """Points of each partition that each of the first k picks covers best."""
        return {p: shard.n_covered(k) for p, shard in self._shards.items()}

    def _block(self, indices: Ints) -> Matrix:
        assert self._candidates is not None
        return self._candidates[indices]

    def _partition(self, partition: int) -> tuple[list[str], Matrix]:
        if partition not in self._loaded:
            self._loaded[partition] = usable(self._ledger, self._markers[partition])
        return self._loaded[partition]


class Workers:
    """The select actors of one encoder; a lost one is started again and brought up to date."""

    def __init__(
        self,
        out: str,
        partitions: dict[int, list[dict[str, Any]]],
        *,
        resources: WorkersConfig,
        n_actors: int,
    ) -> None:
        """Start the actors, partitions dealt round-robin."""
        self._out, self._resources = out, resources
        numbers = sorted(partitions)
        self._dealt = [
            {p: partitions[p] for p in numbers[i::n_actors]} for i in range(max(1, n_actors))
        ]
        self._actors = [self._new(i) for i in range(len(self._dealt))]
        self._deaths = [0] * len(self._actors)
        self._candidates: Any = None
        self._picks: list[int] = []
        self._await(self._actors)

    def _await(self, actors: Sequence[Any]) -> None:
        """Wait until actors run; for ever is too long when the cluster has no room for them."""
        import ray

        up = [actor.reset.remote() for actor in actors]
        _, late = ray.wait(up, num_returns=len(up), timeout=START_TIMEOUT_S)
        if late:
            have = ray.available_resources().get("CPU", 0.0)
            raise ClusterError(
                f"select: {len(late)} of {len(self._dealt)} actors found no room in "
                f"{START_TIMEOUT_S:.0f} s; each needs {self._resources.cpus:g} CPUs, {have:g} are "
                "free. Lower cluster.select.actors or .cpus, or add nodes; what is done is kept."
            )

    def _new(self, number: int) -> Any:
        import ray

        actor = ray.remote(SelectWorker).options(
            num_cpus=self._resources.cpus, num_gpus=self._resources.gpus or 0
        )
        return actor.remote(self._out, self._dealt[number])

    def local(
        self, work: Callable[..., Marker], payloads: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Run the local selections, each where its partition lives.

        Raises:
            DualdivError: What one of them raised.
        """
        owner = {p: i for i, dealt in enumerate(self._dealt) for p in dealt}
        calls = [(owner[payload["partition"]], "local", (work, payload)) for payload in payloads]
        results: list[dict[str, Any]] = self._call(calls)
        for result in results:
            if "error" in result:
                raise ERRORS[result["error"]](result["text"])
        return results

    def start(self, candidates: Matrix) -> int:
        """Send the candidates to every actor; returns the number of points in all partitions."""
        import ray

        self._candidates, self._picks = ray.put(candidates), []
        return sum(self.everywhere("start", self._candidates, []).values())

    def everywhere(self, method: str, *args: Any) -> dict[int, Any]:
        """Call a method on every actor; results by partition, in the order of partitions."""
        results = self._call([(i, method, args) for i in range(len(self._actors))])
        merged = {p: value for result in results for p, value in result.items()}
        if method == "add_many":
            self._picks.extend(args[0])
        if method == "reset":
            self._picks = []
        return dict(sorted(merged.items()))

    def stop(self) -> None:
        """Let the actors go."""
        import ray

        for actor in self._actors:
            ray.kill(actor)

    def _call(self, calls: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        import ray

        waiting = [getattr(self._actors[i], method).remote(*args) for i, method, args in calls]
        results = []
        for (number, method, args), reference in zip(calls, waiting, strict=True):
            try:
                results.append(ray.get(reference))
            except ray.exceptions.RayActorError as error:
                results.append(self._again(number, method, args, error))
        return results

    def _again(self, number: int, method: str, args: tuple[Any, ...], cause: Exception) -> Any:
        """Repeat a call that died with its actor, on a new one that has the same picks."""
        import ray

        while self._deaths[number] < MAX_RESTARTS:
            try:
                self._revive(number, starting=method == "start")
                return ray.get(getattr(self._actors[number], method).remote(*args))
            except ray.exceptions.RayActorError as error:
                cause = error
        raise ClusterError(
            f"select: one of its actors died {self._deaths[number] + 1} times, last with: {cause}. "
            "Give them more memory: fewer on a node (cluster.select.cpus), or more nodes."
        ) from cause

    def _revive(self, number: int, *, starting: bool) -> None:
        """Replace a dead actor; two calls that died together find it replaced by the first."""
        import ray

        try:
            ray.get(self._actors[number].reset.remote())
        except ray.exceptions.RayActorError:
            self._deaths[number] += 1
            self._actors[number] = self._new(number)
            self._await([self._actors[number]])
        if self._candidates is not None and not starting:
            ray.get(self._actors[number].start.remote(self._candidates, self._picks))


@dataclass
class ActorCoverage:
    """A `selection.coverage.CoverageOracle` over actors, reduced in partition order in float64."""

    workers: Workers
    candidates: Matrix
    n_points: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_points = self.workers.start(self.candidates)

    def column_sum(self) -> Floats:
        """Sum of all ground vectors, (d,)."""
        return _total(self.workers.everywhere("column_sum"))

    def gains(self, indices: Ints) -> Floats:
        """Coverage gains of these candidates, (c,)."""
        return _total(self.workers.everywhere("gains", indices))

    def add(self, index: int) -> float:
        """Take a candidate as the next pick; returns its coverage gain."""
        return float(self.add_many([index])[0])

    def add_many(self, indices: Sequence[int]) -> Floats:
        """Take candidates as the next picks, in order; their coverage gains, (k,)."""
        return _total(self.workers.everywhere("add_many", [int(i) for i in indices]))

    def n_covered(self, k: int) -> Ints:
        """Points each of the first k picks covers best, (k,)."""
        parts = list(self.workers.everywhere("n_covered", k).values())
        return np.sum(np.stack(parts), axis=0, dtype=np.int64)

    def reset(self) -> None:
        """Forget all picks."""
        self.workers.everywhere("reset")


def _total(parts: dict[int, Floats]) -> Floats:
    ordered = list(parts.values())
    total = np.zeros(ordered[0].shape, np.float64)
    for part in ordered:
        total += part
    return total
