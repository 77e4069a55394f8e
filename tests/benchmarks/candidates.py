"""Whether Stage 1 finds more of the rare labels than random rows do, and teaches a probe more.

    DUALDIV_DATA_DIR=FOLDER python -m tests.benchmarks.candidates --cache FOLDER [DATA ...]
        [--seeds 10] [--k1 100] [--threads 2] [--results FILE] [--quick]

DATA is one of the tasks ddi_re, chemprot_re and health_advice of DUALDIV_DATA_DIR, or a folder with
corpus.parquet and queries.parquet (columns input and label) as `dualdiv prepare` writes it. Texts
are encoded once with all-MiniLM-L6-v2, float32, into the cache; there is no LLM.

Each seed draws 80% of the labelled corpus, the same for all methods, from which each chooses k1
rows. Rare are labels with fewer rows than half an even share, of the whole corpus. 1-NN and probe
(logistic regression) learn from these k1 labels alone and are scored on all labelled queries. The
intervals are those of t over the seeds, of paired differences beside plain means. They say how much
hangs on the draw, not what another corpus would give: two draws share 80% of their rows.

Predictions, written before measuring, k1 = 100:

- DDI: 4 of its 5 labels are rare, 85% of the rows are `false`. Random rows miss `int` (.7%) every
  second time and nearly never another: rare-class recall .86, label coverage .89, probe .33.
  coverage is .03 above in recall, kcenter .05 below (its outliers are lists of drugs, which are
  `false`), vote-k .05 below (dense regions are such lists too). No probe differs by .03.
- ChemProt: 6 of 13 labels are rare, three with 4 to 14 rows. Random: recall .55, label coverage
  .79, probe .22. coverage, kcenter and kmeans .03 above in recall at most, probe within .02.
- HealthAdvice: 2 of 3 labels are rare, with 15% and 10%: all find both. Random's probe .52,
  coverage .02 above, kcenter .05 below.
- dual-div with lambda 10 is coverage within .02 everywhere; with lambda `auto` it lies between
  coverage and kcenter.

The last column, added after HealthAdvice was measured, asks why its probes differ.
"""

import argparse
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy import stats

from inference.encoder import Encoder
from inference.presets import PRESETS
from inference.scoring import score
from selection.crowd import Crowd
from selection.lambda_rule import LambdaRule
from selection.measures import coverage, label_coverage, rare_class_recall, rare_labels
from selection.modes import Effort
from selection.objective import Objective
from selection.probes import linear_probe, nearest_label
from selection.request import Request
from selection.stage1 import select_local
from tests.benchmarks.report import Results, head, say, table

TASKS = ("health_advice", "chemprot_re", "ddi_re")
# By name: the method, and lambda in the paper's scale. 10 is the quickstart's, `auto` a tenth.
METHODS: dict[str, tuple[str, float | LambdaRule]] = {
    "random": ("random", 0.0),
    "coverage": ("coverage", 0.0),
    "dual-div, lambda 10": ("dual-div", 10.0),
    "dual-div, lambda auto": ("dual-div", LambdaRule("share", target=0.1)),
    "kcenter": ("kcenter", 0.0),
    "vote-k": ("vote-k", 0.0),
    "kmeans": ("kmeans", 0.0),
}
FIGURES = (
    *("rare-class recall", "label coverage", "probe macro-F1", "1-NN macro-F1", "coverage"),
    "rare among picks",
)
SHARE = 0.8
_TEXTS = 2048
# All cosines of a draw are kept: 1 GiB for that of DDI, a fifth of the time of forming them anew.
_EFFORT = Effort(mode="dense")


@dataclass(frozen=True)
class Data:
    """Labelled rows with their vectors.

    Attributes:
        labels: Their names.
        corpus: (n, d) float32.
        codes: (n,) labels of the corpus.
        queries: (q, d) float32.
        gold: q names.
    """

    labels: list[str]
    corpus: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]
    queries: npt.NDArray[np.float32]
    gold: list[str]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows of the corpus by label."""
        return np.bincount(self.codes, minlength=len(self.labels))


def main() -> None:
    """Measure, and print the tables."""
    asked = _arguments()
    results = Results(asked.results)
    print(head(f"candidates: k1 = {asked.k1}, {asked.seeds} draws of {SHARE:.0%} of the corpus"))
    for name in asked.data:
        data = read(name, asked)
        found = measure(data, name, asked, results)
        print(f"\n### {Path(name).name}: {described(data)}\n\n{means_table(found)}\n")
        print(differences_table(found), flush=True)


def read(name: str, asked: argparse.Namespace) -> Data:
    """Read a data set and its vectors; labelled rows only."""
    split = {}
    for role, (texts, labels) in _texts(Path(name), name).items():
        n = min(len(texts), asked.most or len(texts))
        kept = np.sort(np.random.default_rng(0).permutation(len(texts))[:n])
        vectors = encoded(texts, asked.cache, f"{Path(name).name}-{role}")
        split[role] = vectors[kept], [labels[i] for i in kept]
    names = sorted({*split["train"][1], *split["test"][1]})
    codes = np.array([names.index(label) for label in split["train"][1]], np.int64)
    return Data(names, split["train"][0], codes, *split["test"])


def _texts(folder: Path, name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Texts and labels of corpus (train) and queries (test)."""
    if name in TASKS:
        file = Path(os.environ["DUALDIV_DATA_DIR"]) / "tasks" / f"{name}.parquet"
        rows = pq.read_table(file, columns=["input", "label", "split"]).to_pylist()
    else:
        rows = [
            {**row, "split": split}
            for split, file in (("train", "corpus"), ("test", "queries"))
            for row in pq.read_table(
                folder / f"{file}.parquet", columns=["input", "label"]
            ).to_pylist()
        ]
    found = {}
    for split in ("train", "test"):
        mine = [row for row in rows if row["split"] == split and row["label"] is not None]
        found[split] = [row["input"] for row in mine], [row["label"] for row in mine]
    return found


