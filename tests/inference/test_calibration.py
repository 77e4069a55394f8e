import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.calibration import (
    CONTENT_FREE,
    calibrate,
    label_probabilities,
    label_skew,
    permutations_of,
)
from inference.engine import Completion, EngineSpec, VllmEngine
from inference.ordering import Demonstration
from inference.prompts import PromptSpec
from inference.tasks import Task
from tests.inference.llm_fakes import Factory, byte_tokenizer

TASK = Task("letters", ("a", "b"))
BYTES = byte_tokenizer()
A, B, SPACE = (BYTES(text, add_special_tokens=False)["input_ids"][0] for text in ("a", "b", " "))


def test_skew_by_hand():
    assert label_skew([{"a": 0.5, "b": 0.5}]) == pytest.approx(0.0)
    three_to_one = {"a": 0.75, "b": 0.25}
    expected = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert label_skew([three_to_one]) == pytest.approx(expected)
    # Leanings that cancel out over the queries are no skew: the mean is what counts.
    assert label_skew([three_to_one, {"a": 0.25, "b": 0.75}]) == pytest.approx(0.0)
    assert label_skew([{"a": 1.0, "b": 0.0}]) == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=4))
@settings(deadline=None)
def test_skew_lies_between_none_and_log_of_the_labels(rows):
    whole = [[value / sum(row) for value in row] for row in rows]
    skew = label_skew([dict(zip("abc", row, strict=True)) for row in whole])
    assert -1e-9 <= skew <= math.log(3) + 1e-9


def test_only_where_answers_part_is_the_engine_asked():
    def rule(text, sampling):
        wanted = sampling.logprob_token_ids
        first = {A: math.log(0.3), B: math.log(0.1)}
        second = {A: math.log(0.02), B: math.log(0.06)}
        table = second if text.endswith("ab") else first
        return Completion("", "length", 1, logprobs=({token: table[token] for token in wanted},))

    running, start = engine(rule)
    # The tree parts at the begin (a or b) and after "ab" (a or b); "b" goes on alone.
    paths = {"aba": (A, B, A), "abb": (A, B, B), "bb": (B, B)}
    (found,) = label_probabilities(running, [(SPACE,)], paths)
    assert found == pytest.approx({"aba": 0.75 * 0.25, "abb": 0.75 * 0.75, "bb": 0.25})
    assert sum(map(len, start.started[0].batches)) == 2


def test_an_answer_that_begins_another_counts_with_all_of_its_probability():
    running, start = engine(leaning)
    (found,) = label_probabilities(running, [(SPACE,)], {"a": (A,), "ab": (A, B)})
    assert found == {"a": 0.5, "ab": 0.5}
    assert start.started[0].batches == []


def test_up_to_four_all_orders_are_tried_and_above_a_seeded_sample():
    assert permutations_of(3, seed=0) == list(itertools.permutations(range(3)))
    assert len(permutations_of(4, seed=0)) == 24
    six = permutations_of(6, seed=1)
    assert six[0] == (0, 1, 2, 3, 4, 5)
    assert len(set(six)) == 24
    assert all(sorted(order) == list(range(6)) for order in six)
    assert six == permutations_of(6, seed=1) != permutations_of(6, seed=2)


def engine(rule, max_model_len=2000):
    start = Factory(rule)
    spec = EngineSpec("fake", max_model_len=max_model_len)
    return VllmEngine(spec, start=start, start_pause_s=0.0), start


def leaning(text, sampling):
    """Prefers the answer shown last by ten to one, unless it is that of 'calm'."""
    last = text.rindex("Input: ", 0, text.rindex("Input: "))
    answer = text[text.index("Answer: ", last) + 8]
    lean = 0.0 if "calm" in text[last:] else math.log(10)
    scores = {SPACE: 0.0, A: lean * (answer == "a"), B: lean * (answer == "b")}
    wanted = {token: scores[token] for token in sampling.logprob_token_ids}
    return Completion("", "length", len(text), 0, 1, logprobs=(wanted,))


SET = [
    Demonstration("1", "loud", "a"),
    Demonstration("2", "calm", "b"),
    Demonstration("3", "shrill", "b"),
]


def test_the_order_with_the_lowest_skew_is_chosen_whatever_order_the_set_came_in():
    for given_order in itertools.permutations(SET):
        running, start = engine(leaning)
        found = calibrate(running, TASK, given_order, spec=PromptSpec())
        # Of the orders that end with 2, the first: 1 3 2.
        assert found.ids == ("1", "3", "2")
        assert found.skew == pytest.approx(0.0)
        assert found.worst == pytest.approx(label_skew([{"a": 10 / 11, "b": 1 / 11}]))
        assert found.n_orders == 6
        # After the space, which all answers share, they part once.
        assert sum(map(len, start.started[0].batches)) == 6 * len(CONTENT_FREE)


def test_orders_the_engine_cannot_score_leave_the_order_by_id():
    running, _ = engine(leaning, max_model_len=20)
    found = calibrate(running, TASK, SET[::-1], spec=PromptSpec())
    assert (found.ids, found.skew, found.worst, found.n_orders) == (("1", "2", "3"), None, None, 0)
