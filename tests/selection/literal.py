"""Greedy from the definition with every option of a request: slow, float64, nothing shared."""

import math

import numpy as np

from selection.lambda_rule import LambdaControl
from selection.objective import COSINE_ROUNDING, TIE_TOLERANCE


def terms(vectors, picks, objective, *, given=None, weights=None, quality=None):
    """Coverage (baseline -1, as it enters f), log-determinant and quality of A u S less A."""
    points = vectors.astype(np.float64)
    n = len(points)
    u = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    scale = 1.0 if objective.scale == "absolute" else 1.0 / u.sum()
    base = np.zeros((0, points.shape[1])) if given is None else given.astype(np.float64)

    def both(rows):
        if not len(rows):
            return 0.0, 0.0
        cover = (points @ rows.T.copy()).max(axis=1) + 1
        gram = (1 - objective.ridge) * rows @ rows.T.copy() + objective.ridge * np.eye(len(rows))
        sign, log_det = np.linalg.slogdet(gram)
        return scale * float(u @ cover), log_det if sign > 0 else -np.inf

    before, after = both(base), both(np.concatenate([base, points[list(picks)]]))
    bonus = 0.0 if quality is None else float(np.sum(quality[list(picks)]))
    return after[0] - before[0], after[1] - before[1], bonus


def feasible(request, picks, index):
    limits = request.limits
    if limits.allowed is not None and not limits.allowed[index]:
        return False
    chosen = [*picks, index]
    if limits.budget is not None and limits.costs[chosen].sum() > limits.budget * (1 + 1e-12):
        return False
    if limits.max_per_group is not None and limits.groups[index] >= 0:
        same = sum(limits.groups[i] == limits.groups[index] for i in chosen)
        return same <= limits.max_per_group
    return True


def naive_greedy(vectors, request, *, weights=None, per_cost=False):
    """The picks of naive greedy, and the lambda each was made with."""
    n, objective = len(vectors), request.objective
    u = n if weights is None else float(np.sum(weights))
    floor = COSINE_ROUNDING * (u if objective.scale == "absolute" else 1.0)
    control = LambdaControl(objective.lam, objective.rule, k=request.k, ridge=objective.ridge)
    more = {"given": request.given, "weights": weights, "quality": request.quality}
    extra = -math.log(objective.ridge) if per_cost and objective.diverse else 0.0
    picks, lams, history = [], [], []

    def take(index):
        before = terms(vectors, picks, objective, **more)
        after = terms(vectors, [*picks, index], objective, **more)
        history.append((after[0] - before[0], after[1] - before[1]))
        lams.append(control.lam)
        picks.append(index)
        control.update(vectors[index], [c for c, _ in history], [d for _, d in history])

    required = request.limits.required
    for index in [] if required is None else required.tolist():
        take(index)
    while len(picks) < request.k:
        left = [i for i in range(n) if i not in picks and feasible(request, picks, i)]
        if not left:
            break
        before = terms(vectors, picks, objective, **more)
        gains, margins = {}, {}
        for i in left:
            after = terms(vectors, [*picks, i], objective, **more)
            spread = control.lam * (after[1] - before[1] + extra + after[2] - before[2])
            cost = request.limits.costs[i] if per_cost else 1.0
            coverage = after[0] - before[0]
            gains[i] = (coverage + (spread if objective.diverse else 0.0)) / cost
            margins[i] = (TIE_TOLERANCE * (abs(coverage) + abs(spread)) + floor) / cost
        best = max(gains, key=gains.get)
        tied = [i for i in left if gains[i] >= gains[best] - margins[best]]
        pick = min(tied, key=lambda i: request.tie_rank[i])
        if request.limits.stop_at_negative and gains[pick] < 0:
            break
        take(pick)
    return picks, lams
