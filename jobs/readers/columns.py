"""Which column of a file feeds which field of a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from jobs.errors import ConfigError, DataError

ROW_FIELDS = ("id", "input", "output", "label", "group", "tags", "weight", "cost", "quality")
RESERVED = (*ROW_FIELDS, "source_file", "source_line", "status", "flags", "row_hash", "text_hash")


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Row field -> source column; None: the field has none.

    Attributes:
        input: Column of the text.
        id: Column of the row's identity; None: made up from the content.
        output: Column of the full answer shown in a demonstration.
        label: Column of the class.
        group: Column of what belongs together (a document, a patient).
        tags: Column of a list of strings, or of one string.
        weight: Column of a number, 0 or more.
        cost: Column of a number, 0 or more.
        quality: Column of a number above 0.
        keep: Columns that are carried along as text.
        keep_as: Their names in the row table; as asked for, whatever the file calls them.

    Raises:
        ConfigError: A kept column has the name of a field of the row.
    """

    input: str
    id: str | None = None
    output: str | None = None
    label: str | None = None
    group: str | None = None
    tags: str | None = None
    weight: str | None = None
    cost: str | None = None
    quality: str | None = None
    keep: tuple[str, ...] = ()
    keep_as: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.keep_as:
            object.__setattr__(self, "keep_as", self.keep)
        taken = [name for name in self.keep_as if name.strip() in RESERVED]
        if taken:
            raise ConfigError(
                f"columns.keep: {', '.join(map(repr, taken))} would hide the row's own field of "
                f"that name (the row has {', '.join(RESERVED)}). Rename the column in the file, "
                "or do not keep it."
            )

    def mapped(self) -> dict[str, str]:
        """Give the fields that have a column, in the order of ROW_FIELDS."""
        pairs = ((name, getattr(self, name)) for name in ROW_FIELDS)
        return {name: source for name, source in pairs if source is not None}

    def sources(self) -> tuple[str, ...]:
        """Give every column that is needed, each once."""
        return tuple(dict.fromkeys((*self.mapped().values(), *self.keep)))


def resolve(
    columns: Sequence[str], mapping: ColumnMap, *, name: str
) -> tuple[ColumnMap, list[str]]:
    """Find the columns of a mapping in a file whose records all have the same columns.

    A name is matched exactly; else as the only one equal to it but for white space at its edges.

    Args:
        columns: The columns the file has.
        mapping: The columns asked for.
        name: The file, for messages.

    Returns:
        The mapping in the file's own names, and what a person should know about it.

    Raises:
        DataError: A column is not there; names the file, the column, those that exist and the
            nearest. A missing id column is no error: ids are made up, and a note says so.
    """
    notes: list[str] = []
    found: dict[str, str] = {}
    if mapping.id is not None and not any(one.strip() == mapping.id.strip() for one in columns):
        notes.append(no_id(mapping.id, columns, name))
        mapping = replace(mapping, id=None)
    for wanted in mapping.sources():
        found[wanted] = _find(wanted, columns, name)
        notes += _remarks(wanted, found[wanted], columns, name)
    changed = {field: found[source] for field, source in mapping.mapped().items()}
    keep = tuple(found[source] for source in mapping.keep)
    return ColumnMap(**changed, keep=keep, keep_as=mapping.keep_as), notes


def _find(wanted: str, columns: Sequence[str], name: str) -> str:
    if wanted in columns:
        return wanted
    close = [column for column in columns if column.strip() == wanted.strip()]
    if len(close) == 1:
        return close[0]
    if close:
        raise DataError(
            f"{name}: column {wanted!r} could be {' or '.join(map(repr, close))}, which differ "
            "only by white space at their edges. Ask for one of them exactly."
        )
    raise missing(wanted, columns, name)


def missing(wanted: str, columns: Sequence[str], name: str) -> DataError:
    """Make the error for a column that a file lacks."""
    return DataError(f"{name}: no column {wanted!r}. {describe(wanted, columns)}")


def no_id(wanted: str, columns: Sequence[str], name: str) -> str:
    """Say that ids are made up."""
    return (
        f"{name}: no column {wanted!r}: ids are made up from content. {describe(wanted, columns)}"
    )


def describe(wanted: str, columns: Sequence[str]) -> str:
    """Say which columns there are, and which of them is nearest to the one wanted."""
    listed = ", ".join(repr(column) for column in columns[:30]) or "none"
    more = f" and {len(columns) - 30} more" if len(columns) > 30 else ""
    plain = {column.strip().casefold(): column for column in columns}
    near = get_close_matches(wanted.strip().casefold(), plain, n=1, cutoff=0.6)
    hint = f" Did you mean {plain[near[0]]!r}?" if near else ""
    return f"It has: {listed}{more}.{hint} Names are matched with their case."


def _remarks(wanted: str, found: str, columns: Sequence[str], name: str) -> list[str]:
    notes = []
    if found != wanted:
        notes.append(f"{name}: column {wanted!r} was found as {found!r}")
    twins = [
        column
        for column in columns
        if column != found and column.strip().casefold() == wanted.strip().casefold()
    ]
    if twins:
        notes.append(
            f"{name}: column {found!r} is used; {', '.join(map(repr, twins))} differs from it "
            "only by case or white space"
        )
    return notes
