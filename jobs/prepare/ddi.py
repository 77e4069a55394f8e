"""DDI corpus 2013 (SemEval-2013 task 9): do two drugs of a sentence interact, and how?

The source is the zip of XML files that its authors publish (github.com/isegura/DDICorpus; CC BY-NC
4.0), or the folder it unpacks to. Every pair of drug mentions in a sentence is a row.

The corpus has two test sets: one for this task, and one for the recognition of drug names, whose
pairs are all `false`. The official test set is the first: 191 documents, 5,716 pairs. Much used
copies of the corpus count 5,761: they take document 21928724, which lies in the second only, for a
part of the first. Its 45 pairs are all negative. `variant="paper"` does as they do.
"""

import xml.etree.ElementTree as ET
from typing import Any

from jobs.errors import ConfigError, DataError
from jobs.prepare.ddi_mentions import BadMention, Mention, mention_of
from jobs.prepare.distribution import Member, existing, read_members
from jobs.prepare.marks import marked, overlap
from jobs.prepare.prepared import Prepared, write
from jobs.prepare.splits import split_off

WANTED = "DDICorpus-2013.zip, or the folder with Train/ and Test/ it unpacks to"
EXTRACTION, RECOGNITION = "Test for DDI Extraction task", "Test for DrugNER task"
ADDED = "21928724.xml"
VARIANTS = ("official", "paper")
TYPES = {name: name for name in ("effect", "mechanism", "advise", "int")} | {"advice": "advise"}
NEGATIVE = "false"


def prepare(
    out: str,
    *,
    source: str | None = None,
    variant: str = "official",
    dev_share: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write the pairs of the training documents as corpus, those of the test documents as queries.

    A row's text is its sentence with the two mentions in `[D1]` and `[D2]`; `group` is the
    sentence, `document` the document, `part` DrugBank or MedLine, `tags` the two names. A pair
    that is marked as an interaction of no type has no label.

    Args:
        out: Folder to write to.
        source: The zip or folder.
        variant: `official` or `paper`, see above.
        dev_share: Part of the training pairs, in whole documents, that becomes dev.parquet.
        seed: Of that split.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        ConfigError: No such source, an unknown variant, or a folder that cannot be written.
        DataError: No whole zip, a file that is no XML of the corpus, or one of the two splits is
            empty.
        ClusterError: No room on the disk.
    """
    if variant not in VARIANTS:
        raise ConfigError(f"--variant {variant}: unknown; wanted one of {', '.join(VARIANTS)}.")
    path = existing(source, wanted=WANTED)
    made = Prepared(extra=("document", "part"))
    members = read_members(path, suffix=".xml", wanted=WANTED)
    if variant == "paper" and not any(_is_added(member) for member in members):
        raise DataError(f"{path}: no {RECOGNITION}/.../{ADDED}, which the variant paper adds.")
    for member in members:
        split = _split_of(member, variant)
        if split:
            _add(member, split, made)
        else:
            n_pairs = sum(1 for _ in _parsed(member).iter("pair"))
            made.left_out[f"pairs of the folder {RECOGNITION}"] += n_pairs
    if dev_share is not None:
        split_off(made.rows, by="document", into="dev", share=dev_share, seed=seed)
    about = {"source": path.name, "variant": variant, "dev_share": dev_share, "seed": seed}
    return write(out, made, about)


def _split_of(member: Member, variant: str) -> str | None:
    """`train`, `test`, or None for what belongs to drug name recognition alone."""
    parts = member.inner.split("/")
    if "Train" in parts:
        return "train"
    if EXTRACTION in parts or (variant == "paper" and _is_added(member)):
        return "test"
    if RECOGNITION in parts:
        return None
    raise DataError(
        f"{member.name}: lies in none of the folders Train, {EXTRACTION!r} and {RECOGNITION!r}, "
        f"so its split is unknown. Wanted {WANTED}."
    )


def _is_added(member: Member) -> bool:
    parts = member.inner.split("/")
    return RECOGNITION in parts and parts[-1] == ADDED


def _add(member: Member, split: str, made: Prepared) -> None:
    """Take in the pairs of a document."""
    root = _parsed(member)
    for sentence in root.iter("sentence"):
        text = sentence.get("text", "")
        mentions = {one.get("id"): _mention(one, text) for one in sentence.iter("entity")}
        for pair in sentence.iter("pair"):
            row_id = pair.get("id")
            try:
                one, other = (_named(mentions, pair.get(end)) for end in ("e1", "e2"))
                label = _label(pair, row_id)
            except BadMention as error:
                detail = str(error)
                made.reject(row_id, error.reason, detail, source=member.inner, text=text)
                continue
            row = {
                "id": row_id,
                "input": marked(text, {"D1": one.parts, "D2": other.parts}).strip(),
                "output": label,
                "label": label,
                "group": sentence.get("id"),
                "tags": [one.text, other.text],
                "split": split,
                "source": member.inner,
                "document": root.get("id") or member.inner,
                "part": member.inner.split("/")[-2],
            }
            if made.add(row):
                _count(made, one, other, label)


def _parsed(member: Member) -> ET.Element:
    try:
        root = ET.fromstring(member.raw)
    except ET.ParseError as error:
        raise DataError(
            f"{member.name}: no well-formed XML ({error}). Fetch it again; nothing was written."
        ) from None
    if root.tag != "document":
        raise DataError(f"{member.name}: its root is <{root.tag}>, wanted <document>: {WANTED}.")
    return root


def _mention(entity: ET.Element, text: str) -> Mention | BadMention:
    try:
        return mention_of(text, entity.get("charOffset", ""), entity.get("text", ""))
    except BadMention as error:
        return error


def _named(mentions: dict[str | None, Mention | BadMention], name: str | None) -> Mention:
    found = mentions.get(name)
    if found is None:
        raise BadMention("no_such_entity", f"entity {name} is not in the sentence of the pair")
    if isinstance(found, BadMention):
        raise found
    return found


def _label(pair: ET.Element, row_id: str | None) -> str | None:
    """The class of a pair; None: an interaction of no type."""
    if not row_id:
        raise BadMention("no_id", "a pair without the attribute id")
    interacts, kind = pair.get("ddi"), (pair.get("type") or "").strip().lower()
    if interacts == "false":
        return NEGATIVE
    if interacts != "true" or (kind and kind not in TYPES):
        found = f"ddi={interacts!r} type={pair.get('type')!r}"
        raise BadMention("unknown_label", f"{found}; wanted ddi true or false, type of {[*TYPES]}")
    return TYPES.get(kind)


def _count(made: Prepared, one: Mention, other: Mention, label: str | None) -> None:
    made.notes["pairs"] += 1
    made.notes["pairs without a type"] += label is None
    made.notes["pairs with a discontinuous mention"] += max(len(one.parts), len(other.parts)) > 1
    made.notes["pairs of overlapping mentions"] += overlap(one.parts, other.parts)
    made.notes["pairs with a shifted mention"] += one.shifted or other.shifted
