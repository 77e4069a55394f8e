"""What annotators are given: which texts, what is said of them, and that nothing runs in them."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.tasks import Task
from jobs import manifest
from jobs.annotation.export import Wanted, export
from jobs.annotation.spreadsheet import FORMULA, guarded, restored
from jobs.annotation.suggest import Neighbour, nearest_labelled, vote
from jobs.cli import main
from jobs.errors import ConfigError, DataError
from tests.jobs.annotation.tree import COLOURS, QUIET, ROWS, Tree, colours

TASK = Task("colour", ("red", "blue", "green"))
THEMES = Task("themes", ("trade", "floods", "ice"), kind="multi-label")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return colours(tmp_path_factory.mktemp("tree"))


def csv_rows(text):
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def test_candidates_without_a_usable_label_are_exported_in_the_order_of_picking(tree):
    made = export(tree.out, wanted=Wanted(), progress=QUIET)
    rows = csv_rows(made.text)
    assert [row["id"] for row in rows] == ["b", "c", "f", " g ", "h"]
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert rows[0]["gain"] == "5.0"
    assert (rows[0]["group"], rows[1]["group"]) == ("g1", "")
    assert rows[0]["instruction"] == "Name the colour: red, blue, green"
    assert json.loads(rows[0]["labels"]) == ["red", "blue", "green"]
    assert {row["label"] for row in rows} == {""}
    assert made.facts["labelled"] == 1


def test_no_cell_of_a_text_begins_like_a_formula_and_every_text_comes_back(tree):
    made = export(tree.out, wanted=Wanted(everything=True), progress=QUIET)
    rows = csv_rows(made.text)
    assert not [row for row in rows if row["input"].startswith(FORMULA)]
    texts = {row["id"]: row["input"] for row in ROWS}
    assert {row["id"]: restored(row["input"]) for row in rows} == {
        row["id"]: texts[row["id"]] for row in rows
    }
    assert made.text.startswith("\ufeff")


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="'=+-@\t\rx 1", max_size=6))
def test_a_guarded_cell_is_no_formula_and_is_restored(cell):
    assert not guarded(cell).startswith(FORMULA)
    assert restored(guarded(cell)) == cell


@pytest.mark.parametrize("cell", ["'tis", "it's", "''", "plain", "5 - 3", ""])
def test_a_cell_that_an_annotator_wrote_with_an_apostrophe_stays(cell):
    assert restored(cell) == cell


def test_jsonl_has_a_record_a_line_with_lists_as_lists(tree):
    made = export(tree.out, wanted=Wanted("jsonl"), progress=QUIET)
    rows = [json.loads(line) for line in made.text.splitlines()]
    assert rows[0]["input"] == "=SUM(A1) is a sky"
    assert rows[0]["labels"] == ["red", "blue", "green"]
    assert (rows[0]["label"], rows[0]["suggested"], rows[0]["task"]) == (None, None, "colour")


def test_the_same_output_is_exported_to_the_same_bytes(tree):
    for name in ("csv", "jsonl", "label-studio"):
        wanted = Wanted(name, suggest=True)
        first = export(tree.out, wanted=wanted, progress=QUIET)
        assert export(tree.out, wanted=wanted, progress=QUIET) == first


def test_suggestions_are_the_vote_of_the_nearest_labelled_rows(tree):
    # Labelled: a at 0 and d at 5 degrees (red), e at 85 (blue); h's label is none of the task's.
    made = export(tree.out, wanted=Wanted("label-studio", suggest=True), progress=QUIET)
    tasks = {task["data"]["row_id"]: task for task in json.loads(made.text)}
    near = np.cos(np.radians([80, 75, 5]))
    said = tasks["b"]["predictions"][0]
    assert said["model_version"] == "knn-5-tiny-1"
    assert said["result"][0]["value"] == {"choices": ["blue"]}
    assert said["score"] == pytest.approx(near[2] / near.sum(), abs=1e-4)
    assert tasks["f"]["predictions"][0]["result"][0]["value"] == {"choices": ["red"]}
    assert "annotations" not in tasks["b"]


def test_a_row_is_no_neighbour_of_its_own_and_equal_ones_go_by_id():
    vectors = np.eye(2, dtype=np.float32)[[0]]
    block = np.eye(2, dtype=np.float32)[[0] * 7]
    ids = ["z", "c", "b", "a", "y", "x", "w"]
    labels = dict.fromkeys(ids, "red")
    whole = nearest_labelled((["z"], vectors), [(ids, block, labels)])
    assert [one.id for one in whole[0]] == ["a", "b", "c", "w", "x"]
    parts = [([i], block[:1], labels) for i in ids]
    assert nearest_labelled((["z"], vectors), parts) == whole
    assert nearest_labelled((["z"], vectors), [(ids, block, {"c": "red"})])[0][0].id == "c"


def test_a_vote_weighs_cosines():
    def near(*pairs):
        return [Neighbour(-cosine, str(at), label) for at, (cosine, label) in enumerate(pairs)]

    assert vote(near((0.9, "blue"), (0.5, "red"), (0.5, "red")), TASK, model="m") == (
        "red",
        0.5263,
        "m",
    )
    assert vote(near((0.5, "blue"), (0.5, "red")), TASK, model="m").label == "red"
    assert vote(near((-0.5, "blue")), TASK, model="m") is None
    assert vote([], TASK, model="m") is None
    several = near((0.6, "trade;ice"), (0.3, "ice"), (0.1, "floods"))
    assert vote(several, THEMES, model="m") == ("trade;ice", 0.6, "m")


def test_labels_of_the_interface_are_escaped(tmp_path):
    task = COLOURS | {"labels": ['<b> & "x"', "plain"], "aliases": {}}
    made = export(colours(tmp_path, task=task).out, wanted=Wanted("label-studio"), progress=QUIET)
    assert """<Choice value='&lt;b&gt; &amp; "x"'/>""" in made.interface
    assert 'choice="single"' in made.interface


def test_entities_are_exported_as_regions_and_get_no_suggestion(tmp_path):
    entities = [{"text": "rose", "type": "PLANT", "start": 2, "end": 6}]
    rows = [{"id": "a", "input": "a rose", "output": json.dumps(entities)}]
    task = {"kind": "ner", "instruction": "Find.", "labels": ["PLANT", "TOOL"]}
    tree = Tree(tmp_path, rows, angles=[0], candidates={"main": ["a"]}, task=task)
    made = export(tree.out, wanted=Wanted("label-studio", everything=True), progress=QUIET)
    (region,) = json.loads(made.text)[0]["annotations"][0]["result"]
    assert region["type"] == "labels"
    assert region["value"] == {"text": "rose", "start": 2, "end": 6, "labels": ["PLANT"]}
    assert '<Label value="PLANT"/>' in made.interface
    with pytest.raises(ConfigError, match="of kind ner"):
        export(tree.out, wanted=Wanted(suggest=True), progress=QUIET)


def test_arms_that_ask_the_same_share_an_export_and_one_can_be_named(tmp_path):
    tree = colours(tmp_path, candidates={"one": ["b", "c"], "two": ["f", "b"]})
    rows = csv_rows(export(tree.out, wanted=Wanted(), progress=QUIET).text)
    assert [(row["id"], row["arm"], row["rank"]) for row in rows] == [
        ("b", "one", "0"),
        ("c", "one", "1"),
        ("f", "two", "0"),
    ]
    rows = csv_rows(export(tree.out, wanted=Wanted(arm="two"), progress=QUIET).text)
    assert [row["id"] for row in rows] == ["f", "b"]
    with pytest.raises(ConfigError, match="there are: one, two"):
        export(tree.out, wanted=Wanted(arm="three"), progress=QUIET)


def test_the_candidates_of_all_folds_are_exported_where_selection_is_repeated(tmp_path):
    folds = {"main fold 1": ["b", "c"], "main fold 2": ["f", "b"]}
    tree = colours(tmp_path, report={"folds": 2, "folds_of": "selection"})
    del tree.manifest["selections"]["main"]
    for name, ids in folds.items():
        tree.add_candidates(name, ids, {row["id"]: row for row in ROWS})
    manifest.save(tree.ledger.store, tree.manifest)
    rows = csv_rows(export(tree.out, wanted=Wanted(), progress=QUIET).text)
    assert [(row["id"], row["arm"]) for row in rows] == [
        ("b", "main"),
        ("c", "main"),
        ("f", "main"),
    ]


def test_what_has_no_labelled_neighbour_is_refused_and_no_run_is_no_export(tmp_path):
    rows = [{"id": "a", "input": "rose"}]
    tree = Tree(tmp_path, rows, angles=[0], candidates={"main": ["a"]})
    with pytest.raises(ConfigError, match="no row of the corpus has a label"):
        export(tree.out, wanted=Wanted(suggest=True), progress=QUIET)
    with pytest.raises(DataError, match="came as far as `dualdiv select`"):
        export(str(tmp_path / "none"), wanted=Wanted(), progress=QUIET)


def test_on_the_command_line_files_and_facts_are_told_apart(tree, tmp_path, capsys):
    to = tmp_path / "made" / "tasks.json"
    arguments = ["export", tree.out, "--format", "label-studio", "--to", str(to), "--json"]
    assert main(arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["files"] == [str(to), f"{to}.interface.xml"]
    assert len(json.loads(to.read_text())) == facts["rows"] == 5
    assert main(["export", tree.out, "--json"]) == 2
    assert "--to" in capsys.readouterr().err
    assert main(["export", tree.out]) == 0
    assert capsys.readouterr().out.startswith("\ufeffid,input")
