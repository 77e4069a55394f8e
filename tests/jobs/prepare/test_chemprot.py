"""ChemProt: entities at their offsets, relations in the sentences that hold them."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from jobs.errors import ConfigError, DataError
from jobs.prepare import prepare
from jobs.prepare.chemprot import GROUPS
from tests.jobs.prepare.originals import BODY, TITLE, chemprot_folder, chemprot_tables, zipped


def made(tmp_path, change=lambda tables: tables, form="ner"):
    source = chemprot_folder(tmp_path / "in", change)
    meta = prepare("chemprot", source=str(source), form=form, out=str(tmp_path / "out"))
    names = ("corpus", "dev", "queries", "rejected")
    return meta, {
        name: pq.read_table(tmp_path / "out" / f"{name}.parquet").to_pylist() for name in names
    }


def test_an_abstract_is_a_row_with_its_entities_at_their_places(tmp_path):
    meta, tables = made(tmp_path)
    assert [len(tables[name]) for name in ("corpus", "dev", "queries")] == [1, 1, 1]
    row = tables["corpus"][0]
    assert row["input"] == f"{TITLE} {BODY}"
    assert (row["id"], row["group"], row["label"], row["split"]) == ("101", "101", None, "train")
    entities = json.loads(row["output"])
    assert [one["text"] for one in entities] == [
        "Azulin",
        "zorkinase",
        "PLK9",
        "Azulin",
        "Corvadine",
        "zorkinase PLK9",
        "PLK9",
    ]
    assert Counter(one["type"] for one in entities) == {"CHEMICAL": 3, "GENE-Y": 3, "GENE-N": 1}
    for one in entities:
        assert row["input"][one["start"] : one["end"]] == one["text"]
    assert meta["notes"] == {"entities": 21, "overlapping neighbours": 3}


def test_a_relation_is_a_row_of_the_sentences_that_hold_its_entities(tmp_path):
    meta, tables = made(tmp_path, form="relations")
    rows = {row["id"]: row for row in tables["corpus"]}
    assert {name: (row["label"], row["cpr"], row["input"]) for name, row in rows.items()} == {
        "101-T1-T2-INHIBITOR": (
            "INHIBITOR",
            "downregulator or inhibitor",
            "[CHEM]Azulin[/CHEM] inhibits [GENE]zorkinase[/GENE].",
        ),
        "101-T3-T4-ACTIVATOR": (
            "ACTIVATOR",
            "upregulator or activator",
            "It also activates [GENE]PLK9[/GENE] (e.g. [CHEM]Azulin[/CHEM] at 2 mM).",
        ),
        "101-T5-T6-SUBSTRATE": (
            "SUBSTRATE",
            "substrate or product of",
            "[CHEM]Corvadine[/CHEM] is a substrate of [GENE]zorkinase PLK9[/GENE].",
        ),
        "101-T5-T6-AGONIST": (
            "AGONIST",
            "agonist",
            "[CHEM]Corvadine[/CHEM] is a substrate of [GENE]zorkinase PLK9[/GENE].",
        ),
    }
    assert rows["101-T5-T6-AGONIST"]["group"] == rows["101-T5-T6-SUBSTRATE"]["group"]
    assert len({row["group"] for row in rows.values()}) == 3
    assert {row["document"] for row in rows.values()} == {"101"}
    assert rows["101-T1-T2-INHIBITOR"]["tags"] == ["Azulin", "zorkinase"]
    assert meta["left_out"] == {"relations that are not evaluated (CPR:2)": 3}
    assert meta["notes"] == {"rows that share their text with another": 6}


def test_a_relation_over_two_sentences_has_both(tmp_path):
    def change(tables):
        relation = ["101", "CPR:6", "Y ", "ANTAGONIST", "Arg1:T1", "Arg2:T4"]
        return tables | {"relations": [relation]}

    _, tables = made(tmp_path, change, form="relations")
    assert tables["corpus"][0]["input"] == (
        "[CHEM]Azulin[/CHEM] inhibits zorkinase. "
        "It also activates [GENE]PLK9[/GENE] (e.g. Azulin at 2 mM)."
    )


def edited(kind, at, **cells):
    """A change of one line of the training split: cells by their number (`c3="7"`)."""

    def change(tables):
        lines = [list(line) for line in tables[kind]]
        for name, value in cells.items():
            lines[at][int(name[1:])] = value
        second = chemprot_tables("104")
        return {name: (lines if name == kind else tables[name]) + second[name] for name in tables}

    return change


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        (edited("entities", 0, c4="7"), "offset_mismatch", "T1 'Azulin' at 0-7 is 'Azulin '"),
        (edited("entities", 0, c3="900", c4="906"), "offset_out_of_range", "characters"),
        (edited("entities", 0, c3="-6", c4="0"), "offset_out_of_range", "at -6-0"),
        (edited("entities", 0, c3="6", c4="0"), "offset_out_of_range", "at 6-0"),
        (edited("entities", 1, c1="T1"), "duplicate_entity", "there is a T1 before it"),
    ],
)
def test_an_abstract_with_an_entity_out_of_place_is_rejected(tmp_path, change, reason, detail):
    meta, tables = made(tmp_path, change)
    assert [row["id"] for row in tables["corpus"]] == ["104"]
    assert meta["rejected_reasons"] == {reason: 1}
    assert tables["rejected"][0]["id"] == "101"
    assert detail in tables["rejected"][0]["detail"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edited("entities", 0, c4="7"), "no_such_entity"),
        (edited("relations", 0, c4="Arg1:T99"), "no_such_entity"),
        (edited("relations", 0, c0="999"), "no_such_document"),
        (edited("relations", 0, c1="CPR:11"), "unknown_label"),
        (edited("relations", 1, c3="INHIBITOR", c4="Arg1:T1", c5="Arg2:T2"), "duplicate_id"),
    ],
)
def test_a_relation_that_cannot_be_used_is_rejected_and_the_others_kept(tmp_path, change, reason):
    meta, tables = made(tmp_path, change, form="relations")
    assert meta["rejected_reasons"] == {reason: 1}
    assert len(tables["corpus"]) == 7
    assert len(tables["rejected"]) == 1


def test_entities_and_abstracts_without_a_partner_are_rejected(tmp_path):
    def change(tables):
        stray = ["999", "T1", "CHEMICAL", "0", "6", "Azulin"]
        abstracts = tables["abstracts"] * 2
        return tables | {"abstracts": abstracts, "entities": [*tables["entities"], stray]}

    meta, tables = made(tmp_path, change)
    assert meta["rejected_reasons"] == {"duplicate_id": 1, "no_such_document": 1}
    assert len(tables["corpus"]) == 1


def spoiled(folder, name, content):
    (folder / name).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "training_entities.tsv",
            b"101\tT1\tCHEMICAL\t0\t6\tAzulin\n101\tT2\tGENE-Y\t16\n",
            r"training_entities.tsv, line 2: 4 columns, wanted 6 \(document, entity, type",
        ),
        ("test_gs_abstracts.tsv", b"103\tno tab after this\n", r"line 1: 2 columns, wanted 3"),
        (
            "training_entities.tsv",
            b"101\tT1\tCHEMICAL\tzero\t6\tAzulin\n",
            r"training_entities.tsv, line 1: offset 'zero' is no whole number",
        ),
        (
            "development_abstracts.tsv",
            b"102\tTitle\tBody\n103\tna\xefve\tBody\n",
            r"development_abstracts.tsv, line 2: byte 0xEF is not UTF-8",
        ),
        (
            "test_more_abstracts.tsv",
            b"",
            r"wanted one file \*test\*abstracts\*.tsv, found 2 \(test_gs_abstracts.tsv, test_more",
        ),
    ],
)
def test_a_damaged_table_is_named_with_its_line(tmp_path, name, content, message):
    source = spoiled(chemprot_folder(tmp_path / "in"), name, content)
    with pytest.raises(DataError, match=message):
        prepare("chemprot", source=source, out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_missing_tables_and_unknown_forms_are_told(tmp_path):
    folder = chemprot_folder(tmp_path / "in")
    (folder / "training_relations.tsv").unlink()
    prepare("chemprot", source=str(folder), out=str(tmp_path / "out"))
    with pytest.raises(DataError, match=r"wanted one file \*training\*relations\*.tsv, found 0"):
        prepare("chemprot", source=str(folder), form="relations", out=str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="--as spans: unknown; wanted one of ner, relations"):
        prepare("chemprot", source=str(folder), form="spans")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \*.tsv in it; wanted the folder"):
        prepare("chemprot", source=str(tmp_path / "empty"))


def test_carriage_returns_a_byte_order_mark_and_a_zip_change_nothing(tmp_path):
    _, tables = made(tmp_path)
    files = {
        f"ChemProt/{path.name}": b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n")
        for path in (tmp_path / "in").iterdir()
    }
    source = str(zipped(tmp_path / "c.zip", files))
    prepare("chemprot", source=source, out=str(tmp_path / "again"))
    again = pq.read_table(tmp_path / "again" / "corpus.parquet").to_pylist()
    for row in (*again, *tables["corpus"]):
        del row["source"]
    assert again == tables["corpus"]


def test_the_real_abstracts_have_all_entities_at_their_places(real, tmp_path):
    meta = prepare("chemprot", source=str(real("originals/chemprot")), out=str(tmp_path))
    assert (meta["corpus_rows"], meta["dev_rows"], meta["query_rows"]) == (1020, 612, 800)
    assert meta["notes"] == {"entities": 62_147, "overlapping neighbours": 3_889}
    assert meta["rejected_rows"] == 0
    found = 0
    for name in ("corpus", "dev", "queries"):
        for row in pq.read_table(tmp_path / f"{name}.parquet").to_pylist():
            for one in json.loads(row["output"]):
                assert row["input"][one["start"] : one["end"]] == one["text"]
                found += 1
    assert found == 62_147


def test_the_real_relations_are_those_of_the_gold_standard(real, tmp_path):
    source = real("originals/chemprot")
    meta = prepare("chemprot", source=str(source), form="relations", out=str(tmp_path))
    assert (meta["corpus_rows"], meta["dev_rows"], meta["query_rows"]) == (4172, 2427, 3469)
    assert meta["rejected_rows"] == 0
    assert sum(meta["left_out"].values()) == 5671
    gold = {
        tuple(line.split("\t"))
        for line in (source / "test_gs_gold_standard.tsv").read_text().splitlines()
    }
    ours = set()
    codes = {name: code for code, name in GROUPS.items()}
    for row in pq.read_table(tmp_path / "queries.parquet").to_pylist():
        document, first, second = row["id"].split("-")[:3]
        ours.add((document, codes[row["cpr"]], f"Arg1:{first}", f"Arg2:{second}"))
        assert row["input"].count("[CHEM]") == row["input"].count("[/GENE]") == 1
    assert ours == gold
    assert len(gold) == 3458
