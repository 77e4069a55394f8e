"""The case study: what each arm showed for a query, side by side, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

N_CASES = 3  # of a task, where none are named
MAX_QUERY, MAX_DEMONSTRATION = 1500, 300  # characters


@dataclass(frozen=True)
class Answer:
    """What one arm did with one query.

    Attributes:
        gold: The gold answer, None if unknown.
        prediction: The parsed answer, None if there is none.
        status: Of the output row.
        demonstration_ids: What was shown, in the order of the prompt.
        right: Whether the answer is right; None if it is not scored.
    """

    gold: str | None
    prediction: str | None
    status: str
    demonstration_ids: Sequence[str] = ()
    right: bool | None = None


@dataclass(frozen=True)
class Record:
    """A text that can be shown, with its answer (None where it has none)."""

    text: str
    answer: str | None


@dataclass(frozen=True)
class Shown:
    """A demonstration as the page has it: its text shortened."""

    id: str
    text: str
    answer: str | None


@dataclass(frozen=True)
class ArmCase:
    """One arm of a case.

    Attributes:
        arm: Its name.
        prediction: As in `Answer`.
        status: As in `Answer`.
        verdict: `right`, `wrong`, or `not scored`; empty for answers that are no single label.
        demonstrations: What it showed.
    """

    arm: str
    prediction: str | None
    status: str
    verdict: str
    demonstrations: Sequence[Shown]


@dataclass(frozen=True)
class Case:
    """One query of one task; `text` is None and no arm is there where no such query was found."""

    task: str
    id: str
    text: str | None
    gold: str | None
    arms: Sequence[ArmCase]

    @property
    def right(self) -> str:
        """How many arms are right, in words; empty where that is not judged."""
        verdicts = [one.verdict for one in self.arms]
        n = sum(verdict in ("right", "wrong") for verdict in verdicts)
        return f"{verdicts.count('right')} of {n} arms right" if n else ""


def choose(answers: Mapping[str, Mapping[str, Answer]], *, n: int = N_CASES) -> list[str]:
    """The first queries on which arms differ.

    Args:
        answers: Per arm, per query id, in the order of the query table.
        n: How many are wanted.

    Returns:
        Ids of queries that some arms answer right and others wrong; where these are too few,
        followed by queries with a gold answer that arms merely answer differently.
    """
    ids = dict.fromkeys(id_ for arm in answers.values() for id_ in arm)
    apart, unlike = [], []
    for id_ in ids:
        found = [arm[id_] for arm in answers.values() if id_ in arm]
        if any(one.right is None for one in found):
            continue
        if len({one.right for one in found}) > 1:
            apart.append(id_)
        elif len({one.prediction for one in found}) > 1:
            unlike.append(id_)
    return [*apart, *unlike][:n]


def cases_of(
    task: str,
    ids: Sequence[str],
    *,
    answers: Mapping[str, Mapping[str, Answer]],
    queries: Mapping[str, str],
    records: Mapping[str, Record],
    one_label: bool = True,
) -> list[Case]:
    """Put the arms of each query side by side.

    Args:
        task: Name of the task.
        ids: The queries, in the order they are shown.
        answers: Per arm of the task, per query id.
        queries: Text per query id, at least of `ids`.
        records: Per record id; a demonstration that is not there is shown by its id alone.
        one_label: Whether an answer is right exactly if it is the gold one.

    Returns:
        A case per id, arms without that query left out.
    """
    cases = []
    for id_ in ids:
        mine = {arm: found[id_] for arm, found in answers.items() if id_ in found}
        arms = [_arm_case(arm, one, records, one_label) for arm, one in mine.items()]
        gold = next((one.gold for one in mine.values()), None)
        text = excerpt(queries[id_], MAX_QUERY) if id_ in queries else None
        cases.append(Case(task, id_, text, gold, arms))
    return cases


def excerpt(text: str, most: int) -> str:
    """A text of at most `most` characters, which says so where it was cut."""
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()} [... {len(text):,} characters in all]"


def _arm_case(arm: str, answer: Answer, records: Mapping[str, Record], one_label: bool) -> ArmCase:
    shown = [_shown(id_, records.get(id_)) for id_ in answer.demonstration_ids]
    verdict = _verdict(answer) if one_label else ""
    return ArmCase(arm, answer.prediction, answer.status, verdict, shown)


def _shown(id_: str, record: Record | None) -> Shown:
    if record is None:
        return Shown(id_, "", None)
    return Shown(id_, excerpt(record.text, MAX_DEMONSTRATION), record.answer)


def _verdict(answer: Answer) -> str:
    if answer.right is None:
        return "not scored"
    return "right" if answer.right else "wrong"
