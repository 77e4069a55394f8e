"""The learned retriever from config to ranking: what it learns from, is bound to, reuses."""

import json
import shutil
import sys
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest

from inference.engine import Completion, VllmEngine
from jobs.config.load import load
from jobs.epr import units as epr_units
from jobs.epr.map import MAP_KEY, map_table
from jobs.epr.rows import Texts, allowed_pairs, candidates_of
from jobs.errors import ConfigError, DataError
from jobs.generating.engines import tokenizer_of
from jobs.ledger import Ledger, Marker
from jobs.plan import plan
from jobs.progress import Progress
from jobs.vectors import to_matrix
from tests.inference.llm_fakes import FakeLlm
from tests.jobs.conftest import sentences, write_jsonl

ASKED: list[str] = []


def helped_by_its_label(text, sampling):
    """Finds the right answer likely where the one demonstration has it; words break ties."""
    ASKED.append(text)
    if "poison" in text:
        raise ConnectionError("no more")
    if sampling.logprob_token_ids is None:  # what an engine is asked that may be dead
        return Completion("a", "length", 1, 0, 1)
    shown = text.split("Answer: ")[1].split("\n")[0]
    texts = [part.split("\n")[0].split() for part in text.split("Input: ")[1:]]
    near = len(set(texts[0]) & set(texts[1])) / 100 + zlib.crc32(text.encode()) / 2**40
    tokens = start_fake.tokenizer(f" {shown}", add_special_tokens=False)["input_ids"]
    scores = {t: near - (0.0 if t in tokens else 5.0) for t in sampling.logprob_token_ids}
    return Completion("", "length", len(text), 0, 1, logprobs=(scores,))


def start_fake(spec):
    start_fake.tokenizer = tokenizer_of(spec.model, spec.revision)
    return VllmEngine(
        spec,
        start=lambda _: FakeLlm(helped_by_its_label, start_fake.tokenizer),
        start_pause_s=0.0,
    )


@pytest.fixture
def taught(project, monkeypatch):
    """A project whose one arm recalls by a map, with an LLM that is a rule."""
    work = epr_units.EprScoreWork
    monkeypatch.setattr(epr_units, "EprScoreWork", lambda out, spec: work(out, spec, start_fake))
    ASKED.clear()
    project.config["stage1"] = {"method": "coverage", "k1": 40}
    epr = {"candidates": 8, "positives": 2, "negatives": 2, "steps": 10}
    project.config["stage2"] = {"k": 3, "recall_by": "epr", "epr": epr}
    project.config["prompt"] = {"spare": 0}
    return project


def parts(project, entry):
    ledger = Ledger(str(project.out))
    return [row for plain in entry for row in ledger.read(Marker(**plain)).to_pylist()]


def entry_of(project, arm="main"):
    return project.manifest["epr"][arm]


def weights_of(project, arm="main"):
    table = Ledger(str(project.out)).read(Marker(**entry_of(project, arm)["map"]))
    return to_matrix(table["weights"])


def ranked(project, arm="main"):
    return {row["id"]: row for row in parts(project, project.manifest["demonstrations"][arm])}


def vectors_of(project, table):
    entry = project.manifest["embeddings"]["minilm"][table]["parts"]
    return {row["id"]: np.array(row["vector"]) for row in parts(project, entry)}


def test_knn_ranks_by_the_cosine_of_mapped_vectors(taught):
    taught.config["arms"] = [{"name": "main"}, {"name": "dense", "stage2": {"recall_by": "dense"}}]
    taught.execute("rank")
    weights, queries = weights_of(taught).astype(np.float64), vectors_of(taught, "queries")
    corpus = vectors_of(taught, "corpus")
    pool = [row["id"] for row in parts(taught, [entry_of(taught)["pool"]])]

    def turned(vector):
        return weights @ vector / np.linalg.norm(weights @ vector)

    differs = 0
    dense = ranked(taught, "dense")
    for row_id, row in ranked(taught).items():
        near = {i: float(turned(queries[row_id]) @ turned(corpus[i])) for i in pool}
        assert row["demonstration_ids"] == sorted(near, key=lambda i: -near[i])[:3]
        expected = [near[i] for i in row["demonstration_ids"]]
        np.testing.assert_allclose(row["scores"], expected, atol=1e-5)
        # Prompts are ordered by what the map finds similar, too.
        np.testing.assert_allclose(row["similarities"], expected, atol=1e-5)
        differs += row["demonstration_ids"] != dense[row_id]["demonstration_ids"]
    assert differs
    assert list(taught.manifest["epr"]) == ["main"]


