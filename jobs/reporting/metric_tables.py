"""The metric tables: their schemas, and metric rows turned into Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from inference.status import Status

MAJORITY = "majority baseline"  # the opponent of this name in COMPARISON_SCHEMA is no arm

ARM_FIELDS: dict[str, pa.DataType] = {
    "task": pa.string(),
    "encoder": pa.string(),
    "engine": pa.string(),
    "arm": pa.string(),
    "stage1": pa.string(),
    "stage2": pa.string(),
    "k1": pa.int64(),
    "k": pa.int64(),
    "order": pa.string(),
    "layout": pa.string(),
    "decoder": pa.string(),
    "seed": pa.int64(),
    "repeat": pa.int64(),
}
ARM_KEY = ("task", "encoder", "engine", "arm")
COUNTS = ["n", "n_scored", "n_unscored", *(f"n_{status}" for status in Status)]
# The score that decides, whatever the kind of the task.
HEADLINE = ["score", "score_low", "score_high"]
FIGURES = [
    *("accuracy", "accuracy_low", "accuracy_high", "majority_accuracy"),
    *("macro_f1", "macro_f1_low", "macro_f1_high", "majority_macro_f1"),
    *("parse_error_rate", "demonstrations_mean", "prompt_tokens_mean", "prompt_tokens_p95"),
    *("cached_token_share", "engine_s_p50", "engine_s_p95", "queue_s_p95"),
    *("rows_per_s", "tokens_per_s"),
]
DIFFERENCES = [
    f"{name}_{part}" for name in ("accuracy", "macro_f1") for part in ("difference", "low", "high")
]

FLOORS = {
    f"{name}_{part}": kind
    for name in ("accuracy", "macro_f1")
    for part, kind in (("floor", pa.float64()), ("below_floor", pa.bool_()))
}

SUMMARY_SCHEMA = pa.schema(
    [
        *ARM_FIELDS.items(),
        *((name, pa.int64()) for name in COUNTS),
        *((name, pa.float64()) for name in FIGURES),
        ("majority_label", pa.string()),
        ("metric", pa.string()),
        *((name, pa.float64()) for name in HEADLINE),
        ("notes", pa.list_(pa.string())),
    ]
)
SLICES_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        ("slice", pa.string()),
        ("value", pa.string()),
        ("precision", pa.float64()),
        ("recall", pa.float64()),
        ("f1", pa.float64()),
        ("support", pa.int64()),
        ("n", pa.int64()),
        ("accuracy", pa.float64()),
        ("accuracy_low", pa.float64()),
        ("accuracy_high", pa.float64()),
        ("macro_f1", pa.float64()),
        ("metric", pa.string()),
        *((name, pa.float64()) for name in HEADLINE),
    ]
)
SLICE_DIFFERENCES_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        *(("against", pa.string()), ("slice", pa.string()), ("value", pa.string())),
        ("n", pa.int64()),
        ("accuracy_difference", pa.float64()),
        *(("metric", pa.string()), ("score_difference", pa.float64())),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
CONFUSION_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        ("gold", pa.string()),
        ("predicted", pa.string()),
        ("n", pa.int64()),
    ]
)
# `against` null: a score; else the arm it is compared with, and the value is the difference.
SCORES_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        ("against", pa.string()),
        ("metric", pa.string()),
        ("n", pa.int64()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
# What came of each query, where that is more than a label right or wrong.
ANSWERS_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        ("id", pa.string()),
        ("status", pa.string()),
        ("score", pa.float64()),
        ("detail", pa.string()),
    ]
)
COMPARISON_SCHEMA = pa.schema(
    [
        *(("task", pa.string()), ("arm", pa.string()), ("against", pa.string())),
        ("n", pa.int64()),
        *((name, pa.float64()) for name in DIFFERENCES),
        *FLOORS.items(),
    ]
)
PAIRED_TESTS_SCHEMA = pa.schema(
    [
        # Encoder and engine are those of the first arm, and of the second.
        *((name, pa.string()) for name in ("task", "encoder", "engine", "arm_a", "arm_b")),
        *((name, pa.string()) for name in ("encoder_b", "engine_b", "metric", "folds")),
        *((name, pa.int64()) for name in ("n", "n_folds", "n_short_folds", "n_tests")),
        *((name, pa.float64()) for name in ("difference", "mean_difference", "sd", "t", "p")),
        *((name, pa.float64()) for name in ("p_holm", "low", "high")),
        *(("mcnemar_b", pa.int64()), ("mcnemar_c", pa.int64()), ("mcnemar_test", pa.string())),
        *(("mcnemar_p", pa.float64()), ("mcnemar_p_holm", pa.float64())),
        *(("floor", pa.float64()), ("below_floor", pa.bool_()), ("note", pa.string())),
    ]
)
NOISE_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "encoder", "engine")),
        *(("arms", pa.list_(pa.string())), ("varies", pa.string()), ("n", pa.int64())),
        *(
            (f"{metric}_{part}", pa.float64())
            for metric in ("accuracy", "macro_f1", "score")
            for part in ("mean", "sd", "range")
        ),
        ("metric", pa.string()),
    ]
)
# One row an arm and order; the arm's own prompts are the order that is `own`.
ORDERS_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        *(("order", pa.string()), ("own", pa.bool_())),
        *((name, pa.int64()) for name in ("n", "n_predicted")),
        *((name, pa.float64()) for name in ("accuracy", "macro_f1", "score")),
        ("metric", pa.string()),
    ]
)
ORDER_SPREAD_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        *(("metric", pa.string()), ("k", pa.int64()), ("n_possible", pa.float64())),
        *((name, pa.int64()) for name in ("n_orders", "n", "n_left_out", "n_fewer")),
        *((name, pa.float64()) for name in ("min", "median", "max", "sd", "range")),
        *((name, pa.float64()) for name in ("own", "own_rank", "changed")),
        *(("floor", pa.float64()), ("repeats_sd", pa.float64()), ("n_repeats", pa.int64())),
        ("below_floor", pa.bool_()),
    ]
)
AUDIT_SCHEMA = pa.schema(
    [
        *((name, ARM_FIELDS[name]) for name in ARM_KEY),
        *(("demonstration_id", pa.string()), ("label", pa.string())),
        *(("n_shown", pa.int64()), ("n_scored", pa.int64()), ("n_right", pa.int64())),
        *((name, pa.float64()) for name in ("accuracy", "low", "high")),
        *(("n_otherwise", pa.int64()), ("accuracy_otherwise", pa.float64())),
        ("suspect", pa.bool_()),
    ]
)
MEASURES = [
    *("coverage", "facility_location", "log_det", "mean_cosine", "vendi"),
    *("label_coverage", "rare_class_recall", "nearest_macro_f1", "probe_macro_f1"),
]
CANDIDATES_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "encoder", "stage1")),
        ("arms", pa.list_(pa.string())),
        *((name, pa.int64()) for name in ("k1", "n_labelled", "n_ground", "n_queries", "n_rare")),
        *((name, pa.float64()) for name in MEASURES),
        ("notes", pa.list_(pa.string())),
    ]
)


def to_arrow(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Put metric rows under their schema.

    Args:
        rows: Plain values per column; an absent key is null.
        schema: One of this module's schemas.

    Returns:
        The table; of no rows, an empty table with all columns.
    """
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
