"""Assemble on one part of the queries: the Ray-free function and the table it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from inference.blocks import route
from inference.budget import Budget, Fitted, Limits, TokenCounter, fit
from inference.context import with_context
from inference.decoding import max_answer_tokens
from inference.engine import EngineSpec
from inference.ordering import ORDERS, Demonstration, order_of
from inference.status import Status
from inference.tasks import Task
from jobs.config.stage2 import GenerateConfig, PromptConfig
from jobs.errors import ConfigError
from jobs.generating.engines import tokenizer_of
from jobs.ledger import Ledger, Marker, Unit, fingerprint
from jobs.prompting.pool_texts import demonstrations_in, layout_of
from jobs.spill import value_counts
from jobs.tasks import task_from

CALIBRATED = "calibrated"
# The order of prompts from which the sets to calibrate are read.
DRAFT_ORDER = "similar-last"
PROMPT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("prompt", pa.large_string()),
        ("demonstration_ids", pa.list_(pa.string())),
        ("pool_version", pa.string()),
        ("cluster", pa.int32()),
        ("n_fixed", pa.int32()),
        ("n_dropped", pa.int32()),
        ("n_skipped", pa.int32()),
        ("prompt_tokens", pa.int64()),
        ("status", pa.string()),
        ("detail", pa.string()),
    ]
)

Row = dict[str, Any]


@dataclass(frozen=True)
class AssembleWork:
    """Writes the prompts of one part of the queries."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Fit the demonstrations of every query into its prompt.

        Args:
            payload: `unit`, `rows`, `demonstrations`, `pool`, `candidates` (markers), `blocks`
                (marker, or null), `orders` (markers), `anchors` (ids), `task`, `engine`, `prompt`,
                `generate`, `stage2` (plain data).

        Returns:
            Marker of the prompts, one row a query.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        columns = ["input", "text_hash", *payload["task"]["context"]]
        queries = ledger.read(Marker(**payload["rows"]), columns).to_pylist()
        ranked = ledger.read(Marker(**payload["demonstrations"])).to_pylist()
        writer = _Writer(ledger, payload, ranked)
        rows = [writer(i, ranked[i], query) for i, query in enumerate(queries)]
        table = pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)
        stats = {
            "status": value_counts(table.column("status")),
            "n_dropped": sum(row["n_dropped"] for row in rows),
            "n_skipped": sum(row["n_skipped"] for row in rows),
            "n_not_calibrated": writer.n_not_calibrated,
            "max_prompt_tokens": writer.budget.max_prompt_tokens,
        }
        return ledger.commit(unit, table, stats=stats)


def set_key(ids: Sequence[str]) -> str:
    """What names a set of demonstrations, in whatever order."""
    return fingerprint(sorted(ids))


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


def budget_of(payload: Mapping[str, Any], task: Task) -> Budget:
    """What a prompt may cost, and how it is laid out."""
    engine = EngineSpec(**payload["engine"])
    prompt = PromptConfig.model_validate(payload["prompt"])
    generate = GenerateConfig.model_validate(payload["generate"])
    spec, chat = layout_of(engine, prompt)
    return Budget(
        max_prompt_tokens=max_prompt_tokens(engine, prompt, generate, task),
        counter=TokenCounter(tokenizer_of(engine.model, engine.revision)),
        spec=spec,
        order=ORDERS[DRAFT_ORDER if prompt.order == CALIBRATED else prompt.order],
        chat=chat,
        limits=Limits(
            k=prompt.most(payload["stage2"]["k"]),
            k_min=prompt.k_min,
            share=prompt.demonstration_share,
            max_demonstration_tokens=prompt.max_demonstration_tokens,
        ),
    )


class _Fixed:
    """The demonstrations that stand before a query's own: anchors, or the block of its cluster."""

    def __init__(self, ledger: Ledger, payload: Mapping[str, Any], ranked: Sequence[Row]) -> None:
        self.clusters: list[int] | None = None
        # Earlier picks count as more similar, so that the rules of order hold for anchors too.
        self._blocks = [{row_id: -float(i) for i, row_id in enumerate(payload["anchors"])}]
        if payload["blocks"] is not None:
            table = ledger.read(Marker(**payload["blocks"])).to_pylist()
            self._blocks = [
                dict(zip(row["demonstration_ids"], row["relevance"], strict=True)) for row in table
            ]
            # No query has a list, so none has a block.
            self._blocks = self._blocks or [{}]
            self.clusters = _routes(ranked, [list(block) for block in self._blocks])
        self.ids = {row_id for block in self._blocks for row_id in block}
        self._hashes: dict[str, str | None] = {}
        if self.ids and payload["stage2"]["exclude_same_text"]:
            pairs = ledger.read(Marker(**payload["candidates"]), ["id", "text_hash"]).to_pylist()
            self._hashes = {row["id"]: row["text_hash"] for row in pairs if row["id"] in self.ids}

    def __call__(self, place: int, ranked: Row, query: Row) -> dict[str, float]:
        """Ids and similarities for one query; never a copy of it, nor what ranking ruled out."""
        block = self._blocks[self.clusters[place] if self.clusters is not None else 0]
        barred = set(ranked.get("excluded_ids") or ())
        text_hash = query["text_hash"]
        return {
            row_id: near
            for row_id, near in block.items()
            if row_id not in barred and (text_hash is None or self._hashes.get(row_id) != text_hash)
        }


