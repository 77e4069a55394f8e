"""Candidates as files for annotators: CSV, JSONL, Label Studio tasks."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from inference.tasks import Task, instruction
from jobs.annotation.candidates import Candidate
from jobs.annotation.label_studio import as_tasks
from jobs.annotation.question import answer_field
from jobs.annotation.spreadsheet import guarded

#: Spreadsheets read UTF-8 as something else without it.
BOM = "\ufeff"
NOBODY = Candidate(id="", input="", arm="", rank=0, gain=None, group=None)


def record_of(task: Task, one: Candidate) -> dict[str, Any]:
    """A candidate as a flat record in which answer, tags and annotator are to be filled in."""
    said = one.suggestion
    return {
        "id": one.id,
        "input": one.input,
        "rank": one.rank,
        "gain": one.gain,
        "group": one.group,
        "arm": one.arm,
        "task": task.name,
        "instruction": instruction(task),
        "labels": list(task.labels),
        "checksum": one.checksum,
        "suggested": None if said is None else said.label,
        "score": None if said is None else said.score,
        answer_field(task): one.answer,
        "tags": None,
        "annotator": None,
    }


def as_csv(task: Task, candidates: Sequence[Candidate]) -> str:
    """UTF-8 CSV with a byte order mark; lists are JSON, texts that look like formulas guarded."""
    out = io.StringIO(newline="")
    records = [record_of(task, one) for one in candidates]
    names = list(record_of(task, NOBODY))
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows([_cell(record[name]) for name in names] for record in records)
    return BOM + out.getvalue()


def as_jsonl(task: Task, candidates: Sequence[Candidate]) -> str:
    """One JSON object a line."""
    records = (record_of(task, one) for one in candidates)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def as_label_studio(task: Task, candidates: Sequence[Candidate]) -> str:
    """A JSON array of Label Studio tasks, with predictions where there are suggestions."""
    return json.dumps(as_tasks(task, candidates), ensure_ascii=False, indent=1) + "\n"


WRITERS: dict[str, Callable[[Task, Sequence[Candidate]], str]] = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "label-studio": as_label_studio,
}


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return value
    return guarded(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
