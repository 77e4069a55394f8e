"""Calibration by content-free inputs: the division by hand, its properties, and with an engine."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.calibration import content_free_prompts
from inference.contextual import calibrated, contextual, probabilities
from inference.decoding import DECODERS
from inference.engine import Completion, EngineSpec, Sampling, VllmEngine
from inference.ordering import Demonstration
from inference.prompts import PromptSpec, build
from inference.status import Status
from inference.tasks import Task
from tests.inference.llm_fakes import Factory, byte_tokenizer

TASK = Task("letters", ("a", "b"))
BYTES = byte_tokenizer()
A, B, SPACE = (BYTES(text, add_special_tokens=False)["input_ids"][0] for text in ("a", "b", " "))
SPEC = PromptSpec()
SHOWN = [Demonstration("1", "loud", "a"), Demonstration("2", "calm", "b")]
chances = st.lists(st.floats(0.01, 1), min_size=3, max_size=3)


def whole(values):
    return {label: value / sum(values) for label, value in zip("xyz", values, strict=True)}


def test_division_by_hand():
    # 0.6 / 0.75 = 0.8 and 0.4 / 0.25 = 1.6: b, the less probable label, is the answer.
    assert calibrated({"a": 0.6, "b": 0.4}, {"a": 0.75, "b": 0.25}) == pytest.approx(
        {"a": 1 / 3, "b": 2 / 3}
    )


def test_scores_become_probabilities_by_hand():
    assert probabilities({"a": math.log(0.3), "b": math.log(0.1)}) == pytest.approx(
        {"a": 0.75, "b": 0.25}
    )
    assert probabilities({"a": -2000.0, "b": -2000.0}) == {"a": 0.5, "b": 0.5}


@given(chances)
@settings(deadline=None)
def test_uniform_content_free_probabilities_change_nothing(values):
    before = whole(values)
    assert calibrated(before, dict.fromkeys("xyz", 1 / 3)) == pytest.approx(before)


@given(chances, chances, st.floats(1e-6, 1e6))
@settings(deadline=None)
def test_the_scale_of_content_free_probabilities_does_not_matter(values, neutral, scale):
    before, base = whole(values), whole(neutral)
    scaled = {label: scale * value for label, value in base.items()}
    after = calibrated(before, base)
    assert calibrated(before, scaled) == pytest.approx(after)
    assert sum(after.values()) == pytest.approx(1.0)


@given(chances)
@settings(deadline=None)
def test_a_query_that_is_like_the_content_free_ones_prefers_no_label(values):
    assert calibrated(whole(values), whole(values)) == pytest.approx(dict.fromkeys("xyz", 1 / 3))


def test_a_label_that_is_never_likely_without_content_divides_by_no_zero():
    after = calibrated({"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 0.0})
    assert after == pytest.approx({"a": 0.0, "b": 1.0})


def rule(text, sampling):
    """After anything a is likely, four to one; less so where the query is 'quiet'."""
    if "poison" in text:
        raise ConnectionError("dead")
    query = text[text.rindex("Input: ") :]
    a = {True: 0.6, False: 0.8}["quiet" in query]
    scores = {SPACE: 0.0, A: math.log(a), B: math.log(1 - a)}
    wanted = {token: scores[token] for token in sampling.logprob_token_ids or ()}
    return Completion("", "length", len(text), 0, 1, logprobs=(wanted,))


def answered(queries, *, inputs=("N/A", "", "[MASK]"), shown=SHOWN):
    start = Factory(rule)
    running = VllmEngine(EngineSpec("fake", max_model_len=300), start=start, start_pause_s=0.0)
    prompts = [build(TASK, shown, query, spec=SPEC) for query in queries]
    neutral = content_free_prompts(TASK, shown, spec=SPEC, inputs=inputs)
    done = contextual(running, TASK, prompts, [neutral] * len(prompts))
    sent = {text for llm in start.started for batch in llm.batches for text in batch}
    return done, prompts, sent


def test_a_label_that_is_likely_anyway_is_held_back_and_both_answers_stand():
    (quiet, loud), prompts, _ = answered(["quiet", "N/A"])
    # Scores are means over two tokens, the space and the letter: square roots of the chances.
    before = [math.sqrt(0.6), math.sqrt(0.4)]
    assert (quiet.uncalibrated, quiet.prediction, quiet.raw_output) == ("a", "b", "b")
    after = [before[0] / math.sqrt(0.8), before[1] / math.sqrt(0.2)]
    assert quiet.calibrated == pytest.approx(
        {"a": after[0] / sum(after), "b": after[1] / sum(after)}
    )
    assert quiet.scores == pytest.approx({"a": math.log(before[0]), "b": math.log(before[1])})
    # A query without content prefers no label, and the first is the answer.
    assert loud.calibrated == pytest.approx({"a": 0.5, "b": 0.5})
    running = VllmEngine(EngineSpec("fake"), start=Factory(rule), start_pause_s=0.0)
    plain = DECODERS["likelihood"](running, TASK, prompts, Sampling())
    assert [one.scores for one in plain] == [quiet.scores, loud.scores]
    assert plain[0].calibrated is None


def test_content_free_prompts_are_scored_once_for_all_queries_that_share_demonstrations():
    _, _, few = answered(["quiet"])
    _, _, many = answered([f"quiet {i}" for i in range(10)])
    requests_of_a_prompt = len(few) / 4
    assert len(many) == 13 * requests_of_a_prompt


def test_a_content_free_prompt_without_a_score_leaves_its_rows_without_a_prediction():
    (done,), _, _ = answered(["quiet"], inputs=("N/A", "x" * 300))
    assert (done.prediction, done.status) == (None, Status.TOO_LONG)
    assert done.completion.status is Status.TOO_LONG
    assert done.scores is not None
    assert "a content-free prompt was not scored" in done.detail
    (done,), _, _ = answered(["quiet"], inputs=("poison",))
    assert done.status is Status.ENGINE_CRASH


def test_a_prompt_that_fails_keeps_its_own_status():
    (done,), _, _ = answered(["quiet poison"])
    assert (done.prediction, done.status) == (None, Status.ENGINE_CRASH)
    assert "content-free" not in done.detail
