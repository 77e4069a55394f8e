"""What annotators and curators said, put into the records of the pool."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from inference.kinds import Row, gold_answer
from inference.tasks import Task
from jobs.annotation.labels import Label, input_checksum
from jobs.annotation.question import answer_field
from jobs.annotation.states import State, states


class Imported(NamedTuple):
    """Candidates with the labels that came back.

    Attributes:
        candidates: As given, with `label`, `output`, `tags` as imported and a column `source`.
        stale: Ids whose text is another one than the annotator saw; they keep what they had.
        differing: Ids that had another label in the corpus; the imported one counts.
    """

    candidates: pa.Table
    stale: list[str]
    differing: list[str]


def with_imported(
    candidates: pa.Table, labels: Mapping[str, Label], tasks: Sequence[Task]
) -> Imported:
    """Give candidates the labels that were imported for them.

    Args:
        candidates: Rows with id, input, output, label, tags; ids distinct.
        labels: By id, as `labels_of`.
        tasks: Two spellings of one answer of theirs do not differ.
    """
    rows = candidates.select(["id", "input", "output", "label", "tags"]).to_pylist()
    sources, stale, differing = ["corpus"] * len(rows), [], []
    for at, row in enumerate(rows):
        label = labels.get(row["id"])
        if label is None:
            continue
        if label.input_checksum != input_checksum(row["input"]):
            stale.append(row["id"])
            continue
        before = dict(row)
        row["label"] = row["label"] if label.label is None else label.label
        row["output"] = row["output"] if label.output is None else label.output
        if _differs(before, row, tasks):
            differing.append(row["id"])
        row["tags"] = row["tags"] if label.tags is None else list(label.tags)
        sources[at] = label.source
    for name in ("output", "label", "tags"):
        at = candidates.schema.get_field_index(name)
        field = candidates.schema.field(name)
        values = pa.array([row[name] for row in rows], field.type)
        candidates = candidates.set_column(at, field, values)
    source = pa.array(sources, pa.string())
    return Imported(candidates.append_column("source", source), stale, differing)


def with_states(
    records: pa.Table, changes: Mapping[str, State], *, promote: Literal["auto", "manual"]
) -> pa.Table:
    """Fill in the column `state` of pool records, as `states` has it."""
    found = states(records["id"].to_pylist(), changes, promote=promote)
    at = records.schema.get_field_index("state")
    return records.set_column(at, records.schema.field(at), pa.array(found, pa.string()))


def _differs(before: Row, row: Row, tasks: Sequence[Task]) -> bool:
    """Whether an answer was there and is another one now."""
    changed = {n for n in ("label", "output") if before[n] is not None and before[n] != row[n]}
    mine = [task for task in tasks if answer_field(task) in changed]
    return any(gold_answer(task, before).value != gold_answer(task, row).value for task in mine)
