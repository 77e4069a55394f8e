"""What becomes of each row of a file that came back: the label counts, or a reason why not."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from inference.kinds import ANSWERED_BY_OUTPUT, gold_answer
from inference.tasks import Task
from jobs.annotation.answers import BadAnswer, as_cell
from jobs.annotation.labels import OK
from jobs.annotation.returned import Returned

Policy = Literal["reject", "first", "newest"]
#: Statuses beside `ok`, with what each says.
STATUSES = {
    "known": "the row has this label already",
    "missing_label": "no label is given",
    "cancelled": "the annotator skipped it",
    "missing_id": "no id is given",
    "unknown_id": "no row of the corpus has this id",
    "text_changed": "the row has another text than the annotator saw",
    "not_in_label_set": "the label is none of the task's",
    "bad_output": "the entities or the query cannot be used",
    "double_label": "the file has another row that says the same, or something else, of this id",
    "conflict": "the row has another label, from the corpus or an earlier import",
    "unreadable": "the line cannot be read",
}


class Answer(NamedTuple):
    """A canonical answer, and who gave it: the corpus, or an import."""

    text: str
    source: str


@dataclass(frozen=True)
class Known:
    """What is known of a row of the corpus.

    Attributes:
        id: Of the row.
        input: Its text.
        checksum: Of the text.
        answers: What it says by now, by whether that is entities or a query; absent: nothing.
    """

    id: str
    input: str
    checksum: str
    answers: Mapping[bool, Answer] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """A row of a file with its verdict.

    Attributes:
        row: As read.
        id: Of the row of the corpus; as written where there is none.
        answer: Canonical; None where it is not usable.
        written: The answer as the annotator gave it.
        status: `ok`, or one of `STATUSES`.
        reason: In words.
        conflicts_with: The other answer, and where it is from.
        checksum: Of the text of the row today.
        as_output: The answer is one of entities or a query.
    """

    row: Returned
    id: str | None
    status: str
    reason: str | None = None
    answer: str | None = None
    written: str | None = None
    conflicts_with: str | None = None
    checksum: str | None = None
    as_output: bool = False


def judged(
    rows: Sequence[Returned],
    find: Callable[[str], Known | None],
    tasks: Sequence[Task],
    *,
    policy: Policy,
) -> list[Judged]:
    """Judge every row of a file.

    Args:
        rows: In file order.
        find: The row of the corpus with an id, white space around it apart; None: there is none.
        tasks: A label counts where one of them has it.
        policy: As `annotate.on_conflict`.

    Returns:
        As many verdicts, in the same order.
    """
    verdicts = [_by_itself(row, find, tasks) for row in rows]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(verdicts):
        if one.status == OK and one.id is not None:
            places[one.id].append(at)
    for row_id, where in places.items():
        found = find(row_id)
        assert found is not None
        for at, one in zip(where, _of_one_id([verdicts[at] for at in where], policy), strict=True):
            verdicts[at] = _against(found, one, policy) if one.status == OK else one
    return verdicts


def _by_itself(row: Returned, find: Callable[[str], Known | None], tasks: Sequence[Task]) -> Judged:
    if row.damage is not None:
        return Judged(row, row.id, "unreadable", row.damage)
    if row.id is None or not row.id.strip():
        return _verdict(Judged(row, row.id, "missing_id", written=_written(row)))
    found = find(row.id)
    if found is None:
        return _verdict(Judged(row, row.id, "unknown_id", written=_written(row)))
    one = Judged(row, found.id, OK, written=_written(row), checksum=found.checksum)
    if found.id != row.id:
        one = replace(one, reason=f"id {row.id!r} taken as {found.id!r}")
    if row.cancelled:
        return _verdict(replace(one, status="cancelled"))
    if row.checksum is not None and row.checksum.strip() != found.checksum:
        why = f"{STATUSES['text_changed']} (checksum {row.checksum}, now {found.checksum})"
        return replace(one, status="text_changed", reason=why)
    return _answered(one, found, tasks)


def _verdict(one: Judged) -> Judged:
    """The row with the words of its status."""
    return replace(one, reason=_joined(one.reason, STATUSES[one.status]))


def _answered(one: Judged, found: Known, tasks: Sequence[Task]) -> Judged:
    """Read the answer by the first task that has it."""
    reasons = []
    for task in tasks:
        by_output = task.kind in ANSWERED_BY_OUTPUT
        value = one.row.label
        if by_output and one.row.output is not None:
            value = one.row.output
        try:
            cell = as_cell(value, task, text=found.input)
        except BadAnswer as error:
            reasons.append((by_output, str(error)))
            continue
        if cell is None:
            continue
        gold = gold_answer(task, {"input": found.input, "label": cell, "output": cell})
        if gold.value is not None:
            return replace(one, answer=gold.value, as_output=by_output)
        reasons.append((by_output, f"the row {gold.reason}"))
    if not reasons:
        return _verdict(replace(one, status="missing_label"))
    by_output, why = reasons[0]
    return replace(one, status="bad_output" if by_output else "not_in_label_set", reason=why)


def _of_one_id(group: list[Judged], policy: Policy) -> list[Judged]:
    """Leave one of the usable rows of an id, or none where they differ and nothing decides."""
    if len(group) == 1:
        return group
    said = [one.answer for one in group]
    kept: int | None = len(group) - 1 if policy == "newest" else 0
    if len(set(said)) > 1 and policy == "reject":
        kept = None
    out = []
    for at, one in enumerate(group):
        others = [other for other in group if other is not one and other.answer != one.answer]
        if at == kept and not others:
            out.append(one)
            continue
        lines = ", ".join(str(other.row.line) for other in group if other is not one)
        why = f"the same label stands on line {lines}"
        if others:
            listed = "; ".join(f"{other.answer!r} on line {other.row.line}" for other in others)
            one, why = replace(one, conflicts_with=listed), f"the file also says {listed}"
        status = OK if at == kept else "double_label"
        out.append(replace(one, status=status, reason=_joined(one.reason, why)))
    return out


def _against(found: Known, one: Judged, policy: Policy) -> Judged:
    """Compare with the answer that the row has by now."""
    there = found.answers.get(one.as_output)
    if there is None:
        return one
    if there.text == one.answer:
        reason = _joined(one.reason, f"as {there.source} has it")
        return replace(one, status="known", reason=reason)
    other = f"{there.text!r} of {there.source}"
    one = replace(one, conflicts_with=other)
    if policy == "newest":
        return replace(one, reason=_joined(one.reason, f"takes the place of {other}"))
    return replace(one, status="conflict", reason=_joined(one.reason, f"{other} is kept"))


def _joined(*reasons: str | None) -> str:
    return "; ".join(reason for reason in reasons if reason)


def _written(row: Returned) -> str | None:
    value = row.label if row.output is None else row.output
    return None if value is None else str(value)


def counts(verdicts: Sequence[Judged]) -> Mapping[str, int]:
    """Rows by status, `ok` first."""
    found = {name: 0 for name in (OK, *STATUSES)}
    for one in verdicts:
        found[one.status] += 1
    return {name: number for name, number in found.items() if number}
