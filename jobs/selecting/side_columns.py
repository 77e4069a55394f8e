"""Side columns of the rows that Stage 1 may be asked to heed: weight, cost, quality, group."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import DataError
from jobs.ledger import Ledger, Marker
from jobs.selecting.id_files import shown

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sides:
    """Side columns of n rows, None where they are not asked for.

    Attributes:
        weight: (n,) float64, 0 or more; 1 where the row has none.
        cost: (n,) float64 above 0; infinite where the row has no usable one, so that no budget
            buys it.
        quality: (n,) float64, 2 log r; 0 where the row has none.
        group: n texts; null where the row has none, and so is a group of its own.
        no_cost: Rows without a usable cost.
    """

    weight: Floats | None = None
    cost: Floats | None = None
    quality: Floats | None = None
    group: pa.StringArray | None = None
    no_cost: int = 0

    @property
    def pickable(self) -> Bools | None:
        """(n,) False for rows without a cost, which stay ground points; None: all may be."""
        return None if self.cost is None else np.isfinite(self.cost)


def read_sides(
    ledger: Ledger, parts: Sequence[Marker], ids: pa.StringArray, names: Sequence[str]
) -> Sides:
    """Read side columns of a partition's rows.

    Args:
        ledger: Of the output tree.
        parts: Row parts of the partition.
        ids: n ids in the order that is wanted.
        names: Of `weight`, `cost`, `quality`, `group`: those that are.

    Returns:
        The columns in the order of the ids.

    Raises:
        DataError: An id without a row, or a weight or quality that cannot be.
    """
    if not names:
        return Sides()
    schema = pa.schema([("id", pa.string()), *((name, _KINDS[name]) for name in names)])
    tables = [ledger.read(part, schema.names).cast(schema) for part in parts]
    rows = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
    place = pc.index_in(ids, value_set=rows["id"].combine_chunks())
    if place.null_count:
        lost = ids.filter(place.is_null()).to_pylist()
        where = ", ".join(part.table for part in parts) or "no part"
        raise DataError(f"{ledger.store.place}: {where}: vectors without a row: {shown(lost)}.")
    rows = rows.take(place)
    found: dict[str, Any] = {name: _SIDES[name](rows[name], ids) for name in names}
    if "cost" in found:
        found["no_cost"] = int((~np.isfinite(found["cost"])).sum())
    return Sides(**found)


def _weight(column: pa.ChunkedArray, ids: pa.StringArray) -> Floats:
    values = _numbers(column, missing=1.0)
    _require(values >= 0, values, ids, "weight", "a number of 0 or more")
    return values


def _cost(column: pa.ChunkedArray, ids: pa.StringArray) -> Floats:
    values = _numbers(column, missing=np.inf)
    return np.where(np.isfinite(values) & (values > 0), values, np.inf)


def _quality(column: pa.ChunkedArray, ids: pa.StringArray) -> Floats:
    values = _numbers(column, missing=1.0)
    _require(values > 0, values, ids, "quality", "a number above 0")
    return 2.0 * np.log(values)


def _group(column: pa.ChunkedArray, ids: pa.StringArray) -> pa.StringArray:
    return column.combine_chunks()


def _numbers(column: pa.ChunkedArray, *, missing: float) -> Floats:
    return column.fill_null(missing).to_numpy().astype(np.float64)


def _require(good: Bools, values: Floats, ids: pa.StringArray, name: str, wanted: str) -> None:
    bad = np.flatnonzero(~(good & np.isfinite(values)))
    if bad.size:
        raise DataError(
            f"{name}: {bad.size} rows have none that can be used, the first is "
            f"{ids[int(bad[0])].as_py()!r} with {values[bad[0]]:g}; wanted {wanted}."
        )


_KINDS = {name: pa.float64() for name in ("weight", "cost", "quality")} | {"group": pa.string()}
_SIDES: dict[str, Callable[[pa.ChunkedArray, pa.StringArray], Any]] = {
    "weight": _weight,
    "cost": _cost,
    "quality": _quality,
    "group": _group,
}


def group_codes(groups: pa.StringArray | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A number for each group, -1 for a row without one; (n,) int64.

    It is a hash of the text, so that partitions agree on it without asking each other.
    """
    flat = groups.combine_chunks() if isinstance(groups, pa.ChunkedArray) else groups
    coded = flat.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    hashes = np.frombuffer(b"".join(digests), "<u8") >> np.uint64(1)
    # The last one is for rows without a group.
    codes = np.append(hashes.astype(np.int64), -1)
    return codes[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
