"""Stage 2: which demonstrations each query shows the LLM. The methods, by name.

`PER_QUERY` conditions on each query by itself; `FOR_ALL` scores the pool against all queries at
once, and `top_k_for_all` turns those scores into one set for every query.
"""

from __future__ import annotations

from selection.pool import Pool, Queries, Recalled
from selection.pool_clusters import cluster_codes
from selection.query_set import FOR_ALL, QuerySummary, top_k_for_all
from selection.rankers import PER_QUERY
from selection.ranking import Ranking, RankOptions
from selection.recall import dense, filled, fused

__all__ = [
    "FOR_ALL",
    "PER_QUERY",
    "Pool",
    "Queries",
    "QuerySummary",
    "RankOptions",
    "Ranking",
    "Recalled",
    "cluster_codes",
    "dense",
    "filled",
    "fused",
    "top_k_for_all",
]