def test_other_methods_choose_among_the_recalled_of_the_map(taught):
    taught.config["stage2"] |= {"method": "mmr", "recall": 5}
    taught.config["arms"] = [
        {"name": "main"},
        {"name": "knn", "stage2": {"method": "knn", "k": 5}},
        {"name": "nothing", "stage2": "zero-shot"},
    ]
    taught.execute("rank")
    first = ranked(taught, "knn")
    for row_id, row in ranked(taught).items():
        assert set(row["demonstration_ids"]) <= set(first[row_id]["demonstration_ids"])
        assert row["demonstration_ids"][0] == first[row_id]["demonstration_ids"][0]
    # Both go by one map; what shows nothing needs none.
    maps = {name: entry["map"]["checksum"] for name, entry in taught.manifest["epr"].items()}
    assert set(maps) == {"main", "knn"}
    assert len(set(maps.values())) == 1


def test_the_map_says_what_it_was_learned_from(taught):
    taught.execute("rank")
    entry = entry_of(taught)
    facts = entry["map"]["stats"]
    assert facts["encoder_id"] == taught.manifest["embeddings"]["minilm"]["encoder_id"]
    assert facts["pool"] == entry["pool"]["checksum"]
    assert len(facts["llm"]) == 16
    assert facts["engine"] == "smollm2"
    assert facts["loss"]["after"] < facts["loss"]["before"]
    assert facts["held_out"].keys() == {"before", "after"}
    assert (facts["rows"], facts["prompts"], facts["not_scored"]) == (40, 320, 0)
    assert 0 < facts["taught"] <= 40
    assert 0 < facts["pairs"]["helpful"] <= 2 * facts["taught"]
    assert 0 < facts["pairs"]["unhelpful"] <= 2 * facts["taught"]
    assert facts["shape"] == [384, 384]
    path = taught.out / entry["map"]["folder"] / "map.parquet"
    assert json.loads(pq.read_schema(path).metadata[MAP_KEY]) == facts


def test_every_row_is_tried_with_its_nearest_records_and_never_with_itself(taught):
    taught.execute("rank")
    entry, corpus = entry_of(taught), vectors_of(taught, "corpus")
    pool = [row["id"] for row in parts(taught, [entry["pool"]])]
    tried: dict[str, list[str]] = {}
    for row in parts(taught, entry["scores"]):
        tried.setdefault(row["id"], []).append(row["candidate_id"])
        assert (row["status"], row["score"] is None) == ("ok", False)
    assert sorted(tried) == sorted(pool)
    for row_id, ids in tried.items():
        others = [i for i in pool if i != row_id]
        nearest = sorted(others, key=lambda i: -float(corpus[row_id] @ corpus[i]))[:8]
        assert set(ids) == set(nearest)


def test_the_score_is_the_likelihood_of_the_rows_own_label(taught):
    taught.execute("rank")
    topics = {row["id"]: row["topic"] for row in taught.rows}
    for row in parts(taught, entry_of(taught)["scores"]):
        same = topics[row["id"]] == topics[row["candidate_id"]]
        assert (row["score"] > -1) == same


def test_near_copies_are_never_tried_with_each_other(taught):
    twins = [
        {**row, "id": f"t{i}", "text": f"  {row['text'].upper()}!"}
        for i, row in enumerate(taught.rows[:20])
    ]
    write_jsonl(taught.root / "corpus" / "b.jsonl", twins)
    taught.config["stage1"]["k1"] = 140
    taught.config["stage2"]["epr"] |= {"rows": 30, "candidates": 139}
    taught.execute("rank")
    twin = {f"t{i}": row["id"] for i, row in enumerate(taught.rows[:20])}
    twin |= {row_id: name for name, row_id in twin.items()}
    tried = {(row["id"], row["candidate_id"]) for row in parts(taught, entry_of(taught)["scores"])}
    rows = {row_id for row_id, _ in tried}
    assert rows & set(twin)
    for row_id in rows:
        mine = {other for one, other in tried if one == row_id}
        assert row_id not in mine
        assert twin.get(row_id) not in mine
        assert len(mine) == (138 if row_id in twin else 139)


def test_a_text_is_tried_with_no_record_of_its_own_group():
    near = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8]], np.float32)
    records = Texts(["a", "b", "c"], ["u", "v", "w"], ["x", "y", "x"], near, ["g", None, "h"])

    def allowed(groups):
        rows = Texts(["p", "q"], ["s", "t"], ["x", "y"], near[:2], groups)
        return allowed_pairs(rows, records, ceiling=None).tolist()

    assert allowed(["g", None]) == [[False, True, True], [True, True, True]]
    assert allowed(None) == [[True] * 3] * 2


