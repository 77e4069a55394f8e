"""Every Stage 2 method from the config to the table of demonstrations."""

from fractions import Fraction

import numpy as np
import pytest

from inference.sparse_encoder import SparseEncoder, SparseSpec
from jobs.errors import ConfigError
from jobs.ledger import Ledger, Marker
from jobs.ranking.work import METHODS
from tests.inference.tiny_models import tiny_splade
from tests.jobs.conftest import write_jsonl

ARMS = [(method, condition) for method in METHODS for condition in METHODS[method]]


def tables(project, manifest, arm):
    """An arm's rows of demonstrations by query id."""
    ledger = Ledger(str(project.out))
    rows = []
    for plain in manifest["demonstrations"][arm]:
        rows += ledger.read(Marker(**plain)).to_pylist()
    return {row["id"]: row for row in rows}


def test_every_method_ranks_every_query(project):
    project.config["stage2"] = {"k": 3, "recall": 6, "ground": 50}
    project.config["prompt"] = {"spare": 0}
    project.config["arms"] = [
        {"name": f"{method}-{condition}", "stage2": {"method": method, "condition_on": condition}}
        for method, condition in ARMS
    ] + [
        {"name": f"{method}-pool", "stage2": {"method": method, "ground": "pool"}}
        for method in ("dual-div", "mutual-information", "s3-lowest")
    ]
    _, manifest = project.execute("rank")
    assert len(manifest["demonstrations"]) == len(ARMS) + 3
    for arm in manifest["demonstrations"]:
        rows = tables(project, manifest, arm)
        assert len(rows) == 12
        for row in rows.values():
            assert len(set(row["demonstration_ids"])) == 3
            assert len(row["scores"]) == len(row["similarities"]) == 3


def test_stratified_shows_every_label_it_has_a_place_for(project):
    project.config["stage1"] = {"k1": 30}
    project.config["stage2"] = {"method": "stratified", "k": 3, "labels": 3, "recall": 30}
    project.config["prompt"] = {"spare": 0}
    _, manifest = project.execute("rank")
    topics = {row["id"]: row["topic"] for row in project.rows}
    for row in tables(project, manifest, "main").values():
        assert {topics[i] for i in row["demonstration_ids"]} == {"water", "metal", "music"}


def test_random_follows_the_seed_and_no_other_query(project):
    project.config["stage1"] = {"method": "coverage", "k1": 30}
    project.config["stage2"] = {"method": "random", "k": 5}
    first = tables(project, project.execute("rank")[1], "main")
    project.config["queries"]["partition"] = {"count": 5}
    cut = tables(project, project.execute("rank")[1], "main")
    project.config["seed"] = 7
    other = tables(project, project.execute("rank")[1], "main")
    ids = {name: row["demonstration_ids"] for name, row in first.items()}
    assert {name: row["demonstration_ids"] for name, row in cut.items()} == ids
    assert {name: row["demonstration_ids"] for name, row in other.items()} != ids
    assert len({tuple(picks) for picks in ids.values()}) > 6


def test_too_much_ground_for_mutual_information_is_a_config_error(project, monkeypatch):
    monkeypatch.setattr("jobs.rank.KEPT_MOST", 100)
    project.config["stage2"] = {"method": "mutual-information", "k": 2, "ground": 50}
    with pytest.raises(ConfigError, match=r"stage2.ground: found 50 .* 10 records.* at most 10"):
        project.execute("rank")


def rewritten(project, queries, *, tags=None):
    """Queries of one's own, and tags for corpus rows by id."""
    for row in project.rows:
        row["tags"] = (tags or {}).get(row["id"], [])
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    rows = [{"id": f"q{i}", "topic": "water", "tags": []} | row for i, row in enumerate(queries)]
    write_jsonl(project.root / "queries.jsonl", rows)
    for table in ("corpus", "queries"):
        project.config[table]["columns"] = project.config[table]["columns"] | {"tags": "tags"}


def test_records_to_spare_stand_behind_the_k_that_are_shown(project):
    project.config["stage2"] = {"method": "mmr", "k": 3}
    wide = tables(project, project.execute("rank")[1], "main")
    project.config["prompt"] = {"spare": 0}
    narrow = tables(project, project.execute("rank")[1], "main")
    for row_id, row in narrow.items():
        assert len(row["demonstration_ids"]) == 3
        assert len(wide[row_id]["demonstration_ids"]) == 7
        assert wide[row_id]["demonstration_ids"][:3] == row["demonstration_ids"]


