"""The board: a small Ray actor on which workers leave what they are at, and the driver looks."""

import time
from typing import Any

NAME = "dualdiv-board"


class Board:
    """The last report of every worker, with its age."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, int], tuple[float, dict[str, Any]]] = {}

    def beat(self, report: dict[str, Any]) -> None:
        """Keep a worker's report in place of its last one."""
        key = (report["host"], report["pid"])
        self._reports[key] = (time.monotonic(), report)

    def read(self, token: str) -> list[dict[str, Any]]:
        """The reports of one stretch of a stage; those of others are forgotten."""
        now = time.monotonic()
        self._reports = {
            key: kept for key, kept in self._reports.items() if kept[1]["token"] == token
        }
        return [report | {"age_s": now - then} for then, report in self._reports.values()]


def board() -> Any:
    """The board of this driver, started when there is none; it needs no CPU and outlives a node."""
    import ray

    return (
        ray.remote(Board)
        .options(name=NAME, get_if_exists=True, num_cpus=0, max_restarts=-1)
        .remote()
    )
