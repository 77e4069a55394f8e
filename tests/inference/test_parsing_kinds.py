"""Answers as LLMs write them, over all kinds beyond one label, with what they should be read as."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.entities import Entity, show_entities
from inference.label_sets import gold_labels, joined, parse_labels, shown_labels
from inference.parsing_entities import parse_entities
from inference.parsing_sql import orders_rows, parse_sql
from inference.tasks import Task

NER = Task(
    "parts",
    ("METAL", "TOOL-A", "TOOL-B"),
    kind="ner",
    aliases={"ore": "METAL"},
    verbalizers={"METAL": "metal"},
)
SET = Task(
    "themes",
    ("river trade", "river floods", "old bridges", "no theme"),
    kind="multi-label",
    aliases={"flooding": "river floods"},
)
SQL = Task("ask", (), kind="sql", input_prefix="Question: ", output_prefix="SQL: ")
IRON, SAW, AXE = ("iron", "METAL"), ("band saw", "TOOL-A"), ("axe", "TOOL-B")


@pytest.mark.parametrize(
    ("text", "entities", "reason"),
    [
        ("iron | metal\nband saw | TOOL-A", [IRON, SAW], "found"),
        ("iron | METAL", [IRON], "found"),
        ("iron|Metal.", [IRON], "found"),
        ("- iron | metal\n- axe | tool b", [IRON, AXE], "found"),
        ("1. iron | metal\n2) axe | TOOL_B", [IRON, AXE], "found"),
        ("iron | metal; axe | TOOL-B", [IRON, AXE], "found"),
        ("iron | metal\niron | metal", [IRON, IRON], "found"),
        ("iron | ore", [IRON], "found"),
        ("metal | iron", [IRON], "found"),
        ("| text | type |\n|---|---|\n| iron | metal |\n| axe | TOOL-B |", [IRON, AXE], "found"),
        ("| 1 | iron | metal |", [IRON], "found"),
        ("Entities:\niron | metal", [IRON], "found"),
        ("Sure, here they are:\n\niron | metal\n", [IRON], "found"),
        ("```\niron | metal\n```", [IRON], "found"),
        ("```text\niron | metal\naxe | TOOL-B", [IRON, AXE], "found"),
        ("**iron** | metal", [IRON], "found"),
        ('"iron" | "metal"', [IRON], "found"),
        ("`iron` | `metal`", [IRON], "found"),
        ("[iron] | metal", [IRON], "found"),
        ("iron [Fe] 2' | metal", [("iron [Fe] 2'", "METAL")], "found"),
        ("iron (METAL), band saw (TOOL-A)", [IRON, SAW], "found"),
        ("iron (METAL), band saw (TOOL-A", [IRON, SAW], "found"),
        ("iron [METAL] and axe <TOOL-B>", [IRON, ("and axe", "TOOL-B")], "found"),
        ("METAL: iron\nTOOL-A: band saw, axe", [IRON, SAW, ("axe", "TOOL-A")], "found"),
        ("Metal: iron; tin\nTool-A: none", [IRON, ("tin", "METAL")], "found"),
        ("iron: metal", [IRON], "found"),
        ("[(3)H]ore | metal\nband saw | TOOL-A", [("[(3)H]ore", "METAL"), SAW], "found"),
        ("iron - METAL\nband saw -> TOOL-A", [IRON, SAW], "found"),
        ("iron\tMETAL", [IRON], "found"),
        ("iron is a metal.", [IRON], "found"),
        ("iron | met", [IRON], "found"),
        ("iron | metal\naxe | TOOL", [IRON], "found, 1 of unknown type: 'TOOL'"),
        ("iron | metal\naxe |", [IRON], "found, 1 not understood: 'axe |'"),
        ("iron | metal\nrain | WEATHER", [IRON], "found, 1 of unknown type: 'WEATHER'"),
        ("iron | metal\nI hope so", [IRON], "found, 1 not understood: 'I hope so'"),
        ("iron | metal\n\nInput: another\nAnswer: axe | TOOL-B", [IRON], "found"),
        ('[{"text": "iron", "type": "METAL"}]', [IRON], "found"),
        ('[{"text": "iron", "type": "metal", "start": 4, "end": 8}]', [(*IRON, 4, 8)], "found"),
        ('[{"entity": "iron", "label": "METAL"}] Those are all.', [IRON], "found"),
        ('Here: {"entities": [{"name": "iron", "category": "METAL"}]}', [IRON], "found"),
        ('```json\n[{"text": "iron", "type": "METAL"}]\n```\nAnything else?', [IRON], "found"),
        ("[{'text': 'iron', 'type': 'METAL'}]", [IRON], "found"),
        ("[{'text': \"smith's iron\", 'type': 'METAL'}]", [("smith's iron", "METAL")], "found"),
        ('{"METAL": ["iron", "tin"], "TOOL-A": []}', [IRON, ("tin", "METAL")], "found"),
        ('{"iron": "METAL", "axe": "TOOL-B"}', [IRON, AXE], "found"),
        ('[["iron", "METAL"], ["axe", "TOOL-B"]]', [IRON, AXE], "found"),
        ("[('iron', 'METAL'), ('axe', 'TOOL-B')]", [IRON, AXE], "found"),
        (
            '[{"text": "iron", "type": "METAL"}, {"text": "axe", "type": "TOO',
            [IRON],
            "found, 1 not understood: 'the end, cut off', 1 of unknown type: 'TOO'",
        ),
        (
            '[{"text": "iron", "type": "METAL"}, {"text": "axe", "type": "TOOL-B"',
            [IRON, AXE],
            "found, 1 not understood: 'the end, cut off'",
        ),
        (
            '[{"text": "iron", "type": "METAL"}, {"te',
            [IRON],
            "found, 1 not understood: 'the end, cut off'",
        ),
        ('[{"text": "iron", "type": "METAL"},]', [IRON], "found"),
        ("none", [], "none"),
        ("None.", [], "none"),
        ("[]", [], "none"),
        ('{"entities": []}', [], "none"),
        ("No entities found.", [], "none"),
        ("There are no named entities in the text.", [], "none"),
        ("N/A", [], "none"),
        ("", None, "empty"),
        (" \n ", None, "empty"),
        ("The text is about a river.", None, "no_entity: 'The text is about a river.'"),
        ("rain | WEATHER", None, "unknown_type: 'WEATHER'"),
        ('[{"text": "rain", "type": "WEATHER"}]', None, "unknown_type: 'WEATHER'"),
        ("[", None, "no_entity: 'the end, cut off'"),
        ("iron iron iron", None, "no_entity: 'iron iron iron'"),
    ],
)
def test_entities_are_read_from_what_models_write_or_the_reason_is_given(text, entities, reason):
    wanted = None if entities is None else tuple(Entity(*one) for one in entities)
    assert parse_entities(text, NER) == (wanted, reason)


TRADE, FLOODS, BRIDGES, NOTHING = SET.labels


@pytest.mark.parametrize(
    ("text", "labels", "reason"),
    [
        ("river trade; old bridges", (TRADE, BRIDGES), "exact"),
        ("old bridges;river trade", (TRADE, BRIDGES), "exact"),
        ("River Trade, Old Bridges", (TRADE, BRIDGES), "found"),
        ("river trade and old bridges.", (TRADE, BRIDGES), "found"),
        ("river trade / flooding", (TRADE, FLOODS), "found"),
        ("['river trade', 'old bridges']", (TRADE, BRIDGES), "found"),
        ('{"labels": ["river floods"]}', (FLOODS,), "found"),
        ("- river trade\n- old bridges\n\nThese two fit.", (TRADE, BRIDGES), "found"),
        ("1. old_bridges\n2. (river trade", (TRADE, BRIDGES), "found"),
        ("```\nriver trade; old bridges\n```", (TRADE, BRIDGES), "found"),
        ("Labels: river trade", (TRADE,), "found"),
        ("The themes are:\nriver trade", (TRADE,), "found"),
        ("river trade; river trade; river trade", (TRADE,), "exact"),
        ("river trade; old bri", (TRADE, BRIDGES), "found"),
        ("river trade; riv", (TRADE,), "found, no label: 'riv'"),
        ("river trade; cooking", (TRADE,), "found, no label: 'cooking'"),
        ("old bridges, not river trade", (BRIDGES,), "found, no label: 'not river trade'"),
        ("no theme", (NOTHING,), "exact"),
        ("river trade\n\nInput: next\nAnswer: old bridges", (TRADE,), "found"),
        ("cooking", None, "no_label"),
        ("riv", None, "no_label"),
        ("", None, "empty"),
        ("\n", None, "empty"),
    ],
)
def test_sets_of_labels_are_read_from_what_models_write_or_the_reason_is_given(
    text, labels, reason
):
    assert parse_labels(text, SET) == (labels, reason)


@pytest.mark.parametrize(
    ("text", "query", "reason"),
    [
        ("SELECT a FROM t;", "SELECT a FROM t", "exact"),
        ("select a from t", "select a from t", "exact"),
        ("SELECT a\nFROM t\nWHERE b = 1", "SELECT a\nFROM t\nWHERE b = 1", "exact"),
        ("```sql\nSELECT a FROM t;\n```\nIt lists all.", "SELECT a FROM t", "found"),
        ("```\nSELECT a FROM t", "SELECT a FROM t", "found"),
        ("SQL: SELECT a FROM t", "SELECT a FROM t", "found"),
        ("Sure! I select the query for you: SELECT a FROM t;", "SELECT a FROM t", "found"),
        ("The query `SELECT a FROM t` does it", "SELECT a FROM t", "found"),
        ("you want select a from t", "select a from t", "found"),
        ("(SELECT a FROM t)", "SELECT a FROM t", "found"),
        ("SELECT a FROM t)", "SELECT a FROM t", "found"),
        ("SELECT a FROM t; DROP TABLE t", "SELECT a FROM t", "found"),
        ("SELECT a FROM t\n\nQuestion: more?", "SELECT a FROM t", "found"),
        ("SELECT a FROM t\nThis query lists all a.", "SELECT a FROM t", "found"),
        ('SELECT a FROM t WHERE b = "x;y"; ok', 'SELECT a FROM t WHERE b = "x;y"', "found"),
        ("SELECT a FROM t WHERE b = 'it''s'", "SELECT a FROM t WHERE b = 'it''s'", "exact"),
        ("SELECT `a b`, [c d] FROM t", "SELECT `a b`, [c d] FROM t", "exact"),
        ("SELECT a -- it's; all\nFROM t;", "SELECT a -- it's; all\nFROM t", "exact"),
        ("WITH x AS (SELECT 1) SELECT * FROM x;", "WITH x AS (SELECT 1) SELECT * FROM x", "exact"),
        ("SELECT a FROM t WHERE b IN (SELECT", None, "cut_off: 1 bracket(s) not closed"),
        ("SELECT a FROM t WHERE b = 'x", None, "cut_off: ' is not closed"),
        ("SELECT", None, "cut_off: nothing after SELECT"),
        ("DROP TABLE t", None, "not_a_query: DROP"),
        ("sql: delete from t", None, "not_a_query: DELETE"),
        ("With this we select the name", None, "no_query"),
        ("I do not know.", None, "no_query"),
        ("", None, "empty"),
    ],
)
def test_one_query_is_read_from_what_models_write_or_the_reason_is_given(text, query, reason):
    assert parse_sql(text, SQL) == (query, reason)


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a FROM t WHERE b = ' ORDER BY '", False),
        ('SELECT "order", by FROM t', False),
        ("SELECT a FROM t -- ORDER BY a", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a) SELECT a FROM x UNION SELECT 1 ORDER BY 1", True),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
    ],
)
def test_only_the_outermost_order_by_orders_rows(query, ordered):
    assert orders_rows(query) is ordered


@given(st.text(max_size=120), st.sampled_from(["", "[{", "iron | ", "METAL: ", "SELECT "]))
@settings(deadline=None, max_examples=40)
def test_any_text_gives_a_value_of_the_task_or_a_reason(text, begin):
    entities, why = parse_entities(begin + text, NER)
    assert why
    assert all(one.type in NER.labels and one.text for one in entities or ())
    labels, why = parse_labels(begin + text, SET)
    assert why
    assert labels is None or (labels and set(labels) <= set(SET.labels))
    query, why = parse_sql(begin + text, SQL)
    assert why
    assert query is None or query == query.strip()


MENTIONS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z]{2,8}( [a-z0-9]{1,4})?", fullmatch=True), st.sampled_from(NER.labels)
    ),
    max_size=5,
)


@given(MENTIONS)
@settings(deadline=None, max_examples=40)
def test_what_prompts_show_is_what_is_read(mentions):
    entities = tuple(Entity(*one) for one in mentions)
    assert parse_entities(show_entities(NER, entities), NER).entities == entities


@given(st.sets(st.sampled_from(SET.labels), min_size=1))
@settings(deadline=None, max_examples=40)
def test_shown_and_canonical_sets_are_read_back(labels):
    wanted = tuple(label for label in SET.labels if label in labels)
    assert parse_labels(shown_labels(SET, wanted), SET).labels == wanted
    assert gold_labels(joined(SET, wanted), SET).labels == wanted


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (" Old bridges ; flooding;", ((FLOODS, BRIDGES), "exact")),
        ("old bridges; cooking", (None, "unknown label 'cooking'")),
        (";", (None, "unknown label ';'")),
        ("  ", (None, "missing")),
        (None, (None, "missing")),
    ],
)
def test_a_gold_set_is_whole_or_none(raw, wanted):
    assert gold_labels(raw, SET) == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ("a;b", "c"), "kind": "multi-label"}, "'a;b' holds the label_separator ';'"),
        ({"labels": ("a",), "kind": "multi-label", "label_separator": " "}, "is blank"),
        ({"labels": ("a",), "kind": "sql"}, "a query has none"),
        ({"labels": (), "kind": "ner"}, "labels is empty; a ner task"),
    ],
)
def test_a_task_of_another_kind_that_cannot_be_read_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Task("t", **arguments)
