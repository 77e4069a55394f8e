"""Folds of queries that never split a group and keep the labels in proportion."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, str]


@dataclass(frozen=True)
class Folds:
    """A partition of n queries.

    Attributes:
        number: Shape (n,), int64: the fold of each query, from 0 to `n_folds` - 1.
        n_folds: How many folds there are; none is empty.
        n_asked: How many were asked for: more than `n_folds` where there are fewer groups.
        n_short: Folds in which a label that occurs is missing.
    """

    number: NDArray[np.int64]
    n_folds: int
    n_asked: int
    n_short: int


def fold_of(
    ids: Sequence[str],
    groups: Sequence[str | None],
    labels: Sequence[str],
    *,
    n_folds: int = 10,
    seed: int = 0,
) -> Folds:
    """Deal queries to folds, group by group.

    The largest groups are dealt first, those of one size by label and then by a hash of seed and
    group. Each goes to the fold that has the smallest share of the group's labels so far, then to
    the smallest fold: the greedy rule of scikit-learn's StratifiedGroupKFold without its dependence
    on the order of rows. Without groups, both the fold sizes and the counts of each label differ
    by at most 1 between folds.

    Args:
        ids: n distinct ids.
        groups: n groups; a query of group None is one by itself.
        labels: n gold labels.
        n_folds: How many folds are wanted; there are never more folds than groups.
        seed: Another seed gives another partition.

    Returns:
        The folds; they depend on ids, groups, labels and seed, not on the order of the rows.
        O(G n_folds + n) time for G groups.

    Raises:
        ValueError: Fewer than 2 folds asked for, lists of different length, or an id twice.
    """
    _check(ids, groups, labels, n_folds)
    members: dict[Key, list[int]] = defaultdict(list)
    for row, (id_, group) in enumerate(zip(ids, groups, strict=True)):
        members[("id", id_) if group is None else ("group", group)].append(row)
    used = min(n_folds, len(members))
    counts = {key: Counter(labels[i] for i in rows) for key, rows in members.items()}
    dealt = _deal(counts, used, seed)
    number = np.zeros(len(ids), dtype=np.int64)
    for key, rows in members.items():
        number[rows] = dealt[key]
    return Folds(number, used, n_folds, _short(number, labels, used))


def _check(
    ids: Sequence[str], groups: Sequence[str | None], labels: Sequence[str], n_folds: int
) -> None:
    if n_folds < 2:
        raise ValueError(f"n_folds is {n_folds}: a partition needs at least 2 folds.")
    if not len(ids) == len(groups) == len(labels):
        raise ValueError(
            f"{len(ids)} ids, {len(groups)} groups and {len(labels)} labels: give one of each per "
            "query."
        )
    if len(set(ids)) < len(ids):
        id_, times = Counter(ids).most_common(1)[0]
        raise ValueError(f"id {id_!r} stands {times} times: every query has an id of its own.")


def _deal(groups: dict[Key, Counter[str]], n_folds: int, seed: int) -> dict[Key, int]:
    """The fold of each group of label counts."""
    total: Counter[str] = Counter()
    for counts in groups.values():
        total.update(counts)
    place = {label: column for column, label in enumerate(sorted(total))}
    held = np.zeros((n_folds, len(total)))
    size = np.zeros(n_folds, dtype=np.int64)
    dealt = {}
    for key in sorted(groups, key=lambda key: _turn(key, groups[key], seed)):
        columns = np.array([place[label] for label in groups[key]], dtype=np.int64)
        own = np.array(list(groups[key].values()), dtype=np.float64)
        # Rounded, so that the order in which shares were added does not break ties.
        load = (held[:, columns] @ own).round(9)
        fold = int(np.lexsort((np.arange(n_folds), size, load))[0])
        held[fold, columns] += own / [total[label] for label in groups[key]]
        size[fold] += groups[key].total()
        dealt[key] = fold
    return dealt


def _turn(key: Key, counts: Counter[str], seed: int) -> tuple[int, str, bytes]:
    """Large groups first, as long as there is room for them; then label by label."""
    text = f"{seed}:{key[0]}:{key[1]}".encode("utf-8", "surrogatepass")
    most = min(counts, key=lambda label: (-counts[label], label))
    return -counts.total(), most, hashlib.blake2b(text, digest_size=8).digest()


def _short(number: NDArray[np.int64], labels: Sequence[str], n_folds: int) -> int:
    there = [set[str]() for _ in range(n_folds)]
    for fold, label in zip(number.tolist(), labels, strict=True):
        there[fold].add(label)
    return sum(found < set(labels) for found in there)
