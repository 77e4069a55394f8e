"""Texts that are nearly the same: by shared shingles (MinHash LSH), and by vectors."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from datasketch import MinHash, MinHashLSH

from jobs.readers.hashes import normalised
from jobs.vectors import Matrix

TILE_ROWS = 1024
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Shingles:
    """What a text is cut into.

    Attributes:
        unit: `char` or `word`.
        size: How many of them a shingle has.
    """

    unit: Literal["char", "word"] = "char"
    size: int = 5

    def __call__(self, text: str) -> frozenset[str]:
        """The shingles of a text, case and spacing apart; one shorter than one is one itself."""
        plain = normalised(text)
        pieces: Sequence[str] = plain if self.unit == "char" else _WORD.findall(plain)
        if not pieces:
            return frozenset([plain])
        joint = "" if self.unit == "char" else " "
        last = max(1, len(pieces) - self.size + 1)
        return frozenset(joint.join(pieces[at : at + self.size]) for at in range(last))


class Pair(NamedTuple):
    """Two texts by index, the earlier first, and how near they are, up to 1."""

    first: int
    second: int
    score: float


def similar_pairs(
    texts: Sequence[str], shingles: Shingles, *, threshold: float, permutations: int = 128
) -> list[Pair]:
    """Find pairs of texts with a Jaccard similarity of shingles of at least `threshold`.

    MinHash signatures in an LSH index (Broder 1997; Leskovec, Rajaraman and Ullman, Mining of
    Massive Datasets, section 3.4; by datasketch) name the pairs that are looked at; their exact
    similarity decides, so that no pair is wrong. A pair just above the threshold can be missed.

    Args:
        texts: n texts.
        shingles: How they are cut.
        threshold: In (0, 1].
        permutations: Of a signature; more miss less.

    Returns:
        Pairs by first, then second index. O(n) signatures, and the pairs that are looked at.
    """
    sets = [shingles(text) for text in texts]
    encoded = [[piece.encode("utf-8", "surrogatepass") for piece in sorted(one)] for one in sets]
    signatures = MinHash.bulk(encoded, num_perm=permutations, seed=1)
    index = MinHashLSH(threshold=threshold, num_perm=permutations)
    found: list[Pair] = []
    for at, signature in enumerate(signatures):
        for other in index.query(signature):
            score = jaccard(sets[other], sets[at])
            if score >= threshold:
                found.append(Pair(int(other), at, score))
        index.insert(at, signature)
    return sorted(found)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared shingles over all shingles of two texts."""
    return len(one & other) / len(one | other)


def near_pairs(vectors: Matrix, *, threshold: float) -> list[Pair]:
    """Find pairs of rows with a cosine of at least `threshold`.

    Args:
        vectors: (n, d) float32 unit rows.
        threshold: At most 1.

    Returns:
        Pairs by first, then second index. O(n^2 d) time, O(n) memory.
    """
    return [
        Pair(one, other, score)
        for one, other, score in near_between(vectors, vectors, threshold=threshold)
        if one < other
    ]


def near_between(rows: Matrix, others: Matrix, *, threshold: float) -> Iterator[Pair]:
    """Find pairs of a row and another row with a cosine of at least `threshold`.

    Args:
        rows: (n, d) float32 unit rows.
        others: (m, d) float32 unit rows.
        threshold: At most 1.

    Yields:
        Pairs by index in `rows`, then in `others`. O(n m d) time, O(m) memory.
    """
    if not len(rows) or not len(others):
        return
    for start in range(0, len(rows), TILE_ROWS):
        cosines = rows[start : start + TILE_ROWS] @ others.T
        for at, other in np.argwhere(cosines >= np.float32(threshold)).tolist():
            yield Pair(start + at, other, round(min(float(cosines[at, other]), 1.0), 6))


def same_groups(keys: Sequence[str]) -> list[list[int]]:
    """Indices that share a key, of two or more, in the order of their first."""
    order = sorted(range(len(keys)), key=lambda at: (keys[at], at))
    groups = [list(group) for _, group in itertools.groupby(order, key=keys.__getitem__)]
    return sorted(group for group in groups if len(group) > 1)
