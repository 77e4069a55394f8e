"""Content-free prompts: those of queries with something meaningless in the query's place."""

from collections.abc import Mapping, Sequence
from typing import Any

from inference.calibration import content_free_prompts
from inference.engine import EngineSpec
from jobs.config.schema import Arm
from jobs.config.stage2 import GenerateConfig
from jobs.ledger import Ledger
from jobs.prompting.pool_texts import laid_out
from jobs.run import Run

NEUTRAL = "content_free_prompts"
# Computed for one, beside what its queries' prompts left in the cache: what follows the
# demonstrations, and half a cache block of 32 before that.
CONTENT_FREE_TOKENS = 25
MANY_SETS = 1_000


def with_content_free(
    ledger: Ledger, engine: EngineSpec, payload: Mapping[str, Any], rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Prompts, each with its content-free prompts; equal ones where demonstrations are equal.

    Args:
        ledger: Has the pool.
        engine: Its tokenizer says what is a control token.
        payload: `task`, `pool` (marker), `prompt`, `generate` (plain data).
        rows: Prompts that are sent, with `demonstration_ids` in the order shown.
    """
    inputs = GenerateConfig.model_validate(payload["generate"]).content_free
    shown = [tuple(row["demonstration_ids"]) for row in rows]
    wanted = {row_id for ids in shown for row_id in ids}
    task, spec, chat, pool = laid_out(ledger, engine, payload, wanted)
    made = {
        ids: content_free_prompts(
            task, [pool[row_id] for row_id in ids], spec=spec, chat=chat, inputs=inputs
        )
        for ids in dict.fromkeys(shown)
    }
    return [{**row, NEUTRAL: made[ids]} for row, ids in zip(rows, shown, strict=True)]


def prompts_planned(arm: Arm, n_queries: int, *, k: int) -> int:
    """About how many content-free prompts an arm has: some for each list of demonstrations.

    Args:
        arm: Says whether there are any.
        n_queries: Each has a list of its own, unless the arm shows many the same; what is ruled
            out for single queries is not counted.
        k: Demonstrations of a prompt.
    """
    if arm.generate.calibrate == "none":
        return 0
    return sets_planned(arm, n_queries, k=k) * len(arm.generate.content_free)


def sets_planned(arm: Arm, n_queries: int, *, k: int) -> int:
    """About how many lists of demonstrations an arm's prompts show.

    Args:
        arm: The arm.
        n_queries: As for `prompts_planned`.
        k: Demonstrations of a prompt.
    """
    same = k == 0 or arm.stage2.condition_on == "all" or arm.stage2.method == "fixed"
    n_sets = 1 if same else n_queries
    if arm.prompt.layout == "clustered":
        n_sets = min(n_sets, arm.prompt.clusters)
    return min(n_sets, n_queries)


def warn_of_many(run: Run, arm: Arm) -> None:
    """Say so where calibration takes many prompts beside those of the queries."""
    if arm.generate.calibrate == "none":
        return
    lists = [
        row
        for marker in run.prompts[arm.name]
        for row in run.ledger.read(marker, ["demonstration_ids"]).to_pylist()
    ]
    n_sets = distinct_sets(lists)
    if n_sets > MANY_SETS:
        run.progress.warn(
            f"{arm.name}: generate.calibrate scores {len(arm.generate.content_free)} prompts for "
            f"each of {n_sets:,} sets of demonstrations; layout clustered has few sets"
        )


def distinct_sets(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many different lists of demonstrations the prompts show, order included."""
    return len({tuple(row["demonstration_ids"]) for row in rows})
