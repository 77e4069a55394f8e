"""Which fold each query and each row of the corpus belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger import Ledger, Marker, fingerprint
from jobs.vectors import random_keys

VERSION = 1


@dataclass(frozen=True)
class FoldPlan:
    """Which fold each query, and each row of the corpus, belongs to.

    Attributes:
        of_query: Fold of each query by id, from 0 on.
        of_group: Fold of each group that a query has.
        n_folds: How many folds there are.
        seed: Of the deal.
    """

    of_query: Mapping[str, int]
    of_group: Mapping[str, int]
    n_folds: int
    seed: int

    @property
    def digest(self) -> str:
        """Fingerprint of everything that hangs on the folds."""
        plain = [sorted(self.of_query.items()), sorted(self.of_group.items())]
        return fingerprint("folds", VERSION, plain, self.n_folds, self.seed)

    def queries_of(self, fold: int) -> list[str]:
        """The queries of a fold."""
        return [row_id for row_id, mine in self.of_query.items() if mine == fold]

    def left_out(self, fold: int) -> "LeftOut":
        """The corpus rows of a fold."""
        return LeftOut(fold, self.n_folds, self.seed, dict(self.of_group))


@dataclass(frozen=True)
class LeftOut:
    """Finds the corpus rows of one fold, which its selection does without."""

    fold: int
    n_folds: int
    seed: int
    groups: Mapping[str, int]

    def __call__(self, ledger: Ledger, parts: Sequence[Marker]) -> pa.StringArray:
        """Return the ids of the fold among the rows of these parts."""
        found: list[pa.Array] = [pa.array([], pa.string())]
        for part in parts:
            rows = ledger.read(part, ["id", "group"])
            folds = corpus_folds(rows["id"].to_pylist(), rows["group"].to_pylist(), self)
            found += rows["id"].filter(pa.array(folds == self.fold)).chunks
        return pa.concat_arrays(found)


def corpus_folds(
    ids: Sequence[str], groups: Sequence[str | None], dealt: LeftOut
) -> npt.NDArray[np.int64]:
    """The fold of each corpus row: that of its group's queries, else by a hash of group or id.

    Args:
        ids: n ids.
        groups: n groups, None for a row by itself.
        dealt: Number of folds, seed, and the folds of the queries' groups.

    Returns:
        (n,) int64; it depends on nothing but each row's own id and group.
    """
    pairs = zip(ids, groups, strict=True)
    keys = [f"row {row_id}" if group is None else f"group {group}" for row_id, group in pairs]
    folds = (random_keys(keys, dealt.seed) % np.uint64(dealt.n_folds)).astype(np.int64)
    for place, group in enumerate(groups):
        if group is not None and group in dealt.groups:
            folds[place] = dealt.groups[group]
    return folds


def fold_seed(seed: int, fold: int) -> int:
    """The seed with which a method that draws its picks draws those of a fold."""
    return int(random_keys([f"fold {fold}"], seed)[0] % np.uint64(2**31))


def fold_name(arm: str, fold: int) -> str:
    """What an arm is called in one of the folds; no arm of a config can be called so."""
    return f"{arm} fold {fold + 1}"
