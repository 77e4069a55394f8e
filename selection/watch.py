"""Looks at the bounds of a greedy run from time to time, for the certificate."""

from __future__ import annotations

import math

import numpy as np

from selection.arrays import Float64
from selection.certificate import CertificateWatch
from selection.objective import Objective
from selection.request import Request
from selection.top_gains import top_gains
from selection.trace import Trace

# A look sorts out the largest of n bounds; the bound found hardly gains from more looks.
MOST_LOOKS = 32


class Watch:
    """Hands upper bounds of all gains to a certificate, at evenly spaced steps and at the end."""

    def __init__(self, bounds: CertificateWatch, request: Request, objective: Objective) -> None:
        """Start before the first pick.

        Args:
            bounds: Takes the bounds.
            request: Gives k, limits and quality.
            objective: What the picks are chosen by.
        """
        self._bounds, self._request, self._objective = bounds, request, objective
        # Those required are in every set; those of a full group may still be in the best one.
        self._allowed = np.ones(len(request.tie_rank), dtype=np.bool_)
        if request.limits.allowed is not None:
            self._allowed &= request.limits.allowed
        if request.limits.required is not None:
            self._allowed[request.limits.required] = False
        self._every = max(1, -(-request.k // MOST_LOOKS))

    def look(self, trace: Trace, coverage: Float64, diversity: Float64, *, last: bool) -> None:
        """Look, if it is time.

        Args:
            trace: The picks so far.
            coverage: (n,) upper bounds of the coverage gains, as they enter f.
            diversity: (n,) upper bounds of log-determinant gain plus quality, before lambda.
            last: The run is over.
        """
        step = len(trace.picks)
        if not last and (step == 0 or step % self._every):
            return
        quality = self._request.quality
        limits = self._request.limits
        top = top_gains(
            coverage,
            diversity if quality is None else diversity - quality,
            k=self._request.k,
            objective=self._objective,
            quality=quality,
            picked=np.array(trace.picks, dtype=np.int64),
            allowed=self._allowed,
            groups=limits.groups,
            max_per_group=limits.max_per_group,
        )
        self._bounds.look(
            top,
            covered=math.fsum(trace.coverage),
            diverse=math.fsum(trace.diversity),
            n_picks=step,
        )
