"""Assemble: demonstrations and query to the prompt that is sent, inside its token budget."""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from inference.budget import Budget, Fitted, TokenCounter, fit
from inference.decoding import DECODERS, max_answer_tokens
from inference.engine import EngineSpec
from inference.ordering import ORDERS, Demonstration
from inference.prompt_tokens import control_strings
from inference.prompts import PromptSpec, chat_of
from inference.status import Status
from inference.tasks import Task, canonical, verbalize
from jobs.annotate import shown_records
from jobs.cluster import finish
from jobs.config_schema import Arm, GenerateConfig, PromptConfig
from jobs.engines import engine_spec, plain_engine, tokenizer_of
from jobs.errors import ConfigError, DataError
from jobs.ledger import Ledger, Marker, Unit, fingerprint, sum_counts
from jobs.rank import shows_nothing
from jobs.run import Run
from jobs.spill import value_counts
from jobs.tasks import plain_task, task_from, task_of

VERSION = 1
PROMPT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("prompt", pa.large_string()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("n_dropped", pa.int32()),
        ("prompt_tokens", pa.int64()),
        ("status", pa.string()),
        ("detail", pa.string()),
    ]
)


# What it needs: demonstrations, the pool's texts and labels, the tokenizer of the LLM.


def run_stage(run: Run) -> None:
    """Write the prompts of every arm; arms that need the same share them."""
    assert run.pool is not None
    engines = {
        name: engine_spec(run.config.file.engines[name], key=f"engines.{name}")
        for name in dict.fromkeys(arm.engine for arm in run.arms)
    }
    by_arm = {arm.name: _units(run, arm, engines[arm.engine]) for arm in run.arms}
    units = {unit: payload for mine in by_arm.values() for unit, payload in mine}
    markers = finish(
        run,
        list(units.items()),
        AssembleWork(run.out),
        stage="assemble",
        workers=run.config.file.cluster.rank,
    )
    made = dict(zip(units, markers, strict=True))
    for name, mine in by_arm.items():
        run.prompts[name] = [made[unit] for unit, _ in mine]
        _warn_of_losses(run, name)
    run.manifest["prompts"] = {
        name: [marker.as_dict() for marker in markers] for name, markers in run.prompts.items()
    }


def check(arm: Arm) -> None:
    """Refuse an order or a decoder that is not there.

    Raises:
        ConfigError: Names what is known.
    """
    for key, value, known in (
        ("prompt.order", arm.prompt.order, ORDERS),
        ("generate.decoder", arm.generate.decoder, DECODERS),
    ):
        if value not in known:
            wanted = ", ".join(sorted(known))
            raise ConfigError(f"arm {arm.name}: {key} = {value!r}; known: {wanted}.")


# The Ray-free function on one part.


