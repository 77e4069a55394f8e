"""Tables of the page as text for other programs: CSV, Markdown, and a page of one table."""

import csv
import io
import re

import jinja2

from jobs.annotation.spreadsheet import guarded
from jobs.reporting.tables import Cell, Table

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { margin: 1rem; font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left; }
td { white-space: nowrap; }
.number { text-align: right; }
.shaded { background: rgba(68, 119, 170, .3); }
@media print { .scroll { overflow: visible; } table { font-size: 9px; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<div class="scroll" tabindex="0">
<table>
<thead><tr>{% for heading in table.headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows %}
<tr>{% for cell in row %}<td class="{{ 'number ' if cell.number }}{{ 'shaded' if cell.shade }}">{{ cell.text }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
<p>{{ note }}</p>
</body>
</html>
"""  # noqa: E501


def as_csv(table: Table) -> str:
    """Headings and cells as CSV (RFC 4180), the figures as the page shows them.

    Texts that a spreadsheet would run as a formula have an apostrophe in front.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(map(guarded, table.headings))
    writer.writerows(map(_csv_cell, row) for row in table.rows)
    return buffer.getvalue()


def as_markdown(table: Table) -> str:
    """A table of GitHub's Markdown; figures to the right."""
    numbers = (
        [cell.number for cell in table.rows[0]] if table.rows else [False] * len(table.headings)
    )
    rule = ["---:" if number else "---" for number in numbers]
    rows = [[cell.text for cell in row] for row in table.rows]
    lines = [[_escaped(x) for x in table.headings], rule, *([_escaped(x) for x in r] for r in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_page(table: Table, *, title: str, note: str) -> str:
    """One page of one table; every text is escaped, nothing is asked of the network."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(PAGE).render(table=table, title=title, note=note)
    return page.encode("utf-8", "replace").decode()  # lone surrogates


def _csv_cell(cell: Cell) -> str:
    return cell.text if cell.number or cell.text == "-" else guarded(cell.text)


def _escaped(text: str) -> str:
    """Text that stays one cell and is not read as markup."""
    return re.sub(r"([\\|*_`<>\[\]~])", r"\\\1", " ".join(text.split()))
