"""Whatever texts say, no script of theirs runs on the page: looked at in a real browser."""

import dataclasses

import pandas as pd

from jobs.reporting.page import build_page
from tests.jobs.browser import inspect_page
from tests.jobs.report_example import example_model

# Each would write OWNED-1 into the page; the number is added up, so the code itself never says it.
WRITE = "document.body.append('OWNED-'+(2-1))"
PAYLOADS = [
    f"<script>{WRITE}</script>",
    f'</pre></style></title></svg><img src=x onerror="{WRITE}">',
    f"'\"><svg onload={WRITE}>",
    f"{{{{ 7*7 }}}}{{% raw %}}<iframe srcdoc='<script>parent.{WRITE}</script>'>",
    f'<a href="javascript:{WRITE}" autofocus onfocus="{WRITE}">x</a>',
]


def hostile(value, payload):
    """The value with the payload behind every text in it, cells of tables included."""
    if isinstance(value, str):
        return value + payload
    if isinstance(value, pd.DataFrame):
        return value.map(lambda cell: cell + payload if isinstance(cell, str) else cell)
    if dataclasses.is_dataclass(value):
        # Arms are names of the config, which allows no such characters.
        names = {one.name for one in dataclasses.fields(value)} - {"arm"}
        return dataclasses.replace(
            value, **{name: hostile(getattr(value, name), payload) for name in names}
        )
    if isinstance(value, dict):
        return {key: hostile(one, payload) for key, one in value.items()}
    return [hostile(one, payload) for one in value] if isinstance(value, list | tuple) else value


def hostile_model(payload):
    """Texts, ids, labels, answers, facts, warnings, versions and config of the example, hostile."""
    model = example_model(n_queries=40, n_map=200)
    parts = (
        *("title", "facts", "config_yaml", "warnings", "versions", "samples", "cases"),
        *("rejected", "rejected_examples", "audit"),
    )
    return dataclasses.replace(
        model, **{name: hostile(getattr(model, name), payload) for name in parts}
    )


def without_policy(html):
    """The page without the policy that would stop scripts: escaping alone must do."""
    start = html.index('<meta http-equiv="Content-Security-Policy"')
    return html[:start] + html[html.index(">", start) + 1 :]


def test_no_script_in_any_text_runs_even_without_the_policy(tmp_path):
    html = build_page(hostile_model("".join(PAYLOADS)))
    path = tmp_path / "report.html"
    path.write_text(without_policy(html), encoding="utf-8")
    facts = inspect_page(path)
    assert all(payload[:20] in facts.text for payload in PAYLOADS)
    assert "OWNED-1" not in facts.text
    assert (facts.console_errors, facts.requests) == ([], [])


def test_the_payloads_do_run_where_nothing_is_escaped(tmp_path):
    """Else the test above could not fail."""
    path = tmp_path / "bare.html"
    path.write_text(f"<body><pre>{''.join(PAYLOADS[:3])}</pre></body>", encoding="utf-8")
    assert inspect_page(path).text.count("OWNED-1") == 3
