"""Output tables in, metric tables out; one row per arm, and what stands behind each row."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from inference.kinds import HEADLINES
from inference.scoring import (
    Scores,
    bootstrap,
    bootstrap_difference,
    majority_baseline,
    majority_label,
    score,
)
from inference.significance import wilson
from inference.status import Status
from jobs.errors import InvariantError
from jobs.reporting.metric_tables import ARM_FIELDS, ARM_KEY, MAJORITY, SUMMARY_SCHEMA

# Gold label and prediction per query id.
Answers = Mapping[str, tuple[str, str | None]]


@dataclass(frozen=True)
class Yardstick:
    """What all arms of one task are measured with.

    Attributes:
        labels: The labels of the task, in its order.
        corpus_counts: Labelled corpus rows per label; the majority label comes from it. Empty:
            from the gold labels of the queries.
        seed: Seed of the bootstrap.
        n_resamples: Resamples of the bootstrap.
    """

    labels: Sequence[str]
    corpus_counts: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    n_resamples: int = 1000


@dataclass(frozen=True)
class ArmMetrics:
    """The metric rows of one arm.

    Attributes:
        summary: One row of `SUMMARY_SCHEMA` as plain values.
        slices: Rows of `SLICES_SCHEMA`: per-class scores, `slice` is "label".
        confusion: Rows of `CONFUSION_SCHEMA`; predicted null means no prediction, cells of
            count 0 are left out.
        scores: Rows of `SCORES_SCHEMA`.
        answers: Rows of `ANSWERS_SCHEMA`; none for `classification`.
    """

    summary: dict[str, Any]
    slices: list[dict[str, Any]]
    confusion: list[dict[str, Any]]
    scores: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


def summarise(
    outputs: pd.DataFrame,
    *,
    arm: Mapping[str, Any],
    yardstick: Yardstick,
    wall: Mapping[str, float | None] | None = None,
) -> ArmMetrics:
    """Measure one arm.

    Args:
        outputs: The arm's output table, one row per query.
        arm: Values of `ARM_FIELDS`; absent ones become null.
        yardstick: Labels, majority source and bootstrap settings of the arm's task.
        wall: `rows_per_s` and `tokens_per_s` over wall-clock time, measured by the caller.

    Returns:
        The arm's metric rows; a figure that does not exist (no gold label, no engine time) is
        None, and `summary["notes"]` says why.

    Raises:
        InvariantError: An id twice, a status outside the closed set, an unknown arm field.
    """
    check(outputs, arm)
    gold, predicted, notes = _answers(outputs, yardstick.labels)
    summary = dict.fromkeys(SUMMARY_SCHEMA.names) | dict(arm)
    summary |= count_statuses(outputs, n_scored=len(gold)) | costs(outputs)
    summary |= {name: (wall or {}).get(name) for name in ("rows_per_s", "tokens_per_s")}
    key = {name: arm.get(name) for name in ARM_KEY}
    if not gold:
        return ArmMetrics(summary | {"notes": notes}, [], [])
    scores = score(gold, predicted, yardstick.labels)
    summary |= _quality(gold, predicted, scores, yardstick)
    return ArmMetrics(
        summary | {"notes": notes},
        _slices(key, scores),
        _confusion(key, scores, yardstick.labels),
        _scores(key, summary),
    )


def compare(
    outputs: Mapping[str, pd.DataFrame],
    *,
    task: str,
    pairs: Sequence[tuple[str, str]],
    yardstick: Yardstick,
) -> list[dict[str, Any]]:
    """Paired differences of every arm to the majority baseline, and of every pair of arms.

    Args:
        outputs: Output table per arm, all of one task.
        task: Name of the task.
        pairs: (arm, against): which arms are compared with which.
        yardstick: Labels, majority source and bootstrap settings of the task.

    Returns:
        Rows of `COMPARISON_SCHEMA`: arm minus against, over the rows scored for both. A
        pair with no such row is left out.
    """
    answers = {name: answers_by_id(table, yardstick.labels) for name, table in outputs.items()}
    rows = []
    for name, mine in answers.items():
        row = {"task": task, "arm": name}
        if mine:
            counts = _majority_source([gold for gold, _ in mine.values()], yardstick)
            constant = majority_label(counts, yardstick.labels)
            theirs = {id_: (gold, constant) for id_, (gold, _) in mine.items()}
            rows.append(row | {"against": MAJORITY} | _difference(mine, theirs, yardstick))
        rows += [
            row | {"against": other} | _difference(mine, answers[other], yardstick)
            for arm, other in pairs
            if arm == name and mine.keys() & answers[other].keys()
        ]
    return rows


def check(outputs: pd.DataFrame, arm: Mapping[str, Any]) -> None:
    """Refuse outputs that no stage can have made."""
    unknown = sorted(set(arm) - set(ARM_FIELDS))
    if unknown:
        raise InvariantError(f"Unknown arm field {unknown[0]!r}; known: {', '.join(ARM_FIELDS)}.")
    name = arm.get("arm")
    twice = outputs["id"][outputs["id"].duplicated()]
    if len(twice):
        raise InvariantError(
            f"Outputs of arm {name!r}: {len(twice)} ids stand more than once, for example "
            f"{twice.iloc[0]!r}; every query must appear once."
        )
    foreign = sorted(set(outputs["status"]) - set(Status))
    if foreign:
        raise InvariantError(
            f"Outputs of arm {name!r}: status {foreign[0]!r} is none of {', '.join(Status)}."
        )


def _answers(
    outputs: pd.DataFrame, labels: Sequence[str]
) -> tuple[list[str], list[str | None], list[str]]:
    """Gold labels and predictions of the rows that can be scored, and notes on the others."""
    gold, predicted = _strings(outputs["gold"]), _strings(outputs["prediction"])
    known = set(labels)
    foreign = [g for g in gold if g is not None and g not in known]
    odd = sum(p is not None and p not in known for p in predicted)
    kept = [
        (g, p if p in known else None)
        for g, p in zip(gold, predicted, strict=True)
        if g is not None and g in known
    ]
    notes = []
    if not gold:
        notes.append("The arm has no output rows.")
    elif not kept:
        notes.append(f"None of the {len(gold)} rows has a gold label of the task: no scores.")
    elif all(p is None for _, p in kept):
        notes.append(
            f"None of the {len(kept)} scored rows has a prediction: every one counts as wrong."
        )
    if foreign:
        notes.append(
            f"{len(foreign)} rows have a gold label outside the task's labels, for example "
            f"{foreign[0]!r}: not scored."
        )
    if odd:
        notes.append(f"{odd} predictions are outside the task's labels: counted as wrong.")
    return [g for g, _ in kept], [p for _, p in kept], notes


def answers_by_id(
    outputs: pd.DataFrame, labels: Sequence[str]
) -> dict[str, tuple[str, str | None]]:
    """Gold label and prediction of every query that can be scored.

    Args:
        outputs: An arm's output table.
        labels: The labels of its task.

    Returns:
        By id, in the order of the table; a prediction outside the labels is None.
    """
    known = set(labels)
    columns = (outputs["id"], _strings(outputs["gold"]), _strings(outputs["prediction"]))
    return {
        str(id_): (gold, predicted if predicted in known else None)
        for id_, gold, predicted in zip(*columns, strict=True)
        if gold in known and gold is not None
    }


def _strings(column: "pd.Series[Any]") -> list[str | None]:
    return [None if pd.isna(value) else str(value) for value in column]


def count_statuses(outputs: pd.DataFrame, *, n_scored: int) -> dict[str, Any]:
    """Count rows by status."""
    by_status = Counter(str(status) for status in outputs["status"])
    n = len(outputs)
    counts: dict[str, Any] = {"n": n, "n_scored": n_scored, "n_unscored": n - n_scored}
    counts |= {f"n_{status}": by_status[status] for status in Status}
    counts["parse_error_rate"] = by_status[Status.PARSE_ERROR] / n if n else None
    return counts


def costs(outputs: pd.DataFrame) -> dict[str, float | None]:
    """What the rows of an arm cost: demonstrations, tokens, seconds."""
    # What was never sent to an engine cost nothing.
    sent = outputs[pd.to_numeric(outputs["engine_s"]).astype("float64").notna()]
    numbers = {
        name: pd.to_numeric(sent[name]).astype("float64").dropna()
        for name in ("prompt_tokens", "cached_tokens", "engine_s", "queue_s")
    }
    prompt_tokens = numbers["prompt_tokens"].sum()
    demonstrations = [len(ids) for ids in outputs["demonstration_ids"] if ids is not None]
    return {
        "demonstrations_mean": _finite(pd.Series(demonstrations, dtype="float64").mean()),
        "prompt_tokens_mean": _finite(numbers["prompt_tokens"].mean()),
        "prompt_tokens_p95": _finite(numbers["prompt_tokens"].quantile(0.95)),
        "cached_token_share": _finite(numbers["cached_tokens"].sum() / prompt_tokens)
        if prompt_tokens and len(numbers["cached_tokens"])
        else None,
        "engine_s_p50": _finite(numbers["engine_s"].quantile(0.5)),
        "engine_s_p95": _finite(numbers["engine_s"].quantile(0.95)),
        "queue_s_p95": _finite(numbers["queue_s"].quantile(0.95)),
    }


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _majority_source(gold: Sequence[str], yardstick: Yardstick) -> Mapping[str, int]:
    if any(yardstick.corpus_counts.get(label, 0) for label in yardstick.labels):
        return yardstick.corpus_counts
    return Counter(gold)


def _quality(
    gold: Sequence[str],
    predicted: Sequence[str | None],
    scores: Scores,
    yardstick: Yardstick,
) -> dict[str, Any]:
    intervals = bootstrap(
        gold,
        predicted,
        yardstick.labels,
        n_resamples=yardstick.n_resamples,
        seed=yardstick.seed,
    )
    counts = _majority_source(gold, yardstick)
    majority = majority_baseline(gold, yardstick.labels, corpus_counts=counts)
    return {
        "accuracy": scores.accuracy,
        "accuracy_low": intervals.accuracy.low,
        "accuracy_high": intervals.accuracy.high,
        "majority_accuracy": majority.accuracy,
        "macro_f1": scores.macro_f1,
        "macro_f1_low": intervals.macro_f1.low,
        "macro_f1_high": intervals.macro_f1.high,
        "majority_macro_f1": majority.macro_f1,
        "majority_label": majority_label(counts, yardstick.labels),
        "metric": HEADLINES["classification"],
        "score": scores.macro_f1,
        "score_low": intervals.macro_f1.low,
        "score_high": intervals.macro_f1.high,
    }


def _scores(key: Mapping[str, Any], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **key,
            "metric": name,
            "n": summary["n_scored"],
            "value": summary[name],
            "low": summary[f"{name}_low"],
            "high": summary[f"{name}_high"],
        }
        for name in ("accuracy", "macro_f1")
    ]


def _slices(key: Mapping[str, Any], scores: Scores) -> list[dict[str, Any]]:
    return [
        {
            **key,
            "slice": "label",
            "value": one.label,
            "precision": one.precision,
            "recall": one.recall,
            "f1": one.f1,
            "support": one.support,
            "n": one.support,
            **_share(round(one.recall * one.support), one.support),
        }
        for one in scores.per_class
    ]


def _share(n_right: int, n: int) -> dict[str, float | None]:
    low, high = wilson(n_right, n)
    share = n_right / n if n else None
    return {"accuracy": share, "accuracy_low": low, "accuracy_high": high}


def _confusion(
    key: Mapping[str, Any], scores: Scores, labels: Sequence[str]
) -> list[dict[str, Any]]:
    columns = [*labels, None]
    return [
        {**key, "gold": labels[row], "predicted": columns[column], "n": int(n)}
        for row, counts in enumerate(scores.confusion)
        for column, n in enumerate(counts)
        if n
    ]


def _difference(
    mine: Answers,
    theirs: Answers,
    yardstick: Yardstick,
) -> dict[str, Any]:
    shared = [id_ for id_ in mine if id_ in theirs]
    gold = [mine[id_][0] for id_ in shared]
    answers = ([mine[id_][1] for id_ in shared], [theirs[id_][1] for id_ in shared])
    first, second = (score(gold, answer, yardstick.labels) for answer in answers)
    intervals = bootstrap_difference(
        gold, answers, yardstick.labels, n_resamples=yardstick.n_resamples, seed=yardstick.seed
    )
    return {
        "n": len(shared),
        "accuracy_difference": first.accuracy - second.accuracy,
        "accuracy_low": intervals.accuracy.low,
        "accuracy_high": intervals.accuracy.high,
        "macro_f1_difference": first.macro_f1 - second.macro_f1,
        "macro_f1_low": intervals.macro_f1.low,
        "macro_f1_high": intervals.macro_f1.high,
    }
