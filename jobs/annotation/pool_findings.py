"""What a check of the pool finds: duplicates, leaks, contradictions, records that do harm."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from jobs.annotation.corpus_rows import vector_batches, vectors_by_id
from jobs.annotation.near_duplicates import (
    Shingles,
    near_between,
    near_pairs,
    same_groups,
    similar_pairs,
)
from jobs.ledger import Marker
from jobs.nights.batches import batches_of
from jobs.nights.known import vectors_of
from jobs.readers.hashes import normalised
from jobs.run import Run
from jobs.vectors import Matrix

FINDING_SCHEMA = pa.schema(
    [
        ("check", pa.string()),
        ("id", pa.string()),
        ("other", pa.string()),
        ("score", pa.float64()),
        ("by", pa.string()),
        ("detail", pa.large_string()),
    ]
)
SAME_TEXT, SIMILAR, NEAR = "same_text", "near_duplicate", "near_duplicate_cosine"
CONTRADICTION = "conflicting_labels"
LEAK, PARAPHRASE = "evaluation_text", "evaluation_paraphrase"
FAILING = "failing_demonstration"
_SHOWN_CHARS = 60


class Record(NamedTuple):
    """A record of the pool.

    Attributes:
        id: Of the record.
        input: Its text.
        answer: Canonical, entities without their offsets; None: none that can be used.
        own_text: The answer is about its own text; comparable where the text is the same only.
    """

    id: str
    input: str
    answer: str | None
    own_text: bool


class Finding(NamedTuple):
    """One thing that was found.

    Attributes:
        check: What kind of thing.
        id: Record of the pool.
        other: Another record, or a query; None: the record alone.
        score: Similarity; for a failing demonstration how far it lies below the others.
        by: What found it: shingles, an encoder, an arm.
        detail: In words.
    """

    check: str
    id: str
    other: str | None
    score: float
    by: str
    detail: str


def duplicates(
    run: Run, records: Sequence[Record], shingles: Shingles, *, jaccard: float, cosine: float
) -> list[Finding]:
    """Records that say the same: copies, near duplicates by shingles, and by vectors.

    Of records with the same text, each is reported with the first of them; others are compared
    with that first one alone, so that n copies give n - 1 findings.
    """
    groups = same_groups([normalised(one.input) for one in records])
    copies = {at for group in groups for at in group[1:]}
    found = [
        _pair(SAME_TEXT, records[group[0]], records[at], 1.0, by="text")
        for group in groups
        for at in group[1:]
    ]
    kept = [one for at, one in enumerate(records) if at not in copies]
    name = f"{shingles.unit}-{shingles.size}"
    for pair in similar_pairs([one.input for one in kept], shingles, threshold=jaccard):
        found.append(_pair(SIMILAR, kept[pair.first], kept[pair.second], pair.score, by=name))
    by_id = {one.id: one for one in kept}
    for encoder in _encoders(run):
        ids, vectors = _vectors(run, encoder, list(by_id))
        for pair in near_pairs(vectors, threshold=cosine):
            one, other = by_id[ids[pair.first]], by_id[ids[pair.second]]
            found.append(_pair(NEAR, one, other, pair.score, by=encoder))
    return found


def contradictions(records: Sequence[Record], near: Sequence[Finding]) -> list[Finding]:
    """Near duplicates that have different answers, each pair once with its highest similarity."""
    by_id = {one.id: one for one in records}
    best: dict[tuple[str, str], Finding] = {}
    for one in near:
        assert one.other is not None
        here, there = by_id[one.id], by_id[one.other]
        key = (one.id, one.other)
        comparable = one.check == SAME_TEXT or not (here.own_text or there.own_text)
        if not comparable or here.answer == there.answer:
            continue
        if key not in best or one.score > best[key].score:
            detail = " / ".join(_short(str(record.answer)) for record in (here, there))
            best[key] = Finding(CONTRADICTION, *key, one.score, one.by, detail)
    return list(best.values())


def leaks(run: Run, records: Sequence[Record], *, cosine: float) -> Iterator[Finding]:
    """Queries that a record gives away: the same text, or a paraphrase by vectors."""
    texts: dict[str, list[str]] = {}
    for one in records:
        texts.setdefault(normalised(one.input), []).append(one.id)
    exact: set[tuple[str, str]] = set()
    for part in run.tables["queries"].parts if "queries" in run.tables else ():
        for row in run.ledger.read(part.marker, ["id", "input"]).to_pylist():
            for i in texts.get(normalised(row["input"] or ""), ()):
                exact.add((i, row["id"]))
                yield Finding(LEAK, i, row["id"], 1.0, "text", _short(row["input"]))
    for encoder in _encoders(run):
        ids, vectors = _vectors(run, encoder, [one.id for one in records])
        for marker in run.vectors.get((encoder, "queries"), ()):
            for queries, block in vector_batches(run, marker):
                for at, to, score in near_between(vectors, block, threshold=cosine):
                    if (ids[at], queries[to]) not in exact:
                        yield Finding(PARAPHRASE, ids[at], queries[to], score, encoder, "")


def failing(run: Run, records: Sequence[Record]) -> Iterator[Finding]:
    """Records under which queries fare worse than without, by the audit of the last evaluation."""
    entry = run.manifest.get("metrics", {}).get("audit")
    if entry is None:
        return
    there = {one.id for one in records}
    for row in run.ledger.read(Marker(**entry)).to_pylist():
        if row["suspect"] and row["demonstration_id"] in there:
            yield Finding(
                FAILING,
                row["demonstration_id"],
                None,
                round(row["accuracy_otherwise"] - row["high"], 6),
                row["arm"],
                f"{row['n_right']} of {row['n_scored']} queries right that saw it, "
                f"{row['accuracy_otherwise']:.3f} of the others",
            )


def _pair(check: str, one: Record, other: Record, score: float, *, by: str) -> Finding:
    first, second = sorted((one, other))
    detail = f"{_short(first.input)} / {_short(second.input)}"
    return Finding(check, first.id, second.id, round(score, 6), by, detail)


def _short(text: str | None) -> str:
    plain = " ".join((text or "").split())
    return plain if len(plain) <= _SHOWN_CHARS else f"{plain[: _SHOWN_CHARS - 3]}..."


def _vectors(run: Run, encoder: str, ids: Sequence[str]) -> tuple[list[str], Matrix]:
    """Vectors of records, night by night of the texts that were sent, in the order of their ids."""
    if run.config.file.annotate.nightly:
        return vectors_of(run, encoder, batches_of(run.ledger), sorted(ids))
    return vectors_by_id(run, encoder, ids)


def _encoders(run: Run) -> list[str]:
    return sorted({arm.encoder for arm in run.arms if (arm.encoder, "corpus") in run.vectors})
