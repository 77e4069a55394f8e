"""`dualdiv plan`: validate, then estimate rows, tokens, memory, disk and time; runs nothing.

Rows of Parquet files are exact; of text files they are estimated from the first rows. Times rest on
rates that `plan --calibrate` measured, or on assumed ones (see `jobs.planning.rates`), and say so.
"""

import math
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from inference.calibration import CONTENT_FREE, MAX_PERMUTATIONS
from inference.kinds import ANSWERED_BY_OUTPUT
from inference.prompts import PromptSpec, build
from inference.tasks import Task
from jobs import capacity
from jobs.checks import check_config, remote_code
from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.config.storage import use
from jobs.config.tables import TableConfig
from jobs.embed import encoder_spec, identify
from jobs.files.inputs import open_input
from jobs.generating.content_free import prompts_planned, sets_planned
from jobs.generating.engines import engine_spec, unpinned_spec
from jobs.ledger import Ledger
from jobs.orders.study import n_places, orders_planned
from jobs.planning.cluster import Machines, machines_of
from jobs.planning.cost import Planned, cost, on_nodes
from jobs.planning.models import absent_lines, mean_tokens_of, model_bytes, sizes_of
from jobs.planning.rates import Rates
from jobs.planning.sparse import plan_sparse
from jobs.planning.stage1 import Stage1Plan, enough_partitions, plan_settings
from jobs.planning.text import plan_lines
from jobs.progress import Progress
from jobs.prompting.work import CALIBRATED
from jobs.rank import learns
from jobs.readers.files import read_rows
from jobs.readers.sources import SourceFile, find
from jobs.spill import column_map, read_options
from jobs.status import markers_in
from jobs.storage import Store, reading
from jobs.tasks import build as build_task

SAMPLE_ROWS = 500
# Rows of a text file that are counted at least, and where its place moves in large steps at most.
COUNT_ROWS, MOST_ROWS = 32_768, 262_144
# Weights in the blocks of BERT base, which learned sparse encoders are made of.
SPARSE_WEIGHTS = 85e6


def plan(
    config: Config,
    *,
    progress: Progress,
    machines: Machines | None = None,
    rates: Rates | None = None,
    rows: int | None = None,
) -> dict[str, Any]:
    """Check a config as a run would, and say what the run would cost.

    Args:
        config: The resolved config.
        progress: Takes the lines.
        machines: The cluster; None: as the config says.
        rates: What was measured; None: assumed.
        rows: Rows of the corpus, of which the files are then a sample; None: what is there.

    Returns:
        The estimates as plain data.

    Raises:
        ConfigError: As `run`.
        DataError: The first file of a table cannot be read.
        ClusterError: A stage asks for more than the cluster has; all else is printed before.
    """
    use(config.file.storage)
    absent: dict[str, str] = {}
    check_config(config, until="report", absent=absent)
    for text in remote_code(config):
        progress.warn(text)
    Store(config.out).check()
    machines, rates = machines or machines_of(config.file.cluster), rates or Rates()
    planned, changed = prepared(config, machines, rows=rows, absent=absent)
    answer: dict[str, Any] = {
        "out": Store(config.out).place,
        "cluster": machines.as_dict(),
        "rates": rates.source,
        "tables": planned.tables,
        "encoders": planned.encoders,
        "sparse_encoders": planned.sparse,
        "select": _select(planned.plans),
        "arms": planned.arms,
        "planned_with": changed,
        **cost(planned, machines, rates),
        "done": _done(config),
        "models_not_looked_up": absent,
    }
    answer["nodes"] = on_nodes(planned, machines, answer["memory_bytes"])
    answer["disk_bytes"] = sum(answer["disk"].values())
    for table in answer["tables"].values():
        del table["sample_texts"], table["sample_outputs"], table["sample_kept"]
        table["n_labels_seen"] = len(table.pop("labels_seen"))
    here = machines.amounts()
    wanted = capacity.needs(config, here, until="report")
    answer["requests"] = capacity.as_dict(wanted, here)
    lines = plan_lines(answer, planned.plans, machines, rates)
    for line in [*absent_lines(absent), *lines, *capacity.lines_of(wanted, here)]:
        progress.line("plan", line)
    capacity.check(wanted, here)
    return answer


