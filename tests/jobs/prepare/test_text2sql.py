"""Text-to-SQL: variables filled in, only SQL that runs, and nothing but reading."""

import json
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inference.sql_sandbox import Limits
from jobs.errors import ConfigError, DataError
from jobs.prepare import prepare
from jobs.prepare.sql_databases import Database, template
from tests.jobs.prepare.originals import sql_folder

GOLD = 'SELECT height FROM hill WHERE name = "{}" AND height > 50 ;'


def made(tmp_path, source=None, **options):
    source = source or sql_folder(tmp_path / "in")
    meta = prepare("text2sql", source=str(source), out=str(tmp_path / "out"), **options)
    names = ("corpus", "queries", "rejected")
    return meta, {
        name: pq.read_table(tmp_path / "out" / f"{name}.parquet").to_pylist() for name in names
    }


def test_questions_have_their_variables_filled_in_and_keep_the_split_of_the_source(tmp_path):
    meta, tables = made(tmp_path)
    assert {row["id"]: (row["input"], row["output"]) for row in tables["corpus"]} == {
        "hills-0": ("how high is brunk", GOLD.format("brunk")),
        "hills-3": ("how high is solt", GOLD.format("solt")),
    }
    row = tables["corpus"][0]
    assert (row["label"], row["database"]) == ("hills", "hills")
    assert row["schema"] == "hill(name text, height int)"
    assert {row["id"] for row in tables["queries"]} == {"hills-2", "hills-6"}
    dev = pq.read_table(tmp_path / "out" / "dev.parquet").to_pylist()
    assert [row["id"] for row in dev] == ["hills-1"]
    assert meta["databases"] == ["hills"]
    assert meta["left_out"] == {
        "questions that the source excludes": 1,
        "questions without an SQLite file (lakes)": 1,
    }
    copy = tmp_path / "out" / "databases" / "hills.sqlite"
    assert copy.read_bytes() == next((tmp_path / "in").glob("*.sqlite")).read_bytes()


def test_sql_that_does_not_run_is_rejected_with_the_error(tmp_path):
    meta, tables = made(tmp_path)
    assert meta["rejected_reasons"] == {"sql_error": 1}
    assert tables["rejected"][0]["id"] == "hills-5"
    assert "no such column: depth: SELECT depth" in tables["rejected"][0]["detail"]


def test_questions_in_folds_get_a_split_by_their_sql_without_constants(tmp_path):
    source = sql_folder(tmp_path / "in", splits=("0", "1", "2", "3", "exclude"))
    meta, tables = made(tmp_path, source, test_share=0.5)
    sides = [{row["group"] for row in tables[name]} for name in ("corpus", "queries")]
    assert not sides[0] & sides[1]
    assert {row["split"] for row in tables["corpus"]} == {"train"}
    assert meta["corpus_rows"] + meta["query_rows"] == 5
    with pytest.raises(ConfigError, match="--test-share 0: wanted a part"):
        made(tmp_path, source, test_share=0)


