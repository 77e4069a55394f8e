"""The fused coverage kernel beside SGEMM of the same shapes, in one run.

    python -m tests.benchmarks.kernel [TILES] [MAX_THREADS]

Prediction, written before the first run: at 256 candidates and more the sum of positive parts costs
0.1 to 0.2 ns per cosine beside about 9 for the product on an AVX2 core, so 0.95 or more of SGEMM
with float32 and 0.90 or more with float16 storage (widening: 0.2 ns per element, once per tile). At
16 candidates SGEMM itself falls to half its rate, and float16 costs a fifth of that. The second
thread adds what the machine has left of its second core, to both alike.

Ground tiles of 2,048 rows, d = 384. Both sides read the same tiles from memory and use as many
threads, with one BLAS thread each; they take turns; median of 7. (BLAS's own threads are no side
here: they spin for 20 ms after a call, which would count against the next one.) On a machine that
others use too, the ratio of CPU time is the steadier one.
"""

import sys
import time

import numpy as np
from threadpoolctl import threadpool_info

from selection.kernels import excess
from selection.tiles import GROUND_TILE, cosines_of, one_blas_thread, parts_of, share_out

DIM = 384
CANDIDATES = (16, 64, 256, 512)
REPEATS = 7


def unit_rows(n: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, DIM), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def sgemm(ground: np.ndarray, block: np.ndarray, threads: int) -> None:
    """The product alone, tile by tile in buffers that are kept, one BLAS thread per thread."""

    def work(rows: slice) -> None:
        for start in range(rows.start, rows.stop, GROUND_TILE):
            cosines_of(ground[start : start + GROUND_TILE], block)

    with one_blas_thread:
        list(share_out(work, parts_of(len(ground)), threads=threads))


def timed(work) -> np.ndarray:
    """Wall seconds and CPU seconds of all threads."""
    start = np.array([time.perf_counter(), time.process_time()])
    work()
    return np.array([time.perf_counter(), time.process_time()]) - start


def side_by_side(
    stored: np.ndarray, ground: np.ndarray, c: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Median (wall, CPU) seconds of the fused kernel and of SGEMM, taking turns."""
    block, cover = unit_rows(c, 2), np.full(len(ground), 0.02, dtype=np.float32)
    ours, product = [], []
    for _ in range(REPEATS + 1):  # the first turn warms up
        ours.append(timed(lambda: excess(stored, cover, block, threads=threads)))
        product.append(timed(lambda: sgemm(ground, block, threads)))
    return np.median(ours[1:], axis=0), np.median(product[1:], axis=0)


def hardware() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    blas = next(one for one in threadpool_info() if one["user_api"] == "blas")
    return (
        f"{names[0]}, {len(names)} cores, numpy {np.__version__}, "
        f"{blas['internal_api']} {blas['version']} ({blas.get('architecture', '?')})"
    )


def main(n_tiles: int = 16, max_threads: int = 2) -> None:
    ground = unit_rows(n_tiles * GROUND_TILE, 1)
    storage = {"float32": ground, "float16": ground.astype(np.float16)}
    print(hardware())
    print(f"{len(ground)} ground points, d {DIM}, median of {REPEATS}")
    print("candidates  threads  storage   fused GFLOP/s  SGEMM GFLOP/s  ratio  ratio of CPU time")
    for c in CANDIDATES:
        for threads in range(1, max_threads + 1):
            for name, stored in storage.items():
                fused_s, sgemm_s = side_by_side(stored, ground, c, threads)
                gflop, ratio = 2e-9 * len(ground) * DIM * c, sgemm_s / fused_s
                print(
                    f"{c:10}  {threads:7}  {name:8}  {gflop / fused_s[0]:13.1f}  "
                    f"{gflop / sgemm_s[0]:13.1f}  {ratio[0]:5.2f}  {ratio[1]:17.2f}"
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
