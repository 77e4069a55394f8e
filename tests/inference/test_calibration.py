import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.calibration import CONTENT_FREE, calibrate, label_skew, permutations_of
from inference.engine import Completion, EngineSpec, VllmEngine
from inference.ordering import Demonstration
from inference.prompts import PromptSpec
from inference.tasks import Task
from tests.inference.llm_fakes import Factory, byte_tokenizer

TASK = Task("letters", ("a", "b"))
BYTES = byte_tokenizer()
A, B, SPACE = (BYTES(text, add_special_tokens=False)["input_ids"][0] for text in ("a", "b", " "))


def test_skew_by_hand():
    even = {"a": -1.0, "b": -1.0}
    assert label_skew([even]) == pytest.approx(0.0)
    three_to_one = {"a": math.log(3), "b": 0.0}
    expected = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert label_skew([three_to_one]) == pytest.approx(expected)
    # Leanings that cancel out over the queries are no skew: the mean is what counts.
    assert label_skew([three_to_one, {"a": 0.0, "b": math.log(3)}]) == pytest.approx(0.0)
    assert label_skew([{"a": 0.0, "b": -1e9}]) == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.floats(-50, 0), min_size=3, max_size=3), min_size=1, max_size=4))
@settings(deadline=None)
def test_skew_lies_between_none_and_log_of_the_labels(rows):
    skew = label_skew([dict(zip("abc", row, strict=True)) for row in rows])
    assert -1e-9 <= skew <= math.log(3) + 1e-9


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
        assert found.worst == pytest.approx(label_skew([{"a": math.log(10) / 2, "b": 0.0}]))
        assert found.n_orders == 6
        # Two branches: the space, then the letter.
        assert sum(map(len, start.started[0].batches)) == 6 * len(CONTENT_FREE) * 2


def test_orders_the_engine_cannot_score_leave_the_order_by_id():
    running, _ = engine(leaning, max_model_len=20)
    found = calibrate(running, TASK, SET[::-1], spec=PromptSpec())
    assert (found.ids, found.skew, found.worst, found.n_orders) == (("1", "2", "3"), None, None, 0)
