"""A small SQLite file of invented towns, for queries that are run."""

import sqlite3
from contextlib import closing

TOWNS = [
    ("Ablon", 1200, 3.5, "north"),
    ("Brez", 800, None, "north"),
    ("Cumor", 800, 2.25, "south"),
    ("Dorsa", 50, 0.5, None),
]


def write(path):
    """Write the file; returns its path."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE town (name TEXT, people INT, area REAL, region TEXT)")
        connection.executemany("INSERT INTO town VALUES (?, ?, ?, ?)", TOWNS)
        connection.execute("CREATE TABLE river (name TEXT, town TEXT)")
        connection.executemany("INSERT INTO river VALUES ('Ona', ?)", [(t[0],) for t in TOWNS[:2]])
        connection.execute("CREATE VIEW large AS SELECT * FROM town WHERE people > 500")
    return path
