"""ICD-10-CM from the package simple-icd-10-cm: billable codes, their chapters as classes.

Queries are held out by three-character category, because codes of one category often differ in
one word (left or right, first visit or later), and their nearest neighbours would give them away.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import version
from statistics import median
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import ConfigError
from jobs.files.places import joined
from jobs.readers.hashes import normalised
from jobs.storage import Store

PACKAGE = "simple_icd_10_cm"
N_QUERIES = 200

CHAPTERS = {
    "1": "Infectious diseases",
    "2": "Neoplasms",
    "3": "Blood and immune disorders",
    "4": "Endocrine and metabolic diseases",
    "5": "Mental disorders",
    "6": "Nervous system",
    "7": "Eye",
    "8": "Ear",
    "9": "Circulatory system",
    "10": "Respiratory system",
    "11": "Digestive system",
    "12": "Skin",
    "13": "Musculoskeletal system",
    "14": "Genitourinary system",
    "15": "Pregnancy and childbirth",
    "16": "Perinatal conditions",
    "17": "Congenital malformations",
    "18": "Symptoms and findings",
    "19": "Injury and poisoning",
    "20": "External causes",
    "21": "Health status and services",
    "22": "Special purposes",
}

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("input", pa.large_string()),
        ("label", pa.string()),
        ("group", pa.string()),
        ("chapter", pa.large_string()),
        ("category", pa.large_string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Code:
    """A billable code.

    Attributes:
        id: The code, with its dot.
        input: Its full description.
        label: Short name of its chapter.
        group: Its three-character category.
        chapter: The chapter's own title.
        category: Description of the category.
    """

    id: str
    input: str
    label: str
    group: str
    chapter: str
    category: str


def prepare(
    out: str, *, seed: int = 0, per_class: int = 12, rows: int | None = None
) -> dict[str, Any]:
    """Write corpus.parquet, queries.parquet and meta.json.

    Args:
        out: Folder to write to.
        seed: Of the query sample, and of the sample of the corpus.
        per_class: Most queries of one chapter; about 200 in all.
        rows: Rows of the corpus to keep, drawn uniformly; None: all.

    Returns:
        What meta.json holds, and the paths.

    Raises:
        ConfigError: The package is not installed, or the folder cannot be written.
        ClusterError: No room on the disk.
    """
    codes = read_codes(_package())
    queries = sample(codes, seed=seed, per_class=per_class)
    held_out = {code.group for code in queries}
    whole = [code for code in codes if code.group not in held_out]
    corpus = thinned(whole, rows=rows, seed=seed)
    meta = {
        "source": f"simple-icd-10-cm {version('simple-icd-10-cm')}",
        "seed": seed,
        "per_class": per_class,
        "corpus_rows": len(corpus),
        "query_rows": len(queries),
        "held_out_categories": sorted(held_out),
        "rows_lost_with_them": len(codes) - len(whole) - len(queries),
        "corpus_labels": dict(Counter(code.label for code in corpus)),
        "query_labels": dict(Counter(code.label for code in queries)),
    }
    store = Store(out)
    store.create()
    for name, part in (("corpus", corpus), ("queries", queries)):
        with store.writing(f"{name}.parquet") as file:
            pq.write_table(_table(part), file, compression="zstd")
    store.write_bytes("meta.json", (json.dumps(meta, indent=1) + "\n").encode())
    paths = {name: joined(out, f"{name}.parquet") for name in ("corpus", "queries")}
    return meta | paths


def _package() -> ModuleType:
    try:
        return import_module(PACKAGE)
    except ImportError as error:
        raise ConfigError(
            "prepare icd10 needs the package simple-icd-10-cm: pip install simple-icd-10-cm, or "
            "pip install 'dualdiv[quickstart]'."
        ) from error


def read_codes(package: ModuleType) -> list[Code]:
    """Give every billable code once, in the order of the classification.

    A block of a single category (B20, F99, ...) has its name, so the package lists it twice.
    """
    codes: dict[str, Code] = {}
    for chapter in (code for code in package.get_all_codes() if package.is_chapter(code)):
        title = package.get_description(chapter)
        label = CHAPTERS.get(chapter, title)
        for code in package.get_descendants(chapter):
            if package.is_leaf(code):
                group = code[:3]
                text, category = package.get_description(code), package.get_description(group)
                codes[code] = Code(code, text, label, group, title, category)
    return list(codes.values())


def sample(codes: list[Code], *, seed: int, per_class: int) -> list[Code]:
    """Draw the queries: as equal a number per chapter as there are, about 200 in all.

    Queries come from categories no larger than their chapter's median, so that few corpus rows
    are lost with them, and from at most a third of a chapter's categories. A text that another
    code has too is never a query.

    Returns:
        Codes in the order of the classification.
    """
    times = Counter(normalised(code.input) for code in codes)
    by_chapter: dict[str, dict[str, list[Code]]] = defaultdict(lambda: defaultdict(list))
    for code in codes:
        by_chapter[code.label][code.group].append(code)
    drawn = {label: _draw(groups, seed, times) for label, groups in by_chapter.items()}
    chosen: set[str] = set()
    for number in range(per_class):
        for candidates in drawn.values():
            if number < len(candidates) and len(chosen) < N_QUERIES:
                chosen.add(candidates[number].id)
    return [code for code in codes if code.id in chosen]


def thinned(codes: list[Code], *, rows: int | None, seed: int) -> list[Code]:
    """Keep a uniform sample of `rows` codes, in their order; None keeps all."""
    if rows is None or rows >= len(codes):
        return codes
    chosen = sorted(codes, key=lambda code: _draw_key(code.id, seed))[:rows]
    kept = {code.id for code in chosen}
    return [code for code in codes if code.id in kept]


def _draw(groups: dict[str, list[Code]], seed: int, times: Counter[str]) -> list[Code]:
    """Order a chapter's possible queries: one per held-out category, then a second, ..."""
    middle = median(len(group) for group in groups.values())
    small = [name for name, group in groups.items() if len(group) <= middle]
    held_out = sorted(small, key=lambda name: _draw_key(name, seed))[: max(1, len(groups) // 3)]
    turns = []
    for at, name in enumerate(held_out):
        usable = [code for code in groups[name] if times[normalised(code.input)] == 1]
        usable.sort(key=lambda code: _draw_key(code.id, seed))
        turns += [(turn, at, code) for turn, code in enumerate(usable)]
    return [code for _, _, code in sorted(turns, key=lambda entry: entry[:2])]


def _draw_key(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()


def _table(codes: list[Code]) -> pa.Table:
    columns = [[getattr(code, name) for code in codes] for name in SCHEMA.names]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
