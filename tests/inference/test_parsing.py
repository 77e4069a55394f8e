import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.parsing import parse_label
from inference.tasks import Task

CHAPTERS = Task(
    "chapter",
    ("C00-D49", "E00-E89", "S00-T88", "V00-Y99", "P00-P96", "Q00-Q99"),
    verbalizers={
        "C00-D49": "Neoplasms (C00-D49)",
        "E00-E89": "Endocrine",
        "S00-T88": "Injury, poisoning",
        "V00-Y99": "External causes",
        "P00-P96": "Conditions of newborns",
        "Q00-Q99": "Conditions present at birth",
    },
    aliases={"tumour": "C00-D49", "endocrine, nutritional": "E00-E89"},
)
RELATION = Task(
    "relation",
    ("false", "effect", "mechanism", "advise", "int"),
    aliases={"no interaction": "false", "advice": "advise", "none": "false"},
)
ADVICE = Task("advice", ("no advice", "weak advice", "strong advice", "advice"))
LETTERS = Task("letters", ("A", "B", "C"), verbalizers={})
DIGITS = Task("digits", ("0", "1", "2", "10"))
DRINKS = Task("drink", ("fruit", "fruit juice", "fruit juice drink", "milk"))
LANGUAGES = Task("language", ("C", "C++", "C#", "Java", "JavaScript"))

TUMOUR, GLAND, INJURY, CAUSE = "C00-D49", "E00-E89", "S00-T88", "V00-Y99"


