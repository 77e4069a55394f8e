"""The packaged corpus: queries held out by category, the same ones every time."""

import json
import sys
from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest

from jobs.errors import ConfigError
from jobs.prepare import PREPARERS, prepare
from jobs.prepare.icd10 import CHAPTERS, SCHEMA, Code, sample
from jobs.readers.hashes import normalised


def code(chapter, category, number, text=None):
    name = f"{category}.{number}"
    return Code(name, text or f"Finding {name}", CHAPTERS[str(chapter)], category, "", "")


def codes_of(sizes):
    """Make chapters of categories of given sizes: {chapter: [size, ...]}."""
    return [
        code(chapter, f"{chr(64 + chapter)}{at:02}", number)
        for chapter, categories in sizes.items()
        for at, size in enumerate(categories)
        for number in range(size)
    ]


def test_queries_are_spread_over_chapters_and_hold_out_few_rows():
    codes = codes_of({1: [2, 3, 50] * 10, 2: [1] * 9, 3: [2, 1]})
    queries = sample(codes, seed=0, per_class=12)
    counts = Counter(query.label for query in queries)
    assert counts[CHAPTERS["1"]] == 12
    assert counts[CHAPTERS["2"]] == 3
    assert counts[CHAPTERS["3"]] == 1
    held_out = {query.group for query in queries}
    lost = [one for one in codes if one.group in held_out]
    assert len(lost) < 50
    assert {one.label for one in codes if one.group not in held_out} == set(counts)


def test_one_query_a_category_before_a_second():
    codes = codes_of({1: [4] * 9})
    queries = sample(codes, seed=1, per_class=5)
    assert sorted(Counter(query.group for query in queries).values()) == [1, 2, 2]


def test_a_text_that_another_code_has_too_is_never_a_query():
    codes = [code(1, f"A{at:02}", 0, text="Fever." if at % 2 else "fever") for at in range(20)]
    codes += [code(2, f"B{at:02}", 0) for at in range(20)]
    assert {query.label for query in sample(codes, seed=0, per_class=12)} == {CHAPTERS["2"]}


def test_another_seed_draws_other_queries_and_the_same_seed_the_same():
    codes = codes_of({1: [3] * 90, 2: [3] * 90})
    assert sample(codes, seed=4, per_class=12) == sample(codes, seed=4, per_class=12)
    assert sample(codes, seed=4, per_class=12) != sample(codes, seed=5, per_class=12)


def test_chapter_names_are_distinct_and_short():
    assert len(set(CHAPTERS.values())) == len(CHAPTERS) == 22
    assert max(map(len, CHAPTERS.values())) <= 32


@pytest.fixture(scope="module")
def icd10(tmp_path_factory):
    pytest.importorskip("simple_icd_10_cm", reason="simple-icd-10-cm is not installed")
    out = tmp_path_factory.mktemp("icd10")
    return out, prepare("icd10", out=str(out))


def test_the_corpus_holds_every_billable_code_but_the_held_out_categories(icd10):
    out, summary = icd10
    corpus, queries = (pq.read_table(out / f"{name}.parquet") for name in ("corpus", "queries"))
    assert corpus.schema == queries.schema == SCHEMA
    assert corpus.num_rows + queries.num_rows + summary["rows_lost_with_them"] > 70_000
    assert summary["rows_lost_with_them"] < 0.05 * corpus.num_rows
    assert set(corpus["label"].to_pylist()) == set(CHAPTERS.values())
    assert len(set(corpus["id"].to_pylist())) == corpus.num_rows
    assert json.loads((out / "meta.json").read_text())["corpus_rows"] == corpus.num_rows


