"""What other Stage 2 code is asked to do: run by `rank`, LangChain's in its own interpreter.

Imports numpy and, in the functions that need it, langchain_core; nothing of this project.
"""

import time
from typing import Any

import numpy as np


def versions() -> dict[str, str]:
    """Versions of what is compared with."""
    from importlib.metadata import version

    return {name: version(name) for name in ("langchain-core", "numpy")}


def langchain_function(
    pool: str, queries: str, n_queries: int, *, k: int, recall: int, mmr_lambda: float
) -> dict[str, Any]:
    """LangChain's `maximal_marginal_relevance` over the nearest, which numpy recalls in one go."""
    from langchain_core.vectorstores.utils import maximal_marginal_relevance

    rows, wanted = np.load(pool), np.load(queries)[:n_queries]
    start = time.perf_counter()
    cosines = wanted @ rows.T
    n = min(recall, len(rows))
    near = np.argpartition(-cosines, n - 1, axis=1)[:, :n]
    near = np.take_along_axis(near, np.argsort(-np.take_along_axis(cosines, near, 1), 1), 1)
    picks = [
        near[i][maximal_marginal_relevance(one, rows[near[i]], mmr_lambda, k)].tolist()
        for i, one in enumerate(wanted)
    ]
    return {"picks": picks, "seconds": time.perf_counter() - start, "queries": n_queries}


def langchain_selector(
    pool: str, queries: str, n_queries: int, *, k: int, recall: int, mmr: bool
) -> dict[str, Any]:
    """An example selector over InMemoryVectorStore; embedding a text is a look-up."""
    from langchain_core.embeddings import Embeddings
    from langchain_core.example_selectors import (
        MaxMarginalRelevanceExampleSelector,
        SemanticSimilarityExampleSelector,
    )
    from langchain_core.vectorstores import InMemoryVectorStore

    rows, wanted = np.load(pool).tolist(), np.load(queries)[:n_queries].tolist()

    class LookUp(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [rows[int(text)] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return wanted[int(text)]

    store = InMemoryVectorStore(LookUp())
    names = [str(i) for i in range(len(rows))]
    store.add_texts(names, metadatas=[{"text": name} for name in names])
    if mmr:
        selector = MaxMarginalRelevanceExampleSelector(vectorstore=store, k=k, fetch_k=recall)
    else:
        selector = SemanticSimilarityExampleSelector(vectorstore=store, k=k)
    start = time.perf_counter()
    picks = [
        [int(one["text"]) for one in selector.select_examples({"text": str(i)})]
        for i in range(n_queries)
    ]
    return {"picks": picks, "seconds": time.perf_counter() - start, "queries": n_queries}


def numpy_loop(
    pool: str, queries: str, n_queries: int, *, method: str, k: int, options: dict[str, Any]
) -> dict[str, Any]:
    """One query after the other, in plain numpy: knn, mmr or dual-div from its formula."""
    rows, wanted = np.load(pool), np.load(queries)[:n_queries]
    if method == "dual-div":
        ground = np.load(options["ground"])
        covered = ground @ rows.T
    start = time.perf_counter()
    picks = []
    for query in wanted:
        cosines = rows @ query
        if method == "knn":
            near = np.argpartition(-cosines, k - 1)[:k]
            picks.append(near[np.argsort(-cosines[near])].tolist())
        elif method == "mmr":
            picks.append(_mmr(rows, cosines, k=k, **options))
        else:
            scores = np.maximum(covered - (ground @ query)[:, None], 0).sum(axis=0, dtype=float)
            keep = 1 - options["ridge"]
            scores += options["lam"] * np.log(1 - (keep * cosines.astype(float)) ** 2)
            best = np.argpartition(-scores, k - 1)[:k]
            picks.append(best[np.argsort(-scores[best])].tolist())
    return {"picks": picks, "seconds": time.perf_counter() - start, "queries": n_queries}


def _mmr(
    rows: np.ndarray, cosines: np.ndarray, *, k: int, recall: int, mmr_lambda: float
) -> list[int]:
    n = min(recall, len(rows))
    near = np.argpartition(-cosines, n - 1)[:n]
    near = near[np.argsort(-cosines[near])]
    vectors, relevance = rows[near], cosines[near]
    redundancy, chosen = vectors @ vectors[0], [0]
    while len(chosen) < min(k, n):
        value = mmr_lambda * relevance - (1 - mmr_lambda) * redundancy
        value[chosen] = -np.inf
        chosen.append(int(np.argmax(value)))
        redundancy = np.maximum(redundancy, vectors @ vectors[chosen[-1]])
    return near[chosen].tolist()
