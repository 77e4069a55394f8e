import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.entities import (
    Entity,
    Span,
    from_json,
    locate,
    read_entities,
    show_entities,
    with_known_types,
    write_entities,
)
from inference.tasks import Task
from tests.inference import dirty_entities

TEXT = "PD and the UPDRS: PD patients, pd or P  D."


@pytest.mark.parametrize(
    ("entities", "spans", "n_missing", "n_repeated"),
    [
        ([("PD", "D")], [(0, 2, "D")], 0, 0),
        ([("PD", "D"), ("PD", "D")], [(0, 2, "D"), (18, 20, "D")], 0, 0),
        # The third takes another case, never the middle of UPDRS; the fourth finds none free.
        ([("PD", "D")] * 4, [(0, 2, "D"), (18, 20, "D"), (31, 33, "D")], 0, 1),
        ([("PD", "D"), ("PD", "C")], [(0, 2, "D"), (18, 20, "C")], 0, 0),
        ([("UPDRS", "D"), ("UPDRS", "C")], [(11, 16, "C"), (11, 16, "D")], 0, 0),
        ([("UPDRS", "D"), ("UPDRS", "D")], [(11, 16, "D")], 0, 1),
        ([("PDR", "D")], [(12, 15, "D")], 0, 0),
        ([("p d", "D")], [(37, 41, "D")], 0, 0),
        ([("PD patients", "D"), ("PD", "D")], [(0, 2, "D"), (18, 29, "D")], 0, 0),
        ([("aspirin", "D"), ("PD", "D")], [(0, 2, "D")], 1, 0),
        ([("PD", "D", 18, 20)], [(18, 20, "D")], 0, 0),
        ([("PD", "D", 5, 7)], [(0, 2, "D")], 0, 0),
        ([("PD", "D", 900, 902), ("PD", "D", -1, 1)], [(0, 2, "D"), (18, 20, "D")], 0, 0),
        ([(" ", "D"), (".*", "D")], [], 2, 0),
        ([], [], 0, 0),
    ],
)
def test_mentions_go_to_their_first_free_occurrence(entities, spans, n_missing, n_repeated):
    found = locate([Entity(*one) for one in entities], TEXT)
    assert found.spans == tuple(Span(*one) for one in spans)
    assert (len(found.missing), found.n_repeated) == (n_missing, n_repeated)


@given(st.text("ab \n.", max_size=30), st.lists(st.text("ab ", max_size=4), max_size=6))
@settings(deadline=None, max_examples=40)
def test_every_mention_is_located_missing_or_repeated(text, mentions):
    found = locate([Entity(one, "T") for one in mentions], text)
    assert len(found.spans) + len(found.missing) + found.n_repeated == len(mentions)
    for span in found.spans:
        assert text[span.start : span.end].split() in [one.split() for one in mentions]


@pytest.mark.parametrize("row", dirty_entities.rows(20), ids=lambda row: row["id"])
def test_entities_of_a_row_are_read_with_overlaps_and_written_back(row):
    found = read_entities(row["output"], row["input"])
    asked = {(one["start"], one["end"], one["type"]) for one in json.loads(row["output"])}
    assert {(one.start, one.end, one.type) for one in found} == asked
    assert from_json(write_entities(found)) == found
    loose = json.dumps([{"text": one.text, "type": one.type} for one in found])
    assert len(read_entities(loose, row["input"])) <= len(found)


@pytest.mark.parametrize(("raw", "reason"), dirty_entities.broken())
def test_entities_that_are_not_in_the_text_are_refused_with_offset_and_length(raw, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_entities(raw, "the old axe")


def test_prompts_show_a_line_for_every_mention_in_order_of_the_text():
    task = Task("t", ("METAL", "TOOL"), kind="ner", verbalizers={"METAL": "metal"})
    raw = '[{"text": "axe", "type": "tool"}, {"text": "iron\\nore", "type": "METAL"}]'
    entities = with_known_types(task, read_entities(raw, "the iron\nore axe"))
    assert show_entities(task, entities) == "iron ore | metal\naxe | TOOL"
    assert show_entities(task, ()) == "none"
    with pytest.raises(ValueError, match="entity type 'FOOD' is none of task 't'"):
        with_known_types(task, [Entity("axe", "FOOD")])
