"""Queries that should run, and queries that try to write, read files, or never end."""

import hashlib
import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from inference.sql_results import judge, run_gold, same_rows
from inference.sql_sandbox import Limits, Sandbox, opened
from inference.status import Status
from tests.inference import sql_fixture

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"


@pytest.fixture
def path(tmp_path):
    return sql_fixture.write(tmp_path / "towns.sqlite")


@pytest.fixture
def sandbox(path):
    with opened(path, Limits(seconds=0.3, rows=1000)) as one:
        yield one


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT name FROM town WHERE region = 'south'", [("Cumor",)]),
        ('SELECT name FROM town WHERE region = "south";', [("Cumor",)]),
        ("SELECT count(*), avg(people), max(area) FROM town", [(4, 712.5, 3.5)]),
        (
            "SELECT t.name FROM town t JOIN river r ON t.name = r.town ORDER BY 1 DESC LIMIT 1",
            [("Brez",)],
        ),
        ("SELECT name FROM large WHERE name LIKE 'c%'", [("Cumor",)]),
        (
            "WITH n AS (SELECT region r, sum(people) p FROM town GROUP BY 1) "
            "SELECT p FROM n WHERE r = 'north'",
            [(2000,)],
        ),
        ("SELECT name, rank() OVER (ORDER BY people DESC) FROM town LIMIT 1", [("Ablon", 1)]),
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3) "
            "SELECT x FROM c",
            [(1,), (2,), (3,)],
        ),
        ("SELECT name FROM town WHERE people > 9999", []),
        ("WITH n AS (SELECT name FROM town) SELECT count(*) FROM n", [(4,)]),
        ("SELECT count(*) FROM (SELECT DISTINCT region FROM town)", [(3,)]),
        (
            "SELECT strftime('%Y', '2020-02-03'), upper('a') || 1, round(2.26, 1)",
            [("2020", "A1", 2.3)],
        ),
    ],
)
def test_reading_queries_run(sandbox, query, rows):
    assert sandbox.run(query) == (Status.OK, "", rows)


ATTACKS = [
    "INSERT INTO town VALUES ('x', 1, 1, 'x')",
    "UPDATE town SET people = 0",
    "DELETE FROM town",
    "DELETE FROM town RETURNING name",
    "REPLACE INTO town VALUES ('x', 1, 1, 'x')",
    "WITH n AS (SELECT 1) INSERT INTO town SELECT 'x', 1, 1, 'x' FROM n",
    "DROP TABLE town",
    "DROP VIEW large",
    "ALTER TABLE town RENAME TO city",
    "CREATE TABLE mine (a)",
    "CREATE TEMP TABLE mine (a)",
    "CREATE TEMP VIEW mine AS SELECT 1",
    "CREATE TRIGGER t AFTER INSERT ON town BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE mine USING fts5(a)",
    "CREATE INDEX i ON town (name)",
    "ATTACH DATABASE '{stolen}' AS stolen",
    "ATTACH ':memory:' AS m",
    "DETACH main",
    "VACUUM INTO '{stolen}'",
    "VACUUM",
    "REINDEX",
    "ANALYZE",
    "BEGIN IMMEDIATE",
    "SAVEPOINT s",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA database_list",
    "PRAGMA temp_store_directory = '{folder}'",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('town')",
    "SELECT * FROM sqlite_dbpage",
    "SELECT * FROM dbstat",
    "SELECT load_extension('{stolen}')",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('{stolen}', 'x')",
    "SELECT edit('x', 'sh')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_compileoption_get(1)",
    "SELECT * FROM fsdir('/')",
    "EXPLAIN QUERY PLAN DELETE FROM town",
    "SELECT 1; DROP TABLE town",
    "SELECT name FROM nowhere",
    "SELECT height FROM town",
    "SELEC name FROM town",
    "SELECT '\x00' FROM town",
    "SELECT '\ud800' FROM town",
    "",
    "-- nothing",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_query_writes_attaches_or_reads_files(sandbox, path, tmp_path, attack):
    before = hashlib.sha256(path.read_bytes()).digest()
    query = attack.format(stolen=tmp_path / "stolen", folder=tmp_path)
    result = sandbox.run(query)
    assert result.status is Status.SQL_ERROR
    assert result.detail
    assert result.rows is None
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert os.listdir(tmp_path) == ["towns.sqlite"]
    assert sandbox.run("SELECT count(*) FROM town").rows == [(4,)]


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("UPDATE town SET people = 0", "not allowed: UPDATE town"),
        ("SELECT load_extension('x')", "not allowed: FUNCTION load_extension"),
        ("PRAGMA database_list", "not allowed: PRAGMA database_list"),
        ("SELECT * FROM pragma_database_list", "not allowed"),
        ("SELECT height FROM town", "no such column: height"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT x FROM (" + f"{ENDLESS} x FROM c LIMIT 2000)", "more than 1,000 rows"),
        ("SELECT zeroblob(1000000000)", "too big"),
        ("SELECT printf('%.*c', 1000000000, 'x')", "not allowed: FUNCTION printf"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, ""),
        ("SELECT " + ", ".join(["1"] * 3000), "too many columns"),
    ],
)
def test_a_query_that_fails_says_why(sandbox, query, part):
    result = sandbox.run(query)
    assert (result.status, result.rows) == (Status.SQL_ERROR, None)
    assert part in result.detail
    assert result.detail


