"""Vectors to measure with: real texts embedded once, and what is made of them.

Every file is a (n, d) .npy of unit rows, which other processes map into memory:

    CACHE/<corpus>-<n>.npy      float32, embedded; of several the smallest that is large enough
    CACHE/derived/...           parts, mixtures and adversarial ones, made of those
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

# Files of DUALDIV_DATA_DIR/tasks by corpus; icd needs none.
TASKS = {"rct": "corpus_rct_sentences", "banking": "banking77", "ddi": "ddi_re"}
CORPORA = (*TASKS, "icd")
_BLOCK = 8192
_TEXTS = 2048


def default_corpus(cache: Path) -> str:
    """rct where its texts or its vectors are, else icd."""
    has_texts = bool(os.environ.get("DUALDIV_DATA_DIR"))
    return "rct" if has_texts or any(_cached("rct", cache)) else "icd"


def real(n: int, cache: Path, corpus: str | None = None) -> Float32:
    """Vectors of n real texts, all different, drawn uniformly; fewer rows are among more.

    Args:
        n: Rows wanted.
        cache: Folder of the .npy files; made, and filled, where it does not hold enough.
        corpus: One of CORPORA; None takes `default_corpus`.

    Raises:
        ValueError: The corpus has fewer texts.
    """
    corpus = corpus or default_corpus(cache)
    enough = [(rows, path) for rows, path in _cached(corpus, cache) if rows >= n]
    if not enough:
        enough = [(n, _embed(_texts(corpus, n, cache), cache / f"{corpus}-{n}.npy"))]
    rows, path = min(enough)
    stored = np.load(path, mmap_mode="r")
    return np.asarray(stored[np.sort(np.random.default_rng(0).permutation(rows)[:n])], np.float32)


def ground(n: int, cache: Path, corpus: str | None = None, *, dtype: str = "float32") -> Path:
    """File of n rows: real ones, and where there are fewer, `synthesise` beyond them.

    Args:
        n: Rows wanted.
        cache: As `real`.
        corpus: As `real`.
        dtype: float32 or float16.
    """
    corpus = corpus or default_corpus(cache)
    most = max((rows for rows, _ in _cached(corpus, cache)), default=0)
    out = cache / "derived" / f"{corpus}-{n}-of-{most}-{dtype}.npy"
    if out.exists():
        return out
    if n <= most or not most:
        return _store(out, real(n, cache, corpus).astype(dtype))
    return synthesise(real(most, cache, corpus), n, seed=0, out=out, dtype=dtype)


def rows_at(path: str | Path, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.generic]:
    """Some rows of a file, read by blocks: a map of it would count as this process's memory."""
    mapped = np.load(path, mmap_mode="r")
    n, dim = mapped.shape
    out = np.empty((len(indices), dim), mapped.dtype)
    with Path(path).open("rb") as file:
        file.seek(mapped.offset)
        for start in range(0, n, _BLOCK):
            block = np.fromfile(file, mapped.dtype, min(_BLOCK, n - start) * dim).reshape(-1, dim)
            here = (indices >= start) & (indices < start + len(block))
            out[here] = block[indices[here] - start]
    return out


def synthesise(real_rows: Float32, n: int, *, seed: int, out: Path, dtype: str = "float16") -> Path:
    """Write n rows: the real ones, then mixtures of two of them with noise, renormalised.

    A mixture is u a + (1 - u) b, u uniform in [.6, .9], plus noise of norm .3: about .8 of it is
    the nearer of the two. Written by blocks of 8,192 rows; never whole in memory.
    """
    rng = np.random.default_rng(seed)
    m, dim = real_rows.shape

    def fill(rows: npt.NDArray[np.generic]) -> None:
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            if stop <= m:
                rows[start:stop] = real_rows[start:stop]
                continue
            first, second = rng.integers(m, size=(2, stop - start))
            share = rng.uniform(0.6, 0.9, size=(stop - start, 1)).astype(np.float32)
            noise = rng.standard_normal((stop - start, dim), dtype=np.float32)
            noise *= np.float32(0.3 / dim**0.5)
            block = share * real_rows[first] + (1 - share) * real_rows[second] + noise
            block[: max(0, m - start)] = real_rows[start : min(m, stop)]
            rows[start:stop] = _unit(block)

    return _write(out, (n, dim), dtype, fill)


def by_topic(path: Path, *, topics: int = 64) -> Path:
    """The same rows sorted by the nearest of 64 k-means centres."""
    from sklearn.cluster import MiniBatchKMeans

    out = path.with_name(f"{path.stem}-by-topic.npy")
    if out.exists():
        return out
    rows = np.asarray(np.load(path, mmap_mode="r"), np.float32)
    found = MiniBatchKMeans(topics, random_state=0, batch_size=4096, n_init=1).fit_predict(rows)
    return _store(out, rows[np.argsort(found, kind="stable")])


