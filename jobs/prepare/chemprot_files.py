"""The tables of ChemProt: abstracts, entities and relations of three splits, without headers."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jobs.errors import DataError
from jobs.prepare.distribution import Member, decoded, read_members

WANTED = (
    "the folder (or a zip of it) with *training*abstracts.tsv, *entities.tsv, *relations.tsv, "
    "and the same of *development* and *test*"
)
SPLITS = {"training": "train", "development": "dev", "test": "test"}
COLUMNS = {
    "abstracts": ("document", "title", "abstract"),
    "entities": ("document", "entity", "type", "start", "end", "text"),
    "relations": ("document", "group", "evaluated", "relation", "first", "second"),
}


class Line(NamedTuple):
    """A line of a table.

    Attributes:
        where: File and line, for messages.
        number: Of the line, from 1.
        file: Path inside the distribution.
        cells: One for each of COLUMNS.
    """

    where: str
    number: int
    file: str
    cells: tuple[str, ...]


def read_tables(source: Path, kinds: tuple[str, ...]) -> dict[tuple[str, str], list[Line]]:
    """Read the tables of all splits.

    Args:
        source: Folder or zip.
        kinds: Which of COLUMNS.

    Returns:
        (split, kind) -> lines. The sample files, whose abstracts are in the splits too, are
        passed over.

    Raises:
        DataError: A table is missing or there twice, a line has other columns, or no UTF-8.
    """
    members = read_members(source, suffix=".tsv", wanted=WANTED)
    found = {}
    for token, split in SPLITS.items():
        for kind in kinds:
            member = _only(source, members, token, kind)
            found[split, kind] = list(_lines(member, COLUMNS[kind]))
    return found


def _only(source: Path, members: list[Member], split: str, kind: str) -> Member:
    names = [
        one
        for one in members
        if split in one.inner.split("/")[-1] and kind in one.inner.split("/")[-1]
    ]
    if len(names) != 1:
        there = ", ".join(one.inner for one in names) or "none"
        raise DataError(
            f"{source}: wanted one file *{split}*{kind}*.tsv, found {len(names)} ({there}). "
            f"Give {WANTED}."
        )
    return names[0]


def _lines(member: Member, columns: tuple[str, ...]) -> Iterator[Line]:
    text = decoded(member.name, member.raw)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        cells = tuple(line.split("\t"))
        where = f"{member.name}, line {number:,}"
        if len(cells) != len(columns):
            raise DataError(
                f"{where}: {len(cells)} columns, wanted {len(columns)} ({', '.join(columns)}, "
                "parted by tabs). Was the file cut short or edited? Fetch it again."
            )
        yield Line(where, number, member.inner, cells)
