"""What one Stage 1 setting asks for, in the words of `selection`; it travels to the workers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.config.stage1 import LambdaConfig, Stage1Config
from jobs.ledger import Ledger, Marker
from jobs.selecting.inputs import Wishes, limits_of
from jobs.selecting.mapped import Mapped
from jobs.selecting.side_columns import Sides, read_sides
from jobs.vectors import Matrix, random_keys
from selection.crowd import Crowd, votes_among
from selection.lambda_rule import LambdaRule
from selection.modes import Effort
from selection.objective import Objective
from selection.request import Request
from selection.stage1 import MAXIMISE_F

# Samples are drawn by other keys than the random control.
SAMPLE_SALT = 2**32


def rule_of(config: LambdaConfig | None) -> LambdaRule | None:
    """The config's rule for lambda in the words of `selection`."""
    if config is None:
        return None
    if config.schedule is not None:
        return LambdaRule(config.schedule, start=config.start or 0.0, end=config.end or 0.0)
    if config.share is not None:
        return LambdaRule("share", target=config.share)
    return LambdaRule("distance", target=config.min_distance or 0.0)


def objective_of(config: Stage1Config, storage: str) -> Objective:
    """The config's objective in the words of `selection`; with a rule its lambda is not used."""
    lam = config.lam if isinstance(config.lam, float) else 1.0
    if config.method == "coverage":
        lam = 0.0
    return Objective(
        lam=lam,
        scale=config.lambda_scale,
        ridge=config.ridge_for(storage),
        rule=rule_of(config.rule),
    )


@dataclass(frozen=True)
class Aim:
    """One setting with all that it depends on.

    Attributes:
        config: The setting.
        seed: Of random keys and samples.
        storage: `float32` or `float16`, as vectors are stored.
        memory_bytes: Declared memory of a worker.
        n_rows: Rows of the whole corpus that have a vector, N.
        weight: Their weight; N when unweighted.
        n_partitions: P.
        k: Picks wanted, those required included.
        local_k: Picks of one partition.
        wishes: Ids that the setting names.
        given: (a, d) float32 vectors of what is annotated already, or None.
        required: (r, d) float32 vectors of required rows, or None.
        full_groups: Codes of groups that required rows fill.
        spent: What the required rows cost together.
        threads: Threads of a worker.
        device: `cpu` or `cuda`.
    """

    config: Stage1Config
    seed: int
    storage: str
    memory_bytes: int
    n_rows: int
    weight: float
    n_partitions: int
    k: int
    local_k: int
    wishes: Wishes
    given: Matrix | None = None
    required: Matrix | None = None
    full_groups: tuple[int, ...] = ()
    spent: float = 0.0
    threads: int = 1
    device: str = "cpu"

    @property
    def objective(self) -> Objective:
        """What is maximised."""
        return objective_of(self.config, self.storage)

    @property
    def maximises_f(self) -> bool:
        """The method looks for the largest f; others go by a rule of their own."""
        return self.config.method in MAXIMISE_F

    @property
    def weighs_picks(self) -> bool:
        """A pick of a partition counts in merges as much as the points it stands for."""
        return self.config.method == "kmeans"

    @property
    def asks_voters(self) -> bool:
        """Merges ask rows drawn from the whole corpus which candidates are near to them."""
        return self.config.method == "vote-k"

    @property
    def n_required(self) -> int:
        """Rows that every set holds."""
        return 0 if self.required is None else len(self.required)

    @property
    def budget_left(self) -> float | None:
        """What the choice may cost beside the required rows; None: anything."""
        if self.config.budget is None:
            return None
        # Used up is not below the cheapest cost, it is still a budget.
        return max(self.config.budget - self.spent, float(np.finfo(np.float64).tiny))

    @property
    def alone(self) -> bool:
        """One partition: its choice is the answer."""
        return self.n_partitions == 1

    @property
    def before(self) -> Matrix | None:
        """What a partition builds on: annotated rows, and required ones, wherever they live."""
        parts = [part for part in (self.given, self.required) if part is not None and len(part)]
        return np.concatenate(parts) if parts else None

    @property
    def side_names(self) -> list[str]:
        """Side columns that the setting heeds."""
        return sorted(self.config.columns_needed())

    def effort(self, m2: Any = None) -> Effort:
        """How gains are computed; `m2` overrides the config's."""
        config = self.config
        return Effort(
            mode=config.mode,
            m1=config.m1,
            m2=config.m2 if m2 is None else m2,
            z=config.z,
            unseen=config.unseen,
            memory_bytes=self.memory_bytes,
        )

    def sides(self, ledger: Ledger, parts: Sequence[Marker], rows: Mapped) -> Sides:
        """Side columns of a partition's rows."""
        return read_sides(ledger, parts, rows.ids, self.side_names)

    def local_request(self, rows: Mapped, sides: Sides) -> Request:
        """What one partition is asked for.

        With several partitions a partition builds on all required rows as if they were annotated
        already, and chooses none of them; the merge puts them first.

        Args:
            rows: Its rows.
            sides: Their side columns.

        Returns:
            The request; its required rows are indices of this partition.
        """
        limits = limits_of(self.config, self.wishes, rows, sides)
        assert limits.allowed is not None
        given = self.given
        if not self.alone:
            allowed = limits.allowed.copy()
            allowed[limits.required] = False
            if limits.groups is not None:
                allowed &= ~np.isin(limits.groups, self.full_groups)
            limits = replace(limits, allowed=allowed, required=None, budget=self.budget_left)
            given = self.before
        weight = float(len(rows)) if sides.weight is None else float(sides.weight.sum())
        return Request(
            k=self.local_k,
            objective=self.objective,
            tie_rank=np.arange(len(rows), dtype=np.int64),
            keys=self.keys(rows.ids),
            n_total=self.weight,
            coverage_weight=self.weight / weight if weight > 0 else 0.0,
            limits=limits,
            quality=sides.quality,
            given=given,
            crowd=None if self.maximises_f else self._crowd(len(rows)),
        )

    def _crowd(self, n_points: int) -> Crowd:
        """Of a partition: so many rows are their own points, and vote for each other."""
        votes = votes_among(self.config.neighbours, n_points, self.n_rows)
        return Crowd(neighbours=votes)

    def keys(self, ids: pa.StringArray | Sequence[str]) -> Any:
        """Random keys of rows: the smallest are the control."""
        return random_keys(ids, self.seed)

    @property
    def sample_seed(self) -> int:
        """Seed of the keys by which ground points are sampled."""
        return self.seed + SAMPLE_SALT
