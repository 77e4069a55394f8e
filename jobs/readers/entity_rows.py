"""Rows whose entities are not in their text are set aside."""

from collections import Counter

import pyarrow as pa

from inference.entities import read_entities
from inference.status import Status
from jobs.readers.batches import excerpt
from jobs.readers.row_tables import rejected_table
from jobs.readers.rows import Rows

REASON = "bad_entities"


def without_bad_entities(made: Rows) -> Rows:
    """Reject rows whose output is no list of entities of their text.

    Args:
        made: Rows of one batch; `output` is JSON, null where a row has no answer.

    Returns:
        The rows that can be used, and the rejected with offset and length in `detail`.
    """
    columns = made.rows.select(["status", "input", "output"]).to_pylist()
    problems = {at: _problem(row) for at, row in enumerate(columns)}
    problems = {at: problem for at, problem in problems.items() if problem is not None}
    if not problems:
        return made
    bad = made.rows.take(pa.array(list(problems), pa.int64())).to_pylist()
    entries = [
        (
            *(row["source_file"], row["source_line"], excerpt(row["id"]), REASON, problem),
            *(excerpt(row["input"]), Status.REJECTED.value),
        )
        for row, problem in zip(bad, problems.values(), strict=True)
    ]
    rows = made.rows.filter(pa.array([at not in problems for at in range(len(columns))]))
    rejected = pa.concat_tables([made.rejected, rejected_table(entries)])
    return Rows(rows, rejected, made.notes + Counter({REASON: len(problems)}))


def _problem(row: dict[str, str | None]) -> str | None:
    """Why the entities of a row cannot be used; rows that are not ok have their own reason."""
    if row["status"] != Status.OK or row["output"] is None or not row["output"].strip():
        return None
    try:
        read_entities(row["output"], row["input"] or "")
    except ValueError as error:
        return f"output: {error}"
    return None