def encoded(texts: list[str], cache: Path, name: str) -> npt.NDArray[np.float32]:
    """Vectors of all texts, from the cache where these texts are in it; equal texts once."""
    digest = hashlib.blake2b("\0".join(texts).encode(), digest_size=4).hexdigest()
    path = cache / f"{name}-{digest}.npy"
    if not path.exists():
        place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        different, blocks = list(place), []
        encoder = Encoder(PRESETS["minilm"], role="document", n_threads=1)
        for start in range(0, len(different), _TEXTS):
            part = different[start : start + _TEXTS]
            ids = [str(i) for i in range(start, start + len(part))]
            blocks.append(encoder.encode(part, ids=ids).vectors)
            say(f"{path.name}: {start + len(part):,} of {len(different):,}")
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, np.concatenate(blocks)[[place[text] for text in texts]])
    return np.asarray(np.load(path), np.float32)


def measure(
    data: Data, name: str, asked: argparse.Namespace, results: Results
) -> dict[str, list[list[float]]]:
    """By method: the FIGURES of every seed."""
    found: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for seed in range(asked.seeds):
        for method, rows in found.items():
            key = {"data": Path(name).name, "rows": len(data.codes), "queries": len(data.gold)}
            key |= {"k1": asked.k1, "seed": seed, "method": method}
            one = partial(figures, data, method, seed, k1=asked.k1, threads=asked.threads)
            rows.append(results.get(key, one))
    return found


def figures(data: Data, method: str, seed: int, *, k1: int, threads: int) -> list[float]:
    """Let a method choose from a seed's draw, and measure what it chose."""
    n = len(data.codes)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[: int(SHARE * n)])
    ground = np.ascontiguousarray(data.corpus[rows])
    picks = rows[picked(ground, method, seed, k1=k1, threads=threads)]
    codes = data.codes[picks]
    chosen = np.bincount(codes, minlength=len(data.labels))
    scores = []
    for probe in (linear_probe, nearest_label):
        answers = probe(data.corpus[picks], codes, data.queries)
        scores.append(score(data.gold, [data.labels[i] for i in answers], data.labels).macro_f1)
    recall = rare_class_recall(data.counts, chosen)
    return [
        float("nan") if recall is None else recall,
        label_coverage(data.counts, chosen) or 0.0,
        *scores,
        coverage(ground, data.corpus[picks], threads=threads) or 0.0,
        float(np.isin(codes, rare_labels(data.counts)).mean()),
    ]


def picked(
    ground: npt.NDArray[np.float32], method: str, seed: int, *, k1: int, threads: int
) -> npt.NDArray[np.int64]:
    """The rows that a method chooses, in one partition."""
    name, lam = METHODS[method]
    rule = lam if isinstance(lam, LambdaRule) else None
    objective = Objective(0.0 if isinstance(lam, LambdaRule) else lam, rule=rule)
    keys = np.random.default_rng([seed, 1]).integers(0, 2**63, len(ground)).astype(np.uint64)
    request = Request(
        k=k1,
        objective=objective,
        tie_rank=np.arange(len(ground)),
        keys=keys,
        n_total=float(len(ground)),
        crowd=Crowd(threads=threads),
    )
    return select_local(name, ground, request, effort=_EFFORT, threads=threads).selection.picks


def described(data: Data) -> str:
    """What a data set is like, in a few words."""
    counts = data.counts
    rare = [f"{data.labels[i]} {counts[i]:,}" for i in rare_labels(counts)]
    return (
        f"{len(data.codes):,} rows, {len(data.gold):,} queries, {(counts > 0).sum()} labels; rare: "
        f"{', '.join(rare) or 'none'}"
    )


def means_table(found: dict[str, list[list[float]]]) -> str:
    """Means over the seeds with their intervals."""
    rows = [[method, *map(_interval, np.array(rows).T)] for method, rows in found.items()]
    return table(["method", *FIGURES], rows)


def differences_table(found: dict[str, list[list[float]]]) -> str:
    """Paired differences to random, seed by seed."""
    base = np.array(found["random"])
    rows = [
        [method, *(_interval(column, sign="+") for column in (np.array(rows) - base).T)]
        for method, rows in found.items()
        if method != "random"
    ]
    return table(["less random, paired", *FIGURES], rows)


def _interval(values: Sequence[float] | npt.NDArray[np.float64], *, sign: str = "") -> str:
    """Mean with the 95% interval of t over the seeds."""
    n, mean = len(values), float(np.mean(values))
    half = 0.0
    if n > 1:
        half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    low, high = mean - half, mean + half
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def _arguments() -> Any:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("data", nargs="*", default=list(TASKS))
    asked.add_argument("--cache", type=Path, required=True)
    asked.add_argument("--seeds", type=int, default=10)
    asked.add_argument("--k1", type=int, default=100)
    asked.add_argument("--threads", type=int, default=2)
    asked.add_argument("--results", type=Path)
    asked.add_argument("--quick", action="store_true")
    options = asked.parse_args()
    options.most = 500 if options.quick else None
    if options.quick:
        options.seeds, options.k1 = min(options.seeds, 2), min(options.k1, 20)
    return options


if __name__ == "__main__":
    main()