class _Writer:
    """Writes one prompt after the other."""

    def __init__(self, ledger: Ledger, payload: Mapping[str, Any], ranked: Sequence[Row]) -> None:
        self.task = task_from(payload["task"])
        self.budget = budget_of(payload, self.task)
        self.n_not_calibrated = 0
        self._fixed = _Fixed(ledger, payload, ranked)
        self._version = payload["pool"]["stats"]["version"]
        self._orders = _orders(ledger, payload["orders"])
        wanted = {row_id for row in ranked for row_id in row["demonstration_ids"]}
        self._pool = demonstrations_in(
            ledger,
            Marker(**payload["pool"]),
            self.task,
            wanted | self._fixed.ids,
            contrast=payload["prompt"]["negative_pairs"],
        )

    def __call__(self, place: int, ranked: Row, query: Row) -> Row:
        """One query's prompt, or the status that says why there is none."""
        row: Row = {
            "id": ranked["id"],
            "demonstration_ids": [],
            "pool_version": self._version,
            **dict.fromkeys(("n_fixed", "n_dropped", "n_skipped", "prompt_tokens"), 0),
        }
        if ranked["status"] != Status.OK or query["input"] is None:
            return row | {"status": ranked["status"], "prompt": None}
        fixed = self._fixed(place, ranked, query) if self.budget.limits.k else {}
        own = dict(zip(ranked["demonstration_ids"], ranked["similarities"], strict=True))
        shown = fixed | {row_id: near for row_id, near in own.items() if row_id not in fixed}
        demonstrations = [replace(self._pool[i], similarity=near) for i, near in shown.items()]
        asked = with_context(self.task, query["input"], query)
        fitted = fit(self.task, demonstrations, asked, budget=self.budget, n_fixed=len(fixed))
        ids = [demonstrations[i].id for i in fitted.shown]
        detail = fitted.detail
        if self._orders is not None and fitted.status is Status.OK and len(ids) > 1:
            kept = [demonstrations[i] for i in fitted.kept]
            fitted, ids, detail = self._calibrated(fitted, kept, ids, asked)
        clusters = self._fixed.clusters
        return row | {
            "prompt": fitted.prompt,
            "demonstration_ids": ids,
            "cluster": None if clusters is None else clusters[place],
            "n_fixed": sum(i < len(fixed) for i in fitted.kept),
            "n_dropped": fitted.n_dropped,
            "n_skipped": fitted.n_skipped,
            "prompt_tokens": fitted.prompt_tokens,
            "status": str(fitted.status),
            "detail": detail or None,
        }

    def _calibrated(
        self, draft: Fitted, kept: list[Demonstration], ids: list[str], query: str
    ) -> tuple[Fitted, list[str], str]:
        """The same demonstrations in the order chosen for their set, if that fits as well."""
        assert self._orders is not None
        order = self._orders[set_key(ids)]
        budget = replace(self.budget, order=order_of(order), limits=Limits())
        found = fit(self.task, kept, query, budget=budget)
        if found.status is Status.OK and len(found.kept) == len(kept):
            found = replace(found, n_dropped=draft.n_dropped, n_skipped=draft.n_skipped)
            return replace(found, kept=draft.kept), order, ""
        self.n_not_calibrated += 1
        most = self.budget.max_prompt_tokens
        return draft, ids, f"the calibrated order exceeds {most} tokens; shown {DRAFT_ORDER}"


def _routes(ranked: Sequence[Row], blocks: list[list[str]]) -> list[int]:
    """The block of each query."""
    if not blocks or not ranked:
        return [0] * len(ranked)
    numbers = {row_id: i for i, row_id in enumerate({r: None for block in blocks for r in block})}
    lists = [row["demonstration_ids"] for row in ranked]
    table = np.full((len(lists), max(1, *map(len, lists))), -1, np.int64)
    for place, ids in enumerate(lists):
        table[place, : len(ids)] = [numbers.get(row_id, -1) for row_id in ids]
    members = [[numbers[row_id] for row_id in block] for block in blocks]
    return [int(block) for block in route(table, members)]


def _orders(
    ledger: Ledger, markers: Sequence[Mapping[str, Any]] | None
) -> dict[str, list[str]] | None:
    """Set of demonstrations -> its calibrated order."""
    if markers is None:
        return None
    tables = [ledger.read(Marker(**marker), ["key", "ids"]).to_pylist() for marker in markers]
    return {row["key"]: row["ids"] for table in tables for row in table}
