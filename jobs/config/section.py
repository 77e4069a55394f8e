"""What every section of the config has in common, and the rules for values that need words."""

import re
from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

UNITS = {"B": 1} | {
    f"{letter}{infix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for infix, base in (("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?i?B)")


class Section(BaseModel):
    """A part of the config: unknown keys and wrong types are errors, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False
    )


def parse_bytes(size: int | str) -> int:
    """Bytes of a number, or of a text like `2GiB`, `500 MiB`, `1.5GB`.

    Raises:
        ValueError: Neither.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None or found[2] not in UNITS:
        raise ValueError(f"wanted bytes, as a number or like 2GiB ({', '.join(UNITS)})")
    return int(float(found[1]) * UNITS[found[2]])


def _size(value: Any) -> Any:
    if parse_bytes(value) < 2**20:
        raise ValueError("wanted at least 1MiB")
    return value


def _paths_or_ids(value: Any) -> Any:
    """A text or a list of distinct texts: YAML reads an unquoted 17 as a number, which is no id."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("wanted a text or a list of texts")
    other = next((item for item in value if not isinstance(item, str)), None)
    if other is not None:
        raise ValueError(f"it holds {other!r}; wanted texts only, so write it in quotes")
    if not value:
        raise ValueError("the list is empty; use null")
    twice = next((item for item, times in Counter(value).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice")
    return value


Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Bytes = Annotated[int | str, BeforeValidator(_size)]
TextOrList = Annotated[str | list[str] | None, BeforeValidator(_paths_or_ids)]