def test_a_parquet_file_of_questions_serves_as_well(tmp_path):
    sql_folder(tmp_path / "in")
    columns = {
        "id": ["a", "b", "c"],
        "input": ["how many", "how high", None],
        "output": ["SELECT COUNT(*) FROM hill", "SELECT height FROM hill", "SELECT 1"],
        "label": ["hills"] * 3,
        "split": ["train", "test", "test"],
    }
    pq.write_table(pa.table(columns), tmp_path / "q.parquet")
    meta, tables = made(tmp_path, tmp_path / "q.parquet", databases=str(tmp_path / "in"))
    assert ([row["id"] for row in tables["corpus"]], meta["query_rows"]) == (["a"], 1)
    assert tables["rejected"][0]["detail"] == "no input"
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"q.parquet: no column 'input'. It has: \['id'\]"):
        made(tmp_path, tmp_path / "q.parquet")
    (tmp_path / "q.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"q.parquet: no Parquet file that can be read"):
        made(tmp_path, tmp_path / "q.parquet")


@pytest.mark.parametrize(
    "entry",
    [
        "a text",
        {"sql": ["SELECT 1"]},
        {"sql": [], "sentences": [], "variables": []},
        {"sql": ["SELECT 1"], "sentences": ["how"], "variables": []},
        {"sql": ["SELECT 1"], "sentences": [], "variables": [{"name": "x"}]},
    ],
)
def test_an_entry_that_is_no_query_is_rejected(tmp_path, entry):
    source = sql_folder(tmp_path / "in")
    entries = json.loads((source / "hills.json").read_text())
    (source / "hills.json").write_text(json.dumps([*entries, entry]))
    meta, tables = made(tmp_path, source)
    assert meta["rejected_reasons"] == {"not_a_record": 1, "sql_error": 1}
    assert {row["id"] for row in tables["rejected"]} == {"hills-entry-3", "hills-5"}


def test_without_a_database_or_questions_the_source_is_refused(tmp_path):
    source = sql_folder(tmp_path / "in")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"no row for corpus.parquet"):
        made(tmp_path, source, databases=str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"no \*.json in it"):
        made(tmp_path, tmp_path / "none")
    (source / "hills.sqlite").write_bytes(b"SQLite it is not")
    with pytest.raises(DataError, match=r"are both the database hills"):
        made(tmp_path, source)
    (source / "hills-db.added-in-2020.sqlite").unlink()
    with pytest.raises(DataError, match=r"hills.sqlite: no SQLite file that can be read"):
        made(tmp_path, source)


def test_gold_sql_is_held_to_the_limits_that_it_is_scored_under(tmp_path):
    path = next(sql_folder(tmp_path / "in").glob("*.sqlite"))
    database = Database(path, Limits(seconds=0.2, rows=100))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
    assert database.error_of(endless.format("max(i)")) == "ran longer than 0.2 s"
    assert database.error_of(endless.format("i")) == "returns more than 100 rows"
    assert database.error_of("SELECT printf('%1000000000d', 1)").startswith("not allowed: FUNCTION")
    assert database.error_of("SELECT name FROM hill") is None


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM hill",
        "INSERT INTO hill VALUES ('x', 1)",
        "DROP TABLE hill",
        "CREATE TABLE x (y)",
        "ATTACH DATABASE '{folder}/new.sqlite' AS other",
        "VACUUM INTO '{folder}/new.sqlite'",
        "PRAGMA journal_mode = WAL",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
    ],
)
def test_gold_sql_can_only_read(tmp_path, sql):
    path = next(sql_folder(tmp_path / "in").glob("*.sqlite"))
    before = path.read_bytes()
    assert Database(path).error_of(sql.format(folder=tmp_path))
    assert path.read_bytes() == before
    assert not (tmp_path / "new.sqlite").exists()


def test_a_template_ignores_constants_case_and_space_only():
    one = template("SELECT a FROM t WHERE b = 'x''y' AND c > 3.5")
    assert one == template('select a  from t where b = "z" and c > 7')
    assert one != template("SELECT a FROM t WHERE b = 'x' AND d > 3")
    assert template("SELECT city1 FROM t") != template("SELECT city2 FROM t")


def test_the_real_geography_questions_run_but_five(real, tmp_path):
    source = real("tasks/text2sql_classic.parquet")
    meta, tables = made(tmp_path, source, databases=str(real("sql")))
    geography = {
        name: [r for r in rows if r["id"].startswith("geography")] for name, rows in tables.items()
    }
    assert len(geography["rejected"]) == 5
    kept = meta["corpus_labels"]["geography"] + meta["query_labels"]["geography"]
    assert kept + meta["dev_labels"]["geography"] == 872
    with sqlite3.connect(tmp_path / "out" / "databases" / "geography.sqlite") as connection:
        for row in geography["queries"][:20]:
            connection.execute(row["output"]).fetchall()
    connection.close()