@dataclass(frozen=True)
class AssembleWork:
    """Writes the prompts of one part of the queries."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Fit the demonstrations of every query into its prompt.

        Args:
            payload: `unit`, `rows`, `demonstrations`, `pool` (markers), `task`,
                `engine`, `prompt`, `generate` (plain data).

        Returns:
            Marker of the prompts, one row a query.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        task = task_from(payload["task"])
        budget = budget_of(payload, task)
        texts = ledger.read(Marker(**payload["rows"]), ["id", "input"]).to_pylist()
        ranked = ledger.read(Marker(**payload["demonstrations"])).to_pylist()
        shown = {row_id for row in ranked for row_id in row["demonstration_ids"]}
        pool = _pool_texts(ledger, Marker(**payload["pool"]), task, shown)
        rows = [
            prompt_row(row, text["input"], pool, task=task, budget=budget)
            for row, text in zip(ranked, texts, strict=True)
        ]
        table = pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)
        stats = {
            "status": value_counts(table.column("status")),
            "n_dropped": sum(row["n_dropped"] for row in rows),
            "max_prompt_tokens": budget.max_prompt_tokens,
        }
        return ledger.commit(unit, table, stats=stats)


def max_prompt_tokens(
    engine: EngineSpec, prompt: PromptConfig, generate: GenerateConfig, task: Task
) -> int:
    """The most tokens a prompt may have beside an answer.

    Raises:
        ConfigError: No room for a prompt beside the answer.
    """
    room = generate.max_tokens
    if generate.decoder != "generate":
        room = max(room, max_answer_tokens(task))
    most = engine.max_model_len - room
    if prompt.token_budget is not None:
        most = min(most, prompt.token_budget)
    if most < 1:
        raise ConfigError(
            f"engines: max_model_len {engine.max_model_len} leaves no prompt beside an answer of "
            f"{room} tokens. Raise it, or lower generate.max_tokens."
        )
    return most


def budget_of(payload: dict[str, Any], task: Task) -> Budget:
    """What a prompt may cost, and how it is laid out."""
    engine = EngineSpec(**payload["engine"])
    prompt = PromptConfig.model_validate(payload["prompt"])
    generate = GenerateConfig.model_validate(payload["generate"])
    tokenizer = tokenizer_of(engine.model, engine.revision)
    chat = None
    if prompt.format == "chat":
        chat = chat_of(tokenizer, model=engine.model, option="prompt.format: chat")
    return Budget(
        max_prompt_tokens=max_prompt_tokens(engine, prompt, generate, task),
        counter=TokenCounter(tokenizer),
        spec=PromptSpec(format=prompt.format, control=control_strings(tokenizer)),
        order=prompt.order,
        chat=chat,
    )


def prompt_row(
    ranked: dict[str, Any],
    text: str | None,
    pool: dict[str, tuple[str, str]],
    *,
    task: Task,
    budget: Budget,
) -> dict[str, Any]:
    """One query's prompt, or the status that says why there is none."""
    row: dict[str, Any] = {"id": ranked["id"], "demonstration_ids": [], "n_dropped": 0}
    if ranked["status"] != Status.OK or text is None:
        return row | {"status": ranked["status"], "prompt": None, "prompt_tokens": 0}
    demonstrations = [
        Demonstration(row_id, *pool[row_id], similarity)
        for row_id, similarity in zip(
            ranked["demonstration_ids"], ranked["similarities"], strict=True
        )
    ]
    fitted: Fitted = fit(task, demonstrations, text, budget=budget)
    return row | {
        "prompt": fitted.prompt,
        "demonstration_ids": [demonstrations[i].id for i in fitted.shown],
        "n_dropped": fitted.n_dropped,
        "prompt_tokens": fitted.prompt_tokens,
        "status": str(fitted.status),
        "detail": fitted.detail or None,
    }


def _pool_texts(
    ledger: Ledger, pool: Marker, task: Task, wanted: set[str]
) -> dict[str, tuple[str, str]]:
    """Input and shown answer of the pool records that are needed."""
    found = {}
    for record in ledger.read(pool, ["id", "input", "label"]).to_pylist():
        if record["id"] in wanted:
            label = canonical(task, record["label"])
            if label is None:
                raise DataError(
                    f"pool record {record['id']!r} has label {record['label']!r}, which is none of "
                    f"task {task.name!r}; it was ranked and cannot be shown."
                )
            found[record["id"]] = (record["input"], verbalize(task, label))
    return found


# The Ray wiring.


def _units(run: Run, arm: Arm, engine: EngineSpec) -> list[tuple[Unit, dict[str, Any]]]:
    assert run.pool is not None
    task = plain_task(task_of(run, arm.task))
    common = {
        "pool": run.pool.as_dict(),
        "task": task,
        "engine": asdict(engine),
        "prompt": arm.prompt.model_dump(),
        "generate": arm.generate.model_dump(),
    }
    room = [arm.generate.max_tokens, arm.generate.decoder, engine.max_model_len]
    weights = plain_engine(engine)["weights"]
    # What may be shown, and not the pool: another arm's candidates change nothing here.
    shown = shown_records(run, arm.name) if not shows_nothing(arm.stage2) else None
    units = []
    parts = run.tables["queries"].parts
    for part, ranked in zip(parts, run.demonstrations[arm.name], strict=True):
        texts = part.marker.stats["texts"]
        depends = [ranked.checksum, texts, shown, task, weights, room]
        mark = fingerprint("assemble", VERSION, depends, arm.prompt.model_dump())
        unit = Unit(f"prompts/{mark}", "part", mark)
        own = {
            "unit": asdict(unit),
            "rows": part.marker.as_dict(),
            "demonstrations": ranked.as_dict(),
        }
        units.append((unit, common | own))
    return units


def _warn_of_losses(run: Run, arm: str) -> None:
    markers = run.prompts[arm]
    n_dropped = sum(int(marker.stats["n_dropped"]) for marker in markers)
    most = max((int(marker.stats["max_prompt_tokens"]) for marker in markers), default=0)
    too_long = sum_counts(markers, "status").get(Status.TOO_LONG, 0)
    if n_dropped:
        run.progress.warn(f"{arm}: {n_dropped} demonstrations dropped to keep {most} tokens")
    if too_long:
        run.progress.warn(f"{arm}: {too_long} queries are too long for {most} tokens by themselves")
