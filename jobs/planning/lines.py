"""What `dualdiv plan` prints of a Stage 1 setting: one line a fact."""

from jobs.planning.stage1 import Stage1Plan
from jobs.selecting.sizes import MIB
from selection.modes import Effort
from selection.stage1 import MAXIMISE_F


def lines_of(name: str, plan: Stage1Plan) -> list[str]:
    """The plan of a setting, one line a fact.

    Args:
        name: Of the setting.
        plan: Its plan.
    """
    facts = [_tree(plan), _memory(plan), _resident(plan), _time(plan)]
    return [f"{name}: {_choice(plan)}", *(f"  {fact}" for fact in facts)]


def _choice(plan: Stage1Plan) -> str:
    sizes = plan.sizes
    count = f"{sizes.k:,}"
    if sizes.stage1.k1 is None:
        count = f"as many as the budget buys (planned for {sizes.k:,})"
    parts = "one partition"
    if sizes.n_partitions > 1:
        parts = f"{sizes.n_partitions:,} partitions of about {sizes.mean:,}"
    folds = f"; repeated for {plan.n_folds} folds, each without its share" * (plan.n_folds > 1)
    return f"{count} of {sizes.n_rows:,} rows in {parts}; {_mode(plan.local)}{folds}"


def _mode(effort: Effort) -> str:
    if effort.mode != "screened":
        return effort.mode
    m2 = f"{effort.m2:,}" if isinstance(effort.m2, int) else "all"
    return f"screened on {effort.m1:,}, judged on {m2}"


def _tree(plan: Stage1Plan) -> str:
    merges, last = plan.merges, plan.merges.levels[-1]
    parts = [f"{merges.partitions:,} x {min(merges.local_k, plan.sizes.mean):,}"]
    parts += [f"{level.nodes:,} x {level.k:,}" for level in merges.levels[:-1]]
    n, root = len(merges.levels), _mode(plan.root)
    sample = plan.sizes.root_sample(plan.root)
    if sample is not None and plan.root.mode == "exact":
        root += f", judged on {sample:,}"
    return (
        f"merged in {n} level{'s' if n > 1 else ''}: {' -> '.join(parts)} -> {plan.sizes.k:,}; "
        f"the last of {last.candidates:,}, {root}"
    )


def _memory(plan: Stage1Plan) -> str:
    memory = plan.memory
    merge = f"merge {_mib(sum(memory.merge.values()))}, " if memory.merge else ""
    least = f"; at least {plan.least_workers:,} workers" if plan.least_workers > 1 else ""
    return (
        f"memory: partition {_mib(sum(memory.partition.values()))}, {merge}last merge "
        f"{_mib(memory.judging)}, of {_mib(plan.sizes.declared)} declared{least}"
    )


def _resident(plan: Stage1Plan) -> str:
    memory = plan.memory
    return (
        f"resident: at most {_mib(memory.worker)} in a worker, {plan.sizes.n_workers:,} in all "
        f"(process {_mib(memory.process)}, mapped files {_mib(memory.mapped)}), "
        f"{_mib(memory.driver)} in the driver, {_mib(memory.shared)} of object store a node"
    )


def _time(plan: Stage1Plan) -> str:
    work, each = plan.work, " for each fold" * (plan.n_folds > 1)
    merging = work.merging + work.control
    parts = {"local": work.local, "merges": merging, "judging": work.judging}
    parts["certificate"] = work.certificate
    shown = ", ".join(f"{name} {span(plan.core_seconds(n))}" for name, n in parts.items() if n)
    if plan.sizes.stage1.method not in MAXIMISE_F:
        return f"core time{each}: about {span(plan.core_seconds())} ({shown})"
    full = span(plan.core_seconds(work.full))
    proof = {"left": "from the choice", "full": "full"}.get(plan.certificate, plan.certificate)
    if plan.certificate != "full":
        proof += f", full would take {full} more"
    return f"core time{each}: about {span(plan.core_seconds())} ({shown}); certificate: {proof}"


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.0f} MiB"
