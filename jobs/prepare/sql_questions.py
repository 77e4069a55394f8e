"""Questions of text2sql-data: SQL with variables, and the sentences that ask it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobs.prepare.prepared import Prepared


class Question(NamedTuple):
    """A question and its SQL, variables filled in.

    Attributes:
        id: Database and place in its file.
        database: Its name.
        text: The question.
        sql: The query.
        split: `train`, `dev`, `test`, `exclude`, or the number of a fold.
        source: Name of the file.
    """

    id: str
    database: str
    text: str
    sql: str
    split: str
    source: str


def questions_of(file: Path, entries: list[Any], made: Prepared) -> Iterator[Question]:
    """Give every sentence of a file as a question.

    Args:
        file: NAME.json; the database is NAME.
        entries: Its queries.
        made: Takes the entries that are none.
    """
    number = 0
    for at, entry in enumerate(entries):
        try:
            sql, examples = entry["sql"][0], _examples(entry["variables"])
            sentences = [
                (one["text"], one["question-split"], dict(one["variables"]))
                for one in entry["sentences"]
            ]
        except (KeyError, TypeError, IndexError, ValueError) as error:
            detail = f"entry {at} is no query of text2sql-data ({type(error).__name__}: {error})"
            name = f"{file.stem}-entry-{at}"
            made.reject(name, "not_a_record", detail, source=file.name, text=str(entry))
            continue
        for text, split, variables in sentences:
            values = {name: value for name, value in variables.items() if value}
            yield Question(
                f"{file.stem}-{number}",
                file.stem,
                _filled(text, values),
                _filled(sql, examples | values),
                str(split),
                file.name,
            )
            number += 1


def _examples(variables: list[dict[str, str]]) -> dict[str, str]:
    """Values for variables that stand in the SQL alone."""
    return {one["name"]: one["example"] for one in variables}


def _filled(text: str, values: dict[str, str]) -> str:
    if not values:
        return text
    names = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda match: values[match[0]], text)
