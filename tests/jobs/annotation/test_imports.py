"""Labels that come back: every row gets a verdict, nothing is lost, nothing counts twice."""

import contextlib
import csv
import io
import json

import pytest

from inference.entities import from_json
from jobs import manifest
from jobs.annotation.export import Wanted, export
from jobs.annotation.imports import Reading, import_labels
from jobs.annotation.labels import IMPORT_SCHEMA, imports_of, labels_of
from jobs.annotation.written import WRITERS
from jobs.cli import main
from jobs.errors import ClusterError, ConfigError, DataError
from tests.jobs.annotation.returned_files import DIRTY, UNUSABLE, spans
from tests.jobs.annotation.tree import COLOURS, QUIET, ROWS, Tree, colours


@pytest.fixture
def tree(tmp_path):
    return colours(tmp_path)


def take_in(tree, *files, **how):
    return import_labels(tree.out, files, how=Reading(**how), progress=QUIET)


def table(tree, number=0):
    return tree.ledger.read(imports_of(tree.ledger)[number]).to_pylist()


def said(tree):
    return {i: label.label for i, label in labels_of(tree.ledger).items()}


@pytest.mark.parametrize("name", DIRTY)
def test_every_row_of_a_dirty_file_stands_in_the_table_with_its_status(tree, name):
    file, data, statuses = DIRTY[name]()
    made = take_in(tree, tree.file(file, data))
    rows = table(tree)
    assert [row["status"] for row in rows] == statuses
    assert tree.ledger.read(imports_of(tree.ledger)[0]).schema == IMPORT_SCHEMA
    assert all(row["reason"] for row in rows if row["status"] != "ok")
    assert set(said(tree)) == {row["id"] for row in rows if row["status"] == "ok"}
    assert sum(made["files"][0]["status"].values()) == len(statuses)


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_without_rows_or_columns_is_refused_and_leaves_nothing(tree, name):
    data, words = UNUSABLE[name]
    good = tree.file("good.csv", "id,label\nb,blue\n")
    with pytest.raises(DataError, match=words):
        take_in(tree, good, tree.file(name, data))
    assert imports_of(tree.ledger) == []


def test_what_a_row_says_is_kept_as_written_beside_what_it_means(tree):
    take_in(tree, tree.file("x.csv", 'id,label,tags,annotator\nb, CRIMSON,"[""t""]",Ann\n'))
    (row,) = table(tree)
    assert (row["label"], row["written"], row["tags"]) == ("red", " CRIMSON", ["t"])
    assert (row["annotator"], row["source_file"][-5:], row["source_line"]) == ("Ann", "x.csv", 2)
    assert row["imported_at"].endswith("Z")
    label = labels_of(tree.ledger)["b"]
    assert (label.label, label.tags, label.source) == ("red", ("t",), "import-0001")