def test_queries_share_no_category_and_no_text_with_the_corpus(icd10):
    out, _ = icd10
    corpus, queries = (pq.read_table(out / f"{name}.parquet") for name in ("corpus", "queries"))
    assert 180 <= queries.num_rows <= 220
    assert max(Counter(queries["label"].to_pylist()).values()) <= 12
    assert set(queries["label"].to_pylist()) == set(CHAPTERS.values())
    assert not set(corpus["group"].to_pylist()) & set(queries["group"].to_pylist())
    texts = {normalised(text) for text in corpus["input"].to_pylist()}
    assert not [text for text in queries["input"].to_pylist() if normalised(text) in texts]
    chapters = defaultdict(set)
    for row in queries.to_pylist():
        assert row["id"].startswith(row["group"])
        chapters[row["chapter"]].add(row["label"])
    assert all(len(labels) == 1 for labels in chapters.values())


def test_preparing_again_writes_the_same_bytes(icd10, tmp_path):
    out, _ = icd10
    prepare("icd10", out=str(tmp_path))
    for name in ("corpus.parquet", "queries.parquet", "meta.json"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["corpus.parquet", "queries.parquet", "meta.json"]
    )


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    with pytest.raises(ConfigError, match=r"pip install simple-icd-10-cm.*dualdiv\[quickstart\]"):
        prepare("icd10", out=str(tmp_path))


def test_a_folder_that_cannot_be_written_is_a_config_error(tmp_path):
    pytest.importorskip("simple_icd_10_cm", reason="simple-icd-10-cm is not installed")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written"):
        prepare("icd10", out=str(tmp_path / "file" / "icd10"))


def test_an_unknown_name_lists_the_known_ones():
    known = "chemprot, ddi, health-advice, icd10, text2sql"
    with pytest.raises(ConfigError, match=rf"prepare icd11: unknown; wanted one of {known}\."):
        prepare("icd11")
    assert set(PREPARERS) == set(known.split(", "))


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("icd10", {"source": "x"}, r"prepare icd10 takes no --source; it takes --seed, --rows\."),
        (
            "ddi",
            {"rows": 3},
            r"ddi takes no --rows; it takes --source, --variant, --dev-share, --s",
        ),
        (
            "chemprot",
            {"test_share": 0.5},
            r"chemprot takes no --test-share; it takes --source, --as",
        ),
    ],
)
def test_an_option_of_another_data_set_is_refused_with_those_it_has(name, option, message):
    with pytest.raises(ConfigError, match=message):
        prepare(name, **option)


@pytest.mark.parametrize("name", sorted(set(PREPARERS) - {"icd10"}))
def test_a_source_that_is_not_given_is_asked_for(name):
    with pytest.raises(ConfigError, match="--source is missing: give "):
        prepare(name)


@pytest.mark.parametrize(
    ("name", "options", "folder"),
    [
        ("chemprot", {}, "data/chemprot"),
        ("chemprot", {"form": "ner"}, "data/chemprot"),
        ("chemprot", {"form": "relations"}, "data/chemprot-relations"),
        ("ddi", {"variant": "official", "seed": None}, "data/ddi"),
        ("ddi", {"variant": "paper"}, "data/ddi-paper"),
    ],
)
def test_each_form_of_a_data_set_has_a_folder_of_its_own(monkeypatch, name, options, folder):
    def told(out, *, form=None, variant=None):
        return {"out": out}

    monkeypatch.setitem(PREPARERS, name, told)
    assert prepare(name, **options)["out"] == folder
    assert prepare(name, out="elsewhere", **options)["out"] == "elsewhere"


def test_a_thinner_corpus_is_a_seeded_sample_with_the_same_queries(tmp_path):
    pytest.importorskip("simple_icd_10_cm", reason="needs the package simple-icd-10-cm")
    whole = PREPARERS["icd10"](str(tmp_path / "whole"))
    made = PREPARERS["icd10"](str(tmp_path / "some"), rows=500)
    again = PREPARERS["icd10"](str(tmp_path / "again"), rows=500)
    assert (made["corpus_rows"], made["query_rows"]) == (500, whole["query_rows"])
    tables = [pq.read_table(one["corpus"]) for one in (made, again, whole)]
    assert tables[0].equals(tables[1])
    assert set(tables[0]["id"].to_pylist()) < set(tables[2]["id"].to_pylist())
    assert len(set(tables[0]["label"].to_pylist())) > 10