@pytest.mark.parametrize("heeded", [True, False])
def test_groups_are_heeded_as_they_are_for_queries(taught, heeded):
    rows = [row | {"document": f"d{i // 6}"} for i, row in enumerate(taught.rows)]
    write_jsonl(taught.root / "corpus" / "a.jsonl", rows)
    taught.config["corpus"]["columns"] = taught.config["corpus"]["columns"] | {"group": "document"}
    taught.config["stage2"]["exclude_same_group"] = heeded
    taught.execute("rank")
    document = {row["id"]: row["document"] for row in rows}
    tried = parts(taught, entry_of(taught)["scores"])
    same = [row for row in tried if document[row["id"]] == document[row["candidate_id"]]]
    assert bool(same) != heeded


def test_a_ceiling_keeps_what_is_too_similar_out_of_the_trials():
    near = np.array([[1, 0], [0.6, 0.8]], np.float32)
    rows = Texts(["q"], ["x"], ["a"], near[:1])
    records = Texts(["a", "b"], ["y", "z"], ["a", "b"], near)
    assert allowed_pairs(rows, records, ceiling=None).tolist() == [[True, True]]
    assert candidates_of(rows, records, n=2, ceiling=0.9) == {"q": ["b"]}
    assert candidates_of(rows, records, n=2, ceiling=0.5) == {}


def test_the_labels_of_queries_are_never_looked_at(taught):
    taught.execute("rank")
    before, asked = taught.files(), len(ASKED)
    checksum = entry_of(taught)["map"]["checksum"]
    rows = sentences(12, seed=1, prefix="q")
    wrong = {"water": "metal", "metal": "music", "music": "water"}
    write_jsonl(
        taught.root / "queries.jsonl", [row | {"topic": wrong[row["topic"]]} for row in rows]
    )
    taught.execute("rank")
    assert entry_of(taught)["map"]["checksum"] == checksum
    assert len(ASKED) == asked
    after = taught.files()
    assert {name for name in before if before[name] != after.get(name)} <= {
        name for name in before if name.startswith(("queries/", "tmp/"))
    }


def test_what_is_asked_as_a_query_teaches_nothing_but_may_be_shown(taught):
    taught.config["stage1"]["k1"] = 120
    taught.config["stage2"]["epr"]["rows"] = 200
    copied = [row for row in taught.rows[:3]]
    write_jsonl(
        taught.root / "queries.jsonl",
        [row | {"id": f"q{i}", "text": f"{row['text'].title()}."} for i, row in enumerate(copied)],
    )
    result, _ = taught.execute("rank")
    rows = {row["id"] for row in parts(taught, [entry_of(taught)["rows"]])}
    assert rows == {row["id"] for row in taught.rows} - {row["id"] for row in copied}
    assert any("3 labelled texts are queries too" in text for text in result.warnings)
    assert len(parts(taught, [entry_of(taught)["pool"]])) == 120


def test_rows_are_drawn_by_the_seed(taught):
    taught.config["stage2"]["epr"]["rows"] = 15
    drawn = []
    for seed in (0, 0, 1):
        taught.config["seed"] = seed
        taught.execute("rank")
        drawn.append([row["id"] for row in parts(taught, [entry_of(taught)["rows"]])])
    assert [len(ids) for ids in drawn] == [15, 15, 15]
    assert drawn[0] == drawn[1] != drawn[2]


def test_further_labelled_rows_teach_too_and_unknown_ones_are_refused(taught):
    taught.execute("rank")
    pool = {row["id"] for row in parts(taught, [entry_of(taught)["pool"]])}
    more = [row["id"] for row in taught.rows if row["id"] not in pool][:5]
    taught.config["stage2"]["epr"]["also"] = more
    taught.execute("rank")
    assert {row["id"] for row in parts(taught, [entry_of(taught)["rows"]])} == pool | set(more)
    tried = parts(taught, entry_of(taught)["scores"])
    assert {row["candidate_id"] for row in tried} <= pool
    taught.config["stage2"]["epr"]["also"] = ["nobody"]
    with pytest.raises(DataError, match=r"arm main: stage2\.epr\.also: 1 of 1 ids are no rows"):
        taught.execute("rank")
    taught.config["stage2"]["epr"]["also"] = "missing.txt"
    with pytest.raises(ConfigError, match=r"stage2\.epr\.also: missing\.txt: no such file"):
        taught.execute("rank")


