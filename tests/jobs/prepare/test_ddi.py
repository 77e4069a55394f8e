"""The DDI corpus: every pair once, its mentions marked, its faults named."""

import json
import zipfile
from collections import Counter

import pyarrow.parquet as pq
import pytest

from jobs.errors import ConfigError, DataError
from jobs.prepare import prepare
from jobs.prepare.ddi_mentions import BadMention, mention_of
from jobs.readers.row_tables import REJECTED_SCHEMA
from tests.jobs.prepare.originals import (
    EXTRACTION,
    RECOGNITION,
    ddi_document,
    ddi_files,
    ddi_sentence,
    zipped,
)

TRAIN = "DDICorpus/Train/DrugBank/Azulin_ddi.xml"


def made(tmp_path, files, **options):
    out = tmp_path / "out"
    meta = prepare("ddi", source=str(zipped(tmp_path / "c.zip", files)), out=str(out), **options)
    tables = {
        name: {row["id"]: row for row in pq.read_table(out / f"{name}.parquet").to_pylist()}
        for name in ("corpus", "queries", "rejected")
    }
    return meta, tables


def test_every_pair_is_a_row_with_its_mentions_marked(tmp_path):
    meta, tables = made(tmp_path, ddi_files())
    rows = tables["corpus"]
    assert {name: (row["input"], row["label"]) for name, row in rows.items()} == {
        "DDI-Made.d0.s0.p0": (
            "Avoid [D1]azulin[/D1] with [D2]bromaline[/D2]; corvadine is fine.",
            "advise",
        ),
        "DDI-Made.d0.s0.p1": (
            "Avoid [D1]azulin[/D1] with bromaline; [D2]corvadine[/D2] is fine.",
            "false",
        ),
        "DDI-Made.d0.s0.p2": (
            "Avoid azulin with [D1]bromaline[/D1]; [D2]corvadine[/D2] is fine.",
            "advise",
        ),
        # Discontinuous and overlapping.
        "DDI-Made.d0.s1.p0": (
            "[D1]Loop[/D1] and [D2]thiazide [D1]diuretics[/D1][/D2] raise azulin levels.",
            "false",
        ),
        "DDI-Made.d0.s1.p1": (
            "[D1]Loop[/D1] and thiazide [D1]diuretics[/D1] raise [D2]azulin[/D2] levels.",
            "mechanism",
        ),
        # An interaction of no type: a row without a label.
        "DDI-Made.d0.s1.p2": (
            "Loop and [D1]thiazide diuretics[/D1] raise [D2]azulin[/D2] levels.",
            None,
        ),
    }
    row = rows["DDI-Made.d0.s1.p1"]
    assert (row["group"], row["document"], row["part"]) == (
        "DDI-Made.d0.s1",
        "DDI-Made.d0",
        "DrugBank",
    )
    assert row["tags"] == ["Loop diuretics", "azulin"]
    assert (row["split"], row["source"], row["output"]) == ("train", TRAIN, "mechanism")
    assert meta["notes"] == {
        "pairs": 7,
        "pairs without a type": 1,
        "pairs with a discontinuous mention": 2,
        "pairs of overlapping mentions": 1,
        "pairs with a shifted mention": 0,
    }
    assert meta["left_out"] == {f"pairs of the folder {RECOGNITION}": 2}


