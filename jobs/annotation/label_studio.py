"""Label Studio: candidates as its tasks, the labelling interface, and its annotations back.

The control is called `label` and the text `text`; tasks carry the id of the row as `row_id`,
because Label Studio gives them an `id` of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from inference.entities import from_json
from inference.tasks import Task, instruction
from jobs.annotation.candidates import Candidate

CONTROL, OBJECT = "label", "text"


def as_tasks(task: Task, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Candidates as tasks to be imported into a project.

    Args:
        task: What is asked.
        candidates: The answer that one has by now becomes an annotation, a suggestion a prediction.
    """
    return [_task(task, one) for one in candidates]


def interface(task: Task) -> str:
    """The labelling interface of a project for these tasks (Settings, Labeling Interface, Code)."""
    tag = "Label" if task.kind == "ner" else "Choice"
    labels = "".join(f"    <{tag} value={quoteattr(label)}/>\n" for label in task.labels)
    text = f'  <Text name="{OBJECT}" value="${OBJECT}"/>\n'
    head = f"  <Header value={quoteattr(instruction(task))}/>\n"
    attributes = f'name="{CONTROL}" toName="{OBJECT}"'
    if task.kind == "ner":
        control = f"  <Labels {attributes}>\n{labels}  </Labels>\n"
    elif task.kind == "sql":
        control = f'  <TextArea {attributes} rows="4" maxSubmissions="1"/>\n'
    else:
        choice = "multiple" if task.kind == "multi-label" else "single"
        control = f'  <Choices {attributes} choice="{choice}">\n{labels}  </Choices>\n'
    return f"<View>\n{head}{text}{control}</View>\n"


def _task(task: Task, one: Candidate) -> dict[str, Any]:
    made: dict[str, Any] = {
        "data": {
            "row_id": one.id,
            OBJECT: one.input,
            "checksum": one.checksum,
            "rank": one.rank,
            "gain": one.gain,
            "group": one.group,
            "arm": one.arm,
            "task": task.name,
            "instruction": instruction(task),
        }
    }
    if one.answer is not None:
        made["annotations"] = [{"result": _result(task, one.answer)}]
    if one.suggestion is not None:
        label, score, model = one.suggestion
        result = _result(task, label)
        made["predictions"] = [{"model_version": model, "score": score, "result": result}]
    return made


def _result(task: Task, answer: str) -> list[dict[str, Any]]:
    """A canonical answer as the regions of an annotation."""
    if task.kind == "ner":
        return [
            _region("labels", one._asdict() | {"labels": [one.type]}, drop="type")
            for one in from_json(answer)
        ]
    if task.kind == "sql":
        return [_region("textarea", {"text": [answer]})]
    several = task.kind == "multi-label"
    choices = answer.split(task.label_separator.strip()) if several else [answer]
    return [_region("choices", {"choices": choices})]


def _region(kind: str, value: Mapping[str, Any], *, drop: str = "") -> dict[str, Any]:
    value = {name: one for name, one in value.items() if name != drop}
    return {"from_name": CONTROL, "to_name": OBJECT, "type": kind, "value": value}


# Back again.


def is_task(record: Mapping[str, Any]) -> bool:
    """Whether a record is a task of Label Studio's full JSON."""
    return isinstance(record.get("data"), dict)


def annotations_of(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The annotations of a task as flat records; a task without any gives one without a label.

    Yields:
        `id`, `checksum`, `text`, `annotator`, `label` (regions; None: none given) and, where the
        annotator skipped the task, `cancelled`.
    """
    data = record["data"]
    flat = {
        "id": data.get("row_id", data.get("id")),
        "checksum": data.get("checksum"),
        "text": data.get(OBJECT),
    }
    found = record.get("annotations", record.get("completions"))
    annotations = [one for one in found or () if isinstance(one, dict)]
    if not annotations:
        yield flat | {"label": None}
    for one in annotations:
        cancelled = bool(one.get("was_cancelled") or one.get("skipped"))
        regions = {"regions": one.get("result")}
        yield flat | {"annotator": _person(one), "cancelled": cancelled, "label": regions}


def _person(annotation: Mapping[str, Any]) -> str | None:
    who = annotation.get("completed_by")
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    return None if who is None else str(who)
