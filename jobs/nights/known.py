"""What a night's choice is made in the light of: all that went out, and where it stands."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.annotation.corpus_rows import vectors_by_id
from jobs.annotation.states import retired_ids
from jobs.nights.batches import Batch, sent_vectors
from jobs.nights.candidate_rows import candidate_rows
from jobs.nights.standing import Standing, standing
from jobs.run import Run
from jobs.selecting.setting import dimension_of
from jobs.vectors import Matrix


@dataclass(frozen=True)
class Known:
    """What tonight's choice is made in the light of.

    Attributes:
        night: Number of the batch that comes next.
        batches: All earlier ones.
        rows: All that went out, with labels as known by now.
        standing: Where they stand.
        given: Ids of what the choice builds upon, of those that have a vector.
        vectors: (a, d) float32 of these.
    """

    night: int
    batches: Sequence[Batch]
    rows: pa.Table
    standing: Standing
    given: tuple[str, ...]
    vectors: Matrix

    @property
    def texts(self) -> frozenset[str]:
        """Hashes of texts that need not be sent again."""
        barred = pa.array(self.standing.barred, pa.string())
        return frozenset(
            self.rows.filter(pc.is_in(self.rows["id"], value_set=barred))["text_hash"].to_pylist()
        )


def known_on(run: Run, encoder: str, batches: Sequence[Batch]) -> Known:
    """Look up what is known on the night after these batches."""
    night = len(batches) + 1
    rows = candidate_rows(run, batches)
    stand = standing(rows, night=night, retired=retired_ids(run.ledger))
    given, vectors = vectors_of(run, encoder, batches, stand.given)
    return Known(night, batches, rows, stand, tuple(given), vectors)


def vectors_of(
    run: Run, encoder: str, batches: Sequence[Batch], ids: Sequence[str]
) -> tuple[list[str], Matrix]:
    """Vectors of rows that went out: as they did, else as the corpus has them with this encoder."""
    found = sent_vectors(run.ledger, batches, run.encoder_ids[encoder])
    missing = [row_id for row_id in ids if row_id not in found]
    if missing:
        found.update(zip(*vectors_by_id(run, encoder, missing), strict=True))
    known = [row_id for row_id in ids if row_id in found]
    if len(known) < len(ids):
        run.progress.warn(
            f"{len(ids) - len(known)} rows that went out have no vector of encoder {encoder} and "
            "are gone from the corpus: they are not built upon, and not shown"
        )
    matrix = np.array([found[row_id] for row_id in known], np.float32)
    # Without any the dimension is still the encoder's: what is measured compares with the corpus.
    return known, matrix.reshape(len(known), -1 if known else dimension_of(run, encoder))
