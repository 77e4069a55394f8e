"""What `dualdiv plan` says of sparse encoders: texts and tokens, from sizes alone."""

from collections.abc import Mapping
from typing import Any

from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.planning.stage1 import ASSUMED_PICKS
from jobs.rank import sparse_encoder_of
from jobs.ranking.sparse import identify_sparse


def plan_sparse(
    config: Config, tables: Mapping[str, Any], encoders: Mapping[str, Any]
) -> dict[str, Any]:
    """Count what each sparse encoder in use will read: the queries, and every pool once.

    Args:
        config: The resolved config.
        tables: Rows of corpus and queries.
        encoders: Mean tokens of a text, by the tokenizer of the dense encoder of an arm: near
            enough, and there before the sparse model is loaded.

    Returns:
        By name: `sparse_encoder_id`, `queries`, `records` (at most) and `tokens`.

    Raises:
        ConfigError: A model is not there, or is no sparse encoder.
    """
    users: dict[str, list[Arm]] = {}
    for arm in config.arms:
        name = sparse_encoder_of(arm)
        if name is not None:
            users.setdefault(name, []).append(arm)
    planned = {}
    for name, arms in users.items():
        # A selection repeated for each fold has a pool in each.
        report = config.file.report
        n_folds = report.folds if report.folds_of == "selection" else 1
        records = n_folds * sum(_pools(arms, tables["corpus"]["rows"]))
        queries = tables["queries"]["rows"]
        mean = max(encoders[arm.encoder]["tokens_mean"] for arm in arms)
        planned[name] = {
            "sparse_encoder_id": identify_sparse(name, config.file.sparse_encoders[name]),
            "queries": queries,
            "records": records,
            "tokens": round(mean * (queries + records)),
        }
    return planned


def sparse_lines(planned: Mapping[str, Any]) -> list[str]:
    """One line a sparse encoder.

    Args:
        planned: As `plan_sparse` returns it.
    """
    return [
        f"{name}: about {one['tokens']:,} tokens of {one['queries']:,} queries and at most "
        f"{one['records']:,} records of pools, sparse"
        for name, one in planned.items()
    ]


def _pools(arms: list[Arm], n_rows: int) -> list[int]:
    """Records of each pool, at most; arms that choose alike have the same."""
    alike = {(arm.task, arm.encoder, arm.stage1.model_dump_json(), arm.seed): arm for arm in arms}
    picks = [arm.stage1.k1 or ASSUMED_PICKS for arm in alike.values()]
    return [min(n_picks, n_rows) for n_picks in picks]