def test_the_variant_of_the_paper_adds_the_document_of_the_other_test_set(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, official = made(tmp_path / "a", ddi_files())
    meta, paper = made(tmp_path / "b", ddi_files(), variant="paper")
    assert set(official["queries"]) == {"DDI-Made.d1.s0.p0"}
    assert set(paper["queries"]) - set(official["queries"]) == {"DDI-Made.d2.s0.p0"}
    assert paper["corpus"] == official["corpus"]
    assert meta["left_out"] == {f"pairs of the folder {RECOGNITION}": 1}


def test_the_variant_of_the_paper_needs_its_document(tmp_path):
    files = {name: text for name, text in ddi_files().items() if "21928724" not in name}
    with pytest.raises(DataError, match=r"no Test for DrugNER task/.../21928724.xml"):
        made(tmp_path, files, variant="paper")


def test_the_unpacked_folder_gives_the_same_rows_as_the_zip(tmp_path):
    _, tables = made(tmp_path, ddi_files())
    for name, text in ddi_files().items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    prepare("ddi", source=str(tmp_path / "in"), out=str(tmp_path / "again"))
    again = pq.read_table(tmp_path / "again" / "corpus.parquet").to_pylist()
    assert {row["id"]: row for row in again} == tables["corpus"]


def test_a_dev_split_takes_whole_documents_of_the_training_part(tmp_path):
    files = ddi_files()
    for number in range(10, 18):
        sentence = ("Azulin binds corvadine.", ["Azulin", "corvadine"], [(0, 1, 'ddi="false"')] * 2)
        files[f"DDICorpus/Train/MedLine/{number}.xml"] = ddi_document(f"d{number}", sentence)
    meta, tables = made(tmp_path, files, dev_share=0.25, seed=1)
    dev = pq.read_table(tmp_path / "out" / "dev.parquet").to_pylist()
    assert meta["dev_rows"] == len(dev) > 0
    assert {row["split"] for row in dev} == {"dev"}
    assert not {row["document"] for row in dev} & {
        row["document"] for row in tables["corpus"].values()
    }
    made(tmp_path, files)
    assert not (tmp_path / "out" / "dev.parquet").exists()


@pytest.mark.parametrize(
    ("text", "offsets", "name", "parts"),
    [
        ("of alpha- and beta-blockers", "3-8;19-26", "alpha-blockers", ((3, 9), (19, 27))),
        # White space that belongs to neither part; a corpus that is one letter off.
        ("the (R)- or (S)-warfarin is", "3-7;15-22", "(R)-warfarin", ((4, 8), (16, 24))),
        ("azulin", "0-5", "azulin", ((0, 6),)),
    ],
)
def test_mentions_are_read_with_their_parts(text, offsets, name, parts):
    found = mention_of(text, offsets, name)
    assert found.parts == parts
    assert found.shifted == (offsets == "3-7;15-22")


@pytest.mark.parametrize(
    ("offsets", "name", "reason"),
    [
        ("0-6", "azulin", "offset_out_of_range"),
        ("0-3", "azulin", "offset_mismatch"),
        ("5-0", "azulin", "bad_offsets"),
        ("0:5", "azulin", "bad_offsets"),
        ("", "azulin", "bad_offsets"),
        ("0-1;", "az", "bad_offsets"),
    ],
)
def test_a_mention_that_is_not_where_it_should_be_is_told_with_the_numbers(offsets, name, reason):
    with pytest.raises(BadMention) as caught:
        mention_of("azulin", offsets, name)
    assert caught.value.reason == reason
    assert repr(offsets) in str(caught.value)


def test_a_pair_that_cannot_be_used_is_rejected_with_its_reason(tmp_path):
    files = ddi_files()
    broken = ddi_sentence(
        "x.s0",
        "Azulin and bromaline.",
        [("0-5", "Azulin"), ("11-19", "corvadine"), ("11-99", "bromaline"), ("11-19", "bromaline")],
        [
            (0, 1, 'ddi="false"'),
            (0, 2, 'ddi="false"'),
            (0, 7, 'ddi="false"'),
            (0, 3, 'ddi="maybe"'),
            (0, 3, 'ddi="true" type="cures"'),
            (0, 3, 'ddi="true" type=" EFFECT"'),
        ],
    )
    nameless = broken.replace(' id="x.s0.p5"', "").replace("x.s0.", "x.s1.")
    files["DDICorpus/Train/MedLine/x.xml"] = f'<document id="x">{broken}{nameless}</document>'
    files["DDICorpus/Train/MedLine/y.xml"] = files[TRAIN]
    meta, tables = made(tmp_path, files)
    rejected = tables["rejected"]
    assert {name: rejected[f"x.s0.p{name}"]["reason"] for name in range(5)} == {
        0: "offset_mismatch",
        1: "offset_out_of_range",
        2: "no_such_entity",
        3: "unknown_label",
        4: "unknown_label",
    }
    assert tables["corpus"]["x.s0.p5"]["label"] == "effect"
    assert rejected[None]["reason"] == "no_id"
    # The same document twice: its pairs once.
    assert meta["rejected_reasons"]["duplicate_id"] == 6
    assert meta["corpus_rows"] == 7
    table = pq.read_table(tmp_path / "out" / "rejected.parquet")
    assert table.schema == REJECTED_SCHEMA
    assert meta["rejected_rows"] == table.num_rows == 17
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["rejected_rows"] == 17


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {TRAIN: "<document><sentence></document>"},
            r"Azulin_ddi.xml: no well-formed XML .*line 1",
        ),
        ({TRAIN: ""}, r"Azulin_ddi.xml: no well-formed XML"),
        ({TRAIN: b"\xff<document/>"}, r"Azulin_ddi.xml: no well-formed XML"),
        ({TRAIN: "<article/>"}, r"Azulin_ddi.xml: its root is <article>, wanted <document>"),
        ({"DDICorpus/x.xml": "<document/>"}, r"x.xml: lies in none of the folders Train"),
        ({TRAIN: "<document/>"}, r"c.zip: no row for corpus.parquet \(1 rows, 0 rejected"),
    ],
)
def test_a_file_that_is_no_document_is_named(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        made(tmp_path, ddi_files() | change)
    assert not (tmp_path / "out").exists()


def test_another_or_a_truncated_zip_is_told_as_such(tmp_path):
    whole = zipped(tmp_path / "whole.zip", ddi_files()).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    # Bytes of a member changed: the directory is whole, its checksum is not.
    (tmp_path / "bent.zip").write_bytes(whole[:90] + bytes(40) + whole[130:])
    zipped(tmp_path / "other.zip", {"readme.txt": "no corpus"})
    for name in ("cut", "bent"):
        with pytest.raises(DataError, match=rf"{name}.zip \([\d,]+ bytes\): no whole zip file"):
            prepare("ddi", source=str(tmp_path / f"{name}.zip"), out=str(tmp_path / "o"))
    with pytest.raises(DataError, match=r"other.zip: no \*.xml in it; wanted DDICorpus-2013.zip"):
        prepare("ddi", source=str(tmp_path / "other.zip"), out=str(tmp_path / "o"))
    with pytest.raises(DataError, match=r"It holds bent.zip, cut.zip, other.zip, whole.zip: give"):
        prepare("ddi", source=str(tmp_path), out=str(tmp_path / "o"))
    with pytest.raises(ConfigError, match="no such file or folder"):
        prepare("ddi", source=str(tmp_path / "none.zip"), out=str(tmp_path / "o"))
    with pytest.raises(ConfigError, match="--variant best: unknown; wanted one of official, paper"):
        prepare("ddi", source=str(tmp_path / "cut.zip"), variant="best")


def labels_of(path):
    return Counter(pq.read_table(path, columns=["label"])["label"].to_pylist())


def test_the_real_corpus_has_the_pairs_it_is_known_for(real, tmp_path):
    source = str(real("originals/DDICorpus-2013.zip"))
    meta = prepare("ddi", source=source, out=str(tmp_path))
    found = labels_of(tmp_path / "queries.parquet")
    assert found.total() == 5716
    assert found.pop("false") == 5716 - 979
    assert found == {"effect": 360, "mechanism": 302, "advise": 221, "int": 96}
    assert labels_of(tmp_path / "corpus.parquet").total() == 27_792
    assert meta["rejected_rows"] == 0
    assert meta["left_out"] == {f"pairs of the folder {RECOGNITION}": 941}
    assert meta["notes"] == {
        "pairs": 33_508,
        "pairs without a type": 1,
        "pairs with a discontinuous mention": 157,
        "pairs of overlapping mentions": 54,
        "pairs with a shifted mention": 4,
    }


def test_the_real_variant_of_the_paper_adds_45_negatives_of_one_document(real, tmp_path):
    files, trained = {}, 0
    with zipfile.ZipFile(real("originals/DDICorpus-2013.zip")) as archive:
        for name in archive.namelist():
            trained += "/Train/" in name and name.endswith(".xml")
            if EXTRACTION in name or "21928724" in name or ("/Train/" in name and trained == 1):
                files[name] = archive.read(name)
    _, tables = made(tmp_path, files, variant="paper")
    rows = list(tables["queries"].values())
    assert len(rows) == 5761
    added = [row for row in rows if row["source"].endswith("21928724.xml")]
    assert len(added) == 45
    assert {row["label"] for row in added} == {"false"}
    assert sum(row["label"] != "false" for row in rows) == 979
