"""ChemProt (BioCreative VI): chemicals, proteins and genes of abstracts, and how they relate.

The source is the folder of TSV files of the corpus (ChemProt_Corpus.zip of BioCreative VI track 5,
its zips unpacked): 1,020 training, 612 development and 800 test abstracts. Offsets count the
characters of title, one space, abstract.

`ner`: a row is an abstract; `output` is the JSON list of its entities.

`relations`: a row is a relation between a chemical and a gene. Its text is the sentences that hold
both, because an abstract of 1,600 characters leaves no room for a second demonstration, with the
two in `[CHEM]` and `[GENE]`. `label` is the type of the relation (13 of them), column `cpr` the
name of its group (5, those of the shared task). Only the relations that the shared task evaluates
become rows; pairs without a relation do not. A pair with two types is two rows of one text.
"""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from jobs.errors import ConfigError
from jobs.prepare.chemprot_abstracts import Abstract, Entity, abstracts_of
from jobs.prepare.chemprot_files import SPLITS, WANTED, Line, read_tables
from jobs.prepare.distribution import existing
from jobs.prepare.marks import marked, overlap
from jobs.prepare.prepared import Prepared, Row, write
from jobs.prepare.sentences import around, sentence_starts

FORMS = ("ner", "relations")
GROUPS = {
    "CPR:3": "upregulator or activator",
    "CPR:4": "downregulator or inhibitor",
    "CPR:5": "agonist",
    "CPR:6": "antagonist",
    "CPR:9": "substrate or product of",
}


def prepare(out: str, *, source: str | None = None, form: str = "ner") -> dict[str, Any]:
    """Write training, development and test abstracts, or their relations.

    Args:
        out: Folder to write to: corpus.parquet, dev.parquet, queries.parquet.
        source: The folder, or a zip of it.
        form: `ner` or `relations`, see above.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        ConfigError: No such source, an unknown form, or a folder that cannot be written.
        DataError: A table is missing, or a line of it is damaged.
        ClusterError: No room on the disk.
    """
    if form not in FORMS:
        raise ConfigError(f"--as {form}: unknown; wanted one of {', '.join(FORMS)}.")
    path = existing(source, wanted=WANTED)
    relations = form == "relations"
    kinds = ("abstracts", "entities", "relations") if relations else ("abstracts", "entities")
    tables = read_tables(path, kinds)
    made = Prepared(extra=("document", "cpr") if relations else ())
    for split in SPLITS.values():
        abstracts = abstracts_of(tables, split, made)
        if relations:
            _add_relations(abstracts, tables[split, "relations"], made)
        else:
            _add_abstracts(abstracts, made)
    return write(out, made, {"source": path.name, "as": form})


def _add_abstracts(abstracts: dict[str, Abstract], made: Prepared) -> None:
    for one in abstracts.values():
        if one.faults:
            reason, detail = one.faults[0]
            detail = f"{detail} ({len(one.faults)} such entities)"
            made.reject(one.document, reason, detail, source=one.file, text=one.text)
            continue
        entities = sorted(one.entities.values(), key=lambda entity: entity.span)
        row = {
            "id": one.document,
            "input": one.text,
            "output": json.dumps([_as_json(entity) for entity in entities], ensure_ascii=False),
            "group": one.document,
            "split": one.split,
            "source": one.file,
        }
        if made.add(row):
            neighbours = [(before.span, after.span) for before, after in pairwise(entities)]
            made.notes["entities"] += len(entities)
            made.notes["overlapping neighbours"] += sum(overlap([a], [b]) for a, b in neighbours)


def _as_json(entity: Entity) -> dict[str, Any]:
    start, end = entity.span
    return {"text": entity.text, "type": entity.type, "start": start, "end": end}


def _add_relations(abstracts: dict[str, Abstract], lines: list[Line], made: Prepared) -> None:
    starts: dict[str, list[int]] = {}
    texts: Counter[str] = Counter()
    for line in lines:
        document, cpr, evaluated, relation, *ends = line.cells
        if evaluated.strip() != "Y":
            made.left_out[f"relations that are not evaluated ({cpr})"] += 1
            continue
        names = [end.partition(":")[2].strip() for end in ends]
        row_id = "-".join([document, *names, relation])
        one = abstracts.get(document)
        fault = _fault(one, names, cpr)
        if one is None or fault:
            reason, detail = fault or ("no_such_document", "no abstract of this id")
            made.reject(row_id, reason, detail, source=line.file, line=line.number)
            continue
        if document not in starts:
            spans = [entity.span for entity in one.entities.values()]
            starts[document] = sentence_starts(one.text, mentions=spans, breaks=[one.body])
        row = _relation(one, [one.entities[name] for name in names], starts[document])
        row |= {"id": row_id, "output": relation, "label": relation, "cpr": GROUPS[cpr]}
        texts[row["input"]] += made.add(row | {"source": line.file})
    made.notes["rows that share their text with another"] += sum(n for n in texts.values() if n > 1)


def _fault(one: Abstract | None, names: list[str], cpr: str) -> tuple[str, str] | None:
    """Reason and detail of a relation that cannot become a row."""
    if one is None:
        return None
    lacking = [name for name in names if name not in one.entities]
    if lacking:
        return "no_such_entity", f"{lacking[0]!r} is no entity of the abstract that can be used"
    if cpr not in GROUPS:
        return "unknown_label", f"{cpr} is evaluated; wanted one of {', '.join(GROUPS)}"
    return None


def _relation(one: Abstract, pair: list[Entity], starts: list[int]) -> Row:
    """The sentences that hold both entities, these marked."""
    chemical, gene = pair
    start, end = around(starts, len(one.text), [chemical.span, gene.span])
    mentions = {
        name: [(entity.span[0] - start, entity.span[1] - start)]
        for name, entity in (("CHEM", chemical), ("GENE", gene))
    }
    return {
        "input": marked(one.text[start:end], mentions).strip(),
        "group": f"{one.document}.{start}",
        "tags": [chemical.text, gene.text],
        "split": one.split,
        "document": one.document,
    }
