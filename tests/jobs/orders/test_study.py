"""Prompts in every order of their demonstrations: which are written, and how many are planned."""

import dataclasses

import pytest
import yaml

from inference.engine import EngineSpec
from jobs.config.load import load
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Unit
from jobs.orders.study import check_orders, order_line, orders_of, orders_planned, studied
from jobs.orders.work import OrderWork
from jobs.tasks import plain_task
from tests.inference.llm_fakes import byte_tokenizer
from tests.jobs.prompt_part import TASK, Part, with_notes

ALL_OF_TWO = [[0, 1], [1, 0]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tokenizer of bytes: one token a character."""
    folder = tmp_path_factory.mktemp("model")
    byte_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return EngineSpec(str(folder), max_model_len=4096)


def tried(part, orders, queries):
    """The arm's own prompts and those in other orders, by (query, order)."""
    own = {row["id"]: row for row in part.rows()}
    payload = part.payload | {
        "unit": dataclasses.asdict(Unit("order_prompts/x", "part", "x")),
        "prompts": part.prompts.as_dict(),
        "orders": orders,
        "queries": queries,
    }
    marker = OrderWork(str(part.ledger.store.root))(payload)
    rows = part.ledger.read(marker).to_pylist()
    return own, {(row["query_id"], row["order"]): row for row in rows}, rows, marker.stats


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "out"))


def test_the_first_order_is_the_prompt_itself_and_the_others_show_the_same_records(ledger, model):
    part = Part(ledger, model, ["one", "two", None], ["abc", "c", "ab"])
    own, found, rows, stats = tried(part, ALL_OF_TWO, ["q0", "q1", "q2"])
    assert found["q0", "1-2"]["prompt"] == own["q0"]["prompt"]
    assert own["q0"]["demonstration_ids"] == ["b", "a"]
    assert found["q0", "2-1"]["demonstration_ids"] == ["a", "b"]
    swapped = found["q0", "2-1"]["prompt"]
    assert swapped.index("text a") < swapped.index("text b")
    assert len(swapped) == len(own["q0"]["prompt"]) == found["q0", "2-1"]["prompt_tokens"]
    assert {row["status"] for row in rows} == {"ok"}
    # One demonstration has one order, and a query without text has no prompt.
    assert found["q1", "1-2"]["prompt"] == found["q1", "2-1"]["prompt"] == own["q1"]["prompt"]
    assert (stats["n_queries"], stats["n_without_prompt"]) == (2, 1)
    assert len({row["id"] for row in rows}) == len(rows) == 4


def test_every_order_shows_the_context_of_its_query(ledger, model):
    task = plain_task(dataclasses.replace(TASK, context={"note": "Note: "}))
    part = Part(ledger, model, ["one", "two"], ["ab", "ab"])
    part.payload |= {"task": task, "rows": with_notes(ledger, ["one", "two"], ["here", None])}
    own, found, _, _ = tried(part, ALL_OF_TWO, ["q0", "q1"])
    assert found["q0", "1-2"]["prompt"] == own["q0"]["prompt"]
    assert found["q0", "2-1"]["prompt"].endswith("\n\nInput: one\nNote: here\nAnswer:")
    assert "Note: " not in found["q1", "2-1"]["prompt"]


def test_only_the_queries_that_are_asked_are_written(ledger, model):
    part = Part(ledger, model, ["one", "two"], ["ab", "ab"])
    _, found, _, stats = tried(part, ALL_OF_TWO, ["q1"])
    assert set(found) == {("q1", "1-2"), ("q1", "2-1")}
    assert (stats["n_queries"], stats["n_without_prompt"]) == (1, 0)


def test_prompts_that_share_a_beginning_stand_together(ledger, model):
    part = Part(ledger, model, ["one", "two"], ["ab", "ab"])
    _, _, rows, _ = tried(part, ALL_OF_TWO, ["q0", "q1"])
    assert [row["order"] for row in rows] == ["2-1", "2-1", "1-2", "1-2"]


@pytest.fixture
def config(tmp_path):
    def make(orders, **more):
        raw = {
            "out": str(tmp_path / "out"),
            "corpus": {"path": "c.jsonl"},
            "queries": {"path": "q.jsonl"},
            "tasks": {"t": {"instruction": "Say.", "labels": ["x", "y"]}},
            "encoders": {"minilm": {"preset": "minilm"}},
            "engines": {"small": {"model": "m"}},
            "report": {"orders": orders},
            "arms": [
                {"name": "four"},
                {"name": "again", "repeat": 1},
                {"name": "eight", "stage2": {"k": 8}},
                {"name": "one", "stage2": {"k": 1}},
                {"name": "zero", "stage1": "none", "stage2": "zero-shot"},
            ],
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(raw | more))
        return load(str(path))

    return make


def test_all_orders_up_to_the_limit_are_planned_for_arms_that_have_one(config):
    made = config({"queries": 30, "most": 100})
    four, eight = studied(made)
    assert (four.name, eight.name) == ("four", "eight")
    assert (len(orders_of(made, four)), len(orders_of(made, eight))) == (24, 100)
    planned = orders_planned(made, four, 1000)
    assert planned == {"orders": 24, "queries": 30, "prompts": 720}
    assert "720 prompts more, 24 orders for 30 queries" in order_line("four", planned)
    assert orders_planned(made, eight, 7) == {"orders": 100, "queries": 7, "prompts": 700}
    assert orders_planned(made, made.arms[3], 7) is None
    assert orders_planned(config(None), four, 7) is None


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        (["five"], "'five' is no arm. Arms: four, again, eight, one, zero"),
        (["one"], "'one' shows 1 demonstrations, and an order needs at least 2"),
        (["zero"], "'zero' shows 0 demonstrations"),
    ],
)
def test_an_order_that_is_not_there_is_refused(config, arms, words):
    with pytest.raises(ConfigError, match=words):
        check_orders(config({"arms": arms}))


def test_a_study_without_any_order_is_refused(config):
    with pytest.raises(ConfigError, match="no arm shows at least 2 demonstrations"):
        check_orders(config({}, arms=[{"name": "one", "stage2": {"k": 1}}]))