def test_a_second_run_asks_nothing_and_what_is_lost_alone_is_made_anew(taught):
    taught.execute("rank")
    first, before, asked = entry_of(taught), taught.files(), len(ASKED)
    taught.execute("rank")
    assert taught.files() == before
    assert len(ASKED) == asked
    shutil.rmtree(taught.out / first["map"]["folder"])
    taught.execute("rank")
    assert len(ASKED) == asked
    assert entry_of(taught)["map"]["checksum"] == first["map"]["checksum"]
    lost = first["scores"][0]
    shutil.rmtree(taught.out / lost["folder"])
    taught.execute("rank")
    assert 0 < len(ASKED) - asked < asked
    assert entry_of(taught) == first


def test_a_row_whose_label_changes_is_scored_anew_and_few_others(taught):
    taught.execute("rank")
    first = {one["folder"] for one in entry_of(taught)["scores"]}
    pool = [row["id"] for row in parts(taught, [entry_of(taught)["pool"]])]
    changed = next(row for row in taught.rows if row["id"] == pool[0])
    changed["topic"] = "music" if changed["topic"] != "music" else "water"
    write_jsonl(taught.root / "corpus" / "a.jsonl", taught.rows)
    before = entry_of(taught)["map"]["checksum"]
    taught.execute("rank")
    kept = first & {one["folder"] for one in entry_of(taught)["scores"]}
    assert 0 < len(kept) < len(first)
    assert entry_of(taught)["map"]["checksum"] != before


def test_prompts_that_the_llm_cannot_score_are_counted_and_the_rest_teaches(taught):
    taught.rows[0]["text"] = taught.rows[0]["text"].replace(" ", " poison ", 1)
    write_jsonl(taught.root / "corpus" / "a.jsonl", taught.rows)
    taught.config["stage1"]["k1"] = 120
    taught.config["stage2"]["epr"]["candidates"] = 4
    result, _ = taught.execute("rank")
    facts = entry_of(taught)["map"]["stats"]
    assert facts["not_scored"] >= 4
    (said,) = [text for text in result.warnings if "did not score" in text]
    assert f"{facts['not_scored']} engine_crash" in said


def test_a_map_of_an_earlier_run_is_taken_over_without_asking(taught):
    taught.execute("rank")
    first = ranked(taught)
    path = taught.out / entry_of(taught)["map"]["folder"] / "map.parquet"
    asked = len(ASKED)
    taught.config["out"] = str(taught.root / "other")
    taught.out = taught.root / "other"
    taught.config["stage2"]["epr"] = {"map": str(path)}
    taught.execute("rank")
    assert len(ASKED) == asked
    assert ranked(taught) == first
    assert entry_of(taught)["map"]["stats"]["loss"]["before"] > 0
    assert str(taught.root / "out") not in str(entry_of(taught)["map"]["folder"])


def test_a_map_of_another_encoder_or_llm_is_refused_with_both_before_any_work(taught):
    taught.execute("rank")
    facts = entry_of(taught)["map"]["stats"]
    path = taught.root / "map.parquet"
    taught.config["stage2"]["epr"] = {"map": str(path)}
    weights = np.eye(384, dtype=np.float32)

    def refused(**changes):
        pq.write_table(map_table(weights, facts | changes), path)
        with pytest.raises(ConfigError) as caught:
            taught.execute("rank")
        return str(caught.value)

    said = refused(llm="0123456789abcdef")
    assert f"{path}: it was learned from LLM revision 0123456789abcdef (engine smollm2)" in said
    assert f"engine smollm2 is revision {facts['llm']}" in said
    assert "vectors of encoder" not in said
    said = refused(encoder_id="other-01234567")
    assert f"vectors of encoder other-01234567, this arm's are of {facts['encoder_id']}" in said
    said = refused(llm="0123456789abcdef", encoder_id="other-01234567")
    assert "other-01234567" in said
    assert "0123456789abcdef" in said
    pq.write_table(map_table(weights, facts), path)
    taught.execute("rank")
    # Masked texts make other vectors: the same model is another encoder then.
    taught.config["encoders"]["minilm"]["mask"] = ["numbers"]
    with pytest.raises(ConfigError, match=f"vectors of encoder {facts['encoder_id']}"):
        taught.execute("rank")


