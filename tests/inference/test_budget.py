import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.budget import Budget, Limits, TokenCounter, fit
from inference.ordering import ORDERS, Demonstration
from inference.prompts import PromptSpec, build, chat_of
from inference.status import Status
from inference.tasks import Task
from tests.inference.llm_fakes import byte_tokenizer

TASK = Task("kind", ("fruit", "metal"), instruction="Name the kind.")
BYTES = byte_tokenizer(bos=True)
CHAT = chat_of(BYTES, model="fake")
SPECS = [PromptSpec(), PromptSpec(format="chat"), PromptSpec(format="chat", turns=False)]
# "Input: " + text + "\nAnswer: fruit" + "\n\n", one token a byte.
FRAME = len("Input: \nAnswer: fruit\n\n")


def demos(lengths):
    return [
        Demonstration(f"{i:02}", "x" * length, "fruit", similarity=-i)
        for i, length in enumerate(lengths)
    ]


def budget(max_prompt_tokens, spec=SPECS[0], order="similar-last", **limits):
    return Budget(
        max_prompt_tokens,
        TokenCounter(BYTES),
        spec=spec,
        order=ORDERS[order],
        chat=CHAT,
        limits=Limits(**limits),
    )


def n_tokens(shown, query="query", spec=SPECS[0]):
    return TokenCounter(BYTES).exact(build(TASK, shown, query, spec=spec, chat=CHAT))


BARE = n_tokens([])


def test_all_demonstrations_stay_where_they_fit():
    three = demos([5, 5, 5])
    fitted = fit(TASK, three, "query", budget=budget(10_000))
    assert (fitted.kept, fitted.n_dropped, fitted.status) == ((0, 1, 2), 0, Status.OK)
    assert fitted.prompt_tokens == n_tokens(three)


