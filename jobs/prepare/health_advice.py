"""HealthAdvice (Li, Wang and Yu, EMNLP 2021): how strong is the advice in a sentence of a study?

The source is medical_meadow_health_advice.json, as Medalpaca publishes it (github.com/kbressem/
medAlpaca): 8,676 sentences, without a test split and without ids. Ids are places in the file, and
the split is ours: stratified, seeded, and repeated sentences stay on one side.
"""

from collections import Counter, defaultdict
from typing import Any

from jobs.prepare.distribution import existing, read_file, records
from jobs.prepare.prepared import Prepared, write
from jobs.prepare.splits import split_off
from jobs.readers.hashes import normalised, text_hash

WANTED = "medical_meadow_health_advice.json of Medalpaca"
LABELS = {
    "this is no advice": "no advice",
    "this is a weak advice": "weak advice",
    "this is a strong advice": "strong advice",
}


def prepare(
    out: str,
    *,
    source: str | None = None,
    test_share: float = 0.2,
    dev_share: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write the sentences, split into corpus, queries and, if asked for, dev.

    White space around a sentence is dropped and counted. A sentence that is there twice is kept
    twice; `group` is the sentence without case and white space.

    Args:
        out: Folder to write to.
        source: The JSON file.
        test_share: Part of the rows that becomes queries.parquet.
        dev_share: Part of what is left that becomes dev.parquet.
        seed: Of the splits.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        ConfigError: No such source, a share that is no part, or a folder that cannot be written.
        DataError: Not UTF-8, no JSON array, or no usable record in it.
        ClusterError: No room on the disk.
    """
    path = existing(source, wanted=WANTED)
    made = Prepared()
    for number, record in enumerate(records(str(path), read_file(path)), 1):
        _add(made, f"health-advice-{number:05}", record, path.name)
    _note_repeats(made)
    split_off(made.rows, by="group", into="test", share=test_share, seed=seed)
    if dev_share is not None:
        split_off(made.rows, by="group", into="dev", share=dev_share, seed=seed)
    about = {"source": path.name, "test_share": test_share, "dev_share": dev_share, "seed": seed}
    return write(out, made, about)


def _add(made: Prepared, row_id: str, record: Any, source: str) -> None:
    cells = [record.get(key) for key in ("input", "output")] if isinstance(record, dict) else []
    text, answer = cells or (None, None)
    if not isinstance(text, str) or not isinstance(answer, str):
        detail = "wanted an object with the texts `input` and `output`"
        made.reject(row_id, "not_a_record", detail, source=source, text=str(record))
        return
    label = LABELS.get(normalised(answer))
    if not text.strip():
        made.reject(row_id, "empty", "the sentence is blank", source=source)
    elif label is None:
        detail = f"output {answer!r}; wanted one of {', '.join(LABELS)}"
        made.reject(row_id, "unknown_label", detail, source=source, text=text)
    else:
        row = {"id": row_id, "input": text.strip(), "output": answer.strip(), "label": label}
        row |= {"group": text_hash(text), "split": "train", "source": source}
        if made.add(row):
            made.notes["rows with white space around them"] += text != text.strip()


def _note_repeats(made: Prepared) -> None:
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    for row in made.rows:
        labels[row["group"]][row["label"]] += 1
    made.notes["repeated rows"] = sum(found.total() - 1 for found in labels.values())
    made.notes["sentences with two labels"] = sum(len(found) > 1 for found in labels.values())
