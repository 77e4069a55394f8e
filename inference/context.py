"""What of a row is shown beside its input: the schema of a question's database, say, or a title."""

from collections.abc import Mapping

from inference.tasks import Task


def with_context(task: Task, text: str, row: Mapping[str, str | None]) -> str:
    r"""Return an input with the context of its row below it, each column from a line of its own.

    The whole then counts as the row's input: `prompts.safe` guards its lines, and a budget shows
    all of it or nothing.

    Args:
        task: its `context` says which columns, in which order, and what is put before each.
        text: the input.
        row: the columns; one that is missing, or blank, is left out.

    Returns:
        `text`, then `\n`, prefix and value of each column.
    """
    values = {column: (row.get(column) or "").strip() for column in task.context}
    lines = [f"{task.context[column]}{value}" for column, value in values.items() if value]
    return "\n".join([text, *lines])
