"""The libraries measured against, each as a function that another interpreter can run.

Imports nothing of this project: apricot-select and submodlib-py live in an environment of their
own. All of them maximise the same function. apricot's `euclidean` takes squared distances and
subtracts them from the largest, which for unit rows is a constant plus twice the cosine (its
`cosine` is the square). submodlib is handed cosines plus 1, because its baseline is 0.
"""

import time
from functools import cache
from typing import Any

import numpy as np


def apricot(path: str, k: int, optimizer: str) -> dict[str, Any]:
    """apricot-select's facility location."""
    from apricot import FacilityLocationSelection

    rows = _rows(path)
    start = time.perf_counter()
    selector = FacilityLocationSelection(
        k, metric="euclidean", optimizer=optimizer, random_state=0, verbose=False
    )
    selector.fit(rows)
    seconds = time.perf_counter() - start
    return {"picks": [int(i) for i in selector.ranking[:k]], "seconds": seconds}


def apricot_compilation(optimizer: str) -> float:
    """Seconds of a fit to 64 rows: nearly all of it is numba, which apricot starts in every fit."""
    from apricot import FacilityLocationSelection

    rows = np.random.default_rng(0).standard_normal((64, 16), dtype=np.float32)
    start = time.perf_counter()
    FacilityLocationSelection(12, metric="euclidean", optimizer=optimizer, random_state=0).fit(rows)
    return time.perf_counter() - start


def submodlib(path: str, k: int, given: bool) -> dict[str, Any]:
    """submodlib-py's facility location, lazy; its kernel given, or computed by it from the rows.

    Returns:
        `picks`, `seconds`, and `apart_s`: what numpy took for the kernel given, no part of them.
    """
    from submodlib import FacilityLocationFunction

    rows = _rows(path)
    kernel_s = 0.0
    start = time.perf_counter()
    if given:
        kernel = rows @ rows.T.copy()  # a copy: one buffer times itself takes another BLAS path
        kernel += np.float32(1)
        kernel_s = time.perf_counter() - start
        function = FacilityLocationFunction(
            n=len(rows), mode="dense", separate_rep=False, sijs=kernel
        )
    else:
        function = FacilityLocationFunction(
            n=len(rows), mode="dense", separate_rep=False, data=rows, metric="cosine"
        )
    found = function.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)
    seconds = time.perf_counter() - start - kernel_s
    return {"picks": [int(i) for i, _ in found], "seconds": seconds, "apart_s": kernel_s}


def versions() -> dict[str, str]:
    """Of what takes part, in this interpreter."""
    from importlib.metadata import version

    names = ("apricot-select", "submodlib-py", "numpy", "numba", "scikit-learn", "scipy")
    return {name: version(name) for name in names}


@cache
def _rows(path: str) -> np.ndarray:
    return np.load(path)
