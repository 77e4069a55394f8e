"""What Stage 1 will cost: mode, merges, memory, disk and time of every setting, from sizes alone.

Time is counted in pairs of ground point and candidate, whose cosine takes 2 d FLOP; how often each
pair comes up was measured (see the constants).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from jobs.config.load import Config
from jobs.config.schema import Arm, ConfigFile
from jobs.config.stage1 import NO_STAGE1
from jobs.embed import encoder_spec
from jobs.errors import ConfigError
from jobs.planning.cluster import Machines
from jobs.planning.rules import local_pairs, merge_pairs
from jobs.selecting.room import (
    MOST_PARTITIONS,
    Memory,
    least_workers,
    memory_of,
    merges_of,
    require_room,
)
from jobs.selecting.sizes import Sizes
from selection.modes import EXACT_PAIRS, Effort
from selection.stage1 import DRAWN, MAXIMISE_F
from selection.tree import MergePlan

# Measured on one core of an AMD EPYC (Milan, AVX2, 75 GFLOP/s SGEMM): gains with all around them.
FLOP_PER_CORE_SECOND = 60e9
# Exact lazy greedy looks at every candidate so often, without and with a log-determinant, for any
# k (measured 4 to 5 and 4.4 to 6), but at no fewer than a batch for each pick.
LAZY_PASSES = {False: 4.5, True: 6.0}
LEAST_BATCH = 16
# Screened greedy: passes over m1 at k = 300, growing like log k; candidates a pick judged on m2.
SCREEN_PASSES, SCREEN_K = 9.0, 300
JUDGED_PER_PICK = 50
# Dense: half a pass of products, then sums over W, whose entries cost so much time as FLOP.
ROW_SUM_FLOP = 150
# Picks planned for where only a budget ends the choice and no cost is read yet.
ASSUMED_PICKS = 10_000


@dataclass(frozen=True)
class Work:
    """Pairs of ground point and candidate.

    Attributes:
        local: Choosing inside all partitions.
        merging: Merges below the last, and the last.
        control: The last merge again, of random candidates.
        judging: Sets that are measured on all rows.
        certificate: The pass of the certificate that was asked for.
        full: What `certificate: full` takes, asked for or not.
    """

    local: float
    merging: float
    control: float
    judging: float
    certificate: float
    full: float

    @property
    def total(self) -> float:
        """All that is done."""
        return self.local + self.merging + self.control + self.judging + self.certificate


@dataclass(frozen=True)
class Stage1Plan:
    """What one setting will cost.

    Attributes:
        sizes: What it was planned for.
        merges: The tree.
        local: How a partition of mean size chooses.
        root: How the last merge judges.
        certificate: `left` over from the choice, `full`, `sampled` or `none`.
        memory: Of each process.
        work: Products.
        scratch_bytes: Mapped vectors, in TMPDIR of all nodes together.
        output_bytes: Local answers and merges.
        least_workers: Fewest workers whose share of the rows fits.
        n_folds: How often it is repeated, on the corpus without a fold; 1: once, on all of it. Time
            and disk are planned as if each were on all of it.
    """

    sizes: Sizes
    merges: MergePlan
    local: Effort
    root: Effort
    certificate: str
    memory: Memory
    work: Work
    scratch_bytes: int
    output_bytes: int
    least_workers: int
    n_folds: int = 1

    def core_seconds(self, pairs: float | None = None) -> float:
        """Seconds of one core for so many pairs; None: for all that is done."""
        flop = 2 * self.sizes.dim * (self.work.total if pairs is None else pairs)
        return flop / FLOP_PER_CORE_SECOND

    def seconds(self, cores: int) -> float:
        """Seconds on so many cores, of which a worker uses no more than its threads."""
        sizes = self.sizes
        busy = min(cores, sizes.threads * min(sizes.n_workers, sizes.n_partitions))
        return self.core_seconds() / max(1, busy)

    def as_dict(self) -> dict[str, Any]:
        """All numbers as plain data."""
        sizes = self.sizes
        return {
            "k": sizes.k,
            "rows": sizes.n_rows,
            "partitions": sizes.n_partitions,
            "rows_per_partition": sizes.mean,
            "largest_partition": sizes.largest,
            "workers": sizes.n_workers,
            "least_workers": self.least_workers,
            "folds": self.n_folds,
            "mode": self.local.mode,
            "m2": self.local.m2,
            "last_merge_mode": self.root.mode,
            "last_merge_m2": self.root.m2,
            "local_k": self.merges.local_k,
            "levels": [asdict(level) for level in self.merges.levels],
            "certificate": self.certificate,
            "memory_bytes": asdict(self.memory),
            "declared_bytes": sizes.declared,
            "scratch_bytes": self.scratch_bytes,
            "output_bytes": self.output_bytes,
            "pairs": asdict(self.work),
            "core_seconds": self.core_seconds(),
            "core_seconds_certificate_full": self.core_seconds(self.work.full),
        }


def predict(sizes: Sizes, merges: MergePlan | None = None) -> Stage1Plan:
    """Predict mode, tree, memory, disk and time of a setting; refuses nothing that has a tree.

    Args:
        sizes: Of the setting.
        merges: Its tree; None: the one that a run would plan.

    Raises:
        ConfigError: No tree of merges fits the declared memory.
    """
    merges = merges_of(sizes) if merges is None else merges
    local, root = sizes.local_effort(sizes.mean, merges.local_k), sizes.root_effort(merges)
    kind = certificate_of(sizes)
    return Stage1Plan(
        sizes=sizes,
        merges=merges,
        local=local,
        root=root,
        certificate=kind,
        memory=memory_of(sizes, merges),
        work=_work(sizes, merges, local, root, kind),
        scratch_bytes=sizes.n_rows * sizes.vector_bytes,
        output_bytes=_output(sizes, merges),
        least_workers=least_workers(sizes, merges),
    )


def certificate_of(sizes: Sizes) -> str:
    """Which pass the certificate takes, as `jobs.selecting.certificate` decides it."""
    config, n = sizes.stage1, sizes.n_rows
    if config.method not in MAXIMISE_F or config.certificate == "none":
        return "none"
    kind: str = config.certificate
    if kind == "auto":
        # The bounds that a greedy leaves behind are none under a budget.
        left = sizes.n_partitions == 1 and config.budget is None
        kind = "left" if left else "full" if n**2 <= EXACT_PAIRS else "sampled"
    return "full" if kind == "sampled" and config.m1 >= n else kind


def _work(sizes: Sizes, merges: MergePlan, local: Effort, root: Effort, kind: str) -> Work:
    n, k, last = sizes.n_rows, sizes.k, merges.levels[-1]
    chosen = min(merges.local_k, sizes.mean)
    if sizes.stage1.method not in MAXIMISE_F:
        own = sizes.n_partitions * local_pairs(sizes, sizes.mean, chosen)
        below, top = merge_pairs(sizes, merges)
        control = top if sizes.n_partitions > 1 else 0.0
        return Work(own, below + top, control, 4.0 * k * n, 0.0, float(n) ** 2)
    own = sizes.n_partitions * _greedy(sizes, local, sizes.mean, sizes.mean, chosen)
    below = sum(
        level.nodes
        * (
            _greedy(
                sizes,
                sizes.merge_effort(level.candidates, level.k),
                sizes.sample,
                level.candidates,
                level.k,
            )
            + level.fan_in * level.k * sizes.sample
        )
        for level in merges.levels[:-1]
    )
    on = sizes.root_sample(root) or n
    top = _greedy(sizes, root, n if root.mode == "screened" else on, last.candidates, k)
    # Local solutions are compared on the small sample where there is one; the set, its control
    # and both terms of it on all rows.
    compared = last.fan_in * k * (root.m1 if root.mode == "screened" else on)
    top += compared
    passes = {"full": float(n) ** 2, "sampled": float(n) * min(sizes.stage1.m1, n)}
    control = top if sizes.n_partitions > 1 else 0.0
    return Work(own, below + top, control, 3.0 * k * n, passes.get(kind, 0.0), float(n) ** 2)


def _greedy(sizes: Sizes, effort: Effort, m: int, n: int, k: int) -> float:
    """Pairs of one greedy: n candidates, m ground points, k picks."""
    config, k = sizes.stage1, min(k, n)
    looks = max(LAZY_PASSES[config.diverse] * n, LEAST_BATCH * k)
    looks = min(looks, float(n) * k)
    if effort.mode == "dense":
        pairs = m * n / 2 + looks * m * ROW_SUM_FLOP / (2 * sizes.dim)
    elif effort.mode == "exact":
        pairs = (looks + k) * m
    else:
        passes = max(1.0, SCREEN_PASSES * math.log(max(k, 2)) / math.log(SCREEN_K))
        judged_on = effort.m2 if isinstance(effort.m2, int) else m
        pairs = min(passes, k) * n * effort.m1 + min(JUDGED_PER_PICK * k, looks) * judged_on
        pairs += k * (effort.m1 + judged_on + (m if judged_on < m else 0))
    return pairs * (2 if config.budget is not None else 1)


def _output(sizes: Sizes, merges: MergePlan) -> int:
    each = sizes.vector_bytes + sizes.text_bytes + 120
    rows = sizes.n_partitions * 2 * min(merges.local_k, sizes.mean) + sizes.k
    if len(merges.levels) > 1:
        rows += sizes.sample + sum(level.nodes * level.k for level in merges.levels[:-1])
    return math.ceil(rows * each)


# The settings of a config.


def plan_settings(
    config: Config,
    tables: Mapping[str, Any],
    encoders: Mapping[str, Any],
    *,
    machines: Machines | None = None,
) -> dict[str, Stage1Plan]:
    """Plan every Stage 1 setting of a config; arms that agree share one.

    Args:
        config: The resolved config.
        tables: Rows and partitions of the corpus, and its mean text.
        encoders: Dimension of each encoder.
        machines: The cluster; None: as many workers as will do.

    Returns:
        The plans by method and arms.

    Raises:
        ConfigError: A partition, a merge or a share of the rows does not fit a worker.
    """
    report = config.file.report
    n_folds = report.folds if report.folds_of == "selection" else 1
    plans = {}
    for same in _alike(config):
        encoder = encoders[same[0].encoder]
        sizes = _sizes(config.file, same[0], tables["corpus"], encoder, machines)
        require_room(sizes)
        name = f"{same[0].stage1.method} ({', '.join(arm.name for arm in same)})"
        plans[name] = replace(predict(sizes), n_folds=n_folds)
    return plans


def enough_partitions(
    config: Config,
    tables: Mapping[str, Any],
    encoders: Mapping[str, Any],
    *,
    machines: Machines,
) -> int:
    """Partitions of the corpus: as configured, or doubled until every setting fits a worker.

    Args:
        config: The resolved config.
        tables: As for `plan_settings`.
        encoders: As for `plan_settings`.
        machines: The cluster.
    """
    asked = tables["corpus"]["partitions"]
    count = asked
    while count <= MOST_PARTITIONS:
        corpus = {"corpus": tables["corpus"] | {"partitions": count}}
        try:
            plan_settings(config, corpus, encoders, machines=machines)
        except ConfigError:
            count *= 2
            continue
        return int(count)
    return int(asked)


def _alike(config: Config) -> list[list[Arm]]:
    """Arms that choose alike, together."""
    arms: dict[tuple[str, str, int], list[Arm]] = {}
    for arm in config.arms:
        if arm.stage1.method != NO_STAGE1:
            seed = arm.seed if arm.stage1.method in DRAWN else 0
            key = (arm.encoder, arm.stage1.model_dump_json(), seed)
            arms.setdefault(key, []).append(arm)
    return list(arms.values())


def _sizes(
    file: ConfigFile,
    arm: Arm,
    corpus: Mapping[str, Any],
    encoder: Any,
    machines: Machines | None,
) -> Sizes:
    spec = encoder_spec(file.encoders[arm.encoder], key=f"encoders.{arm.encoder}")
    n_rows, workers = max(1, corpus["rows"]), file.cluster.select
    k1 = ASSUMED_PICKS if arm.stage1.k1 is None else arm.stage1.k1
    sizes = Sizes(
        n_rows=n_rows,
        dim=encoder["dimension"],
        k=min(k1, n_rows),
        n_partitions=corpus["partitions"],
        storage=spec.storage,
        stage1=arm.stage1,
        select=file.select,
        threads=max(1, int(workers.cpus)),
        text_bytes=corpus["characters_mean"],
    )
    if machines is None:
        return replace(sizes, n_workers=least_workers(sizes, merges_of(sizes)))
    n_workers = machines.n_workers(workers, gpus=0.0, n_units=sizes.n_partitions)
    return replace(sizes, n_workers=max(1, n_workers))
