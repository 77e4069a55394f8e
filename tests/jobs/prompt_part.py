"""One part of queries with a small pool, from which prompts are assembled."""

import dataclasses

import pyarrow as pa

from inference.tasks import Task
from jobs.config.stage2 import GenerateConfig, PromptConfig
from jobs.ledger import Unit
from jobs.prompting.work import AssembleWork
from jobs.tasks import plain_task

TASK = Task("t", ("red", "blue"), instruction="Name it.")
POOL = {"a": "red", "b": "blue", "c": "red", "d": "blue", "e": "red"}


def commit(ledger, name, table, **stats):
    """A table in the ledger, as its marker's plain data."""
    return ledger.commit(Unit(name, "part", name), table, stats=stats).as_dict()


class Part:
    """What the prompts of one part are made of."""

    def __init__(self, ledger, model, queries, ranked, **prompt):
        self.ledger = ledger
        self.queries = queries
        self.prompt_config = PromptConfig(**prompt)
        n = len(queries)
        rows = pa.table(
            {"input": pa.array(queries, pa.large_string()), "text_hash": list(map(hashed, queries))}
        )
        table = pa.table(
            {
                "id": [f"q{i}" for i in range(n)],
                "demonstration_ids": pa.array([list(ids) for ids in ranked], pa.list_(pa.string())),
                "scores": [[1.0 - i for i in range(len(ids))] for ids in ranked],
                "similarities": [[1.0 - i for i in range(len(ids))] for ids in ranked],
                "status": ["empty" if text is None else "ok" for text in queries],
            }
        )
        pool = pa.table(
            {
                "id": list(POOL),
                "input": pa.array([f"text {i}" for i in POOL], pa.large_string()),
                "label": list(POOL.values()),
                "wrong_output": pa.array([None, "red", None, None, "e"], pa.large_string()),
                "why": pa.array([None, "it is blue", None, None, None], pa.large_string()),
            }
        )
        candidates = pa.table({"id": list(POOL), "text_hash": [hashed(f"text {i}") for i in POOL]})
        self.payload = {
            "unit": dataclasses.asdict(Unit("prompts/x", "part", "x")),
            "rows": commit(ledger, "rows", rows),
            "demonstrations": commit(ledger, "demonstrations", table),
            "pool": commit(ledger, "pool", pool, version="v0007"),
            "candidates": commit(ledger, "candidates", candidates),
            "blocks": None,
            "orders": None,
            "anchors": [],
            "task": plain_task(TASK),
            "engine": dataclasses.asdict(model),
            "prompt": self.prompt_config.model_dump(),
            "generate": GenerateConfig(decoder="generate").model_dump(),
            "stage2": {"k": 2, "exclude_same_text": True},
        }

    def rows(self, **changes):
        """Assemble, and read what came of it."""
        marker = AssembleWork(str(self.ledger.store.root))(self.payload | changes)
        self.prompts, self.stats = marker, marker.stats
        return self.ledger.read(marker).to_pylist()


def hashed(text):
    """Stands for the hash of a text."""
    return None if text is None else f"h-{text}"


def with_notes(ledger, queries, notes):
    return commit(
        ledger,
        "noted",
        pa.table(
            {
                "input": pa.array(queries, pa.large_string()),
                "text_hash": list(map(hashed, queries)),
                "note": pa.array(notes, pa.large_string()),
            }
        ),
    )
