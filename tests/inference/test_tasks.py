import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.tasks import (
    Task,
    answers,
    canonical,
    instruction,
    match_label,
    normalise,
    verbalize,
)

ADVICE = Task(
    "advice",
    ("no advice", "weak advice", "strong advice"),
    aliases={"none": "no advice", "0": "no advice", "stong advice": "strong advice"},
    verbalizers={"no advice": "nothing"},
)


@pytest.mark.parametrize(
    ("raw", "label", "how"),
    [
        ("no advice", "no advice", "exact"),
        ("No Advice", "no advice", "spelling"),
        ("no_advice", "no advice", "spelling"),
        (" weak-advice ", "weak advice", "spelling"),
        ("'Strong advice.'", "strong advice", "spelling"),
        ("STONG  advice", "strong advice", "alias"),
        ("None", "no advice", "alias"),
        ("0", "no advice", "alias"),
        ("nothing", "no advice", "spelling"),
        ("advice", None, "unknown"),
        ("strong advise", None, "unknown"),
        ("no", None, "unknown"),
        ("", None, "missing"),
        ("   ", None, "missing"),
        (None, None, "missing"),
    ],
)
def test_a_gold_spelling_is_matched_exactly_or_not_at_all(raw, label, how):
    assert match_label(ADVICE, raw) == (label, how)
    assert canonical(ADVICE, raw) == label


def test_an_exact_label_wins_over_an_alias_of_another_case():
    task = Task("t", ("A", "B"), aliases={"x": "A"})
    assert canonical(task, "B") == "B"
    assert canonical(task, "X") == "A"


@given(st.text(max_size=30))
@settings(deadline=None)
def test_normalising_twice_changes_nothing_more(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.lists(st.from_regex(r"[A-Za-z]{3,8}( [A-Za-z]{3,8})?", fullmatch=True), min_size=1))
@settings(deadline=None)
def test_every_label_of_a_valid_task_is_its_own_canonical_spelling(labels):
    unique = tuple({normalise(label): label for label in labels}.values())
    task = Task("t", unique)
    for label in unique:
        assert canonical(task, label) == label
        assert canonical(task, f' "{label.upper()}". ') == label


def test_punctuation_only_labels_keep_their_spelling():
    task = Task("sign", ("+", "-", "..."))
    assert [canonical(task, raw) for raw in ("+", "-", "...", "*")] == ["+", "-", "...", None]


def test_answers_follow_the_order_of_labels_and_use_verbalizers():
    assert answers(ADVICE) == ["nothing", "weak advice", "strong advice"]
    assert verbalize(ADVICE, "weak advice") == "weak advice"


def test_the_instruction_lists_answers_and_leaves_other_braces_alone():
    task = Task("t", ("a", "b"), instruction="Pick {labels}; not {this}.", verbalizers={"b": "bee"})
    assert instruction(task) == "Pick a, bee; not {this}."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ()}, "labels is empty"),
        ({"labels": ("a", " ")}, "1 blank label"),
        ({"labels": ("a", "b", "a")}, "'a' more than once"),
        ({"labels": ("No Advice", "no_advice")}, "both spelled 'no advice'"),
        ({"labels": ("a", "b"), "aliases": {"x": "c"}}, "aliases names label 'c'"),
        ({"labels": ("a", "b"), "verbalizers": {"c": "x"}}, "verbalizers names label 'c'"),
        ({"labels": ("a", "b"), "verbalizers": {"a": "B"}}, "both spelled 'b'"),
        ({"labels": ("a", "b"), "verbalizers": {"a": " "}}, "verbalizer of 'a' is blank"),
        ({"labels": ("a", "b"), "aliases": {"A": "b"}}, "is a spelling of label 'a'"),
    ],
)
def test_a_task_that_cannot_be_scored_is_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        Task("t", **arguments)


def test_tasks_are_hashable_and_survive_pickling():
    import pickle

    again = pickle.loads(pickle.dumps(ADVICE))
    assert again == ADVICE
    assert hash(again) == hash(ADVICE)
