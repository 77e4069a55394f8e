"""Which parts of a config go with which kind of task."""

from inference.decoding import LABEL_DECODERS
from inference.kinds import ANSWERED_BY_OUTPUT
from jobs.config.schema import Arm, ConfigFile
from jobs.errors import ConfigError
from jobs.files.inputs import is_folder
from jobs.files.places import plain
from jobs.rank import learns, shows_nothing
from jobs.storage import reading


def check_kind(arm: Arm, file: ConfigFile) -> None:
    """Refuse what the kind of an arm's task cannot go with.

    Raises:
        ConfigError: Names the keys that contradict each other.
    """
    task = file.tasks[arm.task]
    kind = task.kind
    if learns(arm) and task.context:
        raise ConfigError(
            f"arm {arm.name}: stage2.recall_by = epr learns from texts alone, and tasks.{arm.task}."
            "context shows more than these. Choose another recall."
        )
    if kind == "classification":
        return
    where = f"arm {arm.name}: task {arm.task} is of kind {kind}"
    if arm.generate.decoder in LABEL_DECODERS:
        raise ConfigError(
            f"{where}, which generate.decoder = {arm.generate.decoder} cannot answer: it chooses "
            "one label of a closed set. Set generate.decoder: generate."
        )
    if arm.prompt.order == "calibrated":
        raise ConfigError(
            f"{where}; prompt.order = calibrated compares the probabilities of labels. Choose "
            "another order."
        )
    if learns(arm):
        raise ConfigError(
            f"{where}; stage2.recall_by = epr learns from the probabilities of labels. Choose "
            "another recall."
        )
    if kind in ANSWERED_BY_OUTPUT:
        _check_output(arm, file, where)
    if kind == "sql":
        _check_databases(arm, file)


def _check_output(arm: Arm, file: ConfigFile, where: str) -> None:
    if file.corpus.columns.output is None and not shows_nothing(arm.stage2):
        raise ConfigError(
            f"{where}: its answers stand in corpus.columns.output, which maps no column, so there "
            "is nothing to show. Map one."
        )


def _check_databases(arm: Arm, file: ConfigFile) -> None:
    """Answers can be scored only where their databases are."""
    task, key = file.tasks[arm.task], f"tasks.{arm.task}"
    if task.databases is None:
        if file.queries.columns.output is not None:
            raise ConfigError(
                f"{key}.databases: not given; name the folder of the SQLite files in which answers "
                "are run. Without queries.columns.output nothing is scored and none is needed."
            )
        return
    with reading(f"{key}.databases = {task.databases}"):
        there = is_folder(plain(task.databases, key=f"{key}.databases"))
    if not there:
        raise ConfigError(f"{key}.databases = {task.databases}: no such folder.")
    columns = file.queries.columns
    known = ["label"] * (columns.label is not None) + columns.keep
    if task.database_column not in known:
        raise ConfigError(
            f"{key}.database_column = {task.database_column}: no such column of the queries; "
            f"known: {', '.join(known) or 'none'}. Map queries.columns.label, or add to "
            "queries.columns.keep."
        )
