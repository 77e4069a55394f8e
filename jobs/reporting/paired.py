"""Paired tests of arms that answered the same queries: the t-test over folds, and McNemar's."""

from collections.abc import Mapping, Sequence
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


def paired_tests(
    outputs: Mapping[str, pd.DataFrame], *, arms: Mapping[str, Row], design: Design
) -> list[dict[str, Any]]:
    """Test every pair of arms of one task, in both metrics, corrected over all of them.

    The folds are the same for all pairs. Either they are folds of queries, and arms are not
    selected or answered anew for each; or Stage 1 was repeated for each, and answered the fold's
    queries. A fold is scored as a whole is; a label that it lacks is no part of its macro-F1,
    unless an arm predicts it.

    Args:
        outputs: Output table per arm.
        arms: Identifying fields per arm.
        design: Pairs, folds and floors.

    Returns:
        Rows of `PAIRED_TESTS_SCHEMA`, two a pair; a pair without a query scored for both is left
        out. p values of the t-tests are corrected over these rows, McNemar's over the pairs.
    """
    answers = {name: answers_by_id(table, design.labels) for name, table in outputs.items()}
    number, n_short = _folds(answers, design)
    kind = QUERY_FOLDS if design.dealt is None else SELECTION_FOLDS
    rows: list[dict[str, Any]] = []
    for pair in design.pairs:
        shared = [id_ for id_ in answers[pair[0]] if id_ in answers[pair[1]]]
        if shared:
            both = (answers[pair[0]], answers[pair[1]])
            fields = {k: arms[pair[0]][k] for k in ("task", "encoder", "engine")}
            fields |= {"arm_a": pair[0], "arm_b": pair[1], "folds": kind}
            fields |= {"n_short_folds": n_short}
            rows += [fields | row for row in _pair(shared, both, number, design)]
    for row in rows:
        names = [row["arm_a"], row["arm_b"]]
        row["floor"] = floor_of(names, design.noise, row["metric"], row["engine"])
        row["below_floor"] = is_below(row["difference"], row["floor"])
    return _corrected(rows)


def _folds(answers: Mapping[str, Answers], design: Design) -> tuple[dict[str, int], int]:
    """The fold of every query that is scored for any arm; and how many folds lack a label."""
    gold = {id_: mine for arm in answers.values() for id_, (mine, _) in arm.items()}
    ids = sorted(gold)
    if design.dealt is not None:
        number = {id_: design.dealt[id_] for id_ in ids}
        there = {
            fold: {gold[id_] for id_ in ids if number[id_] == fold} for fold in number.values()
        }
        return number, sum(labels < set(gold.values()) for labels in there.values())
    folds = fold_of(
        ids,
        [design.groups.get(id_) for id_ in ids],
        [gold[id_] for id_ in ids],
        n_folds=design.n_folds,
        seed=design.seed,
    )
    return dict(zip(ids, folds.number.tolist(), strict=True)), folds.n_short


def _pair(
    shared: Sequence[str],
    answers: tuple[Answers, Answers],
    number: Mapping[str, int],
    design: Design,
) -> list[dict[str, Any]]:
    by_fold: dict[int, list[str]] = {}
    for id_ in shared:
        by_fold.setdefault(number[id_], []).append(id_)
    whole = _difference(shared, answers, design.labels)
    parts = [_difference(by_fold[fold], answers, design.labels) for fold in sorted(by_fold)]
    rows = []
    for metric in METRICS:
        test = paired_t([part[metric] for part in parts])
        rows.append(
            {
                "metric": metric,
                "n": len(shared),
                "n_folds": test.n,
                "difference": whole[metric],
                "mean_difference": test.mean,
                **{name: getattr(test, name) for name in ("sd", "t", "p", "low", "high")},
                "note": "; ".join(filter(None, [test.note, _fewer(test.n, design.n_folds)])),
            }
        )
    rows[0] |= _mcnemar(shared, answers)
    return rows


def _difference(
    ids: Sequence[str], answers: tuple[Answers, Answers], labels: Sequence[str]
) -> dict[str, float]:
    gold = [answers[0][id_][0] for id_ in ids]
    first, second = (score(gold, [one[id_][1] for id_ in ids], labels) for one in answers)
    return {metric: getattr(first, metric) - getattr(second, metric) for metric in METRICS}


def _fewer(n_folds: int, n_asked: int) -> str:
    return f"{n_folds} folds of {n_asked} asked for: no more groups" if n_folds < n_asked else ""


def _mcnemar(shared: Sequence[str], answers: tuple[Answers, Answers]) -> dict[str, Any]:
    right = [[one[id_][0] == one[id_][1] for id_ in shared] for one in answers]
    pairs = list(zip(*right, strict=True))
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
