"""The right answer's score after a demonstration shown alone."""

import zlib

import pytest

from inference.decoding import DECODERS
from inference.engine import Completion, EngineSpec, Sampling, VllmEngine
from inference.one_shot import Trial, one_shot
from inference.ordering import Demonstration
from inference.prompts import PromptSpec, build
from inference.status import Status
from inference.tasks import Task
from tests.inference.llm_fakes import Factory, FakeLlm

TASK = Task("t", ("red", "blue", "black"), instruction="Name it.")
SPEC = PromptSpec()
DEMONSTRATIONS = [Demonstration("a", "a rose", "red"), Demonstration("b", "the sea", "blue")]


def by_text(text, sampling):
    """Made-up log-probabilities that depend on all of the text."""
    wanted = sampling.logprob_token_ids
    chances = {token: -(zlib.crc32(f"{token} {text}".encode()) % 100) / 50 for token in wanted}
    return Completion("", "length", len(text), 0, 1, logprobs=(chances,))


def engine(rule=by_text, **spec):
    factory = Factory(rule)
    return VllmEngine(EngineSpec("fake", **spec), start=factory, start_pause_s=0.0), factory


def trials():
    asked = [("a cherry", "red"), ("the sky", "blue"), ("a raven", "black")]
    return [Trial(one, text, label) for one in DEMONSTRATIONS for text, label in asked]


def test_the_score_is_that_of_the_likelihood_decoder_for_the_right_label():
    llm, _ = engine()
    found = one_shot(llm, TASK, trials(), spec=SPEC)
    prompts = [build(TASK, [one.demonstration], one.input, spec=SPEC) for one in trials()]
    decoded = DECODERS["likelihood"](llm, TASK, prompts, Sampling())
    for one, scored, answer in zip(trials(), found, decoded, strict=True):
        assert scored.scores == {one.label: pytest.approx(answer.scores[one.label])}


def test_one_request_is_made_for_each_token_of_the_right_answer():
    llm, factory = engine()
    one_shot(llm, TASK, trials(), spec=SPEC)
    sent = [text for batch in factory.started[0].batches for text in batch]
    # One token a byte, the space before the answer included.
    assert len(sent) == sum(len(one.label) + 1 for one in trials())


def test_the_order_of_trials_changes_no_score():
    llm, _ = engine()
    plain = one_shot(llm, TASK, trials(), spec=SPEC)
    turned = one_shot(llm, TASK, trials()[::-1], spec=SPEC)
    assert [one.scores for one in plain] == [one.scores for one in turned[::-1]]


def test_a_trial_that_is_too_long_has_no_score_and_the_others_do():
    llm, _ = engine(max_model_len=120)
    long = Trial(DEMONSTRATIONS[0], "x" * 200, "red")
    found = one_shot(llm, TASK, [long, *trials()], spec=SPEC)
    assert found[0].scores is None
    assert found[0].completion.status is Status.TOO_LONG
    assert all(one.scores for one in found[1:])


def test_the_prompt_holds_this_demonstration_and_no_other():
    llm, factory = engine()
    one_shot(llm, TASK, trials()[:1], spec=SPEC)
    (llm,) = factory.started
    assert isinstance(llm, FakeLlm)
    assert all("a rose" in text and "the sea" not in text for text in llm.batches[0])


def test_no_trials_give_no_scores():
    llm, _ = engine()
    assert one_shot(llm, TASK, [], spec=SPEC) == []
