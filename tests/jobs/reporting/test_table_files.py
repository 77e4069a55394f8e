import csv
import io

import pytest

from jobs.reporting.table_files import as_csv, as_markdown, as_page
from jobs.reporting.tables import Cell, Table

AWKWARD = 'a|b, "c"\nd <script>alert(1)</script> *e*'
TABLE = Table(["name", "value"], [[Cell(AWKWARD), Cell("+0.1***", number=True, shade=0.5)]])


def test_csv_gives_back_every_cell():
    rows = list(csv.reader(io.StringIO(as_csv(TABLE), newline="")))
    assert rows == [["name", "value"], [AWKWARD, "+0.1***"]]


def test_no_spreadsheet_runs_a_text_of_the_corpus_as_a_formula():
    figures = [Cell("-0.5", number=True), Cell("-")]
    table = Table(["=1", "b", "c"], [[Cell('=HYPERLINK("x")'), *figures]])
    assert as_csv(table).splitlines() == ["'=1,b,c", '"\'=HYPERLINK(""x"")",-0.5,-']


def test_markdown_keeps_one_line_a_row_and_stars_stay_stars():
    lines = as_markdown(TABLE).splitlines()
    assert lines[:2] == ["| name | value |", "| --- | ---: |"]
    assert len(lines) == 3
    assert lines[2].endswith(r"| +0.1\*\*\* |")
    assert r"a\|b" in lines[2]
    assert "<script>" not in lines[2]


@pytest.mark.parametrize("table", [TABLE, Table(["only"], [])])
def test_the_page_escapes_text_and_points_nowhere(table):
    page = as_page(table, title="<b>t</b>", note="p < 0.05 \ud800")
    assert "<script" not in page
    assert "<b>" not in page
    assert "p &lt; 0.05 ?" in page
    assert "src=" not in page
    assert page.count("<td") == 2 * len(table.rows)


def test_a_table_without_rows_is_headings_alone():
    assert as_markdown(Table(["a", "b"], [])).splitlines() == ["| a | b |", "| --- | --- |"]
