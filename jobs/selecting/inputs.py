"""The ids that a Stage 1 setting names (required, forbidden, given), and the limits they make."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.config.stage1 import Stage1Config
from jobs.errors import ConfigError, DataError
from jobs.files.inputs import open_input
from jobs.selecting.id_files import IdList, digest_of, existing, read_ids, require_distinct, shown
from jobs.selecting.mapped import Mapped
from jobs.selecting.side_columns import Bools, Sides, group_codes
from jobs.storage import reading
from jobs.vectors import ENCODER_KEY, Matrix, to_matrix
from selection.arrays import MAX_SQUARED_NORM
from selection.request import BUDGET_SLACK, Limits


@dataclass(frozen=True)
class Given:
    """What is annotated already: f(S | these) is maximised, and none of them is picked.

    Attributes:
        ids: All of them.
        of_corpus: Those that came without a vector and must be rows of the corpus.
        vectors: (a, d) float32 of the others; None: there are none.
    """

    ids: tuple[str, ...]
    of_corpus: tuple[str, ...] = ()
    vectors: Matrix | None = None

    @property
    def digest(self) -> str:
        """Fingerprint of ids and vectors, whatever files they came from."""
        vectors = b"" if self.vectors is None else np.ascontiguousarray(self.vectors).data
        content = hashlib.blake2b(vectors, digest_size=8).hexdigest()
        return digest_of([*self.ids, "\n", *self.of_corpus, "\n", content])


@dataclass(frozen=True)
class Wishes:
    """The ids that a Stage 1 setting names."""

    required: IdList | None = None
    forbidden: IdList | None = None
    given: Given | None = None

    def digests(self) -> dict[str, str | None]:
        """Fingerprints of the contents: a file may move, and what it says may change."""
        found = {"required": self.required, "forbidden": self.forbidden, "given": self.given}
        return {name: None if one is None else one.digest for name, one in found.items()}

    @property
    def barred(self) -> pa.StringArray:
        """Ids that must not be picked: forbidden or annotated already."""
        ids = self.forbidden.ids if self.forbidden else ()
        both = dict.fromkeys([*ids, *(self.given.ids if self.given else ())])
        return pa.array(list(both), pa.string())


def read_wishes(config: Stage1Config, *, encoder_id: str) -> Wishes:
    """Read the files that a Stage 1 setting names.

    Args:
        config: The setting.
        encoder_id: The encoder of this run; given vectors must come from it.

    Returns:
        The ids.

    Raises:
        ConfigError: No such file, more required than k1, or an id that is wanted both ways.
        DataError: A file that cannot be used.
    """
    lists = {
        name: read_ids(source, key=f"stage1.{name}")
        for name in ("required", "forbidden")
        if (source := getattr(config, name)) is not None
    }
    given = None if config.given is None else read_given(config.given, encoder_id=encoder_id)
    wishes = Wishes(lists.get("required"), lists.get("forbidden"), given)
    _require_possible(config, wishes)
    return wishes


def _require_possible(config: Stage1Config, wishes: Wishes) -> None:
    required = wishes.required
    if required is None:
        return
    if config.k1 is not None and len(required.ids) > config.k1:
        raise ConfigError(
            f"stage1.required names {len(required.ids)} ids, more than stage1.k1 = {config.k1}. "
            "Raise k1 or require fewer."
        )
    barred = set(wishes.barred.to_pylist())
    both = [row_id for row_id in required.ids if row_id in barred]
    if both:
        raise ConfigError(
            f"stage1.required names ids that stage1.forbidden or stage1.given names too: "
            f"{shown(both)}."
        )


def read_given(source: str | list[str], *, encoder_id: str) -> Given:
    """Read files of what is annotated already.

    A Parquet file with a column `vector` brings its own vectors, and names their encoder in its
    schema's metadata (`dualdiv.encoder_id`, as candidates.parquet does); any other file lists ids
    of the corpus.

    Raises:
        ConfigError: No such file.
        DataError: A file that cannot be used, an id twice, or vectors of another encoder.
    """
    pieces = _Pieces()
    for name in [source] if isinstance(source, str) else source:
        path = existing(name, key="stage1.given")
        ids = read_ids(name, key="stage1.given").ids
        vectors = _given_vectors(path, encoder_id) if path.endswith((".parquet", ".pq")) else None
        pieces.take(ids, vectors)
    ids = require_distinct(pieces.ids, where="stage1.given")
    return Given(ids, tuple(pieces.of_corpus), pieces.matrix())


@dataclass
class _Pieces:
    ids: list[str] = field(default_factory=list)
    of_corpus: list[str] = field(default_factory=list)
    vectors: list[Matrix] = field(default_factory=list)

    def take(self, ids: tuple[str, ...], vectors: Matrix | None) -> None:
        self.ids += ids
        if vectors is None:
            self.of_corpus += ids
        else:
            self.vectors.append(vectors)

    def matrix(self) -> Matrix | None:
        return np.concatenate(self.vectors) if self.vectors else None


def _given_vectors(path: str, encoder_id: str) -> Matrix | None:
    with reading(path), open_input(path) as source, pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        if "vector" not in schema.names:
            return None
        if not pa.types.is_fixed_size_list(schema.field("vector").type):
            kind = schema.field("vector").type
            raise DataError(f"{path}: column vector is {kind}, wanted fixed-size lists of floats.")
        _require_encoder(path, (schema.metadata or {}).get(ENCODER_KEY), encoder_id)
        vectors = to_matrix(file.read(columns=["vector"])["vector"])
    squared = np.einsum("ij,ij->i", vectors, vectors)
    bad = np.flatnonzero(~((squared > 0) & (squared <= MAX_SQUARED_NORM)))
    if bad.size:
        raise DataError(
            f"{path}: {bad.size} vectors are no unit vectors, the first in row {bad[0] + 1} with "
            f"norm {float(squared[bad[0]]) ** 0.5:g}."
        )
    return vectors


def _require_encoder(path: str, named: bytes | None, wanted: str) -> None:
    if named is None:
        raise DataError(
            f"{path}: its vectors do not say which encoder they come from (metadata "
            f"{ENCODER_KEY.decode()} of the schema); this run's is {wanted}. Give ids alone, or a "
            "candidates.parquet of such a run."
        )
    if named.decode() != wanted:
        raise DataError(
            f"{path}: its vectors come from encoder {named.decode()}, this run's from {wanted}; "
            "they cannot be compared. Embed them anew with this one, or give ids alone."
        )


def require_found(ids: Sequence[str], found: Bools, *, key: str) -> None:
    """Refuse ids that no row of the corpus with a vector has.

    Args:
        ids: n ids.
        found: (n,) True where there is one.
        key: Where the config names them.

    Raises:
        DataError: Names the first of those that are missing, and their number.
    """
    lost = [row_id for row_id, there in zip(ids, found, strict=True) if not there]
    if lost:
        raise DataError(
            f"{key}: {len(lost)} of {len(ids)} ids are no rows of the corpus, or rows without a "
            f"vector: {shown(lost)}. Ids are compared as text, with their white space."
        )


def limits_of(config: Stage1Config, wishes: Wishes, rows: Mapped, sides: Sides) -> Limits:
    """The limits of a choice among the rows of one partition.

    Args:
        config: The setting.
        wishes: The ids it names; those of other partitions do not matter here.
        rows: The n rows.
        sides: Their side columns.

    Returns:
        Indices and arrays over the n rows.

    Raises:
        DataError: A required row that no budget can buy.
    """
    barred = rows.find(wishes.barred)
    required = rows.find(pa.array(wishes.required.ids if wishes.required else (), pa.string()))
    required = required[required >= 0]
    allowed = np.ones(len(rows), np.bool_) if sides.pickable is None else sides.pickable
    without = required[~allowed[required]]
    if len(without):
        lost = rows.ids.take(pa.array(without)).to_pylist()
        raise DataError(
            f"stage1.required: {shown(lost)} have no cost above 0, so no budget buys them."
        )
    allowed[barred[barred >= 0]] = False
    return Limits(
        allowed=allowed,
        groups=None if sides.group is None else group_codes(sides.group),
        max_per_group=config.max_per_group,
        costs=sides.cost,
        budget=config.budget,
        required=required,
        stop_at_negative=config.stop_at_negative,
    )


def require_within(config: Stage1Config, sides: Sides, *, key: str = "stage1.required") -> None:
    """Refuse required rows that break a limit by themselves.

    Args:
        config: The setting.
        sides: Side columns of all required rows, of every partition.
        key: Where the config names them.

    Raises:
        DataError: They cost more than the budget, or too many are of one group.
    """
    if config.budget is not None and sides.cost is not None:
        total = float(sides.cost.sum())
        # Those without a cost are refused by name where they live.
        if np.isfinite(total) and total > config.budget * BUDGET_SLACK:
            raise DataError(
                f"{key}: they cost {total:g}, more than stage1.budget = {config.budget:g}. Raise "
                "the budget or require fewer."
            )
    if config.max_per_group is not None and sides.group is not None:
        counted = sides.group.drop_null().value_counts().to_pylist()
        full = [one for one in counted if one["counts"] > config.max_per_group]
        if full:
            raise DataError(
                f"{key}: {full[0]['counts']} are of group {full[0]['values']!r}, more than "
                f"stage1.max_per_group = {config.max_per_group}."
            )