def prepared(
    config: Config,
    machines: Machines,
    *,
    rows: int | None = None,
    absent: dict[str, str] | None = None,
) -> tuple[Planned, dict[str, int]]:
    """Look at the first rows and count; what does not fit as it is configured is refused.

    Args:
        config: The resolved config.
        machines: The cluster.
        rows: As for `plan`: too few partitions for so many are then more, not an error.
        absent: Places of models that are out of reach, with what was said of each; None: none.

    Returns:
        What was counted, and the keys that were planned with other values.
    """
    absent = absent or {}
    tables = {name: _table(config, name) for name in ("corpus", "queries")}
    changed: dict[str, int] = {}
    if rows is not None:
        n_bytes = int(rows * tables["corpus"]["characters_mean"])
        tables["corpus"] |= {"rows": rows, "rows_exact": True, "bytes": n_bytes}
    encoders = {
        name: _encoder(config, name, tables, absent)
        for name in sorted({a.encoder for a in config.arms})
    }
    if rows is not None:
        count = enough_partitions(config, tables, encoders, machines=machines)
        if count != tables["corpus"]["partitions"]:
            changed["corpus.partition.count"] = tables["corpus"]["partitions"] = count
        # One file is read by one worker; so many rows do not come in one.
        tables["corpus"]["files"] = max(count, tables["corpus"]["files"])
    sparse = {
        name: one | {"weights": SPARSE_WEIGHTS}
        for name, one in plan_sparse(config, tables, encoders).items()
    }
    arms = {arm.name: _arm(config, arm, tables, absent) for arm in config.arms}
    for name in _taught_already(config):
        arms[name] |= {"epr_prompts": 0, "epr_prompt_tokens": 0}
    plans = plan_settings(config, tables, encoders, machines=machines)
    return Planned(config, tables, encoders, sparse, arms, plans), changed


def _table(config: Config, name: str) -> dict[str, Any]:
    table: TableConfig = getattr(config.file, name)
    files = find(table.path, key=f"{name}.path")
    texts, labels, outputs, kept, scale = _sample(table, files)
    rows = scale if scale is not None else 0
    exact = all(_parquet_rows(file) is not None for file in files)
    if exact:
        rows = sum(_parquet_rows(file) or 0 for file in files)
    limit = config.limit_of(name)
    if limit is not None:
        rows = min(rows, limit)
    return {
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "rows": rows,
        "rows_exact": exact,
        "partitions": table.partition.count,
        "sample_texts": texts,
        "labels_seen": labels,
        "sample_outputs": outputs,
        "sample_kept": kept,
        "characters_mean": sum(map(len, texts)) / len(texts) if texts else 0.0,
    }


def _parquet_rows(file: SourceFile) -> int | None:
    with reading(file.path), open_input(file.path) as handle:
        if handle.read(4) != b"PAR1":
            return None
        try:
            return int(pq.read_metadata(handle).num_rows)
        except (OSError, ValueError):
            return None


def _sample(
    table: TableConfig, files: list[SourceFile]
) -> tuple[list[str], list[str], list[str], dict[str, list[str]], int | None]:
    """Texts, labels, outputs and kept columns of the first rows, and all rows by size."""
    first = files[0]
    with reading(first.path), open_input(first.path) as file:
        batches = read_rows(
            file, first.path, columns=column_map(table), options=read_options(table)
        )
        made, seen, marks = None, 0, [(0, 0)]
        for one in batches:
            if made is not None and ((len(marks) > 2 and seen >= COUNT_ROWS) or seen >= MOST_ROWS):
                break
            made = made or one
            seen += one.rows.num_rows
            if file.tell() > marks[-1][1]:
                marks.append((seen, file.tell()))
        else:
            marks = [(0, 0), (seen, max(1, first.bytes))]
    if made is None or not seen:
        return [], [], [], {}, 0
    rows = made.rows.slice(0, SAMPLE_ROWS)
    texts = [text for text in rows.column("input").to_pylist() if text]
    labels = sorted({label for label in rows.column("label").to_pylist() if label is not None})
    total = sum(file.bytes for file in files)
    outputs = [text for text in rows.column("output").to_pylist() if text]
    kept = {name: [x or "" for x in rows.column(name).to_pylist()] for name in table.columns.keep}
    return texts, labels, outputs, kept, max(seen, round(_rows_a_byte(marks) * total))


def _rows_a_byte(marks: list[tuple[int, int]]) -> float:
    """When a reader fetches again, it has handed out what it had fetched before."""
    rows, place = marks[-1][0], marks[-2][1] or marks[-1][1]
    return rows / max(1, place)


def _encoder(
    config: Config, name: str, tables: dict[str, Any], absent: dict[str, str]
) -> dict[str, Any]:
    key = f"encoders.{name}"
    spec = encoder_spec(config.file.encoders[name], key=key)
    dimension, weights = sizes_of(spec, key=key, absent=absent)
    tokens = mean_tokens_of(spec, key=key, absent=absent)(tables["corpus"]["sample_texts"])
    n_rows = tables["corpus"]["rows"] + tables["queries"]["rows"]
    width = 2 if spec.storage == "float16" else 4
    return {
        "encoder_id": None if key in absent else identify(name, spec),
        "dimension": dimension,
        "weights": weights,
        "model_bytes": 0 if key in absent else model_bytes(spec),
        "tokens_mean": tokens,
        "tokens": round(tokens * n_rows),
        "vector_bytes": n_rows * dimension * width,
        "storage": spec.storage,
    }


