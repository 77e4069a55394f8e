"""What stands around an answer: markdown fences, and the next part of a prompt run on."""

import re

from inference.tasks import Task

_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)


def unfenced(text: str) -> str:
    """Return what the first markdown fence holds, closed or cut off; the text where none is."""
    found = _FENCE.search(text)
    return found.group(1) if found and found.group(1).strip() else text.replace("```", "")


def before_next_part(text: str, task: Task) -> str:
    """Return the text up to a line that begins as the task's next input would."""
    prefix = task.input_prefix.strip().casefold()
    if not prefix:
        return text
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.strip().casefold().startswith(prefix):
            return "\n".join(lines[:at])
    return text


def answer_lines(text: str, task: Task) -> list[str]:
    """Return the visible lines of an answer, without fences and without a next part."""
    body = before_next_part(unfenced(text), task)
    return [line for line in body.splitlines() if line.strip()]
