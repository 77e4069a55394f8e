"""Rows that share an id (one keeps it), and queries that share a text with the corpus."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from inference.status import Status
from jobs.errors import DataError
from jobs.readers.batches import excerpt
from jobs.readers.row_tables import rejected_table

OnDuplicateId = Literal["rename", "reject", "error"]
NEEDED = ["id", "label", "source_file", "source_line", "row_hash", "text_hash", "flags"]


class Resolved(NamedTuple):
    """The rows of a partition with distinct ids.

    Attributes:
        rows: As they came, but for ids and flags.
        rejected: REJECTED_SCHEMA; rows taken out by `reject`.
        counts: `duplicate_id` (rows whose id was taken) and of these: `duplicate_row` (equal in
            every field), `duplicate_id_other_text`, `duplicate_id_other_label`;
            `repeated_without_id`: rows without an id that are equal to an earlier one.
    """

    rows: pa.Table
    rejected: pa.Table
    counts: Counter[str]


@dataclass(slots=True)
class _Found:
    """What was found while walking over a partition."""

    ids: list[str]
    flags: list[list[str]]
    taken: set[str]
    dropped: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)

    def numbered(self, stem: str) -> str:
        """Give the first free one of `<stem>-2`, `<stem>-3`, ...; no other stem can give it."""
        number = self.last.get(stem, 1) + 1
        while f"{stem}-{number}" in self.taken:
            number += 1
        self.last[stem] = number
        return f"{stem}-{number}"


def resolve_duplicates(rows: pa.Table, *, on_duplicate_id: OnDuplicateId) -> Resolved:
    """Give every row of one partition an id of its own; the first with an id keeps it.

    A later one becomes `<id>~<hash8>` by its content, and `<id>~<hash8>-2`, ... where that is
    taken too. Rows without an id of their own become `<id>-2`, ..., whatever `on_duplicate_id`
    says.

    Args:
        rows: The rows of one partition by id, in the order of (file, line).
        on_duplicate_id: `rename`; `reject`: take later rows out; `error`: refuse.

    Raises:
        DataError: With `error`, an id occurs twice; names it and both places.
    """
    n_distinct = pc.count_distinct(rows.column("id")).as_py()
    if n_distinct == rows.num_rows:
        return Resolved(rows, rejected_table([]), Counter())
    cells = {name: rows.column(name).to_pylist() for name in NEEDED}
    found = _Found(list(cells["id"]), [list(flags) for flags in cells["flags"]], set(cells["id"]))
    first: dict[str, int] = {}
    for at, row_id in enumerate(cells["id"]):
        before = first.setdefault(row_id, at)
        if before != at:
            _resolve(at, before, cells, found, on_duplicate_id)
    return _rebuilt(rows, found)


def _resolve(
    at: int, before: int, cells: dict[str, list[Any]], found: _Found, on_duplicate_id: str
) -> None:
    same_row = cells["row_hash"][at] == cells["row_hash"][before]
    if "made_up_id" in cells["flags"][at] and "made_up_id" in cells["flags"][before]:
        found.ids[at] = found.numbered(cells["id"][at])
        found.counts["repeated_without_id"] += 1
        if same_row:
            found.flags[at].append("duplicate_row")
        return
    if on_duplicate_id == "error":
        raise DataError(_twice(at, before, cells))
    _count(at, before, cells, same_row, found.counts)
    if on_duplicate_id == "reject":
        found.dropped.append(at)
        return
    renamed = f"{cells['id'][at]}~{cells['row_hash'][at][:8]}"
    found.ids[at] = found.numbered(renamed) if renamed in found.taken else renamed
    found.taken.add(renamed)
    found.flags[at] += ["duplicate_id", "duplicate_row"] if same_row else ["duplicate_id"]


def _count(
    at: int, before: int, cells: dict[str, list[Any]], same_row: bool, counts: Counter[str]
) -> None:
    counts["duplicate_id"] += 1
    if same_row:
        counts["duplicate_row"] += 1
    elif cells["text_hash"][at] != cells["text_hash"][before]:
        counts["duplicate_id_other_text"] += 1
    elif cells["label"][at] != cells["label"][before]:
        counts["duplicate_id_other_label"] += 1


def _twice(at: int, before: int, cells: dict[str, list[Any]]) -> str:
    places = [f"{cells['source_file'][i]}:{cells['source_line'][i]}" for i in (before, at)]
    return (
        f"id {cells['id'][at]!r} occurs twice: {places[0]} and {places[1]}. Make ids distinct, or "
        "set on_duplicate_id of the table to rename or reject."
    )


def _rebuilt(rows: pa.Table, found: _Found) -> Resolved:
    entries = []
    if found.dropped:
        for row in rows.take(found.dropped).to_pylist():
            detail = f"id {row['id']!r} was taken by an earlier row"
            shown = excerpt(row["input"] or "")
            place = (row["source_file"], row["source_line"], row["id"])
            entries.append((*place, "duplicate_id", detail, shown, Status.REJECTED.value))
    for name, values in (("id", found.ids), ("flags", found.flags)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(name), pa.array(values, rows.schema.types[at]))
    if found.dropped:
        gone = set(found.dropped)
        rows = rows.take([at for at in range(rows.num_rows) if at not in gone])
    return Resolved(rows, rejected_table(entries), found.counts)


def overlap(corpus: pa.Array | pa.ChunkedArray, queries: pa.Array | pa.ChunkedArray) -> int:
    """Count the queries whose text is in the corpus, by `text_hash`; null is no text."""
    known = pc.drop_null(pc.unique(corpus))
    return pc.sum(pc.is_in(queries, value_set=known)).as_py() or 0
