"""`dualdiv plan`: validate, then estimate rows, tokens, memory, disk and time; runs nothing.

Rows of Parquet files are exact; of text files they are estimated from the first rows. Times rest on
rates measured on one machine (see `RATES`) and say so.
"""

import itertools
from typing import Any

import pyarrow.parquet as pq

from inference.encoder_spec import EncoderSpec
from inference.kinds import ANSWERED_BY_OUTPUT
from inference.models import resolve
from inference.prompts import PromptSpec, build
from inference.tasks import Task
from jobs.checks import check_config
from jobs.config import Config
from jobs.config_schema import Arm, TableConfig
from jobs.config_storage import use
from jobs.content_free import CONTENT_FREE_TOKENS, prompts_planned
from jobs.embed import encoder_spec, identify
from jobs.engines import engine_spec, tokenizer_of
from jobs.errors import ConfigError
from jobs.files.inputs import open_input
from jobs.ledger import Ledger
from jobs.plan_lines import lines_of
from jobs.plan_select import Stage1Plan, plan_settings
from jobs.plan_sparse import plan_sparse, sparse_lines
from jobs.progress import Progress
from jobs.rank import learns, shows_nothing
from jobs.readers.files import read_rows
from jobs.readers.sources import SourceFile, find
from jobs.select import NO_STAGE1
from jobs.spill import column_map, read_options
from jobs.status import markers_in
from jobs.storage import Store, reading
from jobs.tasks import build as build_task

SAMPLE_ROWS = 500
# Measured on two cores of an AMD EPYC without AVX-512, float32, with all-MiniLM-L6-v2 and
# SmolLM2-135M: tokens a core embeds and prompt tokens a core reads in a second. That of Stage 1
# stands in `plan_select`.
RATES = {"embed_tokens": 2_500.0, "prompt_tokens": 250.0}
SECONDS_TO_START = 45.0


def plan(config: Config, *, progress: Progress) -> dict[str, Any]:
    """Check a config as a run would, and say what the run would cost.

    Args:
        config: The resolved config.
        progress: Takes the lines.

    Returns:
        The estimates as plain data.

    Raises:
        ConfigError: As `run`.
        DataError: The first file of a table cannot be read.
    """
    use(config.file.storage)
    check_config(config, until="report")
    Store(config.out).check()
    tables = {name: _table(config, name) for name in ("corpus", "queries")}
    encoders = {
        name: _encoder(config, name, tables) for name in sorted({a.encoder for a in config.arms})
    }
    arms = {arm.name: _arm(config, arm, tables) for arm in config.arms}
    plans = plan_settings(config, tables, encoders, none=NO_STAGE1)
    answer = {
        "out": Store(config.out).place,
        "tables": tables,
        "encoders": encoders,
        "sparse_encoders": plan_sparse(config, tables, encoders),
        "select": _select(plans),
        "arms": arms,
        "disk_bytes": _disk(tables, encoders, arms)
        + sum(one.output_bytes for one in plans.values()),
        "done": _done(config),
    }
    answer["seconds_on_two_cores"] = _seconds(answer)
    for table in tables.values():
        del table["sample_texts"], table["sample_outputs"]
        table["n_labels_seen"] = len(table.pop("labels_seen"))
    for line in _lines(answer, plans):
        progress.line("plan", line)
    return answer


def _table(config: Config, name: str) -> dict[str, Any]:
    table: TableConfig = getattr(config.file, name)
    files = find(table.path, key=f"{name}.path")
    texts, labels, outputs, scale = _sample(table, files)
    rows = scale if scale is not None else 0
    exact = all(_parquet_rows(file) is not None for file in files)
    if exact:
        rows = sum(_parquet_rows(file) or 0 for file in files)
    if config.limit is not None:
        rows = min(rows, config.limit)
    return {
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "rows": rows,
        "rows_exact": exact,
        "partitions": table.partition.count,
        "sample_texts": texts,
        "labels_seen": labels,
        "sample_outputs": outputs,
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
) -> tuple[list[str], list[str], list[str], int | None]:
    """Texts, labels and outputs of the first rows, and the rows of all files by size."""
    first = files[0]
    with reading(first.path), open_input(first.path) as file:
        batches = read_rows(
            file, first.path, columns=column_map(table), options=read_options(table)
        )
        made = list(itertools.islice(batches, 1))
        seen = sum(one.rows.num_rows for one in made)
        whole = next(batches, None) is None
        at = first.bytes if whole else max(1, file.tell())
    if not seen:
        return [], [], [], 0
    rows = made[0].rows.slice(0, SAMPLE_ROWS)
    texts = [text for text in rows.column("input").to_pylist() if text]
    labels = sorted({label for label in rows.column("label").to_pylist() if label is not None})
    total = sum(file.bytes for file in files)
    outputs = [text for text in rows.column("output").to_pylist() if text]
    return texts, labels, outputs, max(seen, round(seen * total / at))