@pytest.mark.parametrize(
    ("task", "text", "label", "reason"),
    [
        (CHAPTERS, "Neoplasms (C00-D49)", TUMOUR, "exact"),
        (CHAPTERS, " neoplasms (c00-d49)\n", TUMOUR, "exact"),
        (CHAPTERS, "Neoplasms (C00-D49", TUMOUR, "exact"),
        (CHAPTERS, "Neoplasms (C00", TUMOUR, "partial"),
        (CHAPTERS, "Neoplasms", TUMOUR, "partial"),
        (CHAPTERS, "C00-D49", TUMOUR, "exact"),
        (CHAPTERS, "c00 d49.", TUMOUR, "exact"),
        (CHAPTERS, "Tumour", TUMOUR, "exact"),
        (CHAPTERS, "**Injury, poisoning**", INJURY, "exact"),
        (CHAPTERS, '"Injury, poisoning".', INJURY, "exact"),
        (CHAPTERS, "`Injury, poisoning`", INJURY, "exact"),
        (CHAPTERS, "Injury poisoning", INJURY, "exact"),
        (CHAPTERS, "INJURY,  POISONING!!!", INJURY, "exact"),
        (CHAPTERS, "Injury, poiso", INJURY, "partial"),
        (CHAPTERS, "The answer is: Injury, poisoning.", INJURY, "exact"),
        (CHAPTERS, "The answer is Injury, poi", INJURY, "partial"),
        (CHAPTERS, "Answer: Endocrine", GLAND, "exact"),
        (CHAPTERS, "Endocrine, nutritional", GLAND, "exact"),
        (CHAPTERS, "Sure! The chapter is External causes", CAUSE, "exact"),
        (CHAPTERS, "Category - External causes (V00-Y99)", CAUSE, "found"),
        (CHAPTERS, "This code belongs to External causes of morbidity.", CAUSE, "found"),
        (CHAPTERS, "Sure, here is the answer:\n\nExternal causes", CAUSE, "exact"),
        (CHAPTERS, "External causes\n\nInput: another one\nAnswer: Endocrine", CAUSE, "exact"),
        (CHAPTERS, "```\nExternal causes\n```", CAUSE, "exact"),
        (CHAPTERS, '{"label": "External causes"}', CAUSE, "exact"),
        (CHAPTERS, '{"answer_text": "External causes", "sure": true}', CAUSE, "found"),
        (CHAPTERS, "- External causes", CAUSE, "exact"),
        (CHAPTERS, "1. External causes", CAUSE, "found"),
        (CHAPTERS, "\u201cExternal causes\u201d", CAUSE, "exact"),
        (CHAPTERS, "External\u00a0causes", CAUSE, "exact"),
        (CHAPTERS, "Conditions of", "P00-P96", "partial"),
        (CHAPTERS, "Conditions", None, "ambiguous: P00-P96 | Q00-Q99"),
        (CHAPTERS, "External causes or Endocrine", None, "ambiguous: E00-E89 | V00-Y99"),
        (CHAPTERS, "External causes, not Endocrine", CAUSE, "found"),
        (CHAPTERS, "Not Endocrine.", None, "no_label"),
        (CHAPTERS, "Diseases of the ear", None, "no_label"),
        (CHAPTERS, "", None, "empty"),
        (CHAPTERS, " \n\t ", None, "empty"),
        (CHAPTERS, "?!", None, "no_label"),
        (CHAPTERS, "Ne", None, "no_label"),
        (CHAPTERS, "Pseudoendocrine", None, "no_label"),
        (RELATION, "Effect", "effect", "exact"),
        (RELATION, "effects", None, "no_label"),
        (RELATION, "Label: int<|im_end|>", "int", "found"),
        (RELATION, "None", "false", "exact"),
        (RELATION, "No interaction.", "false", "exact"),
        (RELATION, "advice", "advise", "exact"),
        (RELATION, "mechanism (the first raises the second)", "mechanism", "found"),
        (RELATION, "effect / mechanism", None, "ambiguous: effect | mechanism"),
        (RELATION, "effect effect effect", "effect", "found"),
        (RELATION, "printing", None, "no_label"),
        (ADVICE, "strong advice", "strong advice", "exact"),
        (ADVICE, "This is strong advice, I think", "strong advice", "found"),
        (ADVICE, "No advice is given.", "no advice", "found"),
        (ADVICE, "advice", "advice", "exact"),
        (ADVICE, "strong", "strong advice", "partial"),
        (DRINKS, "It is fruit juice, I think", "fruit juice", "found"),
        (DRINKS, "fruit juice drink (sweet)", "fruit juice drink", "found"),
        (DRINKS, "some fruit", "fruit", "found"),
        (DRINKS, "fruit", "fruit", "exact"),
        (LETTERS, "B", "B", "exact"),
        (LETTERS, "b.", "B", "exact"),
        (LETTERS, "(B)", "B", "exact"),
        (LETTERS, "The answer is B", "B", "exact"),
        (LETTERS, "It is a B", "B", "found"),
        (LETTERS, "B) because it is a fact", "B", "found"),
        (LETTERS, "A or B.", "B", "found"),
        (LETTERS, "A, B.", None, "ambiguous: A | B"),
        (LETTERS, "a dog", None, "no_label"),
        (DIGITS, "1", "1", "exact"),
        (DIGITS, "Label 1", "1", "exact"),
        (DIGITS, "10", "10", "exact"),
        (DIGITS, "100", None, "no_label"),
        (DIGITS, "Class: 2.", "2", "exact"),
        (LANGUAGES, "C++", "C++", "exact"),
        (LANGUAGES, "c#", "C#", "exact"),
        (LANGUAGES, "It is written in JavaScript.", "JavaScript", "found"),
        (LANGUAGES, "It is written in C++ mostly", "C++", "found"),
    ],
)
def test_an_answer_as_models_write_it_gives_its_label_or_a_reason(task, text, label, reason):
    assert parse_label(text, task) == (label, reason)


TASKS = st.sampled_from([CHAPTERS, RELATION, ADVICE, DIGITS, LANGUAGES])


@given(TASKS, st.data(), st.sampled_from(["{}", "{}.", "**{}**", '"{}"', "Answer: {}", "\n{}\n"]))
@settings(deadline=None)
def test_every_label_is_found_in_every_common_wrapping(task, data, wrapping):
    label = data.draw(st.sampled_from(task.labels))
    answer = data.draw(st.sampled_from([label, task.verbalizers.get(label, label)]))
    assert parse_label(wrapping.format(answer), task).label == label


@given(TASKS, st.text(max_size=80))
@settings(deadline=None)
def test_any_text_gives_a_label_of_the_task_or_a_reason(task, text):
    label, reason = parse_label(text, task)
    assert label in task.labels or (label is None and reason)


@given(st.sampled_from([CHAPTERS, RELATION, ADVICE, DIGITS]), st.data())
@settings(deadline=None)
def test_two_different_labels_in_one_line_are_never_guessed(task, data):
    two = data.draw(st.lists(st.sampled_from(task.labels), min_size=2, max_size=2, unique=True))
    label, reason = parse_label(" ; ".join(two), task)
    assert label is None
    assert reason.startswith("ambiguous")