@pytest.mark.parametrize("spec", SPECS)
@given(st.lists(st.integers(0, 40), max_size=6), st.integers(0, 400), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_each_that_fits_beside_those_before_it_is_kept_whole_and_the_rest_counted(
    spec, lengths, limit, k
):
    demonstrations = demos(lengths)
    fitted = fit(TASK, demonstrations, "query", budget=budget(limit, spec, k=k))
    wanted = []
    for one in demonstrations:
        if len(wanted) < k and n_tokens([*wanted, one], spec=spec) <= limit:
            wanted.append(one)
    assert fitted.prompt_tokens == TokenCounter(BYTES).exact(fitted.prompt)
    assert len(fitted.kept) + fitted.n_dropped == min(k, len(lengths))
    assert "Name the kind." in fitted.prompt
    assert "Input: query" in fitted.prompt
    if n_tokens([], spec=spec) > limit:
        assert (fitted.status, fitted.kept) == (Status.TOO_LONG, ())
        assert f"the budget is {limit}" in fitted.detail
    else:
        assert fitted.status is Status.OK
        assert [demonstrations[i] for i in fitted.kept] == wanted
        assert fitted.prompt_tokens <= limit


def test_one_that_would_overflow_is_passed_over_and_the_next_tried():
    four = demos([5, 50, 5, 5])
    two_short = BARE + 2 * (FRAME + 5)
    fitted = fit(TASK, four, "query", budget=budget(two_short, k=2))
    assert (fitted.kept, fitted.n_skipped, fitted.n_dropped) == ((0, 2), 1, 0)
    fitted = fit(TASK, four, "query", budget=budget(two_short - 1, k=2))
    assert (fitted.kept, fitted.n_skipped, fitted.n_dropped) == ((0,), 3, 1)


def test_a_demonstration_over_its_own_cap_is_passed_over_never_cut():
    three = demos([5, 40, 6])
    rendered = len("Input: \nAnswer: fruit")
    at_most = budget(10_000, max_demonstration_tokens=rendered + 39)
    assert fit(TASK, three, "query", budget=at_most).kept == (0, 2)
    at_most = budget(10_000, max_demonstration_tokens=rendered + 40)
    assert fit(TASK, three, "query", budget=at_most).kept == (0, 1, 2)


def test_beyond_k_min_demonstrations_share_what_the_query_leaves():
    five = demos([5] * 5)
    each = FRAME + 5
    room = 4 * each
    half = {"share": 0.5, "k": 4}
    assert len(fit(TASK, five, "query", budget=budget(BARE + room, **half)).kept) == 2
    longer = "query" + "y" * each
    # One demonstration's worth of query more: half of three is one.
    assert len(fit(TASK, five, longer, budget=budget(BARE + room, **half)).kept) == 1
    least = budget(BARE + room, k_min=3, **half)
    assert len(fit(TASK, five, "query", budget=least).kept) == 3
    assert len(fit(TASK, five, longer, budget=least).kept) == 3


def test_room_is_kept_for_k_min_shorter_ones():
    three = demos([50, 5, 6])
    limit = BARE + FRAME + 50
    assert fit(TASK, three, "query", budget=budget(limit)).kept == (0,)
    assert fit(TASK, three, "query", budget=budget(limit, k_min=2)).kept == (1, 2)


def test_k_min_beyond_the_budget_is_too_long_with_the_numbers():
    three = demos([5, 50, 6])
    limit = BARE + 2 * FRAME + 10
    fitted = fit(TASK, three, "query", budget=budget(limit, k_min=2))
    assert (fitted.status, fitted.kept) == (Status.TOO_LONG, ())
    assert fitted.detail == (
        f"k_min asks for 2 demonstrations: the shortest 2 of 3 take {2 * FRAME + 11} tokens, "
        f"instruction and query {BARE}, together {BARE + 2 * FRAME + 11}; the budget is {limit}"
    )
    assert fit(TASK, three, "query", budget=budget(limit + 1, k_min=2)).kept == (0, 2)


def test_k_min_with_all_over_their_cap_names_the_cap():
    fitted = fit(
        TASK, demos([5, 6]), "query", budget=budget(9999, k_min=2, max_demonstration_tokens=26)
    )
    assert fitted.status is Status.TOO_LONG
    assert "1 of 2 take more than max_demonstration_tokens 26" in fitted.detail


def test_fewer_candidates_than_k_min_are_no_fault_of_the_budget():
    assert fit(TASK, demos([5]), "query", budget=budget(9999, k_min=3)).kept == (0,)
    assert fit(TASK, [], "query", budget=budget(9999, k_min=3)).status is Status.OK


@given(
    st.lists(st.integers(0, 30), max_size=5),
    st.integers(0, 250),
    st.integers(0, 4),
    st.integers(0, 4),
)
@settings(deadline=None, max_examples=80)
def test_k_min_is_too_long_exactly_where_no_set_of_that_size_fits(lengths, room, k_min, more):
    demonstrations, k = demos(lengths), k_min + more
    limit = BARE + room
    fitted = fit(TASK, demonstrations, "query", budget=budget(limit, k=k, k_min=k_min, share=0.5))
    needed = min(k_min, len(lengths))
    sets = itertools.combinations(demonstrations, needed)
    possible = any(n_tokens(chosen) <= limit for chosen in sets)
    assert (fitted.status is Status.OK) == possible
    if possible:
        assert needed <= len(fitted.kept) <= k
        assert fitted.prompt_tokens <= limit


def test_what_is_kept_is_shown_in_the_order_asked_for():
    three = demos([5, 6, 7])
    assert fit(TASK, three, "query", budget=budget(10_000)).shown == (2, 1, 0)
    first = budget(10_000, order="similar-first")
    assert fit(TASK, three, "query", budget=first).shown == (0, 1, 2)


def test_fixed_demonstrations_come_first_whatever_the_order():
    four = demos([5, 6, 7, 8])
    assert fit(TASK, four, "query", budget=budget(10_000), n_fixed=2).shown == (1, 0, 3, 2)
    by_id = budget(10_000, order="by-id")
    swapped = [four[2], four[3], four[0], four[1]]
    assert fit(TASK, swapped, "query", budget=by_id, n_fixed=2).shown == (0, 1, 2, 3)


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


class SeamTokenizer:
    """Counts `seam` tokens more (or fewer) for every pair of neighbouring demonstrations."""

    bos_token = None

    def __init__(self, seam):
        self.seam = seam

    def __call__(self, text, *, add_special_tokens):
        pairs = max(0, text.count("Answer: fruit") - 1)
        return {"input_ids": [0] * (len(text) + self.seam * pairs)}


@pytest.mark.parametrize(("seam", "kept"), [(0, (0, 1)), (-2, (0, 1, 2)), (2, (0,))])
def test_the_whole_prompt_decides_where_single_counts_do_not_add_up(seam, kept):
    counter = TokenCounter(SeamTokenizer(seam))
    two = len(build(TASK, demos([5, 5]), "query", spec=SPECS[0]))
    limit = two + (FRAME + 5 - 2 if seam < 0 else 0)
    fitted = fit(TASK, demos([5, 5, 5]), "query", budget=Budget(limit, counter))
    assert fitted.kept == kept
    assert fitted.prompt_tokens <= limit


def test_the_memory_of_lengths_is_bounded():
    tokenizer = CountingTokenizer()
    counter = TokenCounter(tokenizer, max_remembered=2)
    assert [counter.about(text) for text in ("a", "bb", "ccc", "a", "ccc")] == [1, 2, 3, 1, 3]
    assert tokenizer.n_calls == 4
