"""What every method with a rule of its own is asked, and points to ask it about."""

import numpy as np

from selection.crowd import Crowd
from selection.modes import Effort
from selection.stage1 import select_local
from tests.selection.asking import ask, keys_of


def chosen(method, vectors, k, *, threads=1, weights=None, crowd=None, **more):
    """The picks of one partition, in their order."""
    request = ask(len(vectors), k, crowd=crowd, **more)
    return select_local(
        method, vectors, request, effort=Effort("exact"), weights=weights, threads=threads
    ).selection


def on_circle(*degrees):
    """Unit vectors in the plane at these angles, (n, 2) float32."""
    angles = np.radians(np.array(degrees, dtype=np.float64))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def blobs(n, *, spread, topics=4):
    """Rows around orthogonal directions, in turn: row i is of topic i % topics; (n, 12) float32."""
    rows = np.eye(12)[np.arange(n) % topics]
    rows = rows + spread * np.random.default_rng(3).normal(size=rows.shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def shuffled(vectors, seed):
    """Rows in another order, with the ranks and keys they had: (vectors, ranks, keys)."""
    order = np.random.default_rng(seed).permutation(len(vectors))
    return vectors[order], order, keys_of(len(vectors))[order]


def awkward():
    """Corpora that are hardly any, by name."""
    rng = np.random.default_rng(5)
    four = rng.normal(size=(4, 6))
    four /= np.linalg.norm(four, axis=1, keepdims=True)
    copies = np.repeat(four, [2000, 700, 250, 50], axis=0)
    line = np.where(np.arange(50) % 3, 1.0, -1.0)[:, None] * four[:1]
    return {
        "copies by the thousand": rng.permutation(copies).astype(np.float32),
        "one text": np.tile(four[:1], (40, 1)).astype(np.float32),
        "rank 1": line.astype(np.float32),
        "16 bits": rng.permutation(copies[:200]).astype(np.float16),
        "two rows": four[:2].astype(np.float32),
    }


def neighbours(n):
    return Crowd(neighbours=n)
