"""Label scores on the tree: equal to the definition, and what they cost an engine with a cache."""

import math
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.best_label import score_best, together
from inference.engine import Completion, EngineSpec, VllmEngine
from inference.likelihood import asked, branches, score
from inference.status import Status
from tests.inference.llm_fakes import byte_tokenizer

BLOCK = 4
TOKENIZER = byte_tokenizer()


class CachingLlm:
    """A made-up model over four tokens behind a prefix cache of whole blocks, as vLLM's."""

    tokenizer = TOKENIZER
    settings = {"device": "fake", "cache_tokens": 200}

    def __init__(self, poison=None):
        self.poison = poison
        self.cache = set()
        self.n_requests = self.n_computed = 0

    @staticmethod
    def logprobs(prefix):
        weights = [1 + zlib.crc32(bytes([*prefix, token])) % 50 for token in range(4)]
        return [math.log(weight / sum(weights)) for weight in weights]

    def check(self, token_ids, sampling):
        pass

    def generate(self, token_ids, sampling):
        return [self._one(tuple(ids), one) for ids, one in zip(token_ids, sampling, strict=True)]

    def _one(self, ids, sampling):
        if self.poison is not None and ids[0] == self.poison:
            raise ConnectionError("dead")
        ends = range(BLOCK, len(ids) + 1, BLOCK)
        cached = max((end for end in ends if end < len(ids) and ids[:end] in self.cache), default=0)
        self.cache |= {ids[:end] for end in ends}
        self.n_requests += 1
        self.n_computed += len(ids) - cached
        way = None
        if sampling.computed_logprobs:
            way = tuple(
                self.logprobs(ids[:at])[ids[at]] if at > cached else None for at in range(len(ids))
            )
        after = self.logprobs(ids)
        step = {token: after[token] for token in sampling.logprob_token_ids or ()}
        return Completion("", "length", len(ids), cached, 1, logprobs=(step,), prompt_logprobs=way)

    def forget(self):
        self.cache.clear()

    def close(self):
        pass


def engine(llm=None, **spec):
    llm = llm or CachingLlm()
    running = VllmEngine(EngineSpec("fake", **spec), start=lambda _: llm, start_pause_s=0.0)
    return running, llm


def definition(prompt, path):
    steps = [CachingLlm.logprobs((*prompt, *path[:at]))[path[at]] for at in range(len(path))]
    return sum(steps) / len(steps)


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=9).map(tuple)
answers = st.lists(tokens, min_size=2, max_size=8, unique=True).map(
    lambda paths: {f"label {i}": path for i, path in enumerate(paths)}
)
prompts = st.lists(tokens, min_size=1, max_size=5)


@given(prompts, answers)
@settings(deadline=None, max_examples=60)
def test_every_score_is_the_mean_log_probability_of_the_answers_tokens(token_ids, paths):
    running, _ = engine()
    # The second time most of the way to a branch is in the cache, and asked for again.
    for _ in range(2):
        for prompt, scored in zip(token_ids, score(running, token_ids, paths), strict=True):
            expected = {label: definition(prompt, path) for label, path in paths.items()}
            assert scored.scores == pytest.approx(expected, abs=1e-12)
            assert scored.completion.prompt_tokens == len(prompt)


@given(prompts, answers)
@settings(deadline=None, max_examples=60)
def test_the_best_label_and_its_score_are_those_of_all_scores(token_ids, paths):
    running, few = engine()
    every, many = engine()
    for _ in range(2):
        pairs = zip(
            score_best(running, token_ids, paths), score(every, token_ids, paths), strict=True
        )
        for found, whole in pairs:
            best = max(paths, key=lambda label: whole.scores[label])
            assert max(found.scores, key=found.scores.get) == best or math.isclose(
                found.scores[max(found.scores, key=found.scores.get)], whole.scores[best]
            )
            assert found.scores[best] == pytest.approx(whole.scores[best], abs=1e-12)
            assert all(
                found.scores[one] == pytest.approx(whole.scores[one]) for one in found.scores
            )
    # Each time a prompt may be asked once more, where answers part right behind what was read.
    assert few.n_requests <= many.n_requests + 2 * len(token_ids)


def test_one_request_is_made_for_each_place_where_an_answer_ends_and_one_for_the_prompt():
    # 0 1 2 3 and 0 1 2 0 part after 0 1 2; 1 2 ends after 1; 0 1 is passed on the way.
    paths = {"a": (0, 1, 2, 3), "b": (0, 1, 2, 0), "c": (1, 2), "d": (0, 1)}
    tree = branches(paths)
    assert list(tree) == [(), (0,), (0, 1), (0, 1, 2), (1,)]
    assert asked(tree) == [(), (0, 1, 2), (1,)]
    running, llm = engine()
    score(running, [(3, 3)], paths)
    assert llm.n_requests == 3
    # 2 of the prompt, its part block and the way to each of two branches: 2 + 3 and 2 + 1.
    assert llm.n_computed == 2 + 5 + 3


def test_what_was_cached_on_the_way_is_asked_for_branch_by_branch():
    paths = {"a": (0, 1, 2, 3, 0, 1)}
    running, llm = engine()
    score(running, [(3, 3)], paths)
    assert llm.n_requests == 2
    score(running, [(3, 3)], paths)
    # Prompt and way fill a block of 4 with 0 1: the steps to 1 and 2 are not read on the way.
    assert llm.n_requests == 2 + 2 + 2


def test_a_clear_winner_costs_one_request_a_parting_on_its_way_however_many_labels_there_are():
    class Sure(CachingLlm):
        @staticmethod
        def logprobs(prefix):
            return [math.log(p) for p in (0.97, 0.01, 0.01, 0.01)]

    paths = {f"{a}{b}{c}": (a, b, c) for a in range(4) for b in range(4) for c in range(4)}
    running, llm = engine(Sure())
    (found,) = score_best(running, [(3, 3)], paths)
    assert max(found.scores, key=found.scores.get) == "000"
    # 64 labels, 21 branches.
    assert llm.n_requests == 3
    assert set(found.scores) == {"000", "001", "002", "003"}


@pytest.mark.parametrize("scorer", [score, score_best])
def test_prompts_that_fail_have_no_scores_and_the_others_do(scorer):
    running, _ = engine(CachingLlm(poison=2), max_model_len=12)
    paths = {"a": (0, 1, 2), "b": (3, 1)}
    found = scorer(running, [(0, 1), (2, 0), (1,) * 40, (3,)], paths)
    assert [one.completion.status for one in found] == [
        Status.OK,
        Status.ENGINE_CRASH,
        Status.TOO_LONG,
        Status.OK,
    ]
    assert [one.scores is None for one in found] == [False, True, True, False]


def test_prompts_are_decided_together_as_far_as_half_of_the_cache_holds_them():
    rows = [(2,) * 30, (1,) * 40, (1,) * 30, (3,) * 90, (0,) * 10]
    assert list(together(rows, 200)) == [[4, 2, 1], [0], [3]]
    assert list(together(rows, None)) == [[4, 2, 1, 0, 3]]
    assert list(together([], 200)) == []