def test_a_file_that_is_no_map_is_refused(taught):
    taught.config["stage2"]["epr"] = {"map": str(taught.root / "none.parquet")}
    with pytest.raises(ConfigError, match=r"stage2\.epr\.map = .*none\.parquet: no such file"):
        taught.execute("rank")
    taught.config["stage2"]["epr"] = {"map": str(taught.root / "queries.jsonl")}
    with pytest.raises(DataError, match=r"queries\.jsonl: is no learned map"):
        taught.execute("rank")
    pq.write_table(
        map_table(np.eye(384, dtype=np.float32), {"llm": "x"}), taught.root / "no.parquet"
    )
    taught.config["stage2"]["epr"] = {"map": str(taught.root / "no.parquet")}
    with pytest.raises(DataError, match=r"no\.parquet: is no learned map \('encoder_id'\)"):
        taught.execute("rank")
    broken = np.full((2, 384), np.nan, np.float32)
    bound = dict.fromkeys(("encoder_id", "llm", "engine"), "x")
    pq.write_table(map_table(broken, bound), taught.root / "nan.parquet")
    taught.config["stage2"]["epr"] = {"map": str(taught.root / "nan.parquet")}
    with pytest.raises(DataError, match=r"nan\.parquet: its weights are not finite"):
        taught.execute("rank")


def test_an_llm_that_tells_nothing_apart_teaches_nothing(taught, monkeypatch):
    def the_same(text, sampling):
        scores = dict.fromkeys(sampling.logprob_token_ids, -1.0)
        return Completion("", "length", len(text), 0, 1, logprobs=(scores,))

    monkeypatch.setattr(sys.modules[__name__], "helped_by_its_label", the_same)
    with pytest.raises(DataError, match=r"of 40 labelled texts none has two candidates .* 40 rec"):
        taught.execute("rank")


@pytest.mark.parametrize(
    ("stage2", "words"),
    [
        ({"epr": {"candidates": 5}}, "positives 3 and negatives 3 are more than candidates = 5"),
        ({"method": "similar", "condition_on": "all"}, "recall_by = epr needs .*condition_on"),
        ({"epr": {"rank": 385}}, "rank = 385 is more than the 384 numbers"),
        ({"epr": {"temperature": 0}}, "temperature"),
        ({"epr": {"epochs": 3}}, "unknown key stage2.epr.epochs"),
    ],
)
def test_what_cannot_be_is_a_config_error(taught, stage2, words):
    taught.config["stage2"] |= stage2
    with pytest.raises(ConfigError, match=words):
        taught.execute("rank")


def test_a_task_that_shows_context_is_refused(taught):
    (task,) = taught.config["tasks"].values()
    task["context"] = {"title": "Title: "}
    taught.config["queries"].setdefault("columns", {})["keep"] = ["title"]
    with pytest.raises(ConfigError, match=r"recall_by = epr learns from texts alone, .*context"):
        taught.execute("rank")


def test_an_arm_or_a_grid_changes_one_key_of_the_section_and_keeps_the_others(taught):
    taught.config["arms"] = [{"name": "main", "stage2": {"epr": {"steps": 3}}}]
    taught.config["grid"] = {"stage2.epr.pull": [0.5, 2.0]}
    found = [arm.stage2.epr for arm in load(taught.path).arms]
    assert [(one.candidates, one.steps, one.pull) for one in found] == [(8, 3, 0.5), (8, 3, 2.0)]


def test_a_run_without_the_map_forgets_it_in_the_manifest(taught):
    taught.execute("rank")
    assert "epr" in taught.manifest
    taught.config["stage2"]["recall_by"] = "dense"
    taught.execute("rank")
    assert "epr" not in taught.manifest


def test_the_plan_counts_what_the_llm_is_asked_first(taught):
    said = plan(load(taught.path), progress=Progress(quiet=True))
    arm = said["arms"]["main"]
    assert arm["epr_prompts"] == 40 * 8
    assert said["seconds"]["epr"] > 0
    taught.config["stage2"]["recall_by"] = "dense"
    said = plan(load(taught.path), progress=Progress(quiet=True))
    assert said["arms"]["main"]["epr_prompts"] == 0
    assert "epr" not in said["seconds"]


def test_the_plan_counts_prompts_that_arms_share_once(taught):
    taught.config["grid"] = {"repeat": [0, 1]}
    said = plan(load(taught.path), progress=Progress(quiet=True))["arms"]
    assert [arm["epr_prompts"] for arm in said.values()] == [40 * 8, 0]
    taught.config["grid"] = {"seed": [0, 1]}
    said = plan(load(taught.path), progress=Progress(quiet=True))["arms"]
    assert [arm["epr_prompts"] for arm in said.values()] == [40 * 8, 40 * 8]


def test_prompts_are_written_from_the_maps_ranking(taught):
    _, manifest = taught.execute("assemble")
    rows = ranked(taught)
    for row in parts(taught, manifest["prompts"]["main"]):
        # The most similar by the map stands last.
        assert row["demonstration_ids"] == rows[row["id"]]["demonstration_ids"][::-1]
