"""The coverage sums of one partition on a GPU, through torch, which is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from selection.arrays import Float64, Int64, Vectors, require_vectors, require_weights, rows_of
from selection.cover import require_no_picks
from selection.tiles import blocks

if TYPE_CHECKING:
    import torch

# Larger than on a CPU: 64 MiB of cosines, so that a kernel runs longer than its launch takes.
_GROUND_TILE = 65_536
# Every product has this many columns, padded if need be, so that all round alike.
_CANDIDATE_TILE = 256


class TorchShard:
    """`CoverageShard` with the ground points on a device; candidates are moved there per call."""

    def __init__(
        self, vectors: Vectors, *, weights: Float64 | None = None, device: str = "cuda"
    ) -> None:
        """Copy the ground points to the device, tile by tile and in the dtype they have.

        Args:
            vectors: (m, d) float32 or float16 unit vectors. Arithmetic is float32 either way,
                never TF32; sums are float64.
            weights: (m,) float64 of at least 0, how much each point counts; None for 1.
            device: As torch names it: "cuda", "cuda:1", "cpu".

        Raises:
            ValueError: Vectors or weights as `CoverageShard` refuses them, or no such device name.
            RuntimeError: A CUDA device that torch does not find.
        """
        import torch

        block = require_vectors("TorchShard.vectors", vectors)
        self._device = require_device(device)
        dtype = torch.float16 if block.dtype == np.float16 else torch.float32
        self._ground = torch.empty(block.shape, dtype=dtype, device=self._device)
        for rows in blocks(len(block), _GROUND_TILE):
            # Copied first: torch does not take memory that it must not write to.
            self._ground[rows] = torch.from_numpy(block[rows].copy()).to(self._device)
        self._weights: torch.Tensor | None = None
        if weights is not None:
            checked = require_weights("TorchShard.weights", weights, len(block))
            self._weights = torch.from_numpy(checked.copy()).to(self._device)
        self.reset()

    @property
    def n_points(self) -> int:
        """Number of ground points m."""
        return len(self._ground)

    @property
    def total_weight(self) -> float:
        """Sum of the weights, m where there are none."""
        return float(self.n_points if self._weights is None else self._weights.sum())

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self._ground.shape[1])

    def reset(self) -> None:
        """Forget all picks, and the vectors started from; O(m)."""
        import torch

        on = {"device": self._device}
        self._level = torch.full((self.n_points,), -1.0, dtype=torch.float32, **on)
        self._owner = torch.full((self.n_points,), -1, dtype=torch.int64, **on)
        self._n_picks, self._given = 0, False

    def column_sum(self) -> Float64:
        """Return sum_i u_i e_i, (d,) float64; O(m d) time."""
        import torch

        total = torch.zeros(self.dim, dtype=torch.float64, device=self._device)
        for rows in blocks(self.n_points, _GROUND_TILE):
            total += self._weighted(self._ground[rows].double(), rows).sum(dim=0)
        return _to_numpy(total)

    def gains(self, candidates: Vectors) -> Float64:
        """Return sum_i u_i max(0, w_ix - cover_i) for every candidate x.

        Args:
            candidates: (c, d) float32 unit vectors.

        Returns:
            (c,) float64; O(m d c) time.

        Raises:
            ValueError: The candidates are not finite vectors of this dimension.
        """
        return self._moments("gains", candidates, 1)[0]

    def moments(self, candidates: Vectors) -> tuple[Float64, Float64]:
        """Return the gains, and the sums of the squares of the terms they add up.

        Args:
            candidates: (c, d) float32 unit vectors.

        Returns:
            Two (c,) float64; O(m d c) time.

        Raises:
            ValueError: As `gains`.
        """
        total, squares = self._moments("moments", candidates, 2)
        return total, squares

    def add(self, candidate: Vectors) -> float:
        """Take a candidate, (d,) float32, as the next pick; returns its gain; O(m d) time."""
        return float(self.add_many(candidate[None, :])[0])

    def add_many(self, candidates: Vectors) -> Float64:
        """Take candidates as the next picks, one after another.

        Args:
            candidates: (c, d) float32 unit vectors, in the order of picking.

        Returns:
            (c,) float64, the gain of each given those before it; O(m d c) time.

        Raises:
            ValueError: As `gains`.
        """
        import torch

        def visit(cosines: torch.Tensor, rows: slice, columns: slice, total: torch.Tensor) -> None:
            before = self._level[rows]
            running = torch.cat([before[:, None], cosines], dim=1).cummax(dim=1).values
            steps = (running[:, 1:] - running[:, :-1]).double()
            total[0] += self._weighted(steps, rows).sum(dim=0)
            best, place = cosines.max(dim=1)
            number = place + (self._n_picks + columns.start)
            self._owner[rows] = torch.where(best > before, number, self._owner[rows])
            self._level[rows] = running[:, -1]

        gains = self._visit_tiles("add", candidates, visit, 1)[0]
        if self._n_picks == 0 and len(gains) and not self._given:
            # A point opposite to the first pick gains nothing, and is its too.
            self._owner[self._owner < 0] = 0
        self._n_picks += len(gains)
        return gains

    def cover_with(self, vectors: Vectors) -> float:
        """Start from vectors that are no candidates: they raise the cover and own no point.

        Args:
            vectors: (a, d) float32 unit vectors, such as those annotated already.

        Returns:
            sum_i u_i (cover_i + 1), what they cover above the baseline; O(m d a) time.

        Raises:
            ValueError: As `gains`, or something was picked before.
        """
        import torch

        require_no_picks("TorchShard.cover_with", self._n_picks)

        def visit(cosines: torch.Tensor, rows: slice, _: slice, total: torch.Tensor) -> None:
            self._level[rows] = torch.maximum(self._level[rows], cosines.max(dim=1).values)

        self._visit_tiles("cover_with", vectors, visit, 0)
        self._given = self._given or len(vectors) > 0
        every = slice(0, self.n_points)
        return float(self._weighted(self._level.double()[:, None] + 1.0, every).sum())

    def n_covered(self, k: int) -> Int64:
        """Return how many ground points each of the first k picks covers best, (k,) int64."""
        import torch

        owned = self._owner[self._owner >= 0]
        counts: Int64 = torch.bincount(owned, minlength=k)[:k].cpu().numpy()
        return counts

    def _moments(self, name: str, candidates: Vectors, n_sums: int) -> Float64:
        def visit(cosines: torch.Tensor, rows: slice, _: slice, total: torch.Tensor) -> None:
            terms = (cosines - self._level[rows, None]).clamp_(min=0).double()
            terms = self._weighted(terms, rows)
            total[0] += terms.sum(dim=0)
            if n_sums > 1:
                total[1] += terms.square_().sum(dim=0)

        return self._visit_tiles(name, candidates, visit, n_sums)

    def _weighted(self, terms: torch.Tensor, rows: slice) -> torch.Tensor:
        return terms if self._weights is None else terms.mul_(self._weights[rows, None])

    def _visit_tiles(
        self, name: str, candidates: Vectors, visit: Callable[..., None], n_sums: int
    ) -> Float64:
        """Form all cosines, tile by tile, and return (n_sums, c) that the visits add up."""
        import torch

        block = require_vectors(f"TorchShard.{name}.candidates", candidates, dim=self.dim)
        result = np.zeros((n_sums, len(block)), dtype=np.float64)
        for columns in blocks(len(block), _CANDIDATE_TILE):
            width = columns.stop - columns.start
            wide = torch.zeros((_CANDIDATE_TILE, self.dim), dtype=torch.float32)
            wide[:width] = torch.from_numpy(rows_of(block, columns).copy())
            moved = wide.to(self._device)
            total = torch.zeros((n_sums, width), dtype=torch.float64, device=self._device)
            for rows in blocks(self.n_points, _GROUND_TILE):
                with exact_float32():
                    cosines = self._ground[rows].float() @ moved.T
                visit(cosines[:, :width], rows, columns, total)
            result[:, columns] = _to_numpy(total)
        return result


def require_device(name: str) -> Any:  # noqa: ANN401
    """Return the torch.device of this name, if it is there.

    Raises:
        ValueError: torch knows no such name.
        RuntimeError: A CUDA device that torch does not find.
    """
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"TorchShard.device: found {name!r}, wanted cpu, cuda or cuda:N"
        ) from error
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= n_devices:
        raise RuntimeError(
            f"TorchShard.device: found {name!r}, but torch {torch.__version__} sees {n_devices} "
            "CUDA devices; install a CUDA build of torch and check the driver, or use device cpu"
        )
    return device


@contextmanager
def exact_float32() -> Iterator[None]:
    """Multiply float32 as float32 inside, whatever was allowed outside; that is restored."""
    import torch

    backends: Any = torch.backends  # torch's own annotations leave out one of the two
    settings = [backends.cuda.matmul, backends.mkldnn.matmul]
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = "ieee"
        yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision


def _to_numpy(total: torch.Tensor) -> Float64:
    values: Float64 = total.cpu().numpy()
    return values
