"""The one question that annotators are asked: the task that the chosen arms share."""

from inference.kinds import ANSWERED_BY_OUTPUT, gold_answer
from inference.tasks import Task
from jobs.config.schema import Arm
from jobs.errors import ConfigError
from jobs.run import Run
from jobs.tasks import task_of


def chosen_arms(run: Run, arm: str | None) -> list[Arm]:
    """The arms that have candidates, or the one that was named.

    Raises:
        ConfigError: No such arm, or none that chooses candidates.
    """
    arms = [one for one in run.arms if one.name in run.candidates]
    if arm is not None:
        arms = [one for one in arms if one.name == arm]
    if not arms:
        known = ", ".join(one.name for one in run.arms if one.name in run.candidates)
        raise ConfigError(
            f"--arm {arm}: no arm of this run that chooses candidates; there are: "
            f"{known or 'none'}."
        )
    return arms


def question_of(run: Run, arms: list[Arm]) -> Task:
    """The task of these arms.

    Raises:
        ConfigError: They ask different questions.
    """
    tasks = {name: task_of(run, name) for name in dict.fromkeys(arm.task for arm in arms)}
    asked = {(task.kind, task.labels) for task in tasks.values()}
    if len(asked) > 1:
        raise ConfigError(
            f"the arms have tasks with different answers ({', '.join(tasks)}), and annotators "
            "answer one. Name an arm with --arm."
        )
    return next(iter(tasks.values()))


def answer_field(task: Task) -> str:
    """The column of a row that has its answer: `label`, or `output` for entities and queries."""
    return "output" if task.kind in ANSWERED_BY_OUTPUT else "label"


def answer_of(tasks: list[Task], row: dict[str, str | None]) -> str | None:
    """The canonical answer of a row by the first task that it answers; None: it answers none."""
    return next(filter(None, (gold_answer(task, row).value for task in tasks)), None)
