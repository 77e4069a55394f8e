"""`dualdiv table1`: the metrics of finished runs joined in the table of the paper."""

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from jobs import manifest
from jobs.errors import ConfigError, DataError
from jobs.ledger import Ledger, Marker
from jobs.reporting.metric_tables import to_arrow
from jobs.reporting.table1 import (
    NOTE,
    TABLE1_SCHEMA,
    baseline_of,
    line_of,
    method_of,
    table1,
    table1_rows,
)
from jobs.reporting.table_files import as_csv, as_markdown, as_page
from jobs.reporting.tables import Table
from jobs.reporting.words import records
from jobs.storage import Store

Rows = list[dict[str, Any]]
TITLE = "Table 1: methods, LLMs and data sets"


def join(outs: Sequence[str], *, against: str | None, to: str | None) -> dict[str, Any]:
    """Join the metrics of runs, and write them where that is asked for.

    Args:
        outs: Output folders of evaluated runs, their tasks in the order of the columns.
        against: Method that the others are compared with; None: the usual one.
        to: Folder for `table1.csv`, `.md`, `.html` and `.parquet`.

    Returns:
        Plain data: `rows` of `TABLE1_SCHEMA`, `markdown`, and `files` that were written.

    Raises:
        ConfigError: Two runs measure the same arm, or `against` is no method that was tested
            against.
        DataError: A folder without metrics, or with other metrics than its manifest lists.
    """
    summary, tests, scores = _read(outs)
    if against is not None:
        _check_tested(against, tests)
    rows = table1_rows(summary, tests, scores=scores, against=against)
    table = table1(rows)
    files = [] if to is None else _write(to, rows, table)
    return {"rows": rows, "markdown": as_markdown(table), "files": files}


def _read(outs: Sequence[str]) -> tuple[Rows, Rows, Rows]:
    summary: Rows = []
    tests: Rows = []
    scores: Rows = []
    seen: dict[tuple[str, ...], int] = {}
    for number, out in enumerate(outs):
        found = _metrics(out)
        for row in found["summary"]:
            first = seen.setdefault(line_of(row), number)
            if first != number:
                raise ConfigError(
                    f"{out}: arm {row['arm']} of task {row['task']}, encoder {row['encoder']} and "
                    f"engine {row['engine']} is in {outs[first]} too. Give a run once; name tasks "
                    "and engines apart."
                )
        summary += found["summary"]
        tests += found["paired_tests"]
        scores += found["scores"]
    return summary, tests, scores


def _metrics(out: str) -> dict[str, Rows]:
    ledger = Ledger(out)
    listed = manifest.load(ledger.store).get("metrics", {})
    tables = {}
    for name in ("summary", "paired_tests", "scores"):
        if name not in listed:
            raise DataError(
                f"{ledger.store.place}: its {manifest.NAME} lists no metrics table {name}. Run its "
                "config up to evaluate, also if an earlier version did."
            )
        table = ledger.read(Marker(**listed[name]))
        tables[name] = records(table.to_pandas(integer_object_nulls=True))
    return tables


def _check_tested(against: str, tests: Rows) -> None:
    tested = sorted({of(row["arm_b"]) for row in tests for of in (baseline_of, method_of)})
    if against not in tested:
        raise ConfigError(
            f"--against {against}: no arm was tested against it. Tested against: "
            f"{', '.join(tested) or 'none'}. Name others in report.baselines and run evaluate."
        )


def _write(to: str, rows: Rows, table: Table) -> list[str]:
    store = Store(to)
    store.create()
    texts = {
        "table1.csv": as_csv(table),
        "table1.md": f"{as_markdown(table)}\n{NOTE}\n",
        "table1.html": as_page(table, title=TITLE, note=NOTE),
    }
    for name, text in texts.items():
        store.write_bytes(name, text.encode("utf-8", "replace"))
    with store.writing("table1.parquet") as file:
        pq.write_table(to_arrow(rows, TABLE1_SCHEMA), file)
    return [store.where(name) for name in (*texts, "table1.parquet")]