def one_dense_cluster(real_rows: Float32, *, seed: int = 0) -> Float32:
    """98 of 100 rows lie about one centre (cosines near .9 among them); the others stay as are."""
    rng = np.random.default_rng(seed)
    n, dim = real_rows.shape
    noise = rng.standard_normal((n, dim), dtype=np.float32) * np.float32((0.1 / dim) ** 0.5)
    rows = _unit(real_rows[:1] + noise)
    outliers = rng.permutation(n)[: max(1, n // 50)]
    rows[outliers] = real_rows[outliers]
    return rows


def heavy_duplicates(real_rows: Float32, *, seed: int = 0) -> Float32:
    """Each of n / 50 rows 50 times, shuffled."""
    n = len(real_rows)
    return real_rows[np.random.default_rng(seed).permutation(n) % max(1, n // 50)]


def centred(real_rows: Float32, *, seed: int = 0) -> Float32:
    """The rows without their mean, renormalised: half of all cosines are negative."""
    del seed
    return _unit(real_rows - real_rows.mean(axis=0))


ADVERSARIAL: dict[str, Callable[..., Float32]] = {
    "one dense cluster": one_dense_cluster,
    "heavy duplicates": heavy_duplicates,
    "centred": centred,
}


def adversarial(name: str, n: int, cache: Path, corpus: str | None = None) -> Path:
    """File of one of ADVERSARIAL, made of n real rows."""
    corpus = corpus or default_corpus(cache)
    out = cache / "derived" / f"{corpus}-{n}-{name.replace(' ', '-')}.npy"
    return out if out.exists() else _store(out, ADVERSARIAL[name](real(n, cache, corpus)))


def _cached(corpus: str, cache: Path) -> list[tuple[int, Path]]:
    found = []
    for path in cache.glob(f"{corpus}-*.npy"):
        count = path.stem.removeprefix(f"{corpus}-")
        if count.isdigit():
            found.append((len(np.load(path, mmap_mode="r")), path))
    return found


def _unit(rows: Float32) -> Float32:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _store(out: Path, rows: npt.NDArray[np.generic]) -> Path:
    def fill(stored: npt.NDArray[np.generic]) -> None:
        stored[:] = rows

    return _write(out, rows.shape, str(rows.dtype), fill)


def _write(
    out: Path,
    shape: tuple[int, ...],
    dtype: str,
    fill: Callable[[npt.NDArray[np.generic]], None],
) -> Path:
    """Fill a .npy through a map, under another name until it is whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    half = out.with_suffix(".part")
    rows = np.lib.format.open_memmap(half, mode="w+", dtype=dtype, shape=shape)
    fill(rows)
    rows.flush()
    del rows
    half.rename(out)
    return out


def _texts(corpus: str, n: int, cache: Path) -> list[str]:
    import pyarrow.parquet as pq

    if corpus == "icd":
        from jobs.prepare.icd10 import prepare

        source = Path(prepare(str(cache / "icd10"))["corpus"])
    elif "DUALDIV_DATA_DIR" in os.environ:
        source = Path(os.environ["DUALDIV_DATA_DIR"]) / "tasks" / f"{TASKS[corpus]}.parquet"
    else:
        raise ValueError(
            f"{cache} holds no {corpus}-*.npy of {n:,} rows or more, and DUALDIV_DATA_DIR, which "
            f"names the folder with tasks/{TASKS[corpus]}.parquet, is not set"
        )
    texts = list(dict.fromkeys(filter(None, pq.read_table(source)["input"].to_pylist())))
    if len(texts) < n:
        raise ValueError(f"{source} has {len(texts):,} different texts, wanted {n:,}")
    return [texts[i] for i in np.sort(np.random.default_rng(0).permutation(len(texts))[:n])]


def _embed(texts: list[str], out: Path) -> Path:
    from inference.encoder import Encoder
    from inference.presets import PRESETS

    encoder = Encoder(PRESETS["minilm"], role="document", n_threads=len(os.sched_getaffinity(0)))

    def fill(rows: npt.NDArray[np.generic]) -> None:
        for start in range(0, len(texts), _TEXTS):
            part = texts[start : start + _TEXTS]
            ids = [str(i) for i in range(start, start + len(part))]
            rows[start : start + len(part)] = encoder.encode(part, ids=ids).vectors
            print(f"{out.name}: {start + len(part):,} of {len(texts):,}", file=sys.stderr)

    return _write(out, (len(texts), encoder.dimension), "float32", fill)
