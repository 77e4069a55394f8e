"""Public data sets as row Parquet: one file per data set, a corpus and held-out queries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.errors import ConfigError
from jobs.prepare import icd10

PREPARERS: dict[str, Callable[..., dict[str, Any]]] = {"icd10": icd10.prepare}


def prepare(
    name: str, *, out: str | None = None, seed: int = 0, rows: int | None = None
) -> dict[str, Any]:
    """Prepare a data set by name.

    Args:
        name: One of PREPARERS.
        out: Folder to write to; None: data/NAME.
        seed: Of the samples.
        rows: Rows of the corpus to keep; None: all.

    Returns:
        What was written, with counts.

    Raises:
        ConfigError: Unknown name, missing package, or a folder that cannot be written.
    """
    if name not in PREPARERS:
        raise ConfigError(f"prepare {name}: unknown; wanted one of {', '.join(sorted(PREPARERS))}.")
    return PREPARERS[name](Path(out or f"data/{name}"), seed=seed, rows=rows)
