"""Public data sets as row Parquet: one file per data set, a corpus and held-out queries."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from jobs.errors import ConfigError
from jobs.prepare import chemprot, ddi, health_advice, icd10, text2sql

PREPARERS: dict[str, Callable[..., dict[str, Any]]] = {
    "icd10": icd10.prepare,
    "chemprot": chemprot.prepare,
    "ddi": ddi.prepare,
    "health-advice": health_advice.prepare,
    "text2sql": text2sql.prepare,
}
FLAGS = {
    "source": "--source",
    "databases": "--databases",
    "form": "--as",
    "variant": "--variant",
    "test_share": "--test-share",
    "dev_share": "--dev-share",
    "seed": "--seed",
    "rows": "--rows",
}


def prepare(name: str, *, out: str | None = None, **options: Any) -> dict[str, Any]:
    """Prepare a data set by name.

    Args:
        name: One of PREPARERS.
        out: Folder or s3:// prefix to write to; None: data/NAME, with what `form` and `variant`
            say appended (data/chemprot-relations).
        options: Of FLAGS; None counts as not given.

    Returns:
        What was written, with counts.

    Raises:
        ConfigError: Unknown name, an option this data set does not have, a missing package or
            source, or a folder that cannot be written.
        DataError: A source that is damaged, or is another one.
        ClusterError: No room on the disk.
    """
    if name not in PREPARERS:
        raise ConfigError(f"prepare {name}: unknown; wanted one of {', '.join(sorted(PREPARERS))}.")
    parameters = signature(PREPARERS[name]).parameters
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in parameters:
            known = ", ".join(flag for option, flag in FLAGS.items() if option in parameters)
            raise ConfigError(f"prepare {name} takes no {FLAGS.get(key, key)}; it takes {known}.")
    kinds = [given[key] for key in ("form", "variant") if key in given]
    other = [kind for kind in kinds if kind not in (chemprot.FORMS[0], ddi.VARIANTS[0])]
    return PREPARERS[name](out or "data/" + "-".join([name, *other]), **given)
