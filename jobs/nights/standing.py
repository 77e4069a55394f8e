"""Where every row that ever went out stands on a night, and what of a choice is worth sending."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.config.annotate import AnnotateConfig
from jobs.vectors import Matrix

# Cosines of float32 vectors are off by some 1e-7.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Standing:
    """Rows that went out, by what became of them; each is in one of these.

    Attributes:
        annotated: Labelled, and not taken out of the pool: staged or active.
        pending: Without a label, and still waited for.
        expired: Without a label, and not waited for any more: as if never proposed.
        retired: Taken out of the pool: not built upon, and never proposed again.
        just_expired: How many were pending until the night before.
    """

    annotated: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    just_expired: int = 0

    @property
    def given(self) -> tuple[str, ...]:
        """What tonight's choice builds upon."""
        return (*self.annotated, *self.pending)

    @property
    def barred(self) -> tuple[str, ...]:
        """What tonight's choice must not hold."""
        return (*self.given, *self.retired)


def standing(rows: pa.Table, *, night: int, retired: Collection[str]) -> Standing:
    """Where rows stand on a night.

    Args:
        rows: All that went out, with `id`, `expires`, and `label` and `output` as known by now.
        night: Its number.
        retired: Ids of records taken out of the pool.

    Returns:
        Ids in the order of the rows.
    """
    found: dict[str, list[str]] = {"annotated": [], "pending": [], "expired": [], "retired": []}
    gone, just_expired = frozenset(retired), 0
    for row in rows.select(["id", "expires", "label", "output"]).to_pylist():
        if row["id"] in gone:
            found["retired"].append(row["id"])
        elif row["label"] is not None or row["output"] is not None:
            found["annotated"].append(row["id"])
        elif night < row["expires"]:
            found["pending"].append(row["id"])
        else:
            found["expired"].append(row["id"])
            just_expired += row["expires"] == night
    return Standing(**{name: tuple(ids) for name, ids in found.items()}, just_expired=just_expired)


def room_for(config: AnnotateConfig, n_pending: int) -> int | None:
    """How many more candidates may go out tonight; None: any number."""
    return None if config.max_pending is None else max(0, config.max_pending - n_pending)


def nearest(vectors: Matrix, known: Matrix) -> npt.NDArray[np.float64]:
    """The largest cosine of each vector to the known ones; O(k a d) time, O(k a) memory.

    Args:
        vectors: (k, d) unit rows.
        known: (a, d) unit rows.

    Returns:
        (k,) float64, -inf where nothing is known.
    """
    if not len(known) or not len(vectors):
        return np.full(len(vectors), -np.inf)
    cosines: npt.NDArray[np.float64] = (vectors @ known.T).max(axis=1).astype(np.float64)
    return cosines


def worth_sending(
    texts: list[str],
    vectors: Matrix,
    *,
    known_texts: Collection[str],
    known: Matrix,
    max_cosine: float | None,
) -> npt.NDArray[np.bool_]:
    """Which picks are no copy of a known row or of an earlier pick.

    Args:
        texts: k hashes of their texts, in the order of picking.
        vectors: (k, d) unit rows.
        known_texts: Hashes of annotated, pending and retired texts.
        known: (a, d) vectors of annotated and pending rows.
        max_cosine: As near as this is a copy; None: only the same text is.

    Returns:
        (k,) False for copies.
    """
    seen, sent = set(known_texts), np.zeros(len(texts), np.bool_)
    far = nearest(vectors, known)
    for i, text in enumerate(texts):
        near = False
        if max_cosine is not None:
            among = nearest(vectors[i : i + 1], vectors[:i][sent[:i]])
            near = max(far[i], among[0]) >= max_cosine - ROUNDING
        sent[i] = text not in seen and not near
        seen.add(text)
    return sent
