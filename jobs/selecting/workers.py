"""The select actors of a run; a lost one is replaced and told all that it had been told."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs import interrupts
from jobs.capacity import ray_options
from jobs.config.cluster import WorkersConfig
from jobs.errors import ERRORS, ClusterError
from jobs.ledger import Marker
from jobs.selecting.actor import Barred, Failure, Floats, Ground, Ints, Plain, SelectWorker
from jobs.selecting.mapped import Stored
from jobs.units import n_workers, threads
from jobs.vectors import Matrix
from jobs.watching import watch
from jobs.watching.stretch import Stretch
from selection.arrays import rows_of

MAX_RESTARTS = 3
# An autoscaler may have to start nodes first, which takes it minutes.
START_TIMEOUT_S = 900.0
# How often the driver, while it waits, looks whether it was asked to stop.
LOOK_S = 1.0
# How long a lost actor's successor waits for a node that comes in the place of a lost one.
ROOM_TIMEOUT_S = 20.0
WHOLE = {"all": Ground()}


@dataclass(frozen=True)
class Found:
    """Rows looked up by id.

    Attributes:
        partition: (m,) where each lives, -1 for an id that no partition has.
        vectors: (m, d) float32, zero for an id that is not there; d is 0 if none is.
    """

    partition: Ints
    vectors: Matrix

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """(m,) whether the id was found."""
        return self.partition >= 0


class Workers:
    """The select actors of one encoder; a lost one is started again and brought up to date.

    What they are told between two calls of `start` is remembered, ground by ground, and told again
    to an actor that replaces a lost one.
    """

    def __init__(
        self,
        out: str,
        partitions: dict[int, Plain],
        *,
        resources: WorkersConfig,
        n_actors: int,
        rows: dict[int, Plain] | None = None,
        stretch: Stretch | None = None,
        barred: Barred | None = None,
    ) -> None:
        """Start the actors, partitions dealt round-robin.

        Args:
            out: Output tree.
            partitions: Partition number -> markers of its embedding parts.
            resources: Of one actor; with GPUs, sums run there.
            n_actors: Actors wanted.
            rows: Partition number -> markers of its row parts, where side columns are needed.
            barred: Names the rows of some row parts that are taken as not there; None: none.
            stretch: Hears from the actors.
        """
        self._out, self._resources, self._rows = out, resources, rows or {}
        self._barred = barred
        self._stretch = stretch or Stretch("select")
        numbers = sorted(partitions)
        self._dealt = [
            {p: partitions[p] for p in numbers[i::n_actors]} for i in range(max(1, n_actors))
        ]
        self._owner = {p: i for i, dealt in enumerate(self._dealt) for p in dealt}
        self._actors = [self._new(i) for i in range(len(self._dealt))]
        self._deaths = [0] * len(self._actors)
        self._session: tuple[Any, dict[str, Ground]] | None = None
        self._told: dict[str, list[tuple[str, Any]]] = {}
        self.n_sessions = 0
        self._await(self._actors)

    def _await(self, actors: Sequence[Any]) -> None:
        """Wait until actors run; for ever is too long when the cluster has no room for them."""
        import ray

        late = _late(actors, START_TIMEOUT_S)
        if late:
            have = ray.available_resources().get("CPU", 0.0)
            raise ClusterError(
                f"select: {late} of {len(self._dealt)} actors found no room in "
                f"{START_TIMEOUT_S:.0f} s; each needs {self._resources.cpus:g} CPUs, {have:g} are "
                "free. Lower cluster.select.actors or .cpus, or add nodes; what is done is kept."
            )

    def _new(self, number: int, *, cpus: float | None = None) -> Any:
        import ray

        gpus = self._resources.gpus or 0
        needed = self._resources if cpus is None else WorkersConfig(gpus=0.0)
        actor = ray.remote(SelectWorker).options(
            **ray_options(needed) | ({} if cpus is None else {"num_cpus": cpus})
        )
        dealt = self._dealt[number]
        return actor.remote(
            self._out,
            dealt,
            rows={p: self._rows[p] for p in dealt if p in self._rows},
            barred=self._barred,
            threads=threads(self._resources),
            device="cuda" if gpus else "cpu",
            teller=self._stretch.teller,
        )

    @property
    def n_actors(self) -> int:
        """Actors that share the partitions."""
        return len(self._actors)

    @property
    def threads(self) -> int:
        """Threads that each actor may use."""
        return threads(self._resources)

    # Work inside partitions.

    def local(
        self, work: Callable[..., Marker], payloads: Sequence[dict[str, Any]]
    ) -> list[Marker]:
        """Run work(ledger, payload, rows) on each payload's partition, where it lives.

        Raises:
            DualdivError: What one of them raised.
        """
        import ray

        sent = ray.put(work)
        calls = [(self._owner[one["partition"]], "local", (sent, one)) for one in payloads]
        return [Marker(**plain) for plain in self._call(calls)]

    def spread(
        self, work: Callable[..., Marker], payloads: Sequence[dict[str, Any]]
    ) -> list[Marker]:
        """Run work(ledger, payload), which needs no partition, dealt round-robin.

        Raises:
            DualdivError: What one of them raised.
        """
        import ray

        sent, n = ray.put(work), len(self._actors)
        calls = [(i % n, "run", (sent, one)) for i, one in enumerate(payloads)]
        return [Marker(**plain) for plain in self._call(calls)]

    def peak_bytes(self) -> int:
        """Most memory one of the actors ever had resident."""
        return max(self._everywhere("peak_bytes").values(), default=0)

    def each(
        self, work: Callable[..., Any], *args: Any, own: Mapping[int, Any] | None = None
    ) -> dict[int, Any]:
        """Run work(ledger, row markers, rows, *args) on every partition.

        Args:
            work: Ray-free; sent to the actors.
            args: The same for all; large arrays as references.
            own: Partition -> one more argument for that partition.

        Returns:
            The results by partition, in their order.
        """
        numbers = sorted(self._owner)
        extra = {p: () if own is None else (own[p],) for p in numbers}
        calls = [(self._owner[p], "on", (p, work, *args, *extra[p])) for p in numbers]
        return dict(zip(numbers, self._call(calls), strict=True))

    def block(self, partition: int, start: int, stop: int) -> Stored:
        """Some vectors of a partition, in the order of its ids, as stored."""
        (block,) = self._call([(self._owner[partition], "block", (partition, start, stop))])
        return block

    def find(self, ids: Sequence[str]) -> Found:
        """Look up rows by id.

        Args:
            ids: m distinct ids.

        Returns:
            Where each lives, and its vector.
        """
        parts = self._everywhere("find", list(ids))
        width = max((vectors.shape[1] for _, vectors in parts.values()), default=0)
        partition = np.full(len(ids), -1, np.int64)
        matrix = np.zeros((len(ids), width), np.float32)
        for p, (places, vectors) in parts.items():
            if len(places):
                partition[places], matrix[places] = p, rows_of(vectors, slice(None))
        return Found(partition, matrix)

    # Sums over all partitions.

    def start(
        self, candidates: Stored, grounds: Mapping[str, Ground] = WHOLE
    ) -> dict[str, tuple[int, float]]:
        """Send the candidates to every actor, and forget the grounds and picks of before.

        Args:
            candidates: (n, d) float32 or float16.
            grounds: What sums will run over, by name.

        Returns:
            Rows and weight of each ground, all partitions together.
        """
        import ray

        self._session = (ray.put(candidates), dict(grounds))
        self._told = {name: [] for name in grounds}
        self.n_sessions += 1
        parts = self._everywhere("start", *self._session)
        facts = {}
        for name in grounds:
            mine = [part[name] for part in parts.values()]
            facts[name] = (sum(n for n, _ in mine), float(sum(weight for _, weight in mine)))
        return facts

    def ask(self, method: str, name: str, *args: Any) -> dict[int, Any]:
        """Ask every actor about a ground; answers by partition, in their order."""
        return self._everywhere(method, name, *args)

    def add_many(self, name: str, indices: Ints) -> dict[int, Floats]:
        """Take candidates as the next picks of a ground; gains by partition."""
        parts = self._everywhere("add_many", name, indices)
        told = self._told[name]
        if told and told[-1][0] == "repeat":
            told[-1][1].append(indices)
        else:
            told.append(("repeat", [indices]))
        return parts

    def cover_with(self, name: str, vectors: Matrix) -> dict[int, float]:
        """Let vectors that are no candidates cover a ground; by partition."""
        import ray

        sent = ray.put(vectors)
        parts = self._everywhere("cover_with", name, sent)
        self._told[name].append(("cover_with", sent))
        return parts

    def reset(self, name: str) -> None:
        """Forget the picks of a ground, and what covered it before them."""
        self._everywhere("reset", name)
        self._told[name] = []

    def stop(self) -> None:
        """Let the actors go."""
        import ray

        for actor in self._actors:
            ray.kill(actor)

    def _everywhere(self, method: str, *args: Any) -> dict[int, Any]:
        results = self._call([(i, method, args) for i in range(len(self._actors))])
        return dict(sorted({p: one for result in results for p, one in result.items()}.items()))

    def _call(self, calls: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """Make all calls at once; results in their order."""
        waiting = [self._actors[i].call.remote(method, *args) for i, method, args in calls]
        names = [f"{_name(method, args)} on actor {i}" for i, method, args in calls]
        results = []
        with self._stretch.wait(names):
            for (number, method, args), reference in zip(calls, waiting, strict=True):
                try:
                    results.append(_checked(_got(reference)))
                except _gone() as error:
                    results.append(self._again(number, method, args, error))
                self._stretch.pending.pop(names[len(results) - 1], None)
        return results

    def _again(self, number: int, method: str, args: tuple[Any, ...], cause: Exception) -> Any:
        """Repeat a call that died with its actor, on a new one that was told the same."""
        for _ in range(MAX_RESTARTS + 1):
            if self._deaths[number] >= MAX_RESTARTS:
                break
            try:
                self._revive(number, starting=method == "start")
                return _checked(_got(self._actors[number].call.remote(method, *args)))
            except _gone() as error:
                cause = error
        raise ClusterError(
            f"select: one of its actors died {self._deaths[number] + 1} times, last with: {cause}. "
            "Give them more memory: fewer on a node (cluster.select.cpus), or more nodes."
        ) from cause

    def _revive(self, number: int, *, starting: bool) -> None:
        """Replace a dead actor; two calls that died together find it replaced by the first."""
        import ray

        try:
            ray.get(self._actors[number].call.remote("ready"))
        except _gone():
            self._deaths[number] += 1
            self._actors[number] = self._successor(number)
            self._await([self._actors[number]])
        if self._session is None or starting:
            return
        actor = self._actors[number]
        _checked(_got(actor.call.remote("start", *self._session)))
        for name, told in self._told.items():
            for method, argument in told:
                _checked(_got(actor.call.remote(method, name, argument)))

    def _successor(self, number: int) -> Any:
        """A new actor for a dead one; if its node went too, beside another, sharing its CPUs."""
        import ray

        actor, wanted = self._new(number), len(self._dealt)
        if self._resources.gpus or not _late([actor], ROOM_TIMEOUT_S):
            return actor
        if n_workers(self._resources, wanted) == wanted:
            return actor
        ray.kill(actor)
        return self._new(number, cpus=0)


def _gone() -> tuple[type[Exception], ...]:
    """What a call on an actor that is gone raises; one that Ray killed for memory has its own."""
    from ray import exceptions

    return exceptions.RayActorError, exceptions.OutOfMemoryError


def _name(method: str, args: tuple[Any, ...]) -> str:
    """The unit that a call makes, or what it asks for."""
    return str(args[1]["unit"]["name"]) if method in ("local", "run") else method


def _got(reference: Any) -> Any:
    """A result, waited for in steps, so that a run that was given up or interrupted ends."""
    import ray

    while not ray.wait([reference], num_returns=1, timeout=LOOK_S)[0]:
        interrupts.check()
        watch.check()
    return ray.get(reference)


def _late(actors: Sequence[Any], timeout_s: float) -> int:
    """How many actors do not run yet after so many seconds."""
    import ray

    late, deadline = [actor.call.remote("ready") for actor in actors], time.monotonic() + timeout_s
    while late and time.monotonic() < deadline:
        interrupts.check()
        watch.check()
        left = max(0.0, min(LOOK_S, deadline - time.monotonic()))
        late = ray.wait(late, num_returns=len(late), timeout=left)[1]
    return len(late)


def _checked(result: Any) -> Any:
    if isinstance(result, Failure):
        raise ERRORS[result.kind](result.text)
    return result
