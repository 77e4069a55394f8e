"""How fast a stage is once its workers have started: by when its parts were finished."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def dualdiv(*words: str) -> str:
    """Run a verb in a process of its own, as a user does; what it printed on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "jobs", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def write(folder: Path, plain: dict[str, Any]) -> str:
    """The config file of a benchmark."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return str(path)


def rate(out: Path, pattern: str, *, workers: int) -> tuple[float, float]:
    """Rows a second of a stage in its steady state.

    From when every worker may have finished its first part, which holds start and model load, to
    when the last part was finished. What is counted of the second parts that were begun before, and
    what is not of workers that wait at the end, is at most a part each.

    Args:
        out: The output.
        pattern: Glob of the stage's done-markers.
        workers: How many there are.

    Returns:
        Rows a second, and the seconds they were counted for.
    """
    parts = sorted(
        (path.stat().st_mtime, json.loads(path.read_text())["rows"]) for path in out.glob(pattern)
    )
    begun, ended = parts[workers - 1][0], parts[-1][0]
    return sum(rows for _, rows in parts[workers:]) / (ended - begun), ended - begun