def _encoder(config: Config, name: str, tables: dict[str, Any]) -> dict[str, Any]:
    spec = encoder_spec(config.file.encoders[name], key=f"encoders.{name}")
    dimension = _dimension(name, spec)
    texts = tables["corpus"]["sample_texts"]
    tokens = _mean_tokens(str(resolve(spec.model)), spec.revision, texts)
    n_rows = tables["corpus"]["rows"] + tables["queries"]["rows"]
    width = 2 if spec.storage == "float16" else 4
    return {
        "encoder_id": identify(name, spec),
        "dimension": dimension,
        "tokens_mean": tokens,
        "tokens": round(tokens * n_rows),
        "vector_bytes": n_rows * dimension * width,
        "storage": spec.storage,
    }


def _dimension(name: str, spec: EncoderSpec) -> int:
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(str(resolve(spec.model)), revision=spec.revision)
    except (OSError, ValueError) as error:
        raise ConfigError(f"encoders.{name}: its model cannot be read: {error}") from None
    return int(found.hidden_size)


def _mean_tokens(model: str, revision: str | None, texts: list[str]) -> float:
    tokenizer = tokenizer_of(model, revision)
    counts = [len(tokenizer(text, add_special_tokens=True)["input_ids"]) for text in texts]
    return sum(counts) / len(counts) if counts else 0.0


def _select(plans: dict[str, Stage1Plan]) -> dict[str, Any]:
    encoders = {p.sizes.vector_bytes * p.sizes.n_rows for p in plans.values()}
    return {
        "settings": {name: one.as_dict() for name, one in plans.items()},
        # One encoder after the other: its mapped vectors are gone before the next one's are there.
        "scratch_bytes": max(encoders, default=0),
        "output_bytes": sum(one.output_bytes for one in plans.values()),
        "core_seconds": sum(one.core_seconds() for one in plans.values()),
        "seconds_on_two_cores": sum(one.seconds(2) for one in plans.values()),
    }


def _arm(config: Config, arm: Arm, tables: dict[str, Any]) -> dict[str, Any]:
    task_config = config.file.tasks[arm.task]
    seen = tables["corpus"]["labels_seen"]
    stand_ins = ["label one of the corpus", "label two of the corpus"]
    task: Task = build_task(
        arm.task, task_config, dict.fromkeys(seen if len(seen) > 1 else stand_ins, 1)
    )
    spec = engine_spec(config.file.engines[arm.engine], key=f"engines.{arm.engine}")
    k = 0 if shows_nothing(arm.stage2) else arm.stage2.k
    bare = [build(task, [], "", spec=PromptSpec())]
    text = _mean_tokens(spec.model, spec.revision, tables["corpus"]["sample_texts"])
    query = _mean_tokens(spec.model, spec.revision, tables["queries"]["sample_texts"])
    # Entities are shown shorter than they are stored; what is planned for is an upper bound.
    by_output = task.kind in ANSWERED_BY_OUTPUT
    answers = tables["corpus"]["sample_outputs"] if by_output else list(task.labels)
    answer = _mean_tokens(spec.model, spec.revision, answers)
    each = _mean_tokens(spec.model, spec.revision, bare) + query + k * (text + answer + 6)
    most = spec.max_model_len - arm.generate.max_tokens
    alone = _mean_tokens(spec.model, spec.revision, bare) + 2 * text + answer + 6
    trials = _trials(arm, tables["corpus"]["rows"])
    n_queries = tables["queries"]["rows"]
    return {
        "content_free_prompts": prompts_planned(arm, n_queries, k=k),
        "epr_prompts": trials,
        "epr_prompt_tokens": round(trials * alone),
        "prompts": n_queries,
        "prompt_tokens_mean": each,
        "prompt_tokens": round(each * n_queries),
        "max_prompt_tokens": min(most, arm.prompt.token_budget or most),
    }


