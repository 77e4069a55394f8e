"""Work of the Stage 1 methods that go by a rule of their own, in pairs of two rows."""

from jobs.selecting.sizes import Sizes
from selection.crowd import VOTERS_MOST
from selection.tree import MergePlan

# In time of a pair, measured at N = 20,000 to 100,000, k = 100, d = 384. k-center, and the start of
# k-means, look at all rows for each pick, with a few columns at a time. Lloyd took 8 to 10 rounds
# of 1.3 here and may take more. Votes are products in float64, and sorted.
FARTHEST_PAIRS, START_PAIRS, LLOYD_PAIRS, VOTE_PAIRS = 27.0, 41.0, 26.0, 2.2


def local_pairs(sizes: Sizes, n: int, k: int) -> float:
    """Pairs by which one partition of n rows chooses k, judging them among it."""
    return _rule(sizes, n, k, n_voters=min(n, VOTERS_MOST)) + float(k) * n


def merge_pairs(sizes: Sizes, merges: MergePlan) -> tuple[float, float]:
    """Pairs of all merges below the last, and of the last; 0 for `random`, which is only judged.

    Args:
        sizes: Of the setting.
        merges: Its tree.
    """
    if sizes.stage1.method == "random":
        return 0.0, 0.0
    last = merges.levels[-1]
    below = sum(
        level.nodes * (_merged(sizes, sizes.sample, level.candidates, level.k))
        for level in merges.levels[:-1]
    )
    return float(below), _merged(sizes, sizes.n_rows, last.candidates, sizes.k)


def _merged(sizes: Sizes, n_ground: int, n: int, k: int) -> float:
    """Voters are compared with the candidates and with each other; picks are judged."""
    voters = min(n_ground, VOTERS_MOST)
    reach = VOTE_PAIRS * voters**2 if sizes.stage1.method == "vote-k" else 0.0
    return _rule(sizes, n, k, n_voters=voters) + reach + float(k) * n_ground


def _rule(sizes: Sizes, n: int, k: int, *, n_voters: int) -> float:
    k = min(k, n)
    pairs = {
        "random": 0.0,
        "kcenter": FARTHEST_PAIRS * n * k,
        "kmeans": (START_PAIRS + LLOYD_PAIRS) * n * k,
        "vote-k": VOTE_PAIRS * n * n_voters,
    }
    return float(pairs[sizes.stage1.method])
