"""Masking before embedding: what tells like texts apart is replaced by the name of its class."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# "May" only with a capital: "may 10" is rarely a date.
_MONTH = (
    r"(?:(?i:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)|May)\b\.?"
)
_TIME = r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
_DATES = "|".join(
    (
        rf"\d{{4}}-\d{{2}}-\d{{2}}{_TIME}",  # 2024-01-05, 2024-01-05T10:30:00Z
        r"\d{4}([./])\d{1,2}\1\d{1,2}",  # 2024/1/5
        r"\d{1,2}([./-])\d{1,2}\2(?:\d{4}|\d{2})",  # 05.01.2024, 1/5/24
        rf"\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}})?",  # 5th of January, 2024
        rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?",  # Jan. 5, 2024
        rf"{_MONTH},? \d{{4}}",  # January 2024
    )
)
# Bounded, so that a text of opening marks takes linear time. Single quotes only around words:
# elsewhere they are apostrophes.
_QUOTED = "|".join(
    (
        r'"[^"\n]{1,1000}"',
        r"“[^”\n]{1,1000}”",
        r"„[^“”\n]{1,1000}[“”]",
        r"«[^»\n]{1,1000}»",
        r"`[^`\n]{1,1000}`",
        r"(?<!\w)'[^'\n]{1,1000}'(?!\w)",
        r"(?<!\w)‘[^’\n]{1,1000}’(?!\w)",
    )
)
# A number is no part of a word: HER-2, IL-2R, 2nd, 10mg and 5-fold stay. The third look behind
# keeps a failed match from starting again inside itself.
_NUMBERS = (
    r"(?<!\w)(?<![^\W\d][-/])(?<!\w[.,])[-+−]?+\.?+\d++(?:[.,]\d++)*+(?:[eE][-+]?+\d++)?+"
    r"(?!\w)(?![.,]\d)(?!-[^\W\d])(?: ?%)?+"
)
# Placeholders stand as characters that Unicode keeps out of texts until all rules have run.
_FIRST_MARK, _N_MARKS = 0xFDD0, 32
_REPLACED = dict.fromkeys(range(_FIRST_MARK, _FIRST_MARK + _N_MARKS), "�")


@dataclass(frozen=True)
class MaskRule:
    """One class of what is masked.

    Args:
        pattern: a regular expression as Python's `re` takes it; matches are replaced.
        placeholder: what stands there then, by value: a backslash in it means nothing.

    Raises:
        ValueError: a pattern that does not compile (with the position), or matches the empty text.
    """

    pattern: str
    placeholder: str

    def __post_init__(self) -> None:
        try:
            compiled = re.compile(self.pattern)
        except re.error as error:
            raise ValueError(
                f"mask pattern {self.pattern!r} does not compile: {error.msg} at position "
                f"{error.pos}"
            ) from None
        except (OverflowError, RecursionError) as error:
            raise ValueError(f"mask pattern {self.pattern!r} does not compile: {error}") from None
        if compiled.search(""):
            raise ValueError(
                f"mask pattern {self.pattern!r} matches the empty text, so it would put "
                f"{self.placeholder!r} everywhere; write + where it says *"
            )


#: The classes that have a name, in the order in which they are masked.
BUILT_IN: dict[str, MaskRule] = {
    "quoted": MaskRule(_QUOTED, "<quoted>"),
    "dates": MaskRule(rf"(?<!\w)(?<!\w[-./])(?:{_DATES})(?!\w)(?![-./]\d)", "<date>"),
    "numbers": MaskRule(_NUMBERS, "<number>"),
}


def mask_rules(entries: Iterable[str | MaskRule]) -> tuple[MaskRule, ...]:
    """Return the rules of a mask in the order in which they run.

    Rules of your own come first, as given; then quoted, dates, numbers, since a date holds
    numbers and a quotation may hold both.

    Args:
        entries: names of BUILT_IN, and rules.

    Raises:
        ValueError: an unknown name, an entry given twice, or more than 32.
    """
    given = list(entries)
    named = [entry for entry in given if isinstance(entry, str)]
    unknown = [name for name in named if name not in BUILT_IN]
    if unknown:
        raise ValueError(
            f"mask: found {unknown[0]!r}, wanted one of {', '.join(BUILT_IN)} or a pattern"
        )
    if len(set(given)) < len(given) or len(given) > _N_MARKS:
        raise ValueError(
            f"mask: found {len(given)} entries, {len(set(given))} of them distinct; wanted each "
            f"once, and at most {_N_MARKS}"
        )
    own = [entry for entry in given if isinstance(entry, MaskRule)]
    return (*own, *(rule for name, rule in BUILT_IN.items() if name in named))


def mask(text: str, rules: Sequence[MaskRule]) -> str:
    """Replace what the rules match, one rule after the other, by their placeholders.

    What a rule put in is not text to the rules after it, although a pattern like `.+` may take it
    along. The built-in rules take time linear in the text. `re` knows no time limit: a pattern
    such as `(a+)+b` can take for ever on a text that almost matches.

    Args:
        text: any Unicode.
        rules: in their order, at most 32.
    """
    if rules and not text.isascii():
        text = text.translate(_REPLACED)
    for number, rule in enumerate(rules):
        text = _marked(text, rule.pattern, chr(_FIRST_MARK + number))
    for number, rule in enumerate(rules):
        text = text.replace(chr(_FIRST_MARK + number), rule.placeholder)
    return text


def _marked(text: str, pattern: str, mark: str) -> str:
    return _compiled(pattern).sub(lambda found: mark if found.group() else "", text)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
