"""Queries of an LLM against SQLite files: they can read tables, and nothing else.

Four fences, each of which would do: the file is opened read-only and immutable, the connection is
`query_only`, the authorizer allows nothing but SELECT, READ of the file's own tables and known
functions, and limits end what takes too long, too much memory or too many rows.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from inference.status import Status

Value = None | int | float | str | bytes
ResultRow = tuple[Value, ...]

# One call of a function cannot be ended, so looks are frequent and strings short.
_OPCODES_BETWEEN_LOOKS = 100
_SCHEMA_TABLES = {"sqlite_master", "sqlite_schema"}
# Without `printf` and `format`: a width of 10^9 keeps one call busy for half a minute.
_FUNCTION_NAMES = """
abs char coalesce concat concat_ws glob hex ifnull iif instr length like likelihood likely
lower ltrim max min nullif octet_length quote random randomblob replace round rtrim sign
soundex substr substring trim typeof unhex unicode unlikely upper zeroblob
avg count group_concat median string_agg sum total
date time datetime julianday strftime unixepoch timediff current_date current_time
current_timestamp
row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2
mod pi pow power radians sin sinh sqrt tan tanh trunc
json json_array json_array_length json_extract json_object json_quote json_type json_valid
json_group_array json_group_object -> ->> match
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_ACTION_NAMES = """
READ FUNCTION INSERT UPDATE DELETE PRAGMA ATTACH DETACH TRANSACTION SAVEPOINT ANALYZE REINDEX
ALTER_TABLE CREATE_TABLE CREATE_TEMP_TABLE CREATE_VIEW CREATE_TEMP_VIEW CREATE_INDEX
CREATE_TRIGGER CREATE_TEMP_TRIGGER CREATE_VTABLE DROP_TABLE DROP_VIEW DROP_INDEX DROP_TRIGGER
DROP_VTABLE
"""
_ACTIONS = {getattr(sqlite3, f"SQLITE_{name}"): name for name in _ACTION_NAMES.split()}
_SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 256 * 2**10,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


@dataclass(frozen=True)
class Limits:
    """What one query may take.

    Attributes:
        seconds: Of wall-clock time.
        rows: Of its result.
        max_bytes: SQLite's own memory, and the result's. The first holds for the whole process and
            needs a SQLite that counts its memory, as all but Apple's do.
    """

    seconds: float = 5.0
    rows: int = 100_000
    max_bytes: int = 256 * 2**20


class Result(NamedTuple):
    """What came of a query: rows where status is ok, else `sql_error` or `timeout` and why."""

    status: Status
    detail: str
    rows: list[ResultRow] | None


class Sandbox:
    """One SQLite file, open for queries that are not trusted."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        """Open a file.

        Args:
            path: A SQLite file; it is neither written nor locked, and must not change meanwhile.
            limits: Of each query.

        Raises:
            ValueError: No such file, or no SQLite file.
        """
        self.limits = limits or Limits()
        self._denied = ""
        self._deadline = 0.0
        try:
            self._connection = sqlite3.connect(
                f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True
            )
            self._tables = _prepare(self._connection, self.limits)
        except sqlite3.Error as error:
            raise ValueError(f"{path}: cannot be opened as a SQLite file: {error}") from None
        self._connection.set_authorizer(self._authorize)
        self._connection.set_progress_handler(self._is_late, _OPCODES_BETWEEN_LOOKS)

    def run(self, query: str) -> Result:
        """Run one query.

        Args:
            query: Any text.

        Returns:
            Its rows; or `timeout`, or `sql_error` with SQLite's message or what was not allowed.
        """
        self._denied = ""
        self._deadline = time.monotonic() + self.limits.seconds
        try:
            with closing(self._connection.execute(query)) as cursor:
                return self._fetch(cursor)
        except sqlite3.OperationalError as error:
            if time.monotonic() >= self._deadline:
                return Result(Status.TIMEOUT, f"ran longer than {self.limits.seconds:g} s", None)
            return self._failed(str(error))
        except (sqlite3.Error, sqlite3.Warning) as error:
            return self._failed(self._denied or str(error))
        except MemoryError:
            return self._failed(f"needs more than {self.limits.max_bytes / 2**20:,.0f} MiB")
        except (ValueError, OverflowError) as error:
            return self._failed(str(error))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _fetch(self, cursor: sqlite3.Cursor) -> Result:
        rows: list[ResultRow] = []
        n_bytes = 0
        for row in cursor:
            if len(rows) >= self.limits.rows:
                return self._failed(f"returns more than {self.limits.rows:,} rows")
            n_bytes += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
            if n_bytes > self.limits.max_bytes:
                return self._failed(f"returns more than {self.limits.max_bytes / 2**20:,.0f} MiB")
            rows.append(row)
        if cursor.description is None:
            return self._failed("is no query: it returns no columns")
        return Result(Status.OK, "", rows)

    def _failed(self, reason: str) -> Result:
        return Result(Status.SQL_ERROR, self._denied or reason, None)

    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Allow reading this file's tables with known functions."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            allowed = _may_read((first or "").lower(), second or "", self._tables)
        else:
            allowed = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS
        if not allowed:
            name = _ACTIONS.get(action, f"action {action}")
            self._denied = " ".join(filter(None, (f"not allowed: {name}", first, second)))
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _may_read(table: str, column: str, tables: set[str]) -> bool:
    """Whether a column is of the file's tables; no column: a count, also of a named subquery."""
    counted = not column and not table.startswith(("sqlite_", "pragma_"))
    return counted or table in tables


@contextmanager
def opened(path: Path, limits: Limits | None = None) -> Iterator[Sandbox]:
    """Open a sandbox and close it again."""
    sandbox = Sandbox(path, limits)
    try:
        yield sandbox
    finally:
        sandbox.close()


def _prepare(connection: sqlite3.Connection, limits: Limits) -> set[str]:
    """Lock a connection down; returns the lower-case names of the tables it may read."""
    for pragma in (
        "query_only = ON",
        "trusted_schema = OFF",
        "cell_size_check = ON",
        # Sorting must not spill to files.
        "temp_store = MEMORY",
        f"hard_heap_limit = {limits.max_bytes}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    for limit, most in _SQLITE_LIMITS.items():
        connection.setlimit(limit, most)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    return {str(name).lower() for (name,) in names} | _SCHEMA_TABLES
