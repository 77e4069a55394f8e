"""Labels that came back: the tables of all imports, and the label each text has by them."""

from dataclasses import dataclass

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
        label: Canonical label (or labels); None where the answer is `output`.
        output: Canonical entities or query; None where the answer is `label`.
        tags: Given with it; None: none.
        annotator: Who; None: not said.
        imported_at: UTC, ISO 8601.
        source: The import, `import-0001`.
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
        Labels by row id, of the rows with status `ok` only; empty where nothing was imported.
    """
    found: dict[str, Label] = {}
    columns = [*("id", "label", "output", "tags", "annotator", "imported_at")]
    for marker in imports_of(ledger):
        table = ledger.read(marker, [*columns, "input_checksum", "status"])
        for row in table.to_pylist():
            if row.pop("status") == OK:
                tags = None if row["tags"] is None else tuple(row["tags"])
                found[row["id"]] = Label(**row | {"tags": tags, "source": marker.name})
    return found
