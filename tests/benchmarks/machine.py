"""The machine a table was measured on: its name, and its SGEMM rate."""

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

GIB = 1024**3
# The names OpenBLAS gives its kernels that use AVX-512.
AVX512_CORES = {"SkylakeX", "Cooperlake", "SapphireRapids"}
PACKAGES = ("numpy", "numba", "threadpoolctl")


def blas_architecture() -> str:
    """Name of the kernels that numpy's BLAS chose for this CPU, as OPENBLAS_CORETYPE has them."""
    found = [one.get("architecture") for one in threadpool_info() if one["user_api"] == "blas"]
    return str(found[0]) if found else "unknown"


def has_avx512() -> bool:
    """Whether numpy's BLAS works with AVX-512 here."""
    return blas_architecture() in AVX512_CORES


def hardware() -> dict[str, object]:
    """CPU, cores, BLAS kernels, versions and date, for the head of a table."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "blas": blas_architecture(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    """Model, family and model number: virtual machines often give a bare name only."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return f"{found['model name']} (family {found['cpu family']}, model {found['model']})"


def describe(facts: dict[str, object]) -> str:
    """The same in one line."""
    versions = ", ".join(f"{name} {number}" for name, number in dict(facts["versions"]).items())
    return (
        f"{facts['cpu']}; {facts['cores']} cores; OpenBLAS kernels {facts['blas']}; "
        f"Python {facts['python']}, {versions}; {facts['date']}"
    )


def sgemm_gflops(*, dim: int = 384, threads: int = 2, repeats: int = 7) -> float:
    """float32 matrix products with `threads` cores, GFLOP/s; the better of two ways to thread.

    Ground tiles of 2,048 rows times 256 candidates, because that is the shape selection has: one
    call with all threads, or a BLAS thread each in `threads` Python threads. Median of `repeats`.
    """
    rng = np.random.default_rng(0)
    ground = rng.random((16, 2048, dim), dtype=np.float32)
    whole = ground.reshape(-1, dim)
    candidates = rng.random((dim, 256), dtype=np.float32)
    flop = 2.0 * len(whole) * dim * 256

    def apart(first: int) -> None:
        out = np.empty((2048, 256), dtype=np.float32)
        for tile in ground[first::threads]:
            np.matmul(tile, candidates, out=out)

    out = np.empty((len(whole), 256), dtype=np.float32)
    with threadpool_limits(threads):
        together_s = _median_s(lambda: np.matmul(whole, candidates, out=out), repeats)
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        apart_s = _median_s(lambda: list(pool.map(apart, range(threads))), repeats)
    return flop / min(together_s, apart_s) / 1e9


def _median_s(work: Callable[[], object], repeats: int) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return median(seconds)
