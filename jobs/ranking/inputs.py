"""What Stage 2 ranks: the pool as selection takes it, ground points, sparse vectors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from jobs.config.stage2 import Stage2Config
from jobs.ledger import Ledger, Marker
from jobs.vectors import Matrix, to_csr, to_matrix
from selection.stage2 import Pool, cluster_codes

GROUNDED = ("dual-div", "s3", "s3-lowest", "mutual-information")


def needs_ground(config: Stage2Config) -> bool:
    """Whether a method sums over corpus points."""
    return config.method in GROUNDED


@dataclass(frozen=True)
class Records:
    """The records that may be shown, in the order they were picked.

    Attributes:
        ids: n ids.
        vectors: (n, d) float32.
        inputs: n texts.
        labels: n labels of the task.
        tags: n lists of tags, None for none.
        groups: n groups, None for none.
    """

    ids: list[str]
    vectors: Matrix
    inputs: list[str]
    labels: list[str]
    tags: list[list[str] | None]
    groups: list[str | None]


def load_pool(ledger: Ledger, pool: dict[str, Any]) -> Records:
    """Read the records that may be shown, with their vectors."""
    table = ledger.read(Marker(**pool), ["id", "input", "vector", "label", "tags", "group"])
    return Records(
        ids=table.column("id").to_pylist(),
        vectors=to_matrix(table.column("vector")),
        inputs=table.column("input").to_pylist(),
        labels=table.column("label").to_pylist(),
        tags=table.column("tags").to_pylist(),
        groups=table.column("group").to_pylist(),
    )


def ranked_pool(ledger: Ledger, payload: dict[str, Any], records: Records) -> Pool:
    """The same as `selection` takes it: ranks of ids, codes of labels, clusters, ground points.

    With `ground: pool` the ground points are the pool and the query itself, and stand for no more.
    """
    config = Stage2Config.model_validate(payload["stage2"])
    tie_rank = np.empty(len(records.ids), np.int64)
    tie_rank[np.argsort(np.array(records.ids, object), kind="stable")] = np.arange(len(tie_rank))
    codes = {label: code for code, label in enumerate(sorted(set(records.labels)))}
    clusters = None
    if config.method == "kmeans":
        n_clusters = config.clusters or config.k
        clusters = cluster_codes(
            records.vectors, tie_rank, n_clusters=n_clusters, seed=payload["seed"]
        )
    own = config.ground == "pool" and needs_ground(config)
    return Pool(
        vectors=records.vectors,
        tie_rank=tie_rank,
        labels=np.array([codes[label] for label in records.labels], np.int64),
        ground=records.vectors if own else load_ground(ledger, payload["ground"]),
        n_total=None if own else payload["n_total"],
        query_in_ground=own,
        clusters=clusters,
    )


def load_ground(ledger: Ledger, ground: dict[str, Any] | None) -> Matrix | None:
    """Read the ground sample, where there is one."""
    if ground is None:
        return None
    return to_matrix(ledger.read(Marker(**ground), ["vector"]).column("vector"))


def load_sparse(ledger: Ledger, sparse: dict[str, Any] | None, which: str) -> sp.csr_array | None:
    """Read sparse vectors of queries or pool, where a sparse encoder takes part."""
    if sparse is None:
        return None
    marker = Marker(**sparse[which])
    return to_csr(ledger.read(marker, ["terms", "weights"]), marker.stats["dimension"])
