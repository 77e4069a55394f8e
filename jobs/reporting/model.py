"""What a report shows, as plain values; whoever fills it opens the files, the page does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from jobs.reporting.cases import Case
from jobs.reporting.metric_tables import (
    ANSWERS_SCHEMA,
    AUDIT_SCHEMA,
    CANDIDATES_SCHEMA,
    COMPARISON_SCHEMA,
    CONFUSION_SCHEMA,
    NOISE_SCHEMA,
    ORDER_SPREAD_SCHEMA,
    ORDERS_SCHEMA,
    PAIRED_TESTS_SCHEMA,
    SCORES_SCHEMA,
    SLICE_DIFFERENCES_SCHEMA,
    SLICES_SCHEMA,
    SUMMARY_SCHEMA,
)
from jobs.reporting.projection import Projection
from jobs.reporting.sweeps import Sweep


def _empty(schema: pa.Schema) -> pd.DataFrame:
    return schema.empty_table().to_pandas()


@dataclass(frozen=True)
class CandidateMap:
    """One flat map: corpus rows of one encoder with the candidates of each Stage 1 method.

    Attributes:
        encoder: Name of the encoder whose vectors were projected.
        projection: Points of the n rows on the map.
        labels: n labels, None where a row has none.
        candidates: Per Stage 1 method, positions (0 to n - 1) of its candidates on the map.
        n_corpus: Rows of the whole corpus.
        n_sampled: Rows that were sampled; the others on the map are candidates.
    """

    encoder: str
    projection: Projection
    labels: Sequence[str | None]
    candidates: Mapping[str, NDArray[np.int64]]
    n_corpus: int
    n_sampled: int


@dataclass(frozen=True)
class Coverage:
    """Labels of the candidates against labels of the corpus.

    Attributes:
        encoder: Name of the encoder the methods selected with.
        corpus: Labelled corpus rows per label.
        candidates: Per Stage 1 method, its candidates per label.
    """

    encoder: str
    corpus: Mapping[str, int]
    candidates: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Sample:
    """One query of one arm, shown in full.

    Attributes:
        arm: Name of the arm.
        id: Id of the query.
        status: Its status.
        prompt: The prompt as sent.
        raw_output: What the LLM answered, None if it was not asked.
        prediction: The parsed answer, None if there is none.
        gold: The gold label, None if unknown.
    """

    arm: str
    id: str
    status: str
    prompt: str | None
    raw_output: str | None
    prediction: str | None
    gold: str | None


@dataclass(frozen=True)
class ReportModel:
    """Everything on the page; a part left empty becomes a sentence that says it is missing.

    Attributes:
        title: Heading of the page.
        facts: Short facts under the heading (run id, rows of corpus and queries, time).
        summary: Rows of `SUMMARY_SCHEMA`, one per arm, in the order they are shown.
        slices: Rows of `SLICES_SCHEMA`.
        confusion: Rows of `CONFUSION_SCHEMA`.
        comparisons: Rows of `COMPARISON_SCHEMA`; opponents are the majority baseline and arms.
        paired_tests: Rows of `PAIRED_TESTS_SCHEMA`.
        noise: Rows of `NOISE_SCHEMA`.
        slice_differences: Rows of `SLICE_DIFFERENCES_SCHEMA`.
        audit: Rows of `AUDIT_SCHEMA`, of each arm the worst first.
        scores: Rows of `SCORES_SCHEMA`; shown for tasks whose answer is more than one label.
        answers: Rows of `ANSWERS_SCHEMA`, of tasks of kind `sql`.
        candidates: Rows of `CANDIDATES_SCHEMA`, one per task and selection.
        orders: Rows of `ORDERS_SCHEMA`.
        order_spread: Rows of `ORDER_SPREAD_SCHEMA`.
        sweeps: Arms that differ in one number alone.
        maps: One per encoder.
        coverage: One per encoder.
        stage1: One mapping per selection; keys of `jobs.reporting.tables.STAGE1` come first under
            their headings, further keys follow under their own names.
        epr: One mapping per arm that recalls by a learned map; keys as for `stage1`, of `EPR`.
        samples: A few queries per arm.
        cases: A few queries with all arms of a task side by side.
        rejected: Mappings with table, status, reason and n, over all rows set aside.
        rejected_examples: Mappings with table, source_file, source_line, id, reason, detail
            and excerpt.
        warnings: Sentences: overlap of queries and corpus, clipped k, excluded rows.
        config_yaml: The resolved config.
        versions: Version per package or model.
    """

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    summary: pd.DataFrame = field(default_factory=partial(_empty, SUMMARY_SCHEMA))
    slices: pd.DataFrame = field(default_factory=partial(_empty, SLICES_SCHEMA))
    confusion: pd.DataFrame = field(default_factory=partial(_empty, CONFUSION_SCHEMA))
    comparisons: pd.DataFrame = field(default_factory=partial(_empty, COMPARISON_SCHEMA))
    paired_tests: pd.DataFrame = field(default_factory=partial(_empty, PAIRED_TESTS_SCHEMA))
    noise: pd.DataFrame = field(default_factory=partial(_empty, NOISE_SCHEMA))
    slice_differences: pd.DataFrame = field(
        default_factory=partial(_empty, SLICE_DIFFERENCES_SCHEMA)
    )
    audit: pd.DataFrame = field(default_factory=partial(_empty, AUDIT_SCHEMA))
    scores: pd.DataFrame = field(default_factory=partial(_empty, SCORES_SCHEMA))
    answers: pd.DataFrame = field(default_factory=partial(_empty, ANSWERS_SCHEMA))
    candidates: pd.DataFrame = field(default_factory=partial(_empty, CANDIDATES_SCHEMA))
    orders: pd.DataFrame = field(default_factory=partial(_empty, ORDERS_SCHEMA))
    order_spread: pd.DataFrame = field(default_factory=partial(_empty, ORDER_SPREAD_SCHEMA))
    sweeps: Sequence[Sweep] = ()
    maps: Sequence[CandidateMap] = ()
    coverage: Sequence[Coverage] = ()
    stage1: Sequence[Mapping[str, Any]] = ()
    epr: Sequence[Mapping[str, Any]] = ()
    samples: Sequence[Sample] = ()
    cases: Sequence[Case] = ()
    rejected: Sequence[Mapping[str, Any]] = ()
    rejected_examples: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    config_yaml: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
