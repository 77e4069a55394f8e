"""What `dualdiv plan` prints: one line a fact."""

from collections.abc import Mapping
from typing import Any

from jobs.orders.study import order_line
from jobs.planning.cluster import Machines
from jobs.planning.lines import lines_of, span
from jobs.planning.rates import Rates
from jobs.planning.sparse import sparse_lines
from jobs.planning.stage1 import Stage1Plan


def plan_lines(
    answer: Mapping[str, Any], plans: Mapping[str, Stage1Plan], machines: Machines, rates: Rates
) -> list[str]:
    """All lines of a plan.

    Args:
        answer: As `jobs.plan.plan` returns it.
        plans: Of Stage 1.
        machines: The cluster.
        rates: What times rest on.
    """
    lines = [f"cluster: {machines.line()}", *_tables(answer)]
    for name, encoder in answer["encoders"].items():
        lines.append(
            f"{name}: about {encoder['tokens']:,} tokens, {_size(encoder['vector_bytes'])} "
            f"of {encoder['storage']} vectors of {encoder['dimension']}"
        )
    lines += sparse_lines(answer["sparse_encoders"])
    for name, stage1 in plans.items():
        lines += lines_of(name, stage1)
    lines += _arms(answer["arms"])
    lines += [*_memory(answer), *_disk(answer), *_time(answer, rates)]
    if answer["done"]:
        there = ", ".join(f"{name} {n}" for name, n in answer["done"].items())
        lines.append(f"there already: {there} parts; what is unchanged is not made again")
    return lines


def _tables(answer: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, table in answer["tables"].items():
        about = "" if table["rows_exact"] else "about "
        if not table["rows"] or not table["characters_mean"]:
            lines.append(
                f"{name}: WARNING: no usable text among the first rows; see {name}.columns"
            )
        lines.append(
            f"{name}: {about}{table['rows']:,} rows in {table['files']:,} files "
            f"({_size(table['bytes'])}), {table['partitions']:,} partitions"
        )
    lines += [
        f"WARNING: {key} as configured does not hold so many rows; planned with {value:,}: set it"
        for key, value in answer["planned_with"].items()
    ]
    return lines


def _arms(arms: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, arm in arms.items():
        if arm["epr_prompts"]:
            lines.append(
                f"{name}: about {arm['epr_prompts']:,} prompts with one demonstration, to learn "
                "what helps (stage2.epr)"
            )
        if arm["calibration_prompts"]:
            lines.append(
                f"{name}: about {arm['calibration_prompts']:,} prompts to calibrate orders "
                "(prompt.order); layout clustered has few sets"
            )
        lines.append(
            f"{name}: {arm['prompts']:,} prompts of about {arm['prompt_tokens_mean']:.0f} tokens "
            f"(at most {arm['max_prompt_tokens']:,})"
        )
        if arm["content_free_prompts"]:
            lines.append(
                f"{name}: about {arm['content_free_prompts']:,} prompts more without content "
                "(generate.calibrate), which share their demonstrations with those of queries"
            )
        if arm["orders"]:
            lines.append(order_line(name, arm["orders"]))
    return lines


def _memory(answer: Mapping[str, Any]) -> list[str]:
    held = ", ".join(f"{name} {_size(n)}" for name, n in answer["memory_bytes"].items())
    lines = [f"memory of one process: {held} (ingest, embed, select: a worker each)"]
    for stage, node in answer["nodes"].items():
        if not node["workers"]:
            lines.append(
                f"{stage}: WARNING: no node has room for a worker; see cluster.{stage}.cpus and "
                ".gpus, or the nodes"
            )
            continue
        has = node["node_bytes"]
        of = "" if has is None else f" of {_size(has)}"
        short = has is not None and node["bytes"] > has
        lines.append(
            f"{stage}: {answer['workers'][stage]:,} workers, at most {node['workers']:,} on a node "
            f"with {_size(node['bytes'])}{of}" + (": WARNING: too much" if short else "")
        )
    return lines


def _disk(answer: Mapping[str, Any]) -> list[str]:
    kinds = ", ".join(f"{name} {_size(n)}" for name, n in answer["disk"].items())
    return [
        f"disk: about {_size(answer['disk_bytes'])} in {answer['out']} ({kinds}); "
        f"{_size(answer['select']['scratch_bytes'])} of scratch (TMPDIR) over the nodes while "
        "selecting"
    ]


def _time(answer: Mapping[str, Any], rates: Rates) -> list[str]:
    parts = ", ".join(f"{name} {span(s)}" for name, s in answer["seconds"].items())
    lines = [rates.line(), f"time: about {span(sum(answer['seconds'].values()))} ({parts})"]
    if answer["gpu_hours"]:
        assumed = rates.gpu_assumed()
        doubt = ", at an assumed pace: calibrate on a machine with one" if assumed else ""
        lines.append(f"GPU hours: about {answer['gpu_hours']:,.1f}{doubt}")
    return lines


def _size(n_bytes: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes / 2**20:,.1f} MiB"