def test_the_same_file_twice_changes_nothing_and_says_so(tree, capsys):
    file = tree.file("x.csv", "id,label\nb,blue\n")
    take_in(tree, file)
    again = tree.file("renamed.csv", "id,label\nb,blue\n")
    assert main(["import", tree.out, again, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["files"] == [
        {"file": again, "import": None, "imported_before": "import-0001", "rows": 0}
    ]
    assert "imported before, as import-0001; nothing changes" in told.err
    assert len(imports_of(tree.ledger)) == 1
    take_in(tree, file, again=True)
    assert [row["status"] for row in table(tree, 1)] == ["known"]
    assert labels_of(tree.ledger)["b"].source == "import-0001"


@pytest.mark.parametrize(
    ("policy", "label", "status"),
    [("reject", "blue", "conflict"), ("first", "blue", "conflict"), ("newest", "green", "ok")],
)
def test_a_label_against_an_earlier_import_counts_by_policy(tree, policy, label, status):
    take_in(tree, tree.file("x.csv", "id,label\nb,blue\n"))
    second = tree.file("y.csv", "id,label\nb,green\n")
    made = take_in(tree, second, on_conflict=policy)["files"][0]
    (row,) = table(tree, 1)
    assert (row["status"], row["conflicts_with"]) == (status, "'blue' of import-0001")
    assert (made["conflicts"], len(made["problems"])) == (1, 1)
    assert said(tree) == {"b": label}


@pytest.mark.parametrize(("policy", "label"), [("first", "red"), ("newest", "green")])
def test_one_file_that_says_two_things_counts_by_policy(tree, policy, label):
    file = tree.file("x.csv", "id,label\nb,red\nb,blue\nb,green\n")
    made = take_in(tree, file, on_conflict=policy)
    rows = table(tree)
    assert sorted(row["status"] for row in rows) == ["double_label", "double_label", "ok"]
    assert all("on line" in row["conflicts_with"] for row in rows)
    assert made["files"][0]["conflicts"] == 3
    assert said(tree) == {"b": label}


def test_a_label_that_the_task_has_no_more_is_asked_for_again(tree):
    take_in(tree, tree.file("x.csv", "id,label\nb,blue\nc,green\n"))
    task = tree.manifest["config"]["tasks"]["colour"]
    task |= {"labels": ["red", "teal"], "aliases": {"green": "teal"}}
    manifest.save(tree.ledger.store, tree.manifest)
    text = export(tree.out, wanted=Wanted("jsonl"), progress=QUIET).text
    asked = [json.loads(line)["id"] for line in text.splitlines()]
    assert "b" in asked
    assert "c" not in asked
    take_in(tree, tree.file("y.csv", "id,label\nb,red\nc,teal\n"))
    assert [row["status"] for row in table(tree, 1)] == ["ok", "known"]
    assert said(tree) == {"b": "red", "c": "green"}


def test_the_answers_to_two_tasks_of_one_row_stand_beside_each_other(tmp_path):
    rows = [{"id": "a", "input": "a red rose", "output": spans_of("rose")}]
    plants = {"kind": "ner", "instruction": "Plants.", "labels": ["PLANT"]}
    tree = Tree(
        tmp_path,
        rows,
        angles=[0],
        candidates={"main": ["a"], "plants": ["a"]},
        tasks={"colour": COLOURS, "plants": plants},
        corpus={
            "path": "c.jsonl",
            "partition": {"count": 2},
            "columns": {"label": "label", "output": "output"},
        },
        arms=[
            {"name": "main", "task": "colour"},
            {"name": "plants", "task": "plants", "generate": {"decoder": "generate"}},
        ],
    )
    take_in(tree, tree.file("x.csv", "id,label\na,red\n"))
    assert table(tree)[0]["status"] == "ok"
    rose = json.dumps({"id": "a", "output": spans_of("red rose")})
    take_in(tree, tree.file("y.jsonl", rose), on_conflict="newest")
    assert table(tree, 1)[0]["conflicts_with"].endswith("of the corpus")
    label = labels_of(tree.ledger)["a"]
    assert label.label == "red"
    assert [one.text for one in from_json(label.output)] == ["red rose"]
    take_in(tree, tree.file("z.csv", "id,label\na,blue\n"))
    assert table(tree, 2)[0]["conflicts_with"].startswith("'red' of")


def spans_of(text):
    return json.dumps([{"text": text, "type": "PLANT"}])


def test_the_config_names_the_policy(tmp_path):
    tree = colours(tmp_path, annotate={"on_conflict": "newest"})
    take_in(tree, tree.file("x.csv", "id,label\na,blue\n"))
    assert said(tree) == {"a": "blue"}
    assert table(tree)[0]["conflicts_with"] == "'red' of the corpus"


@pytest.mark.parametrize("name", WRITERS)
def test_an_export_comes_back_whole_in_every_format(tree, name):
    made = export(tree.out, wanted=Wanted(name), progress=QUIET)
    text = made.text
    if name == "csv":
        rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(row | {"label": "blue"} for row in rows)
        text = out.getvalue()
    elif name == "jsonl":
        text = text.replace('"label": null', '"label": "blue"')
    else:
        tasks = json.loads(text)
        for task in tasks:
            value = {"choices": ["blue"]}
            result = [{"from_name": "label", "type": "choices", "value": value}]
            task["annotations"] = [{"result": result, "completed_by": 1}]
        text = json.dumps(tasks)
    take_in(tree, tree.file(f"back.{'json' if name == 'label-studio' else name}", text))
    assert [row["status"] for row in table(tree)] == ["ok"] * 5
    assert said(tree) == dict.fromkeys(["b", "c", "f", " g ", "h"], "blue")


PARTS = {"kind": "ner", "instruction": "Find.", "labels": ["METAL", "TOOL"]}
TEXT = "\U0001f525 hot iron, cold iron"


@pytest.mark.parametrize("name", spans(TEXT))
def test_spans_become_entities_with_offsets_in_characters_or_are_refused(tmp_path, name):
    regions, wanted = spans(TEXT)[name]
    rows = [{"id": "a", "input": TEXT}]
    tree = Tree(tmp_path, rows, angles=[0], candidates={"main": ["a"]}, task=PARTS)
    results = [{"from_name": "label", "type": "labels", "value": value} for value in regions]
    task = {"data": {"row_id": "a"}, "annotations": [{"result": results}]}
    take_in(tree, tree.file("x.json", json.dumps([task])))
    (row,) = table(tree)
    if isinstance(wanted, str):
        assert (row["status"], row["output"]) == ("bad_output", None)
        assert wanted in row["reason"]
    else:
        assert (row["status"], row["label"]) == ("ok", None)
        assert [one._asdict() for one in from_json(row["output"])] == wanted
        flat = tree.file("y.jsonl", json.dumps({"row_id": "a", "label": regions}))
        take_in(tree, flat)
        assert table(tree, 1)[0]["status"] == "known"


def test_several_labels_and_queries_come_back(tmp_path):
    rows = [{"id": "a", "input": "ice on the river"}]
    themes = {"kind": "multi-label", "instruction": "Themes.", "labels": ["trade", "floods", "ice"]}
    (tmp_path / "many").mkdir()
    tree = Tree(tmp_path / "many", rows, angles=[0], candidates={"main": ["a"]}, task=themes)
    take_in(tree, tree.file("x.jsonl", '{"id": "a", "label": {"choices": ["Ice", "floods"]}}'))
    assert said(tree) == {"a": "floods;ice"}
    take_in(tree, tree.file("y.csv", "id,label\na,ice; floods\n"))
    assert table(tree, 1)[0]["status"] == "known"
    (tmp_path / "sql").mkdir()
    sql = {"kind": "sql", "instruction": "Ask.", "labels": []}
    tree = Tree(tmp_path / "sql", rows, angles=[0], candidates={"main": ["a"]}, task=sql)
    take_in(tree, tree.file("x.csv", "id,output\na,SELECT 1;\n"))
    assert labels_of(tree.ledger)["a"].output == "SELECT 1"


def test_imported_labels_become_records_of_the_next_pool_version(tree):
    assert list(tree.annotate()) == ["a", "h"]
    take_in(tree, tree.file("x.csv", "id,label\nb,Blue\nd,red\nh,green\n"))
    records = tree.annotate()
    assert {i: (row["label"], row["source"]) for i, row in records.items()} == {
        "a": ("red", "corpus"),
        "b": ("blue", "import-0001"),
        "h": ("green", "import-0001"),
    }
    assert {row["version"] for row in records.values()} == {"v0002"}
    assert records["b"]["rendered"].endswith("Answer: blue")
    assert "1 candidates have an imported label that is not the corpus's" in tree.warnings[0]
    assert tree.annotate() == records


def test_a_label_of_another_text_does_not_count(tree, tmp_path):
    take_in(tree, tree.file("x.csv", "id,label\nb,blue\n"))
    rows = [{"id": "b", "input": "another text"}]
    (tmp_path / "changed").mkdir()
    changed = Tree(tmp_path / "changed", rows, angles=[0], candidates={"main": ["b"]})
    for name in ("labels/import-0001.parquet", "labels/import-0001.done.json"):
        changed.ledger.store.write_bytes(name, tree.ledger.store.read_bytes(name))
    assert changed.annotate() == {}
    assert "about another text" in changed.warnings[0]
    take_in(changed, changed.file("y.csv", "id,label\nb,red\n"))
    assert changed.annotate()["b"]["label"] == "red"


def test_a_label_that_the_corpus_spells_otherwise_is_no_other_label(tree, tmp_path):
    take_in(tree, tree.file("x.csv", "id,label\nb,red\nc,red\n"))
    rows = [
        {"id": "b", "input": ROWS[1]["input"], "label": "Crimson"},
        {"id": "c", "input": ROWS[2]["input"], "label": "blue"},
    ]
    (tmp_path / "later").mkdir()
    later = Tree(tmp_path / "later", rows, angles=[0, 9], candidates={"main": ["b", "c"]})
    for name in ("labels/import-0001.parquet", "labels/import-0001.done.json"):
        later.ledger.store.write_bytes(name, tree.ledger.store.read_bytes(name))
    assert {row["label"] for row in later.annotate().values()} == {"red"}
    assert "1 candidates have an imported label that is not the corpus's ('c'" in later.warnings[0]


def test_a_live_run_and_a_missing_file_are_told(tree):
    from jobs import lock

    file = tree.file("x.csv", "id,label\nb,blue\n")
    with lock.held(tree.ledger.store, warn=print), pytest.raises(ClusterError, match="working on"):
        take_in(tree, file)
    with pytest.raises(ConfigError, match="no such file"):
        take_in(tree, f"{file}.nowhere")
    take_in(tree, file)


def test_what_a_run_left_before_the_lock_was_got_is_what_is_gone_by(tree, monkeypatch):
    from jobs import lock, manifest

    real = lock.held

    @contextlib.contextmanager
    def slow(store, **how):
        with real(store, **how):
            # The run that held it until now has another label.
            told = manifest.load(store)
            told["config"]["tasks"]["colour"]["labels"].append("amber")
            manifest.save(store, told)
            yield

    monkeypatch.setattr(lock, "held", slow)
    take_in(tree, tree.file("x.csv", "id,label\nb,amber\n"))
    assert said(tree) == {"b": "amber"}


def test_a_folder_that_is_no_output_is_left_as_it_is(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("id,label\nb,blue\n")
    with pytest.raises(DataError, match="no candidates"):
        import_labels(str(tmp_path), [str(file)], how=Reading(), progress=QUIET)
    assert list(tmp_path.iterdir()) == [file]


def test_a_broken_marker_of_an_import_is_an_error_and_not_written_over(tree):
    file = tree.file("x.csv", "id,label\nb,blue\n")
    take_in(tree, file)
    tree.ledger.store.write_bytes("labels/import-0001.done.json", b"{")
    with pytest.raises(DataError, match="no marker of a finished table"):
        take_in(tree, tree.file("y.csv", "id,label\nc,blue\n"))


def test_a_huge_file_of_long_texts_is_read(tree):
    long = "x" * 3_000_000
    lines = [f'f,"{long}",red', f'b,"{long}\n{long}",blue']
    take_in(tree, tree.file("x.csv", "id,input,label\n" + "\n".join(lines) + "\n"))
    assert said(tree) == {"f": "red", "b": "blue"}


def test_every_alias_and_label_of_the_task_is_taken(tree):
    for at, label in enumerate([*COLOURS["labels"], *COLOURS["aliases"]]):
        take_in(tree, tree.file(f"{at}.csv", f"id,label\nf,{label}\n"), on_conflict="newest")
    assert said(tree) == {"f": "red"}
