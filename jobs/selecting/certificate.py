"""How good a choice is: the passes over the corpus that a certificate needs, and what it says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.ledger import Marker
from jobs.selecting.aim import Aim
from jobs.selecting.bounds import Question, covered_sample, from_all, from_sample
from jobs.selecting.root import Root
from jobs.selecting.union import Indices
from selection.arrays import rows_of
from selection.certificate import Certificate, CertificateWatch, Worth, claim_of
from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate
from selection.merge import Merged
from selection.modes import EXACT_PAIRS
from selection.objective import Objective
from selection.trace import Selection


def certificate_kind(aim: Aim) -> str | None:
    """Which evidence a setting gets: `full` or `sampled` passes, or what the search leaves.

    One partition in a mode that looks at all of V has a proof for nothing; else a corpus that is
    small enough for a pass over all pairs gets that proof, and a larger one a bound on a sample. A
    method that does not maximise f gets none.
    """
    wanted = aim.config.certificate
    if not aim.maximises_f or wanted == "none":
        return None
    if wanted != "auto":
        return wanted
    if aim.alone:
        return "left"
    return "full" if aim.n_rows**2 <= EXACT_PAIRS else "sampled"


def certified(
    root: Root, local: Sequence[Marker], merged: Merged, control: Selection
) -> Certificate | None:
    """Certify a choice, by what its setting asks for.

    Args:
        root: The last merge; its oracles are covered anew.
        local: One marker of local picks a partition.
        merged: The choice.
        control: A random set.

    Returns:
        The certificate; None where nothing can be said.
    """
    kind = certificate_kind(root.aim)
    if kind is None or not len(merged.selection.picks):
        return None
    left = local[0].stats if root.aim.alone else {}
    if kind == "left" and left.get("bounds") is None:
        kind = "full" if root.aim.n_rows**2 <= EXACT_PAIRS else "sampled"
    if kind == "sampled" and root.points is None:  # the sample would be all of V
        kind = "full"
    if kind == "left":
        watch = _watch(root, local, merged.objective, root.whole.total_weight)
        watch.take(left["bounds"])
        screened = left["mode"] == "screened"
        return watch.close(
            "statistical" if screened else "proved",
            _worth(merged.selection, root, root.whole.total_weight),
            _worth(control, root, root.whole.total_weight),
            z=root.aim.config.z if screened else None,
        )
    if kind == "full":
        return _proved(root, local, merged, control)
    return _sampled(root, local, merged, control)


def _proved(root: Root, local: Sequence[Marker], merged: Merged, control: Selection) -> Certificate:
    weight = root.whole.total_weight
    watch = _watch(root, local, merged.objective, weight)
    chosen = root.judged(merged.selection.picks, merged.objective)
    question = _question(root, merged, weight)
    _look(watch, from_all(root.workers, root.whole, question, root.counts), chosen)
    return watch.close("proved", _worth(chosen, root, weight), _worth(control, root, weight))


def _sampled(
    root: Root, local: Sequence[Marker], merged: Merged, control: Selection
) -> Certificate:
    assert root.points is not None
    _, vectors, weights = root.points.points()
    weight = root.points.total_weight
    here = LocalCoverage([CoverageShard(vectors, weights=weights)], root.union.vectors)

    def judged(picks: Indices) -> Selection:
        return evaluate(
            here,
            root.union.vectors,
            picks,
            objective=merged.objective,
            n_total=root.request.n_total,
            coverage_weight=root.request.n_total / weight if weight > 0 else 0.0,
            given=root.request.given,
            quality=root.request.quality,
        )

    chosen, random = judged(merged.selection.picks), judged(control.picks)
    watch = _watch(root, local, merged.objective, weight)
    question = _question(root, merged, weight)
    sample = covered_sample(vectors, weights, by=question.before)
    _look(watch, from_sample(root.workers, question, sample), chosen)
    return watch.close(
        "sampled",
        _worth(chosen, root, weight),
        _worth(random, root, weight),
        sample=root.points.n_points,
    )


def _scale(root: Root, objective: Objective, weight: float) -> float:
    n_total = root.request.n_total
    return objective.coverage_scale(
        weight, weight=n_total / weight if weight > 0 else 0.0, n_total=n_total
    )


def _baseline(root: Root, objective: Objective, weight: float) -> float:
    return 0.0 if root.request.has_given else _scale(root, objective, weight) * weight


def _watch(
    root: Root, local: Sequence[Marker], objective: Objective, weight: float
) -> CertificateWatch:
    quality, required = root.request.quality, root.union.required
    return CertificateWatch(
        root.aim.k,
        objective,
        baseline=_baseline(root, objective, weight),
        dim=root.union.vectors.shape[1],
        max_squared_norm=max(float(marker.stats["max_squared_norm"]) for marker in local),
        n_required=len(required),
        required_quality=0.0 if quality is None else float(quality[required].sum()),
        claim=claim_of(root.request.limits, root.aim.objective),
    )


def _question(root: Root, merged: Merged, weight: float) -> Question:
    aim, picks = root.aim, merged.selection.picks
    return Question(
        config=aim.config,
        wishes=aim.wishes,
        objective=merged.objective,
        k=aim.k,
        scale=_scale(root, merged.objective, weight),
        ids=tuple(root.union.rows.column("id").take(pa.array(picks)).to_pylist()),
        picks=rows_of(root.union.vectors, picks),
        given=aim.given,
        budget=aim.budget_left,
    )


def _look(watch: CertificateWatch, top: Any, chosen: Selection) -> None:
    watch.look(
        top,
        covered=float(np.sum(chosen.coverage_gains)),
        diverse=float(np.sum(chosen.diversity_gains)),
        n_picks=len(chosen.picks),
    )


def _worth(chosen: Selection, root: Root, weight: float) -> Worth:
    covered = float(np.sum(chosen.coverage_gains))
    baseline = _baseline(root, root.aim.objective, weight)
    return Worth(chosen.value, covered - baseline, len(chosen.picks))
