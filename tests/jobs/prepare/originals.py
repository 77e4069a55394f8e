"""Small originals in the formats of the real ones, with invented sentences."""

import json
import sqlite3
import zipfile
from xml.sax.saxutils import quoteattr

EXTRACTION, RECOGNITION = "Test for DDI Extraction task", "Test for DrugNER task"


def offsets_of(sentence, *words):
    """`charOffset` of words, in their order, last letters included."""
    found, at = [], 0
    for word in words:
        at = sentence.index(word, at)
        found.append(f"{at}-{at + len(word) - 1}")
        at += len(word)
    return ";".join(found)


def ddi_sentence(name, text, entities, pairs):
    """Make a sentence of (charOffset, name) and of (first, second, attributes)."""
    lines = [f"<sentence id={quoteattr(name)} text={quoteattr(text)}>"]
    for at, (offsets, entity) in enumerate(entities):
        lines.append(
            f'<entity id="{name}.e{at}" charOffset="{offsets}" type="drug" '
            f"text={quoteattr(entity)}/>"
        )
    for at, (first, second, attributes) in enumerate(pairs):
        lines.append(
            f'<pair id="{name}.p{at}" e1="{name}.e{first}" e2="{name}.e{second}" {attributes}/>'
        )
    return "\n".join([*lines, "</sentence>"])


def ddi_document(name, *sentences):
    """Make a document; a sentence is (text, words, pairs), words standing where they are found."""
    made = []
    for at, (text, words, pairs) in enumerate(sentences):
        entities = [
            (offsets_of(text, *(word if isinstance(word, tuple) else (word,))), joined(word))
            for word in words
        ]
        made.append(ddi_sentence(f"{name}.s{at}", text, entities, pairs))
    return "\n".join(['<?xml version="1.0"?>', f'<document id="{name}">', *made, "</document>"])


def joined(word):
    return " ".join(word) if isinstance(word, tuple) else word


def ddi_files():
    """Documents of all folders: one of training, two of test, one of drug names only."""
    both = 'ddi="true" type='
    train = ddi_document(
        "DDI-Made.d0",
        (
            "Avoid azulin with bromaline; corvadine is fine.",
            ["azulin", "bromaline", "corvadine"],
            [(0, 1, both + '"advise"'), (0, 2, 'ddi="false"'), (1, 2, both + '"advice"')],
        ),
        (
            "Loop and thiazide diuretics raise azulin levels. ",
            [("Loop", "diuretics"), "thiazide diuretics", "azulin"],
            [(0, 1, 'ddi="false"'), (0, 2, both + '"mechanism"'), (1, 2, 'ddi="true"')],
        ),
    )
    test = ddi_document(
        "DDI-Made.d1",
        (
            "Azulin and bromaline interact.",
            ["Azulin", "bromaline"],
            [(0, 1, both + '"int"')],
        ),
    )
    added = ddi_document(
        "DDI-Made.d2",
        (
            "Corvadine was given after azulin.",
            ["Corvadine", "azulin"],
            [(0, 1, 'ddi="false"')],
        ),
    )
    names = ddi_document(
        "DDI-Made.d3",
        ("Azulin or corvadine.", ["Azulin", "corvadine"], [(0, 1, 'ddi="false"')]),
    )
    return {
        "DDICorpus/Train/DrugBank/Azulin_ddi.xml": train,
        f"DDICorpus/Test/{EXTRACTION}/MedLine/1.xml": test,
        f"DDICorpus/Test/{RECOGNITION}/MedLine/21928724.xml": added,
        f"DDICorpus/Test/{RECOGNITION}/DrugBank/Corvadine.xml": names,
        "DDICorpus/Train/.DS_Store": "left by a Mac",
        "__MACOSX/DDICorpus/Train/DrugBank/._Azulin_ddi.xml": "no XML",
    }


