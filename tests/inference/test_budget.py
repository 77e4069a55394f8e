import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.budget import Budget, TokenCounter, fit
from inference.ordering import Demonstration
from inference.prompts import PromptSpec, build, chat_of
from inference.status import Status
from inference.tasks import Task
from tests.inference.llm_fakes import byte_tokenizer

TASK = Task("kind", ("fruit", "metal"), instruction="Name the kind.")
BYTES = byte_tokenizer(bos=True)
CHAT = chat_of(BYTES, model="fake")
SPECS = [PromptSpec(), PromptSpec(format="chat"), PromptSpec(format="chat", turns=False)]


def demos(lengths):
    return [
        Demonstration(f"{i:02}", "x" * length, "fruit", similarity=-i)
        for i, length in enumerate(lengths)
    ]


def budget(max_prompt_tokens, spec=SPECS[0], order="similar-last"):
    return Budget(max_prompt_tokens, TokenCounter(BYTES), spec=spec, order=order, chat=CHAT)


def n_tokens(n, demonstrations, spec=SPECS[0]):
    prompt = build(TASK, demonstrations[:n], "query", spec=spec, chat=CHAT)
    return TokenCounter(BYTES).exact(prompt)


def test_all_demonstrations_stay_where_they_fit():
    three = demos([5, 5, 5])
    fitted = fit(TASK, three, "query", budget=budget(10_000))
    assert (fitted.kept, fitted.n_dropped, fitted.status) == ((0, 1, 2), 0, Status.OK)
    assert fitted.prompt_tokens == n_tokens(3, three)


@pytest.mark.parametrize("spec", SPECS)
@given(st.lists(st.integers(0, 40), max_size=6), st.integers(0, 400))
@settings(deadline=None, max_examples=60)
def test_the_most_relevant_that_fit_are_kept_whole_and_the_rest_counted(spec, lengths, limit):
    demonstrations = demos(lengths)
    fitted = fit(TASK, demonstrations, "query", budget=budget(limit, spec))
    sizes = [n_tokens(n, demonstrations, spec) for n in range(len(lengths) + 1)]
    assert fitted.prompt_tokens == TokenCounter(BYTES).exact(fitted.prompt)
    assert len(fitted.kept) + fitted.n_dropped == len(lengths)
    assert "Name the kind." in fitted.prompt
    assert "Input: query" in fitted.prompt
    if sizes[0] > limit:
        assert fitted.status is Status.TOO_LONG
        assert fitted.kept == ()
        assert f"{sizes[0]} tokens, the budget is {limit}" in fitted.detail
    else:
        assert fitted.status is Status.OK
        assert fitted.kept == tuple(range(max(n for n, size in enumerate(sizes) if size <= limit)))
        assert fitted.prompt_tokens <= limit


def test_one_token_less_drops_the_least_relevant_demonstration():
    three = demos([5, 50, 5])
    assert fit(TASK, three, "query", budget=budget(n_tokens(3, three))).kept == (0, 1, 2)
    assert fit(TASK, three, "query", budget=budget(n_tokens(3, three) - 1)).kept == (0, 1)


def test_what_is_kept_is_shown_in_the_order_asked_for():
    three = demos([5, 6, 7])
    assert fit(TASK, three, "query", budget=budget(10_000)).shown == (2, 1, 0)
    first = budget(10_000, order="similar-first")
    assert fit(TASK, three, "query", budget=first).shown == (0, 1, 2)


class CountingTokenizer:
    bos_token = None

    def __init__(self):
        self.n_calls = 0

    def __call__(self, text, *, add_special_tokens):
        self.n_calls += 1
        return BYTES(text, add_special_tokens=add_special_tokens)


def test_demonstrations_shared_by_queries_are_tokenised_once():
    tokenizer = CountingTokenizer()
    shared = Budget(10_000, TokenCounter(tokenizer))
    four = demos([5, 6, 7, 8])
    fit(TASK, four, "first", budget=shared)
    before = tokenizer.n_calls
    fit(TASK, four, "second", budget=shared)
    assert tokenizer.n_calls - before == 2


class MergingTokenizer:
    """Counts three tokens more for a text by itself than inside a prompt."""

    bos_token = None

    def __call__(self, text, *, add_special_tokens):
        return {"input_ids": [0] * (len(text) + (0 if add_special_tokens else 3))}


def test_demonstrations_that_a_first_guess_gave_up_come_back_if_the_whole_prompt_fits():
    counter = TokenCounter(MergingTokenizer())
    four = demos([5, 6, 7, 8])
    limit = len(build(TASK, [], "query", spec=SPECS[0])) + sum(
        len("Input: \nAnswer: fruit\n\n") + n for n in (5, 6, 7)
    )
    assert fit(TASK, four, "query", budget=Budget(limit, counter)).kept == (0, 1, 2)


def test_the_memory_of_lengths_is_bounded():
    tokenizer = CountingTokenizer()
    counter = TokenCounter(tokenizer, max_remembered=2)
    assert [counter.about(text) for text in ("a", "bb", "ccc", "a", "ccc")] == [1, 2, 3, 1, 3]
    assert tokenizer.n_calls == 4
