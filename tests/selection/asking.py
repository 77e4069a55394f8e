"""Requests in one line: everything that a test does not care about has a plain value."""

import numpy as np

from selection.objective import Objective
from selection.request import Limits, Request


def keys_of(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**63, n).astype(np.uint64)


def ask(n, k, objective=None, *, tie_rank=None, keys=None, n_total=None, weight=1.0, **more):
    """A request for k of n candidates; keywords that Limits knows go into its limits."""
    limits = {key: more.pop(key) for key in list(more) if key in Limits.__dataclass_fields__}
    return Request(
        k=k,
        objective=Objective() if objective is None else objective,
        tie_rank=np.arange(n) if tie_rank is None else np.asarray(tie_rank),
        keys=keys_of(n) if keys is None else keys,
        n_total=n * weight if n_total is None else n_total,
        coverage_weight=weight,
        limits=Limits(**limits),
        **more,
    )
