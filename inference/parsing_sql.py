"""Free text of an LLM to one SQL query."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from inference.answer_text import before_next_part, unfenced
from inference.tasks import Task

_WITH = (
    r"WITH\s+(?:RECURSIVE\s+)?[\w\"`\[\]]+\s*(?:\([^)]*\)\s*)?AS\s*"
    r"(?:NOT\s+)?(?:MATERIALIZED\s*)?\("
)
_BEGIN = re.compile(rf"\bSELECT\b|\b{_WITH}", re.IGNORECASE)
_SHOUTED = re.compile(rf"\bSELECT\b|\b{_WITH}")
_LEADS_LINE = re.compile(
    rf"^[ \t>(*`\"'-]*(?:sql\w*|query|answer)?[ \t:(`\"'*]*(?=SELECT\b|{_WITH})",
    re.IGNORECASE | re.MULTILINE,
)
_WRITES = re.compile(
    r"^\W*(?:sql\W+)?(INSERT|UPDATE|DELETE|DROP|CREATE|ALTER|ATTACH|DETACH|PRAGMA|VACUUM|REPLACE|"
    r"EXPLAIN)\b",
    re.IGNORECASE,
)
_PIECE = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)|"
    r"['\"`\[]|\w+|.",
    re.DOTALL,
)
# A blank line, or a line of prose; no line of a query begins with these words.
_ENDS = re.compile(r"\n(?=[ \t]*\n|\W*(?:This|The|Note|Explanation|Here|It|I)\b)")


class ParsedSql(NamedTuple):
    """A query, or None, and how it was found or why there is none."""

    query: str | None
    reason: str


def parse_sql(text: str, task: Task) -> ParsedSql:
    """Find the first query that a free answer holds.

    It begins with SELECT or WITH, at the begin of a line rather than in prose, and ends at the
    first semicolon, blank line, fence or surplus bracket. Whether it can run is for SQLite to say.

    Args:
        text: What the LLM wrote.
        task: A task of kind `sql`.

    Returns:
        The query without its semicolon with `exact` or `found`; or None with `empty`, `no_query`,
        `not_a_query: DROP`, or `cut_off: ...` where a quote or bracket stays open.
    """
    if not text.strip():
        return ParsedSql(None, "empty")
    body = before_next_part(unfenced(text), task)
    start = _start(body)
    if start is None:
        verb = _WRITES.match(body)
        return ParsedSql(None, f"not_a_query: {verb.group(1).upper()}" if verb else "no_query")
    query, reason = _statement(body[start:])
    if query is None:
        return ParsedSql(None, reason)
    return ParsedSql(query, "exact" if text.strip().rstrip("; \n") == query else "found")


def orders_rows(query: str) -> bool:
    """Whether the outermost query has an ORDER BY."""
    depth, before = 0, ""
    for piece in tokens(query):
        word = piece.upper()
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and (before, word) == ("ORDER", "BY"):
            return True
        before = word
    return False


def tokens(query: str) -> Iterator[str]:
    """Strings, names, words and marks of a query, without white space and comments."""
    for match in _PIECE.finditer(query):
        piece = match.group()
        if piece.strip() and not piece.startswith(("--", "/*")):
            yield piece


def _start(body: str) -> int | None:
    """Where the query begins."""
    line = _LEADS_LINE.search(body)
    if line is not None:
        return line.end()
    shouted = _SHOUTED.search(body)
    if shouted is not None:
        return shouted.start()
    quiet = [match.start() for match in _BEGIN.finditer(body)]
    # In prose one selects things without saying from where.
    return next((at for at in quiet if re.search(r"\bfrom\b", body[at:], re.IGNORECASE)), None)


def _statement(body: str) -> tuple[str | None, str]:
    """The statement that begins a text, or None and what stayed open."""
    depth, end = 0, len(body)
    for match in _PIECE.finditer(body):
        piece = match.group()
        if piece in ("'", '"', "[") or (piece == "`" and depth):
            return None, f"cut_off: {piece} is not closed"
        depth += (piece == "(") - (piece == ")")
        over = piece == ";" or _ENDS.match(body, match.start()) is not None
        if depth < 0 or piece == "`" or (depth == 0 and over):
            end = match.start()
            break
    if depth > 0:
        return None, f"cut_off: {depth} bracket(s) not closed"
    query = body[:end].strip()
    return (query, "") if len(query.split()) > 1 else (None, "cut_off: nothing after " + query)
