"""What `selection.json` says about a choice."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jobs.ledger import Marker
from jobs.selecting.merge import Outcome
from jobs.selecting.root import Root
from selection.tree import MergePlan

NO_CERTIFICATE = "none applies: the method goes by a rule of its own, f only measures its choice"


def facts_of(
    root: Root,
    outcome: Outcome,
    *,
    local: Sequence[Marker],
    between: Sequence[Marker],
    plan: MergePlan,
    seed: int,
    encoder_id: str,
    excluded: dict[str, int],
) -> dict[str, Any]:
    """Put together what is known of a choice.

    Args:
        root: The last merge.
        outcome: What came of it.
        local: One marker of local picks a partition.
        between: Markers of the merges below the root that were run.
        plan: The merge tree.
        seed: Of the setting.
        encoder_id: Of the vectors.
        excluded: Rows that could not be chosen, by reason.

    Returns:
        Plain JSON values; None for what is not defined.
    """
    aim, merged, best = root.aim, outcome.merged, outcome.merged.selection
    config, objective = aim.config, outcome.merged.objective
    no_cost = sum(int(marker.stats["no_cost"]) for marker in local)
    modes = sorted({str(marker.stats["mode"]) for marker in local if marker.stats["mode"]})
    counted = [*local, *between]
    numbers = {
        "objective": best.value,
        "merged_objective": merged.merged_value,
        "best_local_objective": merged.best_local_value,
        "random_objective": outcome.control.value,
        "random_merged_objective": outcome.random_merged,
        "coverage": _coverage(root, outcome),
        "diversity": float(np.sum(outcome.terms.diversity_gains)),
    }
    own_rule = not aim.maximises_f
    screened = "screened" in (*modes, root.effort.mode) and not own_rule
    return {
        "method": config.method,
        "mode": config.method if own_rule else ", ".join(modes) or root.effort.mode,
        "merge_mode": None if own_rule or aim.alone else root.effort.mode,
        "m1": config.m1 if screened else None,
        "m2": root.effort.m2 if root.screening is not None and not own_rule else None,
        "z": config.z if screened else None,
        **_of_voters(root),
        "N": aim.n_rows,
        "weight": aim.weight if config.weighted else None,
        "excluded": excluded | ({"no_cost": no_cost} if no_cost else {}),
        "k1": config.k1,
        "k1_used": len(best.picks),
        "lambda": objective.lam,
        "lambda_rule": _rule(aim.objective.rule),
        "lambda_scale": config.lambda_scale,
        "ridge": objective.ridge if objective.lam > 0 else None,
        "budget": config.budget,
        "spent": _spent(root, outcome),
        "given": 0 if aim.given is None else len(aim.given),
        "required": aim.n_required,
        "seed": seed,
        "encoder_id": encoder_id,
        "partitions": aim.n_partitions,
        "local_k": plan.local_k,
        "merge_levels": [
            {"nodes": level.nodes, "candidates": level.candidates, "k": level.k}
            for level in plan.levels
        ],
        "merge": merged.mode,
        "best_local_partition": merged.best_local_partition,
        "best_local_picks": merged.best_local_picks,
        "evaluations": best.evaluations + sum(int(m.stats["evaluations"]) for m in counted),
        "screened": best.screened + sum(int(m.stats["screened"]) for m in counted),
        "evaluations_of_naive_greedy": aim.n_rows * len(best.picks),
        "first_negative_gain": best.first_negative,
        "rank_exhausted_at": best.rank_exhausted_at,
        "certificate": None if outcome.certificate is None else outcome.certificate.as_dict(),
        "certificate_none": NO_CERTIFICATE if own_rule else None,
        **{key: _plain(value) for key, value in numbers.items()},
    }


def _of_voters(root: Root) -> dict[str, Any]:
    """Neighbours asked for, and who votes in the last merge, where there are votes."""
    crowd = root.request.crowd
    voters = None if crowd is None else crowd.voters
    return {
        "neighbours": None if voters is None else root.aim.config.neighbours,
        "voters": None if voters is None else len(voters.vectors),
    }


def _plain(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _coverage(root: Root, outcome: Outcome) -> float:
    """C of the choice as the paper has it, without the baseline of -1 a point."""
    baseline = root.whole.total_weight if root.aim.config.lambda_scale == "absolute" else 1.0
    if root.request.has_given:
        baseline = 0.0
    return float(np.sum(outcome.terms.coverage_gains)) - baseline


def _spent(root: Root, outcome: Outcome) -> float | None:
    costs = root.request.limits.costs
    return None if costs is None else float(costs[outcome.merged.selection.picks].sum())


def _rule(rule: Any) -> dict[str, Any] | None:
    if rule is None:
        return None
    if rule.kind in ("linear", "geometric"):
        return {"kind": rule.kind, "from": rule.start, "to": rule.end}
    return {"kind": rule.kind, "target": rule.target}