def _trials(arm: Arm, n_rows: int) -> int:
    """Prompts that the LLM scores before a map is learned; `also` is not counted."""
    if not learns(arm) or arm.stage2.epr.map is not None:
        return 0
    pool = min(n_rows, arm.stage1.k1 or n_rows)
    return min(arm.stage2.epr.rows, pool) * max(0, min(arm.stage2.epr.candidates, pool - 1))


def _disk(tables: dict[str, Any], encoders: dict[str, Any], arms: dict[str, Any]) -> int:
    """Rows twice while they are sorted, vectors once, prompts twice (prompts and outputs)."""
    text = sum(2 * one["rows"] * (one["characters_mean"] + 120) for one in tables.values())
    vectors = sum(one["vector_bytes"] for one in encoders.values())
    prompts = sum(2 * one["prompt_tokens"] * 5 for one in arms.values())
    return int(text + vectors + prompts)


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


def _seconds(answer: dict[str, Any]) -> dict[str, float]:
    both = [*answer["encoders"].values(), *answer["sparse_encoders"].values()]
    embed = sum(one["tokens"] for one in both)
    prompts = sum(
        one["prompt_tokens"] + one["content_free_prompts"] * CONTENT_FREE_TOKENS
        for one in answer["arms"].values()
    )
    trials = sum(one["epr_prompt_tokens"] for one in answer["arms"].values())
    seconds = {
        "start": SECONDS_TO_START,
        "embed": embed / RATES["embed_tokens"] / 2,
        "select": answer["select"]["seconds_on_two_cores"],
        "generate": prompts / RATES["prompt_tokens"] / 2,
    }
    if trials:
        seconds["epr"] = trials / RATES["prompt_tokens"] / 2
    return {name: round(value, 1) for name, value in seconds.items()}


def _lines(answer: dict[str, Any], plans: dict[str, Stage1Plan]) -> list[str]:
    lines = []
    for name, table in answer["tables"].items():
        about = "" if table["rows_exact"] else "about "
        if not table["rows"] or not table["characters_mean"]:
            lines.append(
                f"{name}: WARNING: no usable text among the first rows; see {name}.columns"
            )
        lines.append(
            f"{name}: {about}{table['rows']:,} rows in {table['files']:,} files "
            f"({_mib(table['bytes'])}), {table['partitions']} partitions"
        )
    for name, encoder in answer["encoders"].items():
        lines.append(
            f"{name}: about {encoder['tokens']:,} tokens, {_mib(encoder['vector_bytes'])} "
            f"of {encoder['storage']} vectors of {encoder['dimension']}"
        )
    lines += sparse_lines(answer["sparse_encoders"])
    for name, stage1 in plans.items():
        lines += lines_of(name, stage1)
    for name, arm in answer["arms"].items():
        if arm["epr_prompts"]:
            lines.append(
                f"{name}: about {arm['epr_prompts']:,} prompts with one demonstration, to learn "
                "what helps (stage2.epr)"
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
    lines.append(
        f"disk: about {_mib(answer['disk_bytes'])} in {answer['out']}, "
        f"{_mib(answer['select']['scratch_bytes'])} of scratch (TMPDIR) while selecting"
    )
    total = sum(answer["seconds_on_two_cores"].values())
    parts = ", ".join(f"{k} {v:,.0f}" for k, v in answer["seconds_on_two_cores"].items())
    lines.append(f"time: about {total:,.0f} s on two cores like those measured on ({parts})")
    if answer["done"]:
        there = ", ".join(f"{name} {n}" for name, n in answer["done"].items())
        lines.append(f"there already: {there} parts; what is unchanged is not made again")
    return lines


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB"
