"""Generate: prompts to answers, on vLLM actors; no row is lost, none ends the run."""

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from inference.contextual import contextual
from inference.decoding import DECODERS, Decoded
from inference.engine import EngineError, EngineSpec, Sampling, VllmEngine
from inference.kinds import gold_answer
from inference.prompts import PromptSpec, stop_strings
from inference.status import Status
from inference.tasks import Task
from jobs.config.schema import Arm
from jobs.config.stage2 import GenerateConfig
from jobs.errors import ClusterError
from jobs.generating.attempts import Attempts
from jobs.generating.content_free import NEUTRAL, distinct_sets, warn_of_many, with_content_free
from jobs.generating.engines import engine_spec, plain_engine
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.redaction import without_secrets
from jobs.run import Run
from jobs.spill import value_counts
from jobs.tasks import plain_task, task_from, task_of
from jobs.units import finish, threads, with_gpus
from jobs.watching import pulse

VERSION = 3
OUTPUT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("arm", pa.string()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("pool_version", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("prompt", pa.large_string()),
        ("raw_output", pa.large_string()),
        ("prediction", pa.string()),
        ("gold", pa.string()),
        ("finish_reason", pa.string()),
        ("status", pa.string()),
        ("detail", pa.string()),
        ("scores", pa.large_string()),
        ("calibrated_scores", pa.large_string()),
        ("uncalibrated_prediction", pa.string()),
        ("engine_s", pa.float64()),
        ("queue_s", pa.float64()),
    ]
)


# What it needs: prompts, and the engines the arms name.


def run_stage(run: Run) -> None:
    """Answer every prompt of every arm, engine by engine."""
    for name in dict.fromkeys(arm.engine for arm in run.arms):
        spec = engine_spec(run.config.file.engines[name], key=f"engines.{name}")
        spec = replace(spec, n_threads=threads(run.config.file.cluster.generate))
        arms = [arm for arm in run.arms if arm.engine == name]
        for arm in arms:
            warn_of_many(run, arm)
        _generate(run, spec, arms)
    for entry, made in (("outputs", run.outputs), ("order_outputs", run.order_outputs)):
        run.manifest[entry] = {
            name: [marker.as_dict() for marker in markers] for name, markers in made.items()
        }
    if not run.order_outputs:
        del run.manifest["order_outputs"]
    run.manifest["cached_tokens"] = {
        name: cached_share(markers) for name, markers in run.outputs.items()
    }


def cached_share(markers: Sequence[Marker]) -> dict[str, Any]:
    """Prompt tokens of an arm, how many of them the engine had cached, and the share.

    Each arm begins with an empty cache, so what is counted is shared within the arm.
    """
    total = {
        name: sum(int(marker.stats[name]) for marker in markers)
        for name in ("prompt_tokens", "cached_tokens")
    }
    sent = total["prompt_tokens"]
    return total | {"share": total["cached_tokens"] / sent if sent else None}


# The Ray-free function on one part.


