"""Assembling one part: budgets, layouts, orders; and what is refused before any work."""

import dataclasses

import pyarrow as pa
import pytest

from inference.engine import EngineSpec, VllmEngine
from inference.prompts import PromptSpec, stop_strings
from inference.tasks import Task
from jobs.assemble import check
from jobs.config.load import load
from jobs.config.stage2 import GenerateConfig
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Unit
from jobs.prompting.calibrate import ORDER_SCHEMA, CalibrateWork
from jobs.prompting.layouts import BLOCK_SCHEMA, BlocksWork
from jobs.prompting.work import set_key
from jobs.tasks import plain_task
from tests.inference.llm_fakes import Factory, byte_tokenizer
from tests.jobs.conftest import Project
from tests.jobs.prompt_part import TASK, Part, commit, with_notes


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "out"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tokenizer of bytes: one token a character."""
    folder = tmp_path_factory.mktemp("model")
    byte_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return EngineSpec(str(folder), max_model_len=4096)


def ids_of(rows):
    return ["".join(row["demonstration_ids"]) for row in rows]


def test_a_prompt_row_names_what_is_shown_and_the_pool_version(ledger, model):
    rows = Part(ledger, model, ["one", None], ["abc", "ab"], negative_pairs=False).rows()
    assert rows[0]["prompt"] == (
        "Name it.\n\nInput: text b\nAnswer: blue\n\n"
        "Input: text a\nAnswer: red\n\nInput: one\nAnswer:"
    )
    assert rows[0]["demonstration_ids"] == ["b", "a"]
    assert rows[0]["pool_version"] == "v0007"
    assert rows[0]["prompt_tokens"] == len(rows[0]["prompt"])
    assert (rows[1]["status"], rows[1]["prompt"]) == ("empty", None)


def test_the_context_of_a_query_is_counted_and_demonstrations_give_way_to_it(ledger, model):
    task = plain_task(dataclasses.replace(TASK, context={"note": "Note: "}))
    queries, notes = ["one", "two", "six"], ["x" * 30, None, "x" * 60]
    part = Part(ledger, model, queries, ["ac"] * 3, token_budget=80)
    rows = part.rows(task=task, rows=with_notes(ledger, queries, notes))
    # A demonstration adds 27 characters, instruction and query take 28, a note its length + 7.
    assert rows[0]["prompt"].endswith(f"\n\nInput: one\nNote: {'x' * 30}\nAnswer:")
    assert [row["prompt_tokens"] for row in rows] == [65, 55, 95]
    assert [row["n_dropped"] for row in rows] == [2, 1, 2]
    # What is too long keeps its context too: nothing is cut.
    assert [row["status"] for row in rows] == ["ok", "ok", "too_long"]


def test_a_list_longer_than_k_gives_the_first_k_that_fit(ledger, model):
    part = Part(ledger, model, ["one"], ["bacd"], max_demonstration_tokens=30)
    # b carries its contrast and is longer than 30 characters.
    (row,) = part.rows()
    assert row["demonstration_ids"] == ["c", "a"]
    assert (row["n_skipped"], row["n_dropped"]) == (1, 0)
    assert part.stats["n_skipped"] == 1


def test_contrasts_are_shown_unless_switched_off(ledger, model):
    shown = Part(ledger, model, ["one"], ["be"]).rows()[0]["prompt"]
    assert "Input: text b\nWrong answer: red\nWhy it is wrong: it is blue\nAnswer: blue" in shown
    assert "Input: text e\nWrong answer: e\nAnswer: red" in shown
    plain = Part(ledger, model, ["one"], ["be"], negative_pairs=False)
    plain.payload["unit"]["name"] = "other"
    assert "Wrong" not in plain.rows()[0]["prompt"]


def test_a_query_too_long_with_k_min_says_the_numbers(ledger, model):
    (row,) = Part(ledger, model, ["one"], ["ac"], k_min=2, token_budget=60).rows()
    assert row["status"] == "too_long"
    assert row["detail"].startswith("k_min asks for 2 demonstrations: the shortest 2 of 2 take")
    assert row["detail"].endswith("the budget is 60")


def test_anchors_open_every_prompt_and_are_not_repeated(ledger, model):
    part = Part(ledger, model, ["one", "two"], ["abc", "dce"], layout="anchor")
    part.payload["stage2"]["k"] = 3
    rows = part.rows(anchors=["a", "b"])
    assert ids_of(rows) == ["bac", "bad"]
    assert [row["n_fixed"] for row in rows] == [2, 2]
    stem = "Name it.\n\nInput: text b"
    assert all(row["prompt"].startswith(stem) for row in rows)


def test_an_anchor_is_not_shown_to_its_own_copy_nor_where_ranking_rules_it_out(ledger, model):
    part = Part(ledger, model, ["text a", "two"], ["dc", "dc"], layout="anchor")
    assert ids_of(part.rows(anchors=["a"])) == ["cd", "ad"]
    part.payload["unit"]["name"] = "other"
    ranked = ledger.read(
        Ledger(str(ledger.store.root)).find(Unit("demonstrations", "part", "demonstrations"))
    )
    barred = pa.array([[], ["a"]], pa.list_(pa.string()))
    table = ranked.append_column("excluded_ids", barred)
    changed = commit(ledger, "changed", table)
    rows = part.rows(anchors=["a"], demonstrations=changed)
    assert ids_of(rows) == ["cd", "cd"]


def blocks(ledger, ranked, **settings):
    table = pa.table({"demonstration_ids": pa.array(ranked, pa.list_(pa.string()))})
    payload = {
        "unit": dataclasses.asdict(Unit("layouts/x", "blocks", "x")),
        "demonstrations": [commit(ledger, "lists", table)],
    }
    return BlocksWork(str(ledger.store.root))(payload | settings)


def test_queries_of_a_cluster_share_one_block(ledger, model):
    ranked = ["ac", "ce", "bd", "db"]
    marker = blocks(ledger, [list(ids) for ids in ranked], clusters=2, size=2)
    assert ledger.read(marker).schema == BLOCK_SCHEMA
    part = Part(ledger, model, ["one", "two", "three", "four"], ranked, layout="clustered")
    rows = part.rows(blocks=marker.as_dict())
    # c has 1/2 + 1, a has 1; b and d have 3/2 each, b first by id. Similar-last.
    assert ids_of(rows) == ["ac", "ac", "db", "db"]
    clusters = [row["cluster"] for row in rows]
    assert clusters in ([0, 0, 1, 1], [1, 1, 0, 0])


def test_a_place_freed_in_a_block_goes_to_the_querys_own_next(ledger, model):
    marker = blocks(ledger, [["a", "c"], ["a", "c"]], clusters=1, size=2)
    queries, ranked = ["one", "text a", "text a"], ["ac", "cbe", "c"]
    part = Part(ledger, model, queries, ranked, layout="clustered")
    assert ids_of(part.rows(blocks=marker.as_dict())) == ["ca", "cb", "c"]


def test_no_lists_give_no_blocks_and_prompts_without_demonstrations(ledger, model):
    marker = blocks(ledger, [[]], clusters=2, size=2)
    assert ledger.read(marker).num_rows == 0
    part = Part(ledger, model, ["one"], [""], layout="clustered")
    assert ids_of(part.rows(blocks=marker.as_dict())) == [""]


def orders(ledger, pairs):
    rows = [
        {"key": set_key(ids), "ids": list(ids), "skew": 0.1, "worst_skew": 0.5, "n_orders": 2}
        for ids in pairs
    ]
    return [commit(ledger, "orders", pa.Table.from_pylist(rows, schema=ORDER_SCHEMA))]


def test_a_calibrated_order_is_that_of_the_set_whatever_the_query(ledger, model):
    part = Part(ledger, model, ["one", "two", "three"], ["ac", "ca", "b"], order="calibrated")
    rows = part.rows(orders=orders(ledger, ["ca"]))
    assert ids_of(rows) == ["ca", "ca", "b"]
    assert rows[0]["prompt"].index("text c") < rows[0]["prompt"].index("text a")
    assert part.stats["n_not_calibrated"] == 0


class Answers:
    """Prefers the answer shown last."""

    def __call__(self, text, sampling):
        from inference.engine import Completion

        body = text[: text.rindex("Input: ")]
        last = body.rindex("Answer: ") + len("Answer: ")
        liked = ord(body[last])
        scores = {token: 0.0 for token in sampling.logprob_token_ids}
        favourite = byte_tokenizer()(chr(liked), add_special_tokens=False)["input_ids"][0]
        if favourite in scores:
            scores[favourite] = 2.0
        return Completion("", "length", len(text), 0, 1, logprobs=(scores,))


def calibrating(ledger, model, task=TASK, sets=("ab", "abd"), start=None):
    part = Part(ledger, model, ["one"], ["ab"])
    payload = {
        "unit": dataclasses.asdict(Unit("orders/x", "orders", "x")),
        "sets": {set_key(ids): list(ids) for ids in sets},
        "pool": part.payload["pool"],
        "task": plain_task(task),
        "prompt": {"format": "completion", "negative_pairs": False},
        "seed": 0,
    }
    factory = start or Factory(Answers())
    job = CalibrateWork(
        str(ledger.store.root),
        model,
        lambda spec: VllmEngine(spec, start=factory, start_pause_s=0.0),
    )
    return job, payload, factory


def test_every_set_is_calibrated_once_and_found_again(ledger, model):
    job, payload, factory = calibrating(ledger, model)
    rows = ledger.read(job(payload)).to_pylist()
    assert [sorted(row["ids"]) for row in rows] == [["a", "b"], ["a", "b", "d"]]
    assert [row["n_orders"] for row in rows] == [2, 6]
    assert all(0 < row["skew"] <= row["worst_skew"] for row in rows)
    again, payload, unused = calibrating(ledger, model)
    again(payload)
    assert (factory.n_calls, unused.n_calls) == (1, 0)


def test_answers_with_the_same_tokens_cannot_be_calibrated(ledger, model):
    same = Task("t", ("red", "blue"), verbalizers={"red": "x", "blue": "y"}, output_prefix="")

    class OneToken:
        bos_token = None

        def __call__(self, text, *, add_special_tokens):
            return {"input_ids": [1]}

    factory = Factory(Answers(), tokenizer=OneToken())
    job, payload, _ = calibrating(ledger, model, same, start=factory)
    with pytest.raises(ConfigError, match=r"prompt.order = calibrated: task 't'.*same tokens"):
        job(payload)


@pytest.fixture
def arm(tmp_path):
    project = Project(tmp_path)

    def _arm(**prompt):
        stage2 = {"k": prompt.pop("k", 3), "method": prompt.pop("method", "knn")}
        project.config |= {"prompt": prompt, "stage2": stage2}
        return load(project.path).arms[0]

    return _arm


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"k_min": 4}, "prompt.k_min = 4 is more than the 3 that stage2.k = 3 allow"),
        (
            {"k_min": 2, "k_max": 1},
            "k_min = 2 is more than the 1 that stage2.k = 3 and prompt.k_max",
        ),
        ({"layout": "anchor", "anchors": 4}, "prompt.anchors = 4 is more than the 3"),
        ({"layout": "anchor", "order": "calibrated"}, "would move the anchors"),
        ({"layout": "by-id", "order": "interleaved"}, "contradicts prompt.layout = by-id"),
        ({"order": "odd"}, "known: by-id, calibrated, interleaved, similar-first, similar-last"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(arm, prompt, words):
    with pytest.raises(ConfigError, match=words):
        check(arm(**prompt))


def test_numbers_of_demonstrations_bind_no_arm_that_shows_none(arm):
    check(arm(method="zero-shot", layout="anchor", k_min=9, anchors=9))


def test_the_layout_by_id_is_the_order_by_id(arm):
    made = arm(layout="by-id")
    check(made)
    assert made.prompt.order == "by-id"


def test_the_default_end_of_an_answer_is_that_of_its_format():
    assert GenerateConfig().stop is None
    assert stop_strings(TASK, PromptSpec(format="chat")) == ()
