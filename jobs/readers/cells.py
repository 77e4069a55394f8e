"""One cell of a record as a field of a row: text, label, number, list of tags."""

import json
import math
from decimal import Decimal
from typing import Any

MAX_CUT_BYTES = 4096


class BadCell(ValueError):
    """A cell that cannot be what its field needs; the text says why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def is_blank(text: str) -> bool:
    """Whether there is nothing but white space."""
    return not text or text.isspace()


def scalar_text(value: Any) -> str | None:
    """Write a scalar as text: 1 -> "1", 1.0 -> "1.0", True -> "true"; NaN is no value.

    Raises:
        BadCell: A list or an object, or bytes that are not UTF-8.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            detail = f"byte {error.start + 1} (0x{value[error.start]:02X}) is not utf-8"
            raise BadCell("bad_encoding", detail) from error
    if isinstance(value, list | dict | tuple):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise BadCell("not_text", f"{kind} where text was expected")
    return str(value)


def any_text(value: Any) -> str | None:
    """Write anything as text; a list or an object as compact JSON."""
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return scalar_text(value)


def label_text(value: Any) -> str | None:
    """Write a label as text, untrimmed; a blank one is none."""
    text = value if isinstance(value, str) else any_text(value)
    return None if text is None or is_blank(text) else text


def id_text(value: Any) -> str | None:
    """Write an id as text, untrimmed; an empty one is none."""
    return scalar_text(value) or None


def tag_list(value: Any) -> list[str] | None:
    """Give a list of texts from a list, a JSON list in a text, or one text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    if isinstance(value, dict):
        raise BadCell("bad_tags", "an object where a list of texts was expected")
    values = value if isinstance(value, list | tuple) else [value]
    texts = [text for item in values if (text := label_text(item)) is not None]
    return texts or None


def number(value: Any) -> float | None:
    """Give a finite number, 0 or more.

    Raises:
        BadCell: Anything else.
    """
    if value is None or (isinstance(value, str) and is_blank(value)):
        return None
    found = math.nan
    if isinstance(value, int | float | str | Decimal) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
    if not math.isfinite(found) or found < 0:
        raise BadCell("bad_number", f"{str(value)[:40]!r} is no finite number of 0 or more")
    return found


def positive(value: Any) -> float | None:
    """Give a finite number above 0.

    Raises:
        BadCell: Anything else.
    """
    found = number(value)
    if found == 0:
        raise BadCell("bad_number", f"{str(value)[:40]!r} is no finite number above 0")
    return found


def is_longer(text: str, max_bytes: int) -> bool:
    """Whether a text has more than `max_bytes` bytes of UTF-8; most need no encoding to tell."""
    if len(text) * 4 <= max_bytes:
        return False
    return len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes


def cut(text: str, max_bytes: int = MAX_CUT_BYTES) -> str:
    """Cut to at most `max_bytes` bytes of UTF-8, at a character."""
    return text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
