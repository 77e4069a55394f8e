"""The last merge of Stage 1, made ready: candidates with the actors, and the sums it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.selecting.actor import Ground
from jobs.selecting.aim import Aim
from jobs.selecting.crowds import crowd_of, voters_of
from jobs.selecting.oracle import ActorCoverage, oracles
from jobs.selecting.union import Indices, Union
from jobs.selecting.workers import Workers
from jobs.vectors import shares
from selection.crowd import VOTERS_MOST
from selection.lazy_greedy import evaluate
from selection.modes import Effort, resolve
from selection.objective import Objective
from selection.request import Request
from selection.screening import Sample, Screening
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
    if aim.asks_voters:
        grounds["voters"] = drawn(min(VOTERS_MOST, aim.n_rows), 2)
    made = oracles(workers, union.vectors, grounds)
    whole = made["all"]
    screening = None
    if effort.mode == "screened" or "verify" in made:
        wanted = [name for name in ("screen", "verify") if name in made]
        samples = {name: _sample(aim, union, made[name]) for name in wanted}
        screen = samples["screen"] if effort.mode == "screened" else None
        screening = Screening(screen, samples.get("verify"), effort.z, effort.unseen)
    searched = made.get("verify", whole)
    searched.heard = heard
    voters = voters_of(aim, union, *made["voters"].points()) if aim.asks_voters else None
    # The driver declares no cores: what it does alone it does on one.
    crowd = crowd_of(aim, union, voters, threads=1)
    request = union.request(aim, k=aim.k, coverage_weight=1.0, crowd=crowd)
    return Root(aim, union, workers, counts, effort, whole, screening, made.get("screen"), request)


def _sample(aim: Aim, union: Union, oracle: ActorCoverage) -> Sample:
    return Sample(oracle, oracle.members(union.ids), aim.n_rows, union.weights(aim))