def test_lexical_recall_finds_the_shared_word_and_a_query_without_one_gets_the_nearest(project):
    project.config["stage1"] = {"k1": 30}
    rewritten(project, [{"text": "forge"}, {"text": "zzz yyy"}])
    project.config["arms"] = [
        {"name": by, "stage2": {"k": 2, "recall_by": by}} for by in ("lexical", "hybrid", "dense")
    ]
    result, manifest = project.execute("rank")
    words = {row["id"]: row["text"].split() for row in project.rows}
    lexical, hybrid, dense = (
        tables(project, manifest, name) for name in ("lexical", "hybrid", "dense")
    )
    sharing = ["forge" in words[row_id] for row_id in lexical["q0"]["demonstration_ids"]]
    assert sharing[0]
    assert sharing == sorted(sharing, reverse=True)  # the nearest others only behind them
    for arm, how in ((lexical, "dense recall alone"), (hybrid, "the other lists")):
        assert arm["q1"]["demonstration_ids"] == dense["q1"]["demonstration_ids"]
        assert any(
            f"recall found nothing for 1 queries; {how} served" in x for x in result.warnings
        )
    for arm in ("lexical", "hybrid"):
        parts = manifest["demonstrations"][arm]
        assert sum(one["stats"]["n_without_words"] for one in parts) == 1


def test_copies_near_copies_and_what_is_too_similar_are_never_shown(project):
    project.config["stage1"] = {"method": "coverage", "k1": 120}
    text = project.rows[0]["text"]
    for row in project.rows:
        row["part_of"] = row["topic"] if row["topic"] == project.rows[0]["topic"] else None
    groups = [{"part_of": project.rows[0]["topic"]}, {"part_of": None}]
    rewritten(project, [{"text": text} | groups[0], {"text": f"  {text.upper()}!"} | groups[1]])
    for table in ("corpus", "queries"):
        project.config[table]["columns"]["group"] = "part_of"
    whole = {"k": 120, "exclude_same_text": False}
    project.config["arms"] = [
        {"name": "one-set", "stage2": whole | {"method": "similar", "condition_on": "all"}},
        {"name": "mixed", "stage2": {"k": 4, "exclude_same_group": False}},
        {"name": "guarded", "stage2": {"k": 4}},
        {"name": "ceiling", "stage2": {"k": 4, "ceiling": 0.5}},
        {
            "name": "open",
            "stage2": {"k": 4, "exclude_same_text": False, "exclude_same_group": False},
        },
    ]
    result, manifest = project.execute("rank")
    twin = project.rows[0]["id"]
    own = {row["id"] for row in project.rows if row["part_of"]}
    one_set, mixed = (tables(project, manifest, name) for name in ("one-set", "mixed"))
    assert {*one_set["q0"]["demonstration_ids"]} == {row["id"] for row in project.rows} - own
    assert {*one_set["q0"]["excluded_ids"]} == own
    assert len(one_set["q1"]["demonstration_ids"]) == 120
    assert {*mixed["q0"]["demonstration_ids"]} <= own
    assert sum(one["stats"]["n_short"] for one in manifest["demonstrations"]["one-set"]) == 1
    assert [text for text in result.warnings if "fewer than" in text] == [
        "one-set: 1 queries have fewer than stage2.k = 120 demonstrations: no more were found that "
        "they may see"
    ]
    guarded, ceiling, without = (
        tables(project, manifest, name) for name in ("guarded", "ceiling", "open")
    )
    assert without["q0"]["demonstration_ids"][0] == twin
    for row_id in ("q0", "q1"):
        assert twin not in guarded[row_id]["demonstration_ids"]
        assert twin in guarded[row_id]["excluded_ids"]
        assert all(near < 0.5 for near in ceiling[row_id]["similarities"])
        assert not {*ceiling[row_id]["demonstration_ids"]} & {*ceiling[row_id]["excluded_ids"]}