@pytest.mark.parametrize(
    "query",
    [
        f"{ENDLESS} count(*) FROM c",
        f"{ENDLESS} max(x) FROM c WHERE x < 0",
        "SELECT count(*) FROM " + ", ".join(f"town t{i}, river r{i}" for i in range(12)),
    ],
)
def test_a_query_that_never_ends_is_a_timeout(sandbox, query):
    started = time.monotonic()
    result = sandbox.run(query)
    assert (result.status, result.detail) == (Status.TIMEOUT, "ran longer than 0.3 s")
    assert time.monotonic() - started < 3


def test_a_query_that_gathers_without_end_stays_within_its_memory(path):
    with opened(path, Limits(seconds=20)) as one:
        many = ENDLESS.replace("FROM c)", "FROM c LIMIT 9000)")
        result = one.run(f"{many} x FROM c, (SELECT zeroblob(250000) b) ORDER BY b || x")
    assert result.status is Status.SQL_ERROR
    assert "more than 256 MiB" in result.detail


def test_a_file_that_is_missing_or_no_database_is_named_and_not_made(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.sqlite: cannot be opened"):
        Sandbox(tmp_path / "gone.sqlite")
    (tmp_path / "text.sqlite").write_text("no database " * 200)
    with pytest.raises(ValueError, match="not a database"):
        Sandbox(tmp_path / "text.sqlite")
    assert os.listdir(tmp_path) == ["text.sqlite"]


def test_a_path_cannot_smuggle_in_options(tmp_path):
    path = sql_fixture.write(tmp_path / "a?mode=rwc#%41.sqlite")
    with opened(path) as one:
        assert one.run("SELECT count(*) FROM town").rows == [(4,)]
        assert one.run("DELETE FROM town").status is Status.SQL_ERROR


@pytest.mark.parametrize(
    ("query", "gold", "same", "same_unordered"),
    [
        ("SELECT name FROM town ORDER BY people", "SELECT name FROM town", True, True),
        (
            "SELECT name FROM town ORDER BY name DESC",
            "SELECT name FROM town ORDER BY name",
            False,
            True,
        ),
        ("SELECT name FROM town", "SELECT name FROM town ORDER BY name", True, True),
        ("SELECT DISTINCT people FROM town", "SELECT people FROM town", False, False),
        ("SELECT people * 1.0 FROM town", "SELECT people FROM town", True, True),
        ("SELECT 0.1 + 0.2", "SELECT 0.3", True, True),
        ("SELECT '1'", "SELECT 1", False, False),
        ("SELECT NULL", "SELECT 0", False, False),
        ("SELECT region, name FROM town", "SELECT name, region FROM town", False, False),
        ("SELECT name FROM nowhere", "SELECT name FROM town", False, False),
    ],
)
def test_results_are_compared_in_order_where_the_gold_orders(
    sandbox, query, gold, same, same_unordered
):
    verdict = judge(sandbox, query, run_gold(sandbox, gold))
    assert (verdict.same, verdict.same_unordered) == (same, same_unordered)


def test_a_gold_query_that_does_not_run_has_no_rows_and_a_reason(sandbox):
    gold = run_gold(sandbox, "SELECT x FROM nowhere")
    assert (gold.rows, gold.detail) == (None, "no such table: nowhere")


def test_equal_rows_in_another_number_are_another_result():
    assert not same_rows([(1,), (1,), (2,)], [(1,), (2,), (2,)], ordered=False)
    assert same_rows([(1,), (2.0,)], [(2,), (1,)], ordered=False)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_sum_is_the_same_as_a_float_and_an_id_is_exact(ordered):
    assert same_rows([(12345678901, "a")], [(12345678901.0, "a")], ordered=ordered)
    assert same_rows([(12345678901,), (0.5,)], [(12345678901.0,), (0.5,)], ordered=ordered)
    assert not same_rows([(12345678901,)], [(12345678902,)], ordered=ordered)
    assert not same_rows([(1.0,)], [(1.0, 2)], ordered=ordered)


def test_the_gold_queries_of_a_real_data_set_run():
    folder = os.environ.get("DUALDIV_DATA_DIR")
    if not folder:
        pytest.skip("DUALDIV_DATA_DIR is not set: the folder with real queries and databases")
    table = pq.read_table(Path(folder) / "tasks" / "text2sql_classic.parquet").to_pylist()
    queries = [row["output"] for row in table if row["label"] == "geography"]
    with opened(Path(folder) / "sql" / "geography.sqlite") as one:
        golds = [run_gold(one, query) for query in queries]
        ran = [gold.rows is not None for gold in golds]
        assert (sum(ran), len(ran)) == (872, 877)
        assert all(judge(one, q, g).same for q, g in zip(queries, golds, strict=True) if g.rows)
