"""Questions about a database and their SQL, from the JSON files of text2sql-data.

The source is the folder `data` of github.com/jkkummerfeld/text2sql-data (Finegan-Dollak et al.
2018), or one of its files: GeoQuery is geography.json. Each question has its variables filled in
and the first of its SQL queries. A Parquet file with the columns id, input, output, label (the
database) and split serves as well.

Only questions whose SQL runs on an SQLite file become rows, because they are scored by running it:
databases without a file are left out, SQL that fails is rejected; both are counted. Splits are
those of the source (`question-split`, under which training and test share SQL that differs in its
constants); a database that has folds instead gets a split of ours by `group`, its SQL without
constants.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import ConfigError, DataError
from jobs.prepare.distribution import existing, read_file, records
from jobs.prepare.prepared import TABLES, Prepared, Row, write
from jobs.prepare.splits import split_off
from jobs.prepare.sql_databases import Database, databases_in, template
from jobs.prepare.sql_questions import Question, questions_of
from jobs.storage import Store

WANTED = "a NAME.json of text2sql-data, the folder with them, or a Parquet file of questions"
COLUMNS = ("id", "input", "output", "label", "split")


def prepare(
    out: str,
    *,
    source: str | None = None,
    databases: str | None = None,
    test_share: float = 0.2,
    seed: int = 0,
) -> dict[str, Any]:
    """Write questions as rows, and copy the databases they ask into `databases/`.

    A row's `input` is the question, `output` the SQL, `label` and `database` the database, and
    `schema` its tables with their columns.

    Args:
        out: Folder to write to.
        source: The questions.
        databases: Folder with NAME.sqlite; None: the source, or the folder it lies in.
        test_share: For a database whose questions come in folds.
        seed: Of that split.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        ConfigError: No such source or folder, or a folder that cannot be written.
        DataError: A damaged file, or no question that can be run.
        ClusterError: No room on the disk.
    """
    path = existing(source, wanted=WANTED)
    folder = path if path.is_dir() else path.parent
    if databases is not None:
        folder = existing(databases, wanted="a folder with NAME.sqlite")
    made = Prepared(extra=("database", "schema"))
    found = databases_in(folder)
    for question in _questions(path, made):
        _add(made, question, found.get(question.database))
    made.rows = [*_splitted(made.rows, share=test_share, seed=seed)]
    about = {"source": path.name, "test_share": test_share, "seed": seed}
    meta = write(out, made, about | {"databases": sorted({row["label"] for row in made.rows})})
    for name in meta["databases"]:
        Store(out).write_bytes(f"databases/{name}.sqlite", read_file(found[name].path))
    return meta


def _questions(path: Path, made: Prepared) -> Iterator[Question]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no *.json in it; wanted {WANTED}.")
    for file in files:
        if file.suffix == ".parquet":
            yield from _from_parquet(file, made)
        else:
            yield from questions_of(file, records(str(file), read_file(file)), made)


def _from_parquet(file: Path, made: Prepared) -> Iterator[Question]:
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: no Parquet file that can be read ({error}).") from None
    lacking = [name for name in COLUMNS if name not in table.column_names]
    if lacking:
        raise DataError(f"{file}: no column {lacking[0]!r}. It has: {table.column_names}.")
    for row in table.select(COLUMNS).to_pylist():
        missing = [name for name in COLUMNS if row[name] is None]
        if missing:
            made.reject(row["id"], "not_a_record", f"no {missing[0]}", source=file.name)
            continue
        yield Question(
            row["id"], row["label"], row["input"], row["output"], row["split"], file.name
        )


def _add(made: Prepared, question: Question, database: Database | None) -> None:
    if question.split == "exclude":
        made.left_out["questions that the source excludes"] += 1
        return
    if database is None:
        made.left_out[f"questions without an SQLite file ({question.database})"] += 1
        return
    error = database.error_of(question.sql)
    if error:
        source, text = question.source, question.text
        made.reject(question.id, "sql_error", f"{error}: {question.sql}", source=source, text=text)
        return
    made.add(
        {
            "id": question.id,
            "input": question.text,
            "output": question.sql,
            "label": question.database,
            "group": f"{question.database}-{template(question.sql)}",
            "split": question.split,
            "source": question.source,
            "database": question.database,
            "schema": database.schema,
        }
    )


def _splitted(rows: list[Row], *, share: float, seed: int) -> Iterator[Row]:
    """Rows with a split of their own, and those in folds with ours."""
    if not 0 < share < 1:
        raise ConfigError(f"--test-share {share}: wanted a part, above 0 and below 1.")
    yield from (row for row in rows if row["split"] in TABLES)
    folds = [row | {"split": "train"} for row in rows if row["split"] not in TABLES]
    if folds:
        split_off(folds, by="group", into="test", share=share, seed=seed)
    yield from folds
