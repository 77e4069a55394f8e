"""Export, import and care of the pool, with the output and the annotators' files in a bucket."""

import csv
import io

import pytest

from jobs.annotation.finished import finished
from jobs.annotation.labels import imports_of, labels_of
from jobs.cli import main
from jobs.errors import DataError
from jobs.progress import Progress
from jobs.storage import Store
from tests.jobs.annotation.tree import colours


def test_labels_go_out_and_come_back_and_the_pool_is_looked_after(bucket, tmp_path, capsys):
    tree = colours(tmp_path, out=f"{bucket}/runs/one")
    assert main(["export", tree.out, "--to", f"{bucket}/out/tasks.csv"]) == 0
    text = Store(f"{bucket}/out").read_bytes("tasks.csv").decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == ["b", "c", "f", " g ", "h"]
    back = io.StringIO()
    writer = csv.DictWriter(back, list(rows[0]))
    writer.writeheader()
    writer.writerows(row | {"label": "blue" if row["id"] == "b" else ""} for row in rows)
    Store(f"{bucket}/back").write_bytes("tasks.csv", back.getvalue().encode())
    assert main(["import", tree.out, f"{bucket}/back/tasks.csv", "--json"]) == 0
    assert f"{tree.out}/labels/import-0001.parquet" in capsys.readouterr().out
    assert {i: label.label for i, label in labels_of(tree.ledger).items()} == {"b": "blue"}
    assert set(tree.annotate()) >= {"a", "b"}
    assert main(["pool", "check", tree.out]) == 0
    assert f"{tree.out}/pool_checks/" in capsys.readouterr().out
    assert main(["pool", "retire", tree.out, "b"]) == 0
    assert tree.annotate()["b"]["state"] == "retired"


def test_what_is_not_there_or_damaged_is_named_by_its_path_in_the_bucket(bucket, tmp_path):
    with pytest.raises(DataError, match=f"{bucket}/nothing/manifest.json: is not there"):
        finished(f"{bucket}/nothing", progress=Progress(quiet=True))
    tree = colours(tmp_path, out=f"{bucket}/runs/one")
    tree.ledger.store.write_bytes("labels/import-0001.done.json", b"{")
    with pytest.raises(DataError, match=f"{tree.out}/labels/import-0001.done.json: is no marker"):
        imports_of(tree.ledger)
