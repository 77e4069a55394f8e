"""What a select actor does, without Ray: it holds partitions, selects and sums over them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.errors import DualdivError
from jobs.ledger import Ledger, Marker
from jobs.selecting.mapped import Mapped, Stored, map_vectors
from jobs.selecting.side_columns import read_sides
from jobs.vectors import Matrix, drawn, random_keys
from jobs.watching import memory
from jobs.watching.pulse import Teller
from selection.arrays import rows_of
from selection.coverage import CoverageShard

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Plain = list[dict[str, Any]]
Barred = Callable[[Ledger, Sequence[Marker]], pa.StringArray]


@dataclass(frozen=True)
class Ground:
    """Which rows a coverage sum runs over.

    Attributes:
        rows: Partition -> rows drawn from it, those with the smallest random keys; None: all.
        seed: Of the keys; two samples with different seeds have nothing to do with each other.
        weighted: Rows count by their weight.
    """

    rows: dict[int, int] | None = None
    seed: int = 0
    weighted: bool = False


@dataclass(frozen=True)
class Failure:
    """An error that a user can act on, on its way to the driver."""

    kind: str
    text: str


@dataclass(frozen=True)
class Drawn:
    """The ground points of one partition.

    Attributes:
        ground: What was asked for.
        indices: (m,) rows of the partition, ascending; None: all.
        weights: (m,) float64, or None.
        shard: Sums over them.
    """

    ground: Ground
    indices: Ints | None
    weights: Floats | None
    shard: Any


class SelectWorker:
    """Holds some partitions: selects inside each, and sums coverage gains over each.

    A sum is asked for by the name of its ground. Grounds keep their picks apart.
    """

    def __init__(
        self,
        out: str,
        partitions: dict[int, Plain],
        *,
        rows: dict[int, Plain] | None = None,
        barred: Barred | None = None,
        threads: int = 1,
        device: str = "cpu",
        teller: Teller | None = None,
    ) -> None:
        """Remember where the partitions are; they are loaded when first needed.

        Args:
            out: Output tree.
            partitions: Partition number -> markers of its embedding parts.
            rows: Partition number -> markers of its row parts, for side columns.
            barred: Names the rows of some row parts that are taken as not there; None: none.
            threads: Threads for the sums.
            device: `cpu`, or `cuda` for sums on the GPU that this process sees.
            teller: Tells the driver what this process is at.
        """
        self._teller = teller or Teller(None, "", "select")
        self._ledger = Ledger(out)
        self._markers = {p: [Marker(**m) for m in partitions[p]] for p in sorted(partitions)}
        self._rows = {p: [Marker(**m) for m in (rows or {}).get(p, [])] for p in self._markers}
        self._threads, self._device, self._barred = threads, device, barred
        self._loaded: dict[int, Mapped] = {}
        self._grounds: dict[str, dict[int, Drawn]] = {}
        self._candidates: Stored | None = None

    def call(self, method: str, *args: Any) -> Any:
        """Call a method; errors a user can act on travel back as data."""
        try:
            with self._teller.working(method):
                return getattr(self, method)(*args)
        except DualdivError as error:
            return Failure(type(error).__name__, str(error))

    def ready(self) -> bool:
        """Whether this process is up."""
        return True

    # Work inside a partition.

    def local(self, work: Callable[..., Marker], payload: dict[str, Any]) -> dict[str, Any]:
        """Run the Ray-free local selection on the payload's partition."""
        rows = self._partition(payload["partition"])
        return work(self._ledger, payload, rows).as_dict()

    def run(self, work: Callable[..., Marker], payload: dict[str, Any]) -> dict[str, Any]:
        """Run work(ledger, payload) that needs no partition."""
        return work(self._ledger, payload).as_dict()

    def peak_bytes(self) -> dict[int, int]:
        """Most memory this process ever had resident, under each of its partitions."""
        return dict.fromkeys(self._markers, memory.peak_bytes())

    def on(self, partition: int, work: Callable[..., Any], *args: Any) -> Any:
        """Run work(ledger, row markers, rows, *args) on a partition."""
        rows = self._partition(partition)
        return work(self._ledger, self._rows[partition], rows, *args)

    def block(self, partition: int, start: int, stop: int) -> Stored:
        """Some vectors of a partition, as stored."""
        return np.array(self._partition(partition).vectors[start:stop])

    def find(self, ids: Sequence[str]) -> dict[int, tuple[Ints, Stored]]:
        """Places in `ids` of those that live in each partition, with their vectors as stored."""
        wanted = pa.array(ids, pa.string())
        found: dict[int, tuple[Ints, Stored]] = {}
        for p in self._markers:
            rows = self._partition(p)
            at = rows.find(wanted)
            places = np.flatnonzero(at >= 0)
            found[p] = (places, np.array(rows.vectors[at[places]]))
        return found

    # Sums over the partitions.

    def start(
        self, candidates: Stored, grounds: dict[str, Ground]
    ) -> dict[int, dict[str, tuple[int, float]]]:
        """Get ready to judge candidates; gives rows and weight of each ground per partition."""
        self._candidates = candidates
        old, self._grounds = self._grounds, {}
        for name, ground in grounds.items():
            self._grounds[name] = {
                p: self._draw(p, ground, old.get(name, {}).get(p)) for p in self._markers
            }
        facts: dict[int, dict[str, tuple[int, float]]] = {p: {} for p in self._markers}
        for name, parts in self._grounds.items():
            for p, part in parts.items():
                facts[p][name] = (part.shard.n_points, part.shard.total_weight)
        return facts

    def reset(self, name: str) -> dict[int, None]:
        """Forget the picks of a ground, and what covered it before them."""
        return {p: part.shard.reset() for p, part in self._grounds[name].items()}

    def column_sum(self, name: str) -> dict[int, Floats]:
        """Weighted sum of the ground vectors of each partition."""
        return {p: part.shard.column_sum() for p, part in self._grounds[name].items()}

    def gains(self, name: str, indices: Ints) -> dict[int, Floats]:
        """Coverage gains of these candidates on each partition."""
        return self.gains_of(name, self._block(indices))

    def gains_of(self, name: str, vectors: Stored) -> dict[int, Floats]:
        """Coverage gains of any vectors on each partition."""
        block = rows_of(vectors, slice(None))
        return {p: part.shard.gains(block) for p, part in self._grounds[name].items()}

    def moments(self, name: str, indices: Ints) -> dict[int, tuple[Floats, Floats]]:
        """Sums and sums of squares of what these candidates add to each ground point."""
        block = self._block(indices)
        return {p: part.shard.moments(block) for p, part in self._grounds[name].items()}

    def add_many(self, name: str, indices: Ints) -> dict[int, Floats]:
        """Take these candidates as the next picks of a ground; their gains on each partition."""
        block = self._block(indices)
        return {p: part.shard.add_many(block) for p, part in self._grounds[name].items()}

    def repeat(self, name: str, groups: Sequence[Ints]) -> None:
        """Take picks again, in the groups they were made in: shapes change the rounding."""
        for indices in groups:
            self.add_many(name, indices)

    def cover_with(self, name: str, vectors: Matrix) -> dict[int, float]:
        """Let vectors that are no candidates cover a ground; what they cover above -1."""
        return {p: part.shard.cover_with(vectors) for p, part in self._grounds[name].items()}

    def n_covered(self, name: str, k: int) -> dict[int, Ints]:
        """Points of each partition that each of the first k picks covers best."""
        return {p: part.shard.n_covered(k) for p, part in self._grounds[name].items()}

    def members(self, name: str, ids: Sequence[str]) -> dict[int, Ints]:
        """Places in `ids` of those that are ground points, by partition."""
        wanted, found = pa.array(ids, pa.string()), {}
        for p, part in self._grounds[name].items():
            at = self._partition(p).find(wanted)
            here = at >= 0 if part.indices is None else np.isin(at, part.indices)
            found[p] = np.flatnonzero(here)
        return found

    def points(self, name: str) -> dict[int, tuple[pa.StringArray, Stored, Floats | None]]:
        """The ground points of each partition: ids, vectors as stored, weights."""
        found = {}
        for p, part in self._grounds[name].items():
            rows = self._partition(p)
            ids = rows.ids if part.indices is None else rows.ids.take(pa.array(part.indices))
            found[p] = (ids, np.array(_taken(rows.vectors, part.indices)), part.weights)
        return found

    def _block(self, indices: Ints) -> Matrix:
        assert self._candidates is not None
        return rows_of(self._candidates, np.asarray(indices, np.int64))

    def _draw(self, partition: int, ground: Ground, before: Drawn | None) -> Drawn:
        if before is not None and before.ground == ground:
            before.shard.reset()
            return before
        rows, indices, weights = self._partition(partition), None, None
        if ground.rows is not None:
            keys = random_keys(rows.ids, ground.seed)
            indices = drawn(keys, ground.rows.get(partition, 0))
        if ground.weighted:
            sides = read_sides(self._ledger, self._rows[partition], rows.ids, ["weight"])
            assert sides.weight is not None
            weights = _taken(sides.weight, indices)
        vectors = _taken(rows.vectors, indices)
        assert self._candidates is not None
        if not len(vectors):
            # A partition without any part does not know its dimension.
            vectors = np.zeros((0, self._candidates.shape[1]), np.float32)
        return Drawn(ground, indices, weights, self._shard(vectors, weights))

    def _shard(self, vectors: Stored, weights: Floats | None) -> Any:
        if self._device == "cpu":
            return CoverageShard(vectors, weights=weights, threads=self._threads)
        from selection.torch_coverage import TorchShard

        return TorchShard(vectors, weights=weights, device=self._device)

    def _partition(self, partition: int) -> Mapped:
        if partition not in self._loaded:
            barred = self._barred and self._barred(self._ledger, self._rows[partition])
            markers = self._markers[partition]
            self._loaded[partition] = map_vectors(self._ledger, markers, barred=barred)
        return self._loaded[partition]


def _taken(values: Any, indices: Ints | None) -> Any:
    return values if indices is None else values[indices]
