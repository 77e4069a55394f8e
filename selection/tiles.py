"""How a large product is cut up: fixed tiles of ground points, shared out among threads."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from selection.arrays import Float32, Vectors, rows_of, widen
from selection.loops import few_cosines

# A product of these sizes is the largest block of cosines a thread holds: 2 MiB of float32, which
# stays in the cache between the product and the sum. Fixed, because shapes change the rounding.
GROUND_TILE = 2048
CANDIDATE_TILE = 256
# Candidates that share one pass over the ground points: a float16 tile is widened once for them.
CANDIDATE_BLOCK = 4096
# Narrower products fall into slower edge code of BLAS.
CANDIDATE_STEP = 16
# Up to so many candidates are multiplied without BLAS, and not padded.
FEW = 8
# Ground points are summed in at most so many parts, whose subtotals are added in their order.
MAX_PARTS = 64

Result = TypeVar("Result")


def blocks(n: int, size: int) -> Iterator[slice]:
    """Cut range(n) into slices of `size`, the last one shorter."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def parts_of(n_ground: int) -> list[slice]:
    """Cut the ground points into at most MAX_PARTS runs of whole tiles, from their number alone."""
    n_tiles = -(-n_ground // GROUND_TILE)
    return list(blocks(n_ground, GROUND_TILE * max(1, -(-n_tiles // MAX_PARTS))))


def padded(candidates: Vectors) -> Float32:
    """Return a float32 copy; of more than FEW with zero rows up to a multiple of CANDIDATE_STEP.

    Args:
        candidates: (c, d) float32 or float16.

    Returns:
        (c', d) float32, never the caller's memory: a buffer times its own transpose takes another
        path through BLAS, which has crashed.
    """
    n, dim = candidates.shape
    n_padded = n if n <= FEW else -(-n // CANDIDATE_STEP) * CANDIDATE_STEP
    block = np.zeros((n_padded, dim), dtype=np.float32)
    block[:n] = rows_of(candidates, slice(None))
    return block


class _Buffers(threading.local):
    """Memory that a thread keeps between products: fresh pages cost a fifth of a small product."""

    def __init__(self) -> None:
        self._flat: dict[str, Float32] = {}

    def take(self, name: str, rows: int, columns: int) -> Float32:
        """Return a (rows, columns) float32 array, valid until this thread's next take of `name`."""
        flat = self._flat.get(name)
        if flat is None or flat.size < rows * columns:
            flat = self._flat[name] = np.empty(rows * columns, dtype=np.float32)
        return flat[: rows * columns].reshape(rows, columns)


_BUFFERS = _Buffers()


def tile_of(ground: Vectors, rows: slice, *, copy: bool = False, name: str = "tile") -> Float32:
    """Return a tile of ground points as float32.

    Args:
        ground: (m, d) float32 or float16.
        rows: Which of them.
        copy: Copy also what is float32 already.
        name: The thread's buffer for it; the tile is valid until that is used again.

    Returns:
        (rows, d) float32; a view of the ground points unless copied or widened.
    """
    tile = ground[rows]
    if tile.dtype == np.float32 and not copy:
        return tile.astype(np.float32, copy=False)
    wide = _BUFFERS.take(name, *tile.shape)
    if tile.dtype == np.float32:
        np.copyto(wide, tile)
    else:
        widen(tile.view(np.int16), wide)
    return wide


def cosines_of(tile: Float32, block: Float32) -> Float32:
    """Return tile @ block.T in this thread's buffer, which the next product overwrites.

    Args:
        tile: (rows, d) float32.
        block: (columns, d) float32, other memory than the tile.

    Returns:
        (rows, columns) float32, C-ordered.
    """
    out = _BUFFERS.take("cosines", len(tile), len(block))
    if len(block) <= FEW:
        few_cosines(tile, block, out)
        return out
    return np.matmul(tile, block.T, out=out)


def share_out(
    work: Callable[[Any], Result], items: Sequence[Any], *, threads: int, worthwhile: bool = True
) -> Iterable[Result]:
    """Run work on every item and give the results in the items' order, whoever worked on them.

    Args:
        work: Called once per item; it must not call share_out itself.
        items: What to work on; must not depend on `threads`.
        threads: Threads to use.
        worthwhile: False where the work is too little to hand to other threads.

    Returns:
        One result per item.

    Raises:
        ValueError: threads below 1.
    """
    if threads < 1:
        raise ValueError(f"threads: found {threads}, wanted at least 1")
    if threads == 1 or len(items) <= 1 or not worthwhile:
        return map(work, items)
    return _pool(threads).map(work, items)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # Kept: starting threads takes longer than the product of a small batch.
    return ThreadPoolExecutor(threads, thread_name_prefix="selection")


class _OneBlasThread:
    """Inside, every product runs on the thread that asks for it; the last one out restores BLAS.

    A product cut up by BLAS itself rounds as its number of threads says, and two threads with one
    BLAS thread each are faster than one with two. Counted, because callers may overlap.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [(lib, lib.num_threads) for lib in _blas_libraries()]
                self._set([(lib, 1) for lib, n in self._before if n != 1])
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set([(lib, n) for lib, n in self._before if n != 1])

    def _set(self, limits: list[tuple[Any, int]]) -> None:
        for library, n_threads in limits:
            library.set_num_threads(n_threads)


@functools.cache
def _blas_libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


one_blas_thread = _OneBlasThread()


def _after_fork() -> None:
    """Drop what a child process inherits in name only: threads, and a lock they may have held."""
    _pool.cache_clear()
    one_blas_thread.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
