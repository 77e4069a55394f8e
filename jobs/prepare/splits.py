"""A seeded test split that keeps the shares of the classes and tears no group apart."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from jobs.errors import ConfigError


def held_out(
    labels: Sequence[str | None], groups: Sequence[str], *, share: float, seed: int
) -> list[bool]:
    """Choose whole groups that hold `share` of every class, as near as whole groups come.

    Classes take turns from the rarest to the most frequent. A class looks at its groups that no
    class before it has decided on, in an order drawn by the seed, and takes each that brings it
    nearer to its share. (Stratification from the rarest class, after Sechidis et al. 2011.)

    Args:
        labels: n classes; None, unlabelled, is one of them.
        groups: n names of groups.
        share: Part to hold out, above 0 and below 1.
        seed: Of the draw.

    Returns:
        n flags, true where held out. They depend on the rows, not on their order. Where a class
        has groups of its own only, its share is met to within half of its largest group.

    Cost: O(n log n) time, O(n) memory.
    """
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for label, group in zip(labels, groups, strict=True):
        sizes[_class(label)][group] += 1
    of_group: dict[str, Counter[str]] = defaultdict(Counter)
    for name, counts in sizes.items():
        for group, number in counts.items():
            of_group[group][name] = number
    taken: dict[str, bool] = {}
    held: Counter[str] = Counter()
    for name in sorted(sizes, key=lambda name: (sizes[name].total(), name)):
        wanted = share * sizes[name].total()
        for group in sorted(sizes[name].keys() - taken.keys(), key=lambda one: _draw(one, seed)):
            taken[group] = held[name] + sizes[name][group] / 2 <= wanted
            if taken[group]:
                held.update(of_group[group])
    return [taken[group] for group in groups]


def split_off(
    rows: Sequence[dict[str, Any]], *, by: str, into: str, share: float, seed: int
) -> None:
    """Move part of the rows of split `train`, in whole groups of the column `by`, into a split.

    Raises:
        ConfigError: The share is no part, or leaves one side empty.
    """
    if not 0 < share < 1:
        raise ConfigError(f"--{into}-share {share}: wanted a part, above 0 and below 1.")
    left = [row for row in rows if row["split"] == "train"]
    flags = held_out(
        [row["label"] for row in left], [row[by] for row in left], share=share, seed=seed
    )
    if left and len(set(flags)) < 2:
        raise ConfigError(
            f"--{into}-share {share}: of {len(left):,} rows in {len({row[by] for row in left}):,} "
            f"groups it takes {'all' if flags[0] else 'none'}. Give another share."
        )
    for row, flag in zip(left, flags, strict=True):
        row["split"] = into if flag else row["split"]


def _class(label: str | None) -> str:
    return "" if label is None else f"={label}"


def _draw(group: str, seed: int) -> tuple[bytes, str]:
    return blake2b(f"{seed}:{group}".encode(), digest_size=8).digest(), group
