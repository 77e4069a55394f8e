"""SQLite files that gold SQL is tried on: read only, and with an end."""

import re
import sqlite3
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from jobs.errors import DataError

MAX_STEPS = 200_000_000
STEPS_PER_LOOK = 1_000_000
_CONSTANT = re.compile(r"\"[^\"]*\"|'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")
_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class Database:
    """An SQLite file, opened for reading.

    Attributes:
        path: Of the file.
        schema: `table(column type, ...)` of every table, joined by `; `.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True
        )
        try:
            self.schema = _schema(self._connection)
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: no SQLite file that can be read ({error}).") from None
        self._connection.set_authorizer(_only_reading)

    def error_of(self, sql: str) -> str | None:
        """Run a query to its end; says what was wrong, None where nothing was.

        After 200 million steps of SQLite's machine it is interrupted.
        """
        looks = 0

        def enough() -> bool:
            nonlocal looks
            looks += 1
            return looks * STEPS_PER_LOOK >= MAX_STEPS

        self._connection.set_progress_handler(enough, STEPS_PER_LOOK)
        try:
            for _ in self._connection.execute(sql):
                pass
        except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:
            return str(error)
        return None


def databases_in(folder: Path) -> dict[str, Database]:
    """The databases of a folder, by name: NAME.sqlite, or NAME-db.anything.sqlite.

    Raises:
        DataError: Two files of one name, or a file that is no database.
    """
    found: dict[str, Database] = {}
    for path in sorted(folder.glob("*.sqlite")):
        name = re.split(r"[-.]", path.name)[0]
        if name in found:
            raise DataError(
                f"{folder}: {found[name].path.name} and {path.name} are both the database {name}. "
                "Remove one."
            )
        found[name] = Database(path)
    return found


def template(sql: str) -> str:
    """A hash of a query without its constants, case and white space."""
    bare = " ".join(_CONSTANT.sub("?", sql).lower().split())
    return blake2b(bare.encode(), digest_size=6).hexdigest()


def _schema(connection: sqlite3.Connection) -> str:
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "ORDER BY name"
    ).fetchall()
    described = []
    for (table,) in tables:
        columns = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
        joined = ", ".join(f"{name} {kind}".strip().lower() for name, kind in columns)
        described.append(f"{table}({joined})")
    return "; ".join(described)


def _only_reading(action: int, first: str | None, second: str | None, *_: object) -> int:
    allowed = action in _READS and second != "load_extension"
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