def test_a_tag_that_a_query_names_is_among_its_demonstrations(project):
    project.config["stage1"] = {"method": "coverage", "k1": 120}
    project.config["stage2"] = {"k": 2}
    far = next(row["id"] for row in project.rows if row["topic"] == "music")
    rewritten(
        project,
        [{"text": "river lake rain USERS table"}, {"text": "river lake rain table"}],
        tags={far: ["users"]},
    )
    _, manifest = project.execute("rank")
    found = tables(project, manifest, "main")
    assert found["q0"]["demonstration_ids"][0] == far  # a budget takes what a tag needs first
    assert far not in found["q1"]["demonstration_ids"][:2]
    stats = manifest["demonstrations"]["main"][0]["stats"]
    assert sum(one["stats"]["n_for_tags"] for one in manifest["demonstrations"]["main"]) == 1
    assert stats["n_uncovered"] == 0
    project.config["stage2"] = {"k": 2, "cover_tags": False}
    assert far not in tables(project, project.execute("rank")[1], "main")["q0"]["demonstration_ids"]


def test_words_do_not_recall_for_one_set_of_all_queries(project):
    project.config["stage2"] = {"method": "similar", "condition_on": "all", "recall_by": "hybrid"}
    with pytest.raises(ConfigError, match=r"recall_by = hybrid needs stage2.condition_on = query"):
        project.execute("rank")


@pytest.fixture
def sparse(project):
    """A project whose pool of 30 is recalled whole, and the folder of a sparse model for it."""
    folder = str(tiny_splade(project.root / "model"))
    project.config["sparse_encoders"] = {"tiny": {"model": folder, "device": "cpu"}}
    project.config["stage1"] = {"k1": 30}
    project.config["stage2"] = {"k": 30, "recall": 30, "exclude_same_text": False}
    project.config["prompt"] = {"spare": 0}
    return project


def recalling(name, by, sparse_encoder="tiny", **stage2):
    return {"name": name, "stage2": {"recall_by": by, "sparse_encoder": sparse_encoder} | stage2}


def products(project, pool, queries):
    """Sparse products of the texts of ids, as the encoder itself gives them."""
    spec = SparseSpec(project.config["sparse_encoders"]["tiny"]["model"], device="cpu")
    texts = {row["id"]: row["text"] for row in project.rows}
    records = SparseEncoder(spec, "document").encode([texts[i] for i in pool]).rows
    return (SparseEncoder(spec, "query").encode(queries).rows @ records.T).toarray()


def test_sparse_recall_shows_what_the_sparse_model_ranks_first(sparse):
    queries = ["river lake", "forge anvil iron", "violin melody", "zzz"]
    rewritten(sparse, [{"text": text} for text in queries])
    sparse.config["arms"] = [recalling("sparse", "sparse"), recalling("dense", "dense")]
    _, manifest = sparse.execute("rank")
    found, near = (tables(sparse, manifest, name) for name in ("sparse", "dense"))
    pool = sorted(near["q0"]["demonstration_ids"])
    for row, wanted in enumerate(products(sparse, pool, queries)):
        picks = found[f"q{row}"]["demonstration_ids"]
        shown = [wanted[pool.index(i)] for i in picks]
        assert sorted(picks) == pool
        assert (np.diff(shown) <= 1e-4 * wanted.max()).all()
        np.testing.assert_allclose(found[f"q{row}"]["scores"], shown / wanted.max(), atol=1e-4)
        assert picks != near[f"q{row}"]["demonstration_ids"]
    entry = manifest["sparse"]["tiny"]
    assert entry["sparse_encoder_id"].startswith("tiny-")
    assert [part["rows"] for part in entry["pool"]] == [30]
    assert sum(part["rows"] for part in entry["queries"]) == 4


def test_hybrid_joins_three_lists_where_a_sparse_encoder_is_named_and_two_elsewhere(sparse):
    sparse.config["arms"] = [
        *(recalling(by, by) for by in ("dense", "lexical", "sparse")),
        recalling("three", "hybrid"),
        recalling("two", "hybrid", None),
    ]
    _, manifest = sparse.execute("rank")
    lists = {arm: tables(sparse, manifest, arm) for arm in manifest["demonstrations"]}

    def fused(row_id, names):
        total = {}
        for name in names:
            row = lists[name][row_id]
            # Beyond what words or weights found stand the nearest, with scores of 0 and below.
            found = [
                record
                for record, score in zip(row["demonstration_ids"], row["scores"], strict=True)
                if name == "dense" or score > 0
            ]
            for rank, record in enumerate(found, start=1):
                total[record] = total.get(record, 0) + Fraction(1, 60 + rank)
        return sorted(total, key=lambda record: (-total[record], record))

    for row_id in lists["two"]:
        two, three = (lists[arm][row_id]["demonstration_ids"] for arm in ("two", "three"))
        assert two == fused(row_id, ["dense", "lexical"])
        assert three == fused(row_id, ["dense", "lexical", "sparse"])
    assert any(
        lists["two"][i]["demonstration_ids"] != lists["three"][i]["demonstration_ids"]
        for i in lists["two"]
    )


