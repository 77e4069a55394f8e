"""What is masked, what is not, and that no text makes it slow or twice masked."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.masking import BUILT_IN, MaskRule, mask, mask_rules

ALL = mask_rules(["numbers", "dates", "quoted"])


@pytest.mark.parametrize(
    "date",
    [
        "2024-01-05",
        "2024-01-05T10:30",
        "2024-01-05 10:30:59.123+02:00",
        "2024/1/5",
        "05.01.2024",
        "1/5/24",
        "5 January 2024",
        "5th of january, 2024",
        "Jan. 5, 2024",
        "SEPT 3",
        "June 2024",
        "May 2nd",
    ],
)
def test_dates_are_masked_whole(date):
    assert mask(f"seen {date}.", ALL) == "seen <date>."


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5 mg, 2.5 %, 1,000.50 and -3", "<number> mg, <number>, <number> and <number>"),
        ("5-10 days (7)", "<number>-<number> days (<number>)"),
        ("1e-5 or .5", "<number> or <number>"),
        ("٣ and 3", "<number> and <number>"),
        ("HER-2 IL-2R 2nd 10mg 5-fold x_1 v1.2 a/2", "HER-2 IL-2R 2nd 10mg 5-fold x_1 v1.2 a/2"),
        ("it may 10 times", "it may <number> times"),
    ],
)
def test_numbers_are_masked_unless_they_are_part_of_a_word(text, wanted):
    assert mask(text, ALL) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('name = "Ann 3"', "name = <quoted>"),
        ("name = 'Ann' AND x = 'b'", "name = <quoted> AND x = <quoted>"),
        ("don't say the patient's 'no'", "don't say the patient's <quoted>"),
        ("“a” „b“ «c» ‘d’ `e`", "<quoted> <quoted> <quoted> <quoted> <quoted>"),
        ('an open " mark', 'an open " mark'),
        ('one "\nline"', 'one "\nline"'),
        ('on "2024-01-05"', "on <quoted>"),
    ],
)
def test_quoted_strings_are_masked_with_what_is_in_them(text, wanted):
    assert mask(text, ALL) == wanted


def test_rules_of_your_own_run_first_and_what_they_put_in_is_left_alone():
    rules = mask_rules(["numbers", MaskRule(r"(?i)patient (\d+)", r"P\1 7")])
    assert mask("Patient 12 has 3", rules) == r"P\1 7 has <number>"


def test_an_empty_placeholder_takes_the_match_out():
    assert mask("a [ref] b", [MaskRule(r" \[\w+\]", "")]) == "a b"


def test_the_order_in_which_names_are_given_means_nothing():
    assert ALL == mask_rules(["quoted", "dates", "numbers"]) == tuple(BUILT_IN.values())


def test_without_rules_a_text_stays_as_it_is():
    assert mask("2024-01-05 ﷐", ()) == "2024-01-05 ﷐"


def test_characters_that_stand_for_placeholders_cannot_be_smuggled_in():
    assert mask("\ufdd0 \ufdef 5", ALL) == "� � <number>"


def test_empty_matches_put_nothing_in():
    assert mask("ab", [MaskRule(r"\b", "X")]) == "ab"


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="0123456789-./: \"'aTM,e+%“”", max_size=40))
@example("1.1.1.1x")
@example("0e0.0")
def test_masking_a_masked_text_changes_nothing(text):
    once = mask(text, mask_rules(["numbers", "quoted"]))
    assert mask(once, mask_rules(["numbers"])) == once


@pytest.mark.parametrize(
    "unit", ["1.", "1,", "1-", "-", '"', "'", " '", "“", "„", "1/1/", "5 ", "Jan ", "1e", "2024-"]
)
def test_no_repetition_makes_the_built_in_rules_slow(unit):
    # Four times the text takes four times as long; a rule that went back at every place, sixteen.
    quarter, whole = (unit * (n // len(unit)) + "x" for n in (6_000, 24_000))
    assert _least_time(whole) < 10 * _least_time(quarter)


def _least_time(text):
    times = []
    for _ in range(3):
        start = time.process_time()
        mask(text, ALL)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(b", r"'a\(b' does not compile: missing \), unterminated subpattern at position 1"),
        ("[z-a]", r"does not compile: bad character range z-a at position 1"),
        ("a*", r"'a\*' matches the empty text"),
        ("x{99999999999999999999}", "does not compile"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused_with_the_position(pattern, message):
    with pytest.raises(ValueError, match=message):
        MaskRule(pattern, "X")


def test_unknown_names_and_repetitions_are_refused():
    with pytest.raises(ValueError, match="'urls', wanted one of quoted, dates, numbers"):
        mask_rules(["dates", "urls"])
    with pytest.raises(ValueError, match="2 entries, 1 of them distinct"):
        mask_rules(["dates", "dates"])
    with pytest.raises(ValueError, match=r"33 entries.*at most 32"):
        mask_rules([MaskRule(f"a{n}", "A") for n in range(33)])