@dataclass
class GenerateWork:
    """Answers one part at a time with an engine that is started once."""

    out: str
    spec: EngineSpec
    start: Callable[[EngineSpec], VllmEngine] = VllmEngine
    engine: VllmEngine | None = field(default=None)
    asks: str | None = None

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Answer the prompts of one arm and part.

        Args:
            payload: `unit`, `arm`, `study` (absent or null: the arm's own prompts), `prompts`,
                `rows` (null: gold is left out), `pool` (markers), `task`, `generate`, `prompt`
                (plain data), `seed`, `run_id`.

        Returns:
            Marker of the outputs, one row a query.

        Raises:
            ClusterError: The engine does not start, or fails on every row.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        try:
            if self.engine is None:
                with pulse.loading():
                    self.engine = self.start(self.spec)
            asks = f"{payload['arm']} {payload.get('study') or ''}"
            if self.asks not in (None, asks):
                # Cached tokens are those that an arm's own prompts share.
                self.engine.forget()
            self.asks = asks
            return self._answer(ledger, unit, payload)
        except EngineError as error:
            raise ClusterError(f"generate: {error}.") from error

    def _answer(self, ledger: Ledger, unit: Unit, payload: dict[str, Any]) -> Marker:
        task = task_from(payload["task"])
        prompts = ledger.read(Marker(**payload["prompts"])).to_pylist()
        golds = _golds(ledger, task, payload["rows"], len(prompts))
        config = GenerateConfig.model_validate(payload["generate"])
        if config.stop is None:
            stop = stop_strings(task, PromptSpec(format=payload["prompt"]["format"]))
            config = config.model_copy(update={"stop": list(stop)})
        ready = [row for row in prompts if row["status"] == Status.OK]
        if config.calibrate == "contextual":
            ready = with_content_free(ledger, self.spec, payload, ready)
        started = time.monotonic()
        with Attempts(ledger.store, unit, run_id=payload["run_id"]) as attempts:
            decode = functools.partial(self._decode, task, config, payload["seed"])
            answers = dict(
                zip([row["id"] for row in ready], attempts.run(ready, decode), strict=True)
            )
        wall_s = time.monotonic() - started
        rows = [
            output_row(row, answers.get(row["id"]), payload, gold=gold)
            for row, gold in zip(prompts, golds, strict=True)
        ]
        table = pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)
        stats = self._stats(table, rows, wall_s)
        if config.calibrate == "contextual":
            stats["content_free_sets"] = distinct_sets(ready)
        return ledger.commit(unit, table, stats=stats)

    def _decode(
        self, task: Task, config: GenerateConfig, seed: int, rows: Sequence[dict[str, Any]]
    ) -> list[Decoded]:
        assert self.engine is not None
        pulse.count(batches=1)
        texts = [row["prompt"] for row in rows]
        if config.calibrate == "contextual":
            return contextual(self.engine, task, texts, [row[NEUTRAL] for row in rows])
        sampling = Sampling(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            seed=seed,
            stop=tuple(config.stop or ()),
        )
        return DECODERS[config.decoder](self.engine, task, texts, sampling)

    def _stats(
        self, table: pa.Table, rows: Sequence[dict[str, Any]], wall_s: float
    ) -> dict[str, Any]:
        assert self.engine is not None
        settings = self.engine.settings if rows else {}
        sent = [row for row in rows if row.get("engine_s")]
        return {
            "prompt_tokens": sum(row["prompt_tokens"] for row in sent),
            "cached_tokens": sum(row["cached_tokens"] for row in sent),
            "status": value_counts(table.column("status")),
            "wall_s": wall_s,
            "n_tokens": sum(row["prompt_tokens"] + row["output_tokens"] for row in sent),
            "n_rebuilds": self.engine.n_rebuilds,
            "engine": without_secrets(json.loads(json.dumps(dict(settings), default=str))),
        }


def output_row(
    prompt: dict[str, Any], answer: Decoded | None, payload: dict[str, Any], *, gold: str | None
) -> dict[str, Any]:
    """One row of the output table; without an answer the prompt's own status stands."""
    row = {
        "id": prompt["id"],
        "arm": payload["arm"],
        "demonstration_ids": prompt["demonstration_ids"],
        "pool_version": prompt["pool_version"],
        "prompt_tokens": prompt["prompt_tokens"],
        "cached_tokens": 0,
        "output_tokens": 0,
        "prompt": prompt["prompt"],
        "gold": gold,
        "status": prompt["status"],
        "detail": prompt["detail"],
    }
    if answer is None:
        return row
    done = answer.completion
    return row | {
        "cached_tokens": done.cached_tokens,
        "output_tokens": done.output_tokens,
        "raw_output": answer.raw_output,
        "prediction": answer.prediction,
        "finish_reason": done.finish_reason or None,
        "status": str(answer.status),
        "detail": answer.detail or None,
        "scores": _json(answer.scores),
        "calibrated_scores": _json(answer.calibrated),
        "uncalibrated_prediction": answer.uncalibrated,
        "engine_s": done.engine_s,
        "queue_s": done.queue_s,
    }


def _golds(ledger: Ledger, task: Task, rows: Mapping[str, Any] | None, n: int) -> list[str | None]:
    """The gold answers of n prompts, where the rows that they ask for are given."""
    if rows is None:
        return [None] * n
    asked = ledger.read(Marker(**rows), ["input", "output", "label"]).to_pylist()
    return [gold_answer(task, row).value for row in asked]


def _json(scores: Mapping[str, float] | None) -> str | None:
    return None if scores is None else json.dumps(dict(scores))


