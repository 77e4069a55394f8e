"""The learned retriever's units: an LLM's scores of candidates, and the map learned from them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from inference.engine import EngineError, EngineSpec, VllmEngine
from inference.likelihood import Scored
from inference.one_shot import Trial, one_shot
from jobs.config.epr import EprConfig
from jobs.epr.map import map_table
from jobs.epr.rows import COLUMNS, Texts, allowed_pairs, read_pool, read_rows
from jobs.errors import ClusterError, ConfigError, DataError
from jobs.ledger import Ledger, Marker, Unit
from jobs.prompting.pool_texts import laid_out
from jobs.vectors import random_keys
from selection.epr import EprOptions, held_out, train
from selection.lessons import Lessons, chosen

SCORE_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("candidate_id", pa.string()),
        ("score", pa.float64()),
        ("status", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass
class EprScoreWork:
    """Scores candidates as single demonstrations, with an engine that is started once."""

    out: str
    spec: EngineSpec
    start: Callable[[EngineSpec], VllmEngine] = VllmEngine
    engine: VllmEngine | None = field(default=None)

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Ask the LLM how probable each row's label is after each of its candidates.

        Args:
            payload: `unit`, `rows` and `pool` (markers), `wanted` (row id -> candidate ids),
                `task`, `prompt` (plain data).

        Returns:
            Marker of the scores, one row a prompt; no score where the engine failed.

        Raises:
            ConfigError: The labels' answers cannot be told apart by their tokens.
            ClusterError: The engine does not start, or fails on every row.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        try:
            if self.engine is None:
                self.engine = self.start(self.spec)
            rows = self._rows(ledger, payload)
        except ValueError as error:
            raise ConfigError(f"stage2.recall_by = epr: {error}.") from error
        except EngineError as error:
            raise ClusterError(f"epr: {error}.") from error
        table = pa.Table.from_pylist(rows, schema=SCORE_SCHEMA)
        return ledger.commit(
            unit, table, stats={"status": dict(Counter(row["status"] for row in rows))}
        )

    def _rows(self, ledger: Ledger, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert self.engine is not None
        tried = payload["wanted"]
        needed = {row_id for ids in tried.values() for row_id in ids}
        task, spec, chat, shown = laid_out(ledger, self.spec, payload, needed)
        texts = ledger.read(Marker(**payload["rows"]), COLUMNS).to_pylist()
        asked = [(row, other) for row in texts for other in tried.get(row["id"], ())]
        trials = [Trial(shown[other], row["input"], row["label"]) for row, other in asked]
        scored = one_shot(self.engine, task, trials, spec=spec, chat=chat)
        return [
            _score_row(row, other, one) for (row, other), one in zip(asked, scored, strict=True)
        ]


def _score_row(row: Mapping[str, Any], other: str, scored: Scored) -> dict[str, Any]:
    return {
        "id": row["id"],
        "candidate_id": other,
        "score": None if scored.scores is None else scored.scores[row["label"]],
        "status": str(scored.completion.status),
        "detail": scored.completion.detail or None,
    }


@dataclass(frozen=True)
class EprTrainWork:
    """Learns a map from scores."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Learn the map of one arm.

        Args:
            payload: `unit`, `arm`, `rows`, `vectors`, `pool`, `scores` (markers), `epr` (plain
                data), `ceiling`, `seed`, `facts` (what the map is bound to).

        Returns:
            Marker of the map; its stats are the facts, with losses and counts.

        Raises:
            ConfigError: A rank above the encoder's dimension.
            DataError: The LLM tells the candidates of no row apart.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        config = EprConfig.model_validate(payload["epr"])
        rows = read_rows(ledger, Marker(**payload["rows"]), Marker(**payload["vectors"]))
        records = read_pool(ledger, Marker(**payload["pool"]))
        tables = [ledger.read(Marker(**plain)) for plain in payload["scores"]]
        scores = pa.concat_tables([SCORE_SCHEMA.empty_table(), *tables])
        lessons = lessons_of(rows, records, scores, payload)
        _require_teachable(payload["arm"], config, lessons)
        options = EprOptions(
            temperature=config.temperature,
            pull=config.pull,
            steps=config.steps,
            rank=config.rank,
        )
        trained, unseen = train(lessons, options), held_out(lessons, options)
        facts = payload["facts"] | {
            "rows": len(rows.ids),
            "taught": trained.n_rows,
            "prompts": scores.num_rows,
            "not_scored": scores["score"].null_count,
            "pairs": {
                "helpful": int((lessons.positives >= 0).sum()),
                "unhelpful": int((lessons.negatives >= 0).sum()),
            },
            "loss": asdict(trained.losses),
            "held_out": None if unseen is None else asdict(unseen),
            "steps": trained.n_steps,
            "shape": list(trained.weights.shape),
        }
        return ledger.commit(unit, map_table(trained.weights, facts), stats=facts)


def lessons_of(
    rows: Texts, records: Texts, scores: pa.Table, payload: Mapping[str, Any]
) -> Lessons:
    """What the scores teach: for each row the candidates that helped most and least.

    A record that another row brings along counts against a row only if its label is another one: of
    a closed set of labels many records share the row's, and these are no bad demonstrations.

    Args:
        rows: m texts.
        records: n records.
        scores: Of `SCORE_SCHEMA`.
        payload: `epr`, `ceiling` and `seed` of `EprTrainWork`.
    """
    config = EprConfig.model_validate(payload["epr"])
    candidates, values = _matrices(rows, records, scores)
    best, worst = chosen(
        candidates,
        values,
        tie_rank=records.tie_rank,
        positives=config.positives,
        negatives=config.negatives,
    )
    others = np.array(rows.labels, object)[:, None] != np.array(records.labels, object)
    return Lessons(
        rows=rows.vectors,
        records=records.vectors,
        keys=random_keys(rows.ids, payload["seed"]),
        tie_rank=records.tie_rank,
        positives=best,
        negatives=worst,
        open=allowed_pairs(rows, records, ceiling=payload["ceiling"]) & others,
    )


def _matrices(rows: Texts, records: Texts, scores: pa.Table) -> tuple[Any, Any]:
    """Candidates of each row as places in the pool, and their scores; (m, c) each."""
    place = {row_id: i for i, row_id in enumerate(records.ids)}
    found: dict[str, list[tuple[int, float]]] = {row_id: [] for row_id in rows.ids}
    for row in scores.to_pylist():
        value = np.nan if row["score"] is None else row["score"]
        found[row["id"]].append((place[row["candidate_id"]], value))
    shape = len(rows.ids), max([1, *map(len, found.values())])
    candidates, values = np.full(shape, -1, np.int64), np.full(shape, np.nan)
    for i, row_id in enumerate(rows.ids):
        for j, (index, value) in enumerate(found[row_id]):
            candidates[i, j], values[i, j] = index, value
    return candidates, values


def _require_teachable(arm: str, config: EprConfig, lessons: Lessons) -> None:
    dimension = lessons.records.shape[1]
    if config.rank is not None and config.rank > dimension:
        raise ConfigError(
            f"arm {arm}: stage2.epr.rank = {config.rank} is more than the {dimension} numbers of "
            "its encoder's vectors. Lower it, or leave it out."
        )
    if not (lessons.positives >= 0).any():
        raise DataError(
            f"arm {arm}: stage2.recall_by = epr: of {len(lessons)} labelled texts none has two "
            f"candidates that the LLM tells apart, among a pool of {len(lessons.records)} records. "
            "Raise stage1.k1 or stage2.epr.candidates, lower stage2.epr.positives, or recall "
            "otherwise."
        )
