"""The merge of Stage 1: what was found becomes one set, judged on the whole corpus."""

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.ledger import Marker
from jobs.select_actor import Ground
from jobs.select_aim import Aim
from jobs.select_bounds import Question, covered_sample, from_all, from_sample
from jobs.select_oracle import ActorCoverage, oracles
from jobs.select_union import Indices, Union
from jobs.select_workers import Workers
from jobs.vectors import shares
from selection.arrays import rows_of
from selection.certificate import Certificate, CertificateWatch, Worth, claim_of
from selection.coverage import CoverageShard, LocalCoverage
from selection.lazy_greedy import evaluate
from selection.merge import Merged, merge
from selection.modes import EXACT_PAIRS, Effort, resolve
from selection.objective import Objective
from selection.request import Request
from selection.screening import Sample, Screening
from selection.stage1 import random_picks
from selection.trace import Selection


@dataclass(frozen=True)
class Root:
    """The last merge of one setting, ready to run.

    Attributes:
        aim: The setting.
        union: What is merged.
        workers: Hold the corpus.
        counts: Rows of each partition.
        effort: How gains are computed.
        whole: Sums over all of V.
        screening: Samples of V, where the effort is `screened`.
        points: Sums over a small sample of V, for a `sampled` certificate.
        request: What is asked for.
    """

    aim: Aim
    union: Union
    workers: Workers
    counts: Sequence[int]
    effort: Effort
    whole: ActorCoverage
    screening: Screening | None
    points: ActorCoverage | None
    request: Request

    def judged(self, picks: Indices, objective: Objective) -> Selection:
        """What a set is worth on all of V."""
        return evaluate(
            self.whole,
            self.union.vectors,
            picks,
            objective=objective,
            n_total=self.request.n_total,
            given=self.request.given,
            quality=self.request.quality,
        )


def root_of(
    workers: Workers,
    aim: Aim,
    union: Union,
    *,
    counts: Sequence[int],
    m2: Any,
    heard: Callable[[], None],
) -> Root:
    """Send the candidates to the actors and set up the sums that the last merge needs.

    Args:
        workers: Hold the corpus.
        aim: The setting.
        union: What is merged.
        counts: Rows of each partition.
        m2: Ground points that leaders are judged on: a number, `all`, None to choose by size.
        heard: Called before every pick.
    """
    n_candidates = len(np.unique(np.concatenate([*union.sets, union.required])))
    effort = resolve(
        aim.effort(m2),
        n_ground=aim.n_rows,
        n_candidates=n_candidates,
        k=aim.k,
        square=False,
    )
    small = min(aim.config.m1, aim.n_rows)
    weighted, seed = aim.config.weighted, aim.sample_seed

    def drawn(m: int, salt: int) -> Ground:
        return Ground(dict(enumerate(shares(counts, m))), seed + salt, weighted)

    grounds = {"all": Ground(None, 0, weighted)}
    if small < aim.n_rows:
        grounds["screen"] = drawn(small, 0)
    # A sample that was asked for is used also where gains are not screened.
    if isinstance(effort.m2, int) and (effort.mode == "screened" or m2 is not None):
        grounds["verify"] = drawn(effort.m2, 1)
    made = oracles(workers, union.vectors, grounds)
    whole = made["all"]
    screening = None
    if effort.mode == "screened" or "verify" in made:
        samples = {name: _sample(aim, union, one) for name, one in made.items() if name != "all"}
        screen = samples["screen"] if effort.mode == "screened" else None
        screening = Screening(screen, samples.get("verify"), effort.z)
    searched = made.get("verify", whole)
    searched.heard = heard
    request = union.request(aim, k=aim.k, coverage_weight=1.0)
    return Root(aim, union, workers, counts, effort, whole, screening, made.get("screen"), request)


def _sample(aim: Aim, union: Union, oracle: ActorCoverage) -> Sample:
    return Sample(oracle, oracle.members(union.ids), aim.n_rows, union.weights(aim))


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
        random_merged = merge(
            method,
            root.whole,
            union.vectors,
            replace(request, objective=merged.objective),
            local_sets=[some[:each] for some in union.controls],
            screening=root.screening,
        ).selection.value
    # Both terms of every method's choice, also where lambda is 0 and only one was looked at.
    lam = merged.objective.lam or 1.0
    terms = root.judged(merged.selection.picks, replace(merged.objective, lam=lam))
    return Outcome(merged, control, random_merged, terms, _certified(root, local, merged, control))


def _controls(union: Union, request: Request) -> Any:
    allowed = np.zeros(len(union.vectors), np.bool_)
    for some in union.controls:
        allowed[some] = True
    allowed[union.required] = True
    return allowed if request.limits.allowed is None else allowed & request.limits.allowed


# The certificate.


def certificate_kind(aim: Aim) -> str | None:
    """Which evidence a setting gets: `full` or `sampled` passes, or what the search leaves.

    One partition in a mode that looks at all of V has a proof for nothing; else a corpus that is
    small enough for a pass over all pairs gets that proof, and a larger one a bound on a sample.
    """
    wanted = aim.config.certificate
    if aim.config.method == "random" or wanted == "none":
        return None
    if wanted != "auto":
        return wanted
    if aim.alone:
        return "left"
    return "full" if aim.n_rows**2 <= EXACT_PAIRS else "sampled"


def _certified(
    root: Root, local: Sequence[Marker], merged: Merged, control: Selection
) -> Certificate | None:
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
    given = root.request.given
    has_given = given is not None and len(given) > 0
    return 0.0 if has_given else _scale(root, objective, weight) * weight


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
    """Most memory that a selecting process ever had resident: an actor, or this one."""
    here = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(here, workers.peak_bytes())