# The Ray wiring.


def _generate(run: Run, spec: EngineSpec, arms: list[Arm]) -> None:
    own = {arm.name: _units(run, spec, arm) for arm in arms}
    orders = {arm.name: _order_units(run, spec, arm) for arm in arms}
    for folder, parts in (("outputs", own), ("order_outputs", orders)):
        # Orders that are not asked for today stay: they may be tomorrow.
        for name, mine in ((name, mine) for name, mine in parts.items() if mine):
            # A reader that globs the folder must not meet parts of another run.
            keep = {f"{unit.name}{end}" for unit, _ in mine for end in (".parquet", ".done.json")}
            run.ledger.store.remove_others(f"{folder}/{name}", keep)
    units = [unit for arm in arms for unit in (*own[arm.name], *orders[arm.name])]
    markers = finish(
        run,
        units,
        GenerateWork(run.out, spec),
        stage="generate",
        workers=with_gpus(run.config.file.cluster.generate, spec.tensor_parallel_size or 1),
        stateful=True,
    )
    made = dict(zip((unit for unit, _ in units), markers, strict=True))
    for arm in arms:
        run.outputs[arm.name] = [made[unit] for unit, _ in own[arm.name]]
        if orders[arm.name]:
            run.order_outputs[arm.name] = [made[unit] for unit, _ in orders[arm.name]]
        _warn_of_losses(run, arm.name)


def _units(run: Run, spec: EngineSpec, arm: Arm) -> list[tuple[Unit, dict[str, Any]]]:
    task = plain_task(task_of(run, arm.task))
    units = []
    pairs = zip(run.tables["queries"].parts, run.prompts[arm.name], strict=True)
    for part, prompts in pairs:
        # Gold labels are not among what answers depend on: evaluate takes them as they are then.
        depends = [prompts.checksum, part.marker.stats["texts"], task, plain_engine(spec)]
        mark = fingerprint("generate", VERSION, depends, _sampling(arm), arm.name)
        unit = Unit(f"outputs/{arm.name}", part.name, mark)
        own = {"unit": asdict(unit), "study": None, "rows": part.marker.as_dict()}
        units.append((unit, _payload(run, arm, prompts) | own))
    return units


def _order_units(run: Run, spec: EngineSpec, arm: Arm) -> list[tuple[Unit, dict[str, Any]]]:
    """The arm's prompts in other orders, where these are tried."""
    if arm.name not in run.order_prompts:
        return []
    task = plain_task(task_of(run, arm.task))
    units = []
    pairs = zip(run.tables["queries"].parts, run.order_prompts[arm.name], strict=True)
    for part, prompts in pairs:
        depends = [prompts.checksum, task, plain_engine(spec)]
        mark = fingerprint("generate orders", VERSION, depends, _sampling(arm), arm.name)
        unit = Unit(f"order_outputs/{arm.name}", part.name, mark)
        own = {"unit": asdict(unit), "study": "orders", "rows": None}
        units.append((unit, _payload(run, arm, prompts) | own))
    return units


def _sampling(arm: Arm) -> list[Any]:
    # What was answered before there were repeats is not answered again.
    again = [arm.repeat] if arm.repeat else []
    return [arm.generate.model_dump(), arm.prompt.format, arm.seed, *again]


def _payload(run: Run, arm: Arm, prompts: Marker) -> dict[str, Any]:
    """What the parts of an arm have in common, as plain data."""
    return {
        "arm": arm.name,
        "prompts": prompts.as_dict(),
        "task": plain_task(task_of(run, arm.task)),
        "generate": arm.generate.model_dump(),
        "seed": arm.seed,
        "prompt": {name: getattr(arm.prompt, name) for name in ("format", "negative_pairs")},
        "pool": None if run.pool is None else run.pool.as_dict(),
        "run_id": run.manifest.get("run_id"),
    }


def _warn_of_losses(run: Run, arm: str) -> None:
    counts = sum_counts(run.outputs[arm], "status")
    bad = {status: n for status, n in counts.items() if status != Status.OK}
    if bad:
        what = ", ".join(f"{n} {status}" for status, n in sorted(bad.items()))
        run.progress.warn(f"{arm}: rows without a prediction, counted wrong: {what}")
