"""SQLite files that gold SQL is tried on, in the sandbox that scores it later."""

import re
import sqlite3
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from inference.sql_sandbox import Limits, Sandbox
from jobs.errors import DataError

_CONSTANT = re.compile(r"\"[^\"]*\"|'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")


class Database:
    """An SQLite file, opened for reading.

    Attributes:
        path: Of the file.
        schema: `table(column type, ...)` of every table, joined by `; `.
    """

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        try:
            self._sandbox = Sandbox(path, limits)
            self.schema = _schema(path)
        except (ValueError, sqlite3.DatabaseError) as error:
            raise DataError(f"{path}: no SQLite file that can be read ({error}).") from None

    def error_of(self, sql: str) -> str | None:
        """Run a query; says why nothing could be scored by it, None where all is well."""
        return self._sandbox.run(sql).detail or None


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


def _schema(path: Path) -> str:
    """Read with statements of our own, for which there is no need of a sandbox."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "ORDER BY name"
        ).fetchall()
        return "; ".join(f"{table}({_columns(connection, table)})" for (table,) in tables)


def _columns(connection: sqlite3.Connection, table: str) -> str:
    columns = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return ", ".join(f"{name} {kind}".strip().lower() for name, kind in columns)
