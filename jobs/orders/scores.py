"""What evaluate says of the arms that were answered in every order of their demonstrations."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from inference.status import Status
from jobs.comparing.baselines import repeats_of
from jobs.config.schema import Arm
from jobs.orders.study import n_places
from jobs.reporting.answer_metrics import AnswerYardstick, summarise_answers
from jobs.reporting.noise import METRICS, noise_rows
from jobs.reporting.orders import Figures, Scorer, changed_share, order_rows, spread_rows
from jobs.run import Run

Rows = dict[str, list[dict[str, Any]]]
Fields = Callable[[Arm], dict[str, Any]]


def answer_scorer(yardstick: AnswerYardstick) -> Scorer:
    """Score outputs of any other kind of task, by the score that decides there."""
    # Intervals of single orders are shown nowhere.
    quick = replace(yardstick, n_resamples=10)

    def scored(outputs: pd.DataFrame) -> Figures:
        summary = summarise_answers(outputs, arm={}, yardstick=quick).metrics.summary
        return {"n": summary["n_scored"], "score": summary["score"], "metric": summary["metric"]}

    return scored


def order_tables(
    run: Run,
    arms: Sequence[Arm],
    outputs: Mapping[str, pd.DataFrame],
    *,
    scorer: Scorer,
    fields: Fields,
) -> Rows:
    """Score the orders of the arms of one task.

    Args:
        run: The run, with outputs.
        arms: All arms of the task.
        outputs: Output table per arm, with gold; what is scored is today's gold.
        scorer: Outputs of the task to figures.
        fields: What names an arm.

    Returns:
        Rows of the tables orders and order_spread.
    """
    rows: Rows = {"orders": [], "order_spread": []}
    for arm in arms:
        if arm.name not in run.order_outputs:
            continue
        answers = outputs[arm.name].drop_duplicates("id").set_index("id", drop=False)
        tried = _tried(run, arm, answers)
        whole = _whole(tried)
        own = answers.loc[whole["id"].drop_duplicates()]
        mine = order_rows(whole, own, arm=fields(arm), scorer=scorer)
        n_fewer = int((own["demonstration_ids"].map(len) < n_places(arm)).sum())
        facts = {
            "k": n_places(arm),
            "n_possible": float(math.factorial(min(n_places(arm), 170))),
            "n_left_out": _n_asked(run) - len(own),
            "n_fewer": n_fewer,
            "changed": changed_share(whole),
        }
        noise = _noise(arms, outputs, set(own["id"]), scorer=scorer, fields=fields)
        rows["orders"] += mine
        rows["order_spread"] += spread_rows(mine, facts, noise)
    return rows


def _tried(run: Run, arm: Arm, answers: pd.DataFrame) -> pd.DataFrame:
    """The outputs in every order, each with the query's gold and what else is known of it."""
    tables = []
    pairs = zip(run.order_prompts[arm.name], run.order_outputs[arm.name], strict=True)
    for prompts, outputs in pairs:
        asked = run.ledger.read(prompts, ["query_id", "order"])
        said = run.ledger.read(outputs, ["prediction", "status"])
        columns = [asked["query_id"], asked["order"], said["prediction"], said["status"]]
        tables.append(pa.table(columns, names=["id", "order", "prediction", "status"]))
    tried = pa.concat_tables(tables).to_pandas()
    known = answers.drop(columns=["id", "prediction", "status"])
    return tried.join(known, on="id")


def _whole(tried: pd.DataFrame) -> pd.DataFrame:
    """The queries that were asked in every order: one that does not fit in some is left out."""
    lost = tried.loc[tried["status"] == str(Status.TOO_LONG), "id"]
    return tried[~tried["id"].isin(set(lost))]


def _n_asked(run: Run) -> int:
    wanted = run.config.file.report.orders
    assert wanted is not None
    return min(wanted.queries, run.tables["queries"].counts("status").get("ok", 0))


def _noise(
    arms: Sequence[Arm],
    outputs: Mapping[str, pd.DataFrame],
    ids: set[str],
    *,
    scorer: Scorer,
    fields: Fields,
) -> list[dict[str, Any]]:
    """How repeats vary on the same queries as the orders."""
    groups = repeats_of(arms)
    summary = []
    for arm in {arm.name: arm for group in groups for arm in group}.values():
        table = outputs[arm.name]
        figures = scorer(table[table["id"].isin(ids)].reset_index(drop=True))
        summary.append(fields(arm) | dict.fromkeys(METRICS) | figures)
    return noise_rows(summary, [[arm.name for arm in group] for group in groups])
