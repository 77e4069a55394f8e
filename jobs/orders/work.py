"""Writing some queries' prompts in every order of their demonstrations: the Ray-free function."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from inference.budget import Limits, fit
from inference.context import with_context
from inference.ordering import order_of, rearranged
from inference.status import Status
from inference.tasks import Task
from jobs.ledger import Ledger, Marker, Unit
from jobs.prompting.pool_texts import demonstrations_in
from jobs.prompting.work import PROMPT_SCHEMA, budget_of
from jobs.spill import value_counts
from jobs.tasks import task_from

ORDER_PROMPT_SCHEMA = pa.schema([*PROMPT_SCHEMA, ("query_id", pa.string()), ("order", pa.string())])

Row = dict[str, Any]


def name_of(order: Sequence[int]) -> str:
    """An order in words: `2-1-3` shows first what stands second in the arm's own prompt."""
    return "-".join(str(place + 1) for place in order)


@dataclass(frozen=True)
class OrderWork:
    """Rearranges the demonstrations of an arm's finished prompts."""

    out: str

    def __call__(self, payload: dict[str, Any]) -> Marker:
        """Write the prompts of one part.

        Args:
            payload: `unit`, `prompts` (the arm's own), `rows` and `pool` (markers), `task`,
                `engine`, `prompt`, `generate`, `stage2` (plain data), `queries` (ids) and `orders`
                (permutations of the places in the arm's own prompts).

        Returns:
            Marker of rows of `ORDER_PROMPT_SCHEMA`, one a query and order, equal beginnings
            together; a query that the arm has no prompt for has none.
        """
        ledger, unit = Ledger(self.out), Unit(**payload["unit"])
        found = ledger.find(unit)
        if found is not None:
            return found
        task = task_from(payload["task"])
        asked = ledger.read(Marker(**payload["rows"]), ["input", *task.context]).to_pylist()
        prompts = ledger.read(Marker(**payload["prompts"])).to_pylist()
        wanted = set(payload["queries"])
        mine = [
            (row, with_context(task, query["input"], query))
            for row, query in zip(prompts, asked, strict=True)
            if row["id"] in wanted and row["status"] == Status.OK
        ]
        rows = self._rows(ledger, payload, task, mine)
        # Neighbours share the longest beginnings, which the engine then computes once.
        rows.sort(key=lambda row: (row["prompt"], row["id"]))
        table = pa.Table.from_pylist(rows, schema=ORDER_PROMPT_SCHEMA)
        stats = {
            "status": value_counts(table.column("status")),
            "n_queries": len(mine),
            "n_without_prompt": len(wanted) - len(mine),
        }
        return ledger.commit(unit, table, stats=stats)

    def _rows(
        self,
        ledger: Ledger,
        payload: dict[str, Any],
        task: Task,
        mine: Sequence[tuple[Row, str]],
    ) -> list[Row]:
        shown = {row_id for row, _ in mine for row_id in row["demonstration_ids"]}
        contrast = payload["prompt"]["negative_pairs"]
        pool = demonstrations_in(ledger, Marker(**payload["pool"]), task, shown, contrast=contrast)
        budget = replace(budget_of(payload, task), limits=Limits())
        rows = []
        for row, text in mine:
            for order in payload["orders"]:
                ids = rearranged(row["demonstration_ids"], order)
                ordered = replace(budget, order=order_of(ids))
                fitted = fit(task, [pool[i] for i in ids], text, budget=ordered)
                fits = len(fitted.kept) == len(ids)
                name = name_of(order)
                rows.append(
                    row
                    | {"id": f"{row['id']} {name}", "query_id": row["id"], "order": name}
                    | {"demonstration_ids": ids, "prompt": fitted.prompt}
                    | {"prompt_tokens": fitted.prompt_tokens}
                    | {"status": str(Status.OK if fits else Status.TOO_LONG)}
                    | {
                        "detail": None
                        if fits
                        else f"{len(ids)} demonstrations fit in another order"
                    }
                )
        return rows