def _select(plans: Mapping[str, Stage1Plan]) -> dict[str, Any]:
    encoders = {p.sizes.vector_bytes * p.sizes.n_rows for p in plans.values()}
    return {
        "settings": {name: one.as_dict() for name, one in plans.items()},
        # One encoder after the other: its mapped vectors are gone before the next one's are there.
        "scratch_bytes": max(encoders, default=0),
        "output_bytes": sum(one.n_folds * one.output_bytes for one in plans.values()),
        "core_seconds": sum(one.n_folds * one.core_seconds() for one in plans.values()),
    }


def _arm(
    config: Config, arm: Arm, tables: dict[str, Any], absent: dict[str, str]
) -> dict[str, Any]:
    task_config = config.file.tasks[arm.task]
    seen = tables["corpus"]["labels_seen"]
    stand_ins = ["label one of the corpus", "label two of the corpus"]
    task: Task = build_task(
        arm.task, task_config, dict.fromkeys(seen if len(seen) > 1 else stand_ins, 1)
    )
    key, engine = f"engines.{arm.engine}", config.file.engines[arm.engine]
    spec = (unpinned_spec if key in absent else engine_spec)(engine, key=key)
    mean_tokens = mean_tokens_of(spec, key=key, absent=absent)
    k = n_places(arm)
    bare = [build(task, [], "", spec=PromptSpec())]
    text = mean_tokens(tables["corpus"]["sample_texts"])
    query = mean_tokens(tables["queries"]["sample_texts"])
    # The same stands below the inputs of demonstrations, where it stands there too.
    kept = tables["queries"]["sample_kept"]
    context = sum(mean_tokens([f"{mark}{x}" for x in kept[c]]) for c, mark in task.context.items())
    # Entities are shown shorter than they are stored; what is planned for is an upper bound.
    by_output = task.kind in ANSWERED_BY_OUTPUT
    answers = tables["corpus"]["sample_outputs"] if by_output else list(task.labels)
    answer = mean_tokens(answers)
    each = mean_tokens(bare) + query + context + k * (text + answer + 6)
    each += k * context * task.context_in_demonstrations
    most = spec.max_model_len - arm.generate.max_tokens
    alone = mean_tokens(bare) + 2 * text + answer + 6
    report = config.file.report
    n_maps = report.folds if report.folds_of == "selection" else 1
    trials = n_maps * _trials(arm, tables["corpus"]["rows"])
    n_queries = tables["queries"]["rows"]
    orders = orders_planned(config, arm, n_queries)
    neutral = prompts_planned(arm, n_queries, k=k)
    if orders:
        # Each order of the demonstrations is a list of its own.
        neutral += orders["orders"] * prompts_planned(arm, orders["queries"], k=k)
    tried = _orders_tried(arm, n_queries)
    return {
        "calibration_prompts": tried,
        "calibration_prompt_tokens": round(tried * (each - query)),
        "orders": orders,
        "order_prompt_tokens": round(each * orders["prompts"]) if orders else 0,
        "content_free_prompts": neutral,
        "epr_prompts": trials,
        "epr_prompt_tokens": round(trials * alone),
        "prompts": n_queries,
        "prompt_tokens_mean": each,
        "prompt_tokens": round(each * n_queries),
        "max_prompt_tokens": min(most, arm.prompt.token_budget or most),
    }


def _orders_tried(arm: Arm, n_queries: int) -> int:
    """Prompts that the LLM scores to calibrate the order of each set of demonstrations."""
    k = n_places(arm)
    if arm.prompt.order != CALIBRATED or k < 2:
        return 0
    n_orders = min(math.factorial(k), MAX_PERMUTATIONS)
    return sets_planned(arm, n_queries, k=k) * n_orders * len(CONTENT_FREE)


def _trials(arm: Arm, n_rows: int) -> int:
    """Prompts that the LLM scores before a map is learned; `also` is not counted."""
    if not learns(arm) or arm.stage2.epr.map is not None:
        return 0
    pool = min(n_rows, arm.stage1.k1 or n_rows)
    return min(arm.stage2.epr.rows, pool) * max(0, min(arm.stage2.epr.candidates, pool - 1))


def _taught_already(config: Config) -> list[str]:
    """Arms whose map is learned from the very prompts of an arm before them."""
    seen, found = set[str](), []
    for arm in config.arms:
        stage2, prompt = arm.stage2, arm.prompt
        names = [arm.task, arm.encoder, arm.engine, arm.seed, stage2.ceiling]
        asked = stage2.epr.model_dump_json(include={"rows", "also", "candidates"})
        shown = [stage2.exclude_same_group, prompt.format, prompt.negative_pairs]
        key = repr([names, arm.stage1.model_dump_json(), asked, shown])
        if learns(arm) and stage2.epr.map is None:
            found += [arm.name] if key in seen else []
            seen.add(key)
    return found


def _done(config: Config) -> dict[str, int]:
    """What is there already, by stage."""
    from jobs import manifest

    ledger = Ledger(config.out)
    found = manifest.load(ledger.store)
    stages = ("tables", "embeddings", "selections", "prompts", "outputs")
    return {
        name: len({marker.table for marker in markers_in(found[name])})
        for name in stages
        if name in found
    }
