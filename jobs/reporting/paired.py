"""Paired tests of arms that answered the same queries: the t-test over folds, and McNemar's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from inference.folds import fold_of
from inference.scoring import score
from inference.significance import holm, mcnemar, paired_t
from jobs.reporting.metrics import Answers, answers_by_id
from jobs.reporting.noise import METRICS, Row, floor_of, is_below

QUERY_FOLDS = "query folds"
SELECTION_FOLDS = "selection folds"


@dataclass(frozen=True)
class Design:
    """How the arms of one task are tested.

    Attributes:
        pairs: (arm, against), each a comparison.
        labels: The labels of the task.
        groups: Group per query id; a query that is not there is one by itself.
        n_folds: Folds that are wanted.
        seed: Of the folds.
        noise: Rows of `noise_rows` of the task.
        dealt: Fold per query id, where Stage 1 was repeated for each fold; None: folds are dealt
            here, by group and label.
    """

    pairs: Sequence[tuple[str, str]]
    labels: Sequence[str]
    groups: Mapping[str, str | None]
    n_folds: int = 10
    seed: int = 0
    noise: Sequence[Row] = ()
    dealt: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Contest:
    """The arms of one task as the tests see them.

    Attributes:
        ids: Scored queries of each arm.
        strata: What folds are balanced by: each query's gold label; "" where answers are more.
        gap: First arm less second in each metric, over some queries scored for both.
        right: Whether an arm answers each of some queries right.
        judged_by: The metric that counts right answers; None: answers are more or less right.
    """

    ids: Mapping[str, Sequence[str]]
    strata: Mapping[str, str]
    gap: Callable[[str, str, Sequence[str]], Mapping[str, float]]
    right: Callable[[str, Sequence[str]], list[bool]]
    judged_by: str | None


def paired_tests(
    outputs: Mapping[str, pd.DataFrame], *, arms: Mapping[str, Row], design: Design
) -> list[dict[str, Any]]:
    """Test every pair of arms of one classification task, as `contest_tests` does.

    A fold is scored as a whole is; a label that it lacks is no part of its macro-F1, unless an arm
    predicts it.

    Args:
        outputs: Output table per arm.
        arms: Identifying fields per arm.
        design: Pairs, folds and floors.

    Returns:
        Rows of `PAIRED_TESTS_SCHEMA`, two a pair.
    """
    answers = {name: answers_by_id(table, design.labels) for name, table in outputs.items()}

    def gap(first: str, second: str, ids: Sequence[str]) -> dict[str, float]:
        return _difference(ids, (answers[first], answers[second]), design.labels)

    def right(arm: str, ids: Sequence[str]) -> list[bool]:
        return [answers[arm][id_][0] == answers[arm][id_][1] for id_ in ids]

    contest = Contest(
        ids={name: list(mine) for name, mine in answers.items()},
        strata={id_: gold for mine in answers.values() for id_, (gold, _) in mine.items()},
        gap=gap,
        right=right,
        judged_by="accuracy",
    )
    return contest_tests(contest, arms=arms, design=design)


def contest_tests(
    contest: Contest, *, arms: Mapping[str, Row], design: Design
) -> list[dict[str, Any]]:
    """Test every pair of arms of one task in every metric, corrected over all of them.

    The folds are the same for all pairs. Either they are folds of queries, and arms are not
    selected or answered anew for each; or Stage 1 was repeated for each, and answered the fold's
    queries.

    Args:
        contest: The arms, scored.
        arms: Identifying fields per arm.
        design: Pairs, folds and floors.

    Returns:
        Rows of `PAIRED_TESTS_SCHEMA`, one a pair and metric; a pair without a query scored for
        both is left out. p values of the t-tests are corrected over these rows, McNemar's over the
        pairs.
    """
    number, n_short = _folds(contest.strata, design)
    kind = QUERY_FOLDS if design.dealt is None else SELECTION_FOLDS
    rows: list[dict[str, Any]] = []
    for pair in design.pairs:
        there = set(contest.ids[pair[1]])
        shared = [id_ for id_ in contest.ids[pair[0]] if id_ in there]
        if shared:
            fields = {k: arms[pair[0]][k] for k in ("task", "encoder", "engine")}
            fields |= {"arm_a": pair[0], "arm_b": pair[1], "folds": kind}
            fields |= {f"{key}_b": arms[pair[1]][key] for key in ("encoder", "engine")}
            fields |= {"n_short_folds": n_short}
            rows += [fields | row for row in _pair(shared, pair, contest, number, design)]
    for row in rows:
        names = [row["arm_a"], row["arm_b"]]
        row["floor"] = floor_of(names, design.noise, row["metric"], row["engine"])
        row["below_floor"] = is_below(row["difference"], row["floor"])
    return _corrected(rows)


def _folds(strata: Mapping[str, str], design: Design) -> tuple[dict[str, int], int]:
    """The fold of every query that is scored for any arm; and how many folds lack a label."""
    ids = sorted(strata)
    if design.dealt is not None:
        number = {id_: design.dealt[id_] for id_ in ids}
        there = {
            fold: {strata[id_] for id_ in ids if number[id_] == fold}
            for fold in set(number.values())
        }
        return number, sum(labels < set(strata.values()) for labels in there.values())
    folds = fold_of(
        ids,
        [design.groups.get(id_) for id_ in ids],
        [strata[id_] for id_ in ids],
        n_folds=design.n_folds,
        seed=design.seed,
    )
    return dict(zip(ids, folds.number.tolist(), strict=True)), folds.n_short


def _pair(
    shared: Sequence[str],
    pair: tuple[str, str],
    contest: Contest,
    number: Mapping[str, int],
    design: Design,
) -> list[dict[str, Any]]:
    by_fold: dict[int, list[str]] = {}
    for id_ in shared:
        by_fold.setdefault(number[id_], []).append(id_)
    whole = contest.gap(*pair, shared)
    parts = [contest.gap(*pair, by_fold[fold]) for fold in sorted(by_fold)]
    rows = []
    for metric, difference in whole.items():
        test = paired_t([part[metric] for part in parts])
        rows.append(
            {
                "metric": metric,
                "n": len(shared),
                "n_folds": test.n,
                "difference": difference,
                "mean_difference": test.mean,
                **{name: getattr(test, name) for name in ("sd", "t", "p", "low", "high")},
                "note": "; ".join(filter(None, [test.note, _fewer(test.n, design.n_folds)])),
            }
        )
        if metric == contest.judged_by:
            rows[-1] |= _mcnemar(*(contest.right(arm, shared) for arm in pair))
    return rows


def _difference(
    ids: Sequence[str], answers: tuple[Answers, Answers], labels: Sequence[str]
) -> dict[str, float]:
    gold = [answers[0][id_][0] for id_ in ids]
    first, second = (score(gold, [one[id_][1] for id_ in ids], labels) for one in answers)
    return {metric: getattr(first, metric) - getattr(second, metric) for metric in METRICS}


def _fewer(n_folds: int, n_asked: int) -> str:
    if n_folds >= n_asked:
        return ""
    return f"{n_folds} folds of {n_asked} asked for: no more have a scored query"


def _mcnemar(first: Sequence[bool], second: Sequence[bool]) -> dict[str, Any]:
    pairs = list(zip(first, second, strict=True))
    found = mcnemar(pairs.count((True, False)), pairs.count((False, True)))
    return {f"mcnemar_{name}": value for name, value in asdict(found).items()}


def _corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    n_tests = sum(row["p"] is not None for row in rows)
    corrected = holm([row["p"] for row in rows])
    exact = holm([row.get("mcnemar_p") for row in rows])
    return [
        row | {"p_holm": p, "mcnemar_p_holm": mc, "n_tests": n_tests}
        for row, p, mc in zip(rows, corrected, exact, strict=True)
    ]