def test_what_a_query_must_not_see_is_not_recalled_by_a_sparse_encoder_either(sparse):
    sparse.config["stage1"] = {"method": "coverage", "k1": 120}
    sparse.config["stage2"] = {"k": 20, "recall": 20}
    text = sparse.rows[0]["text"]
    rewritten(sparse, [{"text": text}, {"text": f"  {text.upper()}!"}])
    sparse.config["arms"] = [
        recalling("guarded", "sparse"),
        recalling("ceiling", "sparse", ceiling=0.5),
        recalling("hybrid", "hybrid", ceiling=0.5),
        recalling("open", "sparse", k=120, exclude_same_text=False),
    ]
    _, manifest = sparse.execute("rank")
    twin = sparse.rows[0]["id"]
    for row_id in ("q0", "q1"):
        assert twin in tables(sparse, manifest, "open")[row_id]["demonstration_ids"]
        for arm in ("guarded", "ceiling", "hybrid"):
            row = tables(sparse, manifest, arm)[row_id]
            assert twin in row["excluded_ids"]
            assert not {*row["demonstration_ids"]} & {*row["excluded_ids"]}
            assert len(row["demonstration_ids"]) == 20  # the mask comes before the first 20


def test_a_query_without_a_sparse_vector_is_served_by_the_others_and_counted(sparse):
    sparse.config["sparse_encoders"]["tiny"]["mask"] = [{"pattern": r"\d+", "with": ""}]
    rewritten(sparse, [{"text": "17"}, {"text": "river"}, {"text": "forge"}])
    sparse.config["arms"] = [
        *(recalling(by, by) for by in ("dense", "sparse")),
        recalling("three", "hybrid"),
        recalling("two", "hybrid", None),
    ]
    result, manifest = sparse.execute("rank")
    shown = {arm: tables(sparse, manifest, arm) for arm in manifest["demonstrations"]}
    for arm, instead in (("sparse", "dense"), ("three", "two")):
        parts = manifest["demonstrations"][arm]
        assert sum(part["stats"]["n_without_sparse"] for part in parts) == 1
        assert shown[arm]["q0"] == shown[instead]["q0"]
        assert shown[arm]["q1"] != shown[instead]["q1"]
    assert manifest["demonstrations"]["two"][0]["stats"]["n_without_sparse"] == 0
    told = [text for text in result.warnings if "sparse" in text]
    assert "queries with tiny: rows without a sparse vector: 1 empty" in told
    assert (
        "sparse: sparse recall found nothing for 1 queries; dense recall alone served them" in told
    )
    assert "three: sparse recall found nothing for 1 queries; the other lists served them" in told


def test_another_sparse_model_ranks_its_own_arms_anew_and_no_others(sparse):
    sparse.config["stage2"]["k"] = 3
    sparse.config["arms"] = [
        recalling("dense", "dense"),
        recalling("lexical", "lexical"),
        recalling("knn", "sparse"),
        recalling("mmr", "sparse", method="mmr"),
    ]
    first = sparse.execute("rank")[1]
    before = sparse.files()
    vectors = [name for name in before if name.startswith("sparse/")]
    assert len(vectors) == 3  # two parts of the queries and one pool, for both arms
    sparse.execute("rank")
    assert sparse.files() == before
    other = str(tiny_splade(sparse.root / "other", seed=1))
    sparse.config["sparse_encoders"]["tiny"]["model"] = other
    second = sparse.execute("rank")[1]
    made = [name for name in sparse.files() if name not in before]
    assert {name.split("/")[0] for name in made} == {"sparse", "demonstrations"}
    for arm in ("dense", "lexical"):
        assert second["demonstrations"][arm] == first["demonstrations"][arm]
    for arm in ("knn", "mmr"):
        assert tables(sparse, second, arm) != tables(sparse, first, arm)
    assert {name: one for name, one in sparse.files().items() if name in before} == before
