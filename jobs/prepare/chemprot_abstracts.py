"""Abstracts of ChemProt with their entities, each held against the letters at its place."""

from dataclasses import dataclass, field
from typing import Any

from jobs.errors import DataError
from jobs.prepare.chemprot_files import Line
from jobs.prepare.marks import Span
from jobs.prepare.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity.

    Attributes:
        type: CHEMICAL, GENE-Y or GENE-N.
        span: Where it stands in the text, [start, end).
        text: The letters there.
    """

    type: str
    span: Span
    text: str


@dataclass(slots=True)
class Abstract:
    """An abstract.

    Attributes:
        document: Its PubMed id.
        text: Title, a space, abstract.
        body: Where the abstract begins.
        split: `train`, `dev` or `test`.
        file: It came from.
        entities: By their names in the corpus.
        faults: Reason and detail of every entity that cannot be used.
    """

    document: str
    text: str
    body: int
    split: str
    file: str
    entities: dict[str, Entity] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, kind: str, span: Span, text: str) -> None:
        """Take an entity in, or note what is wrong with it."""
        start, end = span
        what = f"{name} {text!r} at {start}-{end}"
        if name in self.entities:
            self.faults.append(("duplicate_entity", f"{what}: there is a {name} before it"))
        elif not 0 <= start < end <= len(self.text):
            detail = f"{what}, in a text of {len(self.text)} characters"
            self.faults.append(("offset_out_of_range", detail))
        elif self.text[start:end] != text:
            self.faults.append(("offset_mismatch", f"{what} is {self.text[start:end]!r} there"))
        else:
            self.entities[name] = Entity(kind, span, text)


def abstracts_of(
    tables: dict[tuple[str, str], list[Line]], split: str, made: Prepared
) -> dict[str, Abstract]:
    """The abstracts of a split by PubMed id; entities of no abstract are rejected.

    Raises:
        DataError: An offset that is no number.
    """
    found: dict[str, Abstract] = {}
    for line in tables[split, "abstracts"]:
        document, title, body = line.cells
        if document in found:
            detail = "an earlier abstract has this id"
            made.reject(document, "duplicate_id", detail, **_where(line, title))
            continue
        found[document] = Abstract(document, f"{title} {body}", len(title) + 1, split, line.file)
    for line in tables[split, "entities"]:
        document, name, kind, start, end, text = line.cells
        span = (_offset(line, start), _offset(line, end))
        if document in found:
            found[document].add(name, kind, span, text)
        else:
            detail = f"entity {name} of an abstract that is not there"
            made.reject(document, "no_such_document", detail, **_where(line, text))
    return found


def _where(line: Line, text: str) -> dict[str, Any]:
    return {"source": line.file, "line": line.number, "text": text}


def _offset(line: Line, cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise DataError(
            f"{line.where}: offset {cell!r} is no whole number; wanted columns document, entity, "
            "type, start, end, text."
        ) from None