def zipped(path, files):
    """Write files into a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


TITLE = "Azulin inhibits zorkinase."
BODY = (
    "It also activates PLK9 (e.g. Azulin at 2 mM). "
    "Corvadine is a substrate of zorkinase PLK9. 5 mg."
)


def chemprot_tables(document="101"):
    """Abstracts, entities and relations of one document, as lists of cells."""
    text = f"{TITLE} {BODY}"

    def entity(name, kind, word, after=0):
        start = text.index(word, after)
        return [document, name, kind, str(start), str(start + len(word)), word]

    entities = [
        entity("T1", "CHEMICAL", "Azulin"),
        entity("T2", "GENE-Y", "zorkinase"),
        entity("T3", "CHEMICAL", "Azulin", after=30),
        entity("T4", "GENE-N", "PLK9"),
        entity("T5", "CHEMICAL", "Corvadine"),
        entity("T6", "GENE-Y", "zorkinase PLK9"),
        entity("T7", "GENE-Y", "PLK9", after=text.index("zorkinase PLK9")),
    ]
    relations = [
        [document, "CPR:4", "Y ", "INHIBITOR", "Arg1:T1", "Arg2:T2"],
        [document, "CPR:3", "Y ", "ACTIVATOR", "Arg1:T3", "Arg2:T4"],
        [document, "CPR:9", "Y ", "SUBSTRATE", "Arg1:T5", "Arg2:T6"],
        [document, "CPR:5", "Y ", "AGONIST", "Arg1:T5", "Arg2:T6"],
        [document, "CPR:2", "N ", "REGULATOR", "Arg1:T5", "Arg2:T7"],
    ]
    return {
        "abstracts": [[document, TITLE, BODY]],
        "entities": entities,
        "relations": relations,
    }


def chemprot_folder(folder, change=lambda tables: tables):
    """Write three splits and the sample; `change` edits the tables of the training split."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"training": "101", "development": "102", "test_gs": "103", "sample": "101"}
    for split, document in names.items():
        tables = chemprot_tables(document)
        for kind, lines in (change(tables) if split == "training" else tables).items():
            text = "".join("\t".join(cells) + "\n" for cells in lines)
            (folder / f"{split}_{kind}.tsv").write_bytes(text.encode())
    return folder


ANSWERS = ("This is no advice", "This is a weak advice", "This is a strong advice")


def health_records(n=60):
    """Records of three classes (1/2, 1/3, 1/6), every tenth sentence there twice."""
    records = []
    for at in range(n):
        answer = ANSWERS[0 if at % 6 < 3 else 1 if at % 6 < 5 else 2]
        records.append(
            {"instruction": "Advice?", "input": f"Finding number {at} matters. ", "output": answer}
        )
    return records + [record | {"input": record["input"].upper()} for record in records[::10]]


def health_file(path, records):
    path.write_text(json.dumps(records))
    return path


def sql_folder(folder, splits=("train", "dev", "test", "train", "exclude")):
    """Write two databases' questions, of which one has its SQLite file."""
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(folder / "hills-db.added-in-2020.sqlite") as connection:
        connection.execute("CREATE TABLE hill (name TEXT, height INT)")
        connection.execute("INSERT INTO hill VALUES ('brunk', 310), ('solt', 95)")
    connection.close()
    entries = [
        {
            "query-split": "train",
            "sql": ['SELECT height FROM hill WHERE name = "hill_name1" AND height > height0 ;'],
            "sentences": [
                {
                    "text": "how high is hill_name1",
                    "question-split": split,
                    "variables": {"hill_name1": ("brunk", "solt")[at % 2]},
                }
                for at, split in enumerate(splits)
            ],
            "variables": [
                {"name": "hill_name1", "example": "solt", "location": "both"},
                {"name": "height0", "example": "50", "location": "sql-only"},
            ],
        },
        {
            "sql": ["SELECT depth FROM hill ;"],
            "sentences": [{"text": "how deep", "question-split": splits[0], "variables": {}}],
            "variables": [],
        },
        {
            "sql": ["SELECT COUNT( * ) FROM hill ;"],
            "sentences": [{"text": "how many", "question-split": splits[2], "variables": {}}],
            "variables": [],
        },
    ]
    (folder / "hills.json").write_text(json.dumps(entries))
    (folder / "lakes.json").write_text(json.dumps(entries[2:]))
    return folder
