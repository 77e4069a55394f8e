"""Labels that came back: the tables of all imports, and the label each text has by them."""

from dataclasses import dataclass, replace

import pyarrow as pa

from jobs.annotation.log import entries
from jobs.ledger import Ledger, Marker
from jobs.readers.hashes import content_hash

FOLDER, STEM = "labels", "import"
#: The row's label counts. Every other status says why it does not.
OK = "ok"
IMPORT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("label", pa.string()),
        ("output", pa.large_string()),
        ("tags", pa.list_(pa.string())),
        ("annotator", pa.string()),
        ("imported_at", pa.string()),
        ("source_file", pa.string()),
        ("source_checksum", pa.string()),
        ("source_line", pa.int64()),
        ("input_checksum", pa.string()),
        ("written", pa.large_string()),
        ("conflicts_with", pa.string()),
        ("status", pa.string()),
        ("reason", pa.large_string()),
    ]
)


@dataclass(frozen=True)
class Label:
    """What an annotator said of a row.

    Attributes:
        id: Of the row.
        label: Canonical label (or labels); None where none was given.
        output: Canonical entities or query; None where none was given.
        tags: Given with it; None: none.
        annotator: Who; None: not said.
        imported_at: UTC, ISO 8601.
        source: The (last) import, `import-0001`.
        input_checksum: Of the text that the label is about, as `input_checksum` gives it.
    """

    id: str
    label: str | None
    output: str | None
    tags: tuple[str, ...] | None
    annotator: str | None
    imported_at: str
    source: str
    input_checksum: str


def input_checksum(text: str | None) -> str:
    """Checksum of a text to the character; begins with a letter, or spreadsheets round it."""
    return f"t{content_hash([text])}"


def imports_of(ledger: Ledger) -> list[Marker]:
    """The imports of an output, in order."""
    return entries(ledger, FOLDER, STEM)


def labels_of(ledger: Ledger) -> dict[str, Label]:
    """The label of each row by all imports so far, a later one over an earlier one.

    Args:
        ledger: Of the output.

    Returns:
        Labels by row id, of the rows with status `ok` only; empty where nothing was imported. A
        label and an output of the same text, which answer two tasks, stand beside each other.
    """
    found: dict[str, Label] = {}
    columns = [*("id", "label", "output", "tags", "annotator", "imported_at")]
    for marker in imports_of(ledger):
        table = ledger.read(marker, [*columns, "input_checksum", "status"])
        for row in table.to_pylist():
            if row.pop("status") == OK:
                tags = None if row["tags"] is None else tuple(row["tags"])
                label = Label(**row | {"tags": tags, "source": marker.name})
                found[label.id] = _beside(found.get(label.id), label)
    return found


def _beside(before: Label | None, label: Label) -> Label:
    """The label with the answer of the other kind that an earlier import gave to the same text."""
    if before is None or before.input_checksum != label.input_checksum:
        return label
    if label.label is None:
        return replace(label, label=before.label)
    return replace(label, output=before.output)
