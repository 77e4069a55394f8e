"""Queries per second of what finds candidates by words, sparse vectors and a graph, and of guards.

    python -m tests.benchmarks.recall [--vectors FILE.npy] [--sizes N ...] [--steps words ...]

CPU seconds of one process with one thread (set OMP_NUM_THREADS=1). Texts are drawn from 30,000
words by Zipf's law, 30 a record and 15 a query; no stop words are taken out. Vectors are those of
--vectors, (n, 384) float32 unit rows of real texts of which the last 300 are the queries, else
points around 200 centres, which is harder for a graph than real texts.

Predictions, written before measuring: BM25 10,000 queries/s at 1,000 records, 2,000 at 10,000. The
graph finds .95 of the 50 nearest at 10,000 records of real texts and overtakes exact search at
about 100,000.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from inference.identifiers import TagMatcher
from inference.lexical import Bm25
from inference.masking import mask, mask_rules
from selection.approximate import GraphOptions, NearestIndex
from selection.arrays import Float32
from selection.guards import guarded
from selection.pool import Pool
from selection.ranking import Ranking
from selection.sparse import sparse_top
from selection.tag_cover import cover_tags
from tests.benchmarks.report import head, table

R = 50
N_QUERIES = 300


def main() -> None:
    """Measure the steps asked for and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 25_000])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    asked = parser.parse_args()
    print(head("recall and guards"))
    for step in asked.steps:
        print(STEPS[step](asked.sizes, asked.vectors), end="\n\n")


def words(sizes: list[int], _: str | None) -> str:
    """BM25 by words."""
    rng = np.random.default_rng(0)
    queries = _texts(rng, 1000, 15)
    rows = []
    for n in sizes:
        built, index = _seconds(lambda n=n: Bm25(_texts(np.random.default_rng(1), n, 30)))
        found, _ = _seconds(lambda index=index: index.top(queries, R))
        rows.append([n, built, len(queries) / found])
    return table(["BM25: records", "build s (texts drawn)", "queries/s"], rows)


def sparse(sizes: list[int], _: str | None) -> str:
    """Sparse vectors with 120 entries a record and 30 a query, of 30,522 terms."""
    rng = np.random.default_rng(0)
    rows = []
    for n in sizes:
        pool, queries = (
            sp.random_array((m, 30_522), density=some / 30_522, rng=rng, dtype=np.float32).tocsr()
            for m, some in ((n, 120), (N_QUERIES, 30))
        )
        rank = np.arange(n)
        sparse_top(queries[:1], pool, r=R, tie_rank=rank)
        seconds, _ = _seconds(lambda q=queries, p=pool, t=rank: sparse_top(q, p, r=R, tie_rank=t))
        rows.append([n, N_QUERIES / seconds])
    return table(["sparse vectors: records", "queries/s"], rows)


def graph(sizes: list[int], vectors: str | None) -> str:
    """Exact search and the graph, side by side."""
    rows = []
    for n in sizes:
        pool, queries = _vectors(n, vectors)
        rank = np.arange(n)
        exact = NearestIndex(pool, rank, options=GraphOptions(exact_up_to=n))
        exact.top(queries[:1], R)
        plain, _ = _seconds(lambda e=exact, q=queries: e.top(q, R))
        built, index = _seconds(
            lambda p=pool, t=rank: NearestIndex(p, t, options=GraphOptions(exact_up_to=0))
        )
        walked, _ = _seconds(lambda i=index, q=queries: i.top(q, R))
        found = index.measure(queries, R)
        rates = [N_QUERIES / plain, N_QUERIES / walked]
        rows.append([n, built, *rates, found.share, found.least])
    columns = ["dense: records", "build s", "exact queries/s", "graph queries/s", "recall", "least"]
    return table(columns, rows)


def guards(sizes: list[int], vectors: str | None) -> str:
    """Ceiling, identifier coverage, tags in texts, masks."""
    n = sizes[-1]
    pool, queries = _vectors(n, vectors)
    rng = np.random.default_rng(0)
    tags, named = (
        sp.random_array((m, 2000), density=some / 2000, rng=rng).astype(bool).tocsr()
        for m, some in ((n, 3), (N_QUERIES, 2))
    )
    shown = np.stack([rng.choice(n, 4, replace=False) for _ in queries])
    ranking = Ranking(shown, np.ones(shown.shape), np.full(len(shown), 4))
    records = Pool(pool, np.arange(n))
    text = "the total of table_17 17 by region for all customers on 5 May 2024, 'new' or 17 " * 3
    matcher = TagMatcher([f"table_{i} {i % 77}" for i in range(100_000)])
    rules = mask_rules(["dates", "numbers", "quoted"])
    steps: dict[str, Callable[[], object]] = {
        f"ceiling, {n} records": lambda: guarded(queries, pool, ceiling=0.98),
        f"coverage of 2 tags, {n} records": lambda: cover_tags(
            ranking, queries, records, query_tags=named, pool_tags=tags
        ),
        "100,000 tags in 240 characters": lambda: matcher.named([text] * N_QUERIES),
        "three masks over 240 characters": lambda: [mask(text, rules) for _ in queries],
    }
    rates = [[name, N_QUERIES / _seconds(step)[0]] for name, step in steps.items()]
    return table(["guard", "queries/s"], rates)


STEPS: dict[str, Callable[[list[int], str | None], str]] = {
    "words": words,
    "sparse": sparse,
    "graph": graph,
    "guards": guards,
}


def _seconds(work: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def _texts(rng: np.random.Generator, n: int, n_words: int) -> list[str]:
    weights = 1 / np.arange(1, 30_001)
    drawn = rng.choice(30_000, size=(n, n_words), p=weights / weights.sum())
    return [" ".join(f"word{number}" for number in row) for row in drawn]


def _vectors(n: int, path: str | None) -> tuple[Float32, Float32]:
    if path is not None:
        rows = np.load(path, mmap_mode="r")
        if len(rows) < n + N_QUERIES:
            raise SystemExit(f"{path} has {len(rows)} rows; wanted at least {n + N_QUERIES}")
        return np.array(rows[:n], np.float32), np.array(rows[-N_QUERIES:], np.float32)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 384))[rng.integers(200, size=n + N_QUERIES)]
    rows += rng.standard_normal(rows.shape)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit[:n], unit[n:]


if __name__ == "__main__":
    main()
