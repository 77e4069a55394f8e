"""The merge of Stage 1: what was found becomes one set, judged on the whole corpus."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.ledger import Marker
from jobs.selecting.certificate import certified
from jobs.selecting.crowds import crowd_of_controls
from jobs.selecting.root import Root
from jobs.selecting.union import Union
from jobs.selecting.workers import Workers
from jobs.watching import memory
from selection.certificate import Certificate
from selection.merge import Merged, merge
from selection.request import Request
from selection.stage1 import random_picks
from selection.trace import Selection


@dataclass(frozen=True)
class Outcome:
    """What came of one setting.

    Attributes:
        merged: The set, and what it was compared with.
        control: A random set.
        random_merged: f of random candidates after the same merge; None with one partition.
        terms: The set with both terms looked at, whatever lambda is.
        certificate: How good the set is; None where nothing can be said.
    """

    merged: Merged
    control: Selection
    random_merged: float | None
    terms: Selection
    certificate: Certificate | None


def decide(root: Root, local: Sequence[Marker], root_candidates: int) -> Outcome:
    """Merge, judge the controls, and certify.

    Args:
        root: The last merge.
        local: One marker of local picks a partition.
        root_candidates: How many candidates the root has at most.

    Returns:
        The set with all that is said about it.
    """
    aim, union, request = root.aim, root.union, root.request
    method = aim.config.method
    merged = merge(
        method,
        root.whole,
        union.vectors,
        request,
        local_sets=union.sets,
        screening=root.screening,
    )
    chance = replace(request, limits=replace(request.limits, allowed=_controls(union, request)))
    control = root.judged(random_picks(chance, len(union.vectors)), merged.objective)
    random_merged = None
    if not aim.alone and method != "random":
        each = -(-root_candidates // aim.n_partitions)
        sets = [some[:each] for some in union.controls]
        crowd = crowd_of_controls(request.crowd, sets)
        random_merged = merge(
            method,
            root.whole,
            union.vectors,
            replace(request, objective=merged.objective, crowd=crowd),
            local_sets=sets,
            screening=root.screening,
        ).selection.value
    # Both terms of every method's choice, also where lambda is 0 and only one was looked at.
    lam = merged.objective.lam or 1.0
    terms = root.judged(merged.selection.picks, replace(merged.objective, lam=lam))
    return Outcome(merged, control, random_merged, terms, certified(root, local, merged, control))


def _controls(union: Union, request: Request) -> Any:
    allowed = np.zeros(len(union.vectors), np.bool_)
    for some in union.controls:
        allowed[some] = True
    allowed[union.required] = True
    return allowed if request.limits.allowed is None else allowed & request.limits.allowed


def candidate_table(union: Union, selection: Selection) -> pa.Table:
    """The candidates in the order they were picked, with what each added."""
    k = len(selection.picks)
    chosen = union.rows.take(pa.array(selection.picks))
    return pa.table(
        {
            "rank": pa.array(np.arange(k, dtype=np.int64)),
            "id": chosen.column("id"),
            "input": chosen.column("input"),
            "gain": selection.gains,
            "coverage_gain": selection.coverage_gains,
            "diversity_gain": selection.diversity_gains,
            "quality_gain": selection.quality_gains,
            "lambda": selection.lams,
            "objective": selection.objective,
            "partition": chosen.column("partition"),
            "n_covered": selection.n_covered,
            "cost": chosen.column("cost"),
            "text_hash": chosen.column("text_hash"),
            "vector": chosen.column("vector"),
        }
    )


def peak_bytes(workers: Workers) -> int:
    """Most memory that a selecting process had resident: an actor, or this one in this stage."""
    return max(memory.peak_bytes(), workers.peak_bytes())
