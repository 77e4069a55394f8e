"""Layouts, orders and contrasts from config to prompts, on real vectors and a real tokenizer."""

import pyarrow.parquet as pq

from tests.jobs.conftest import write_jsonl


def prompts(project, arm):
    tables = [
        pq.read_table(project.out / marker["folder"] / "part.parquet").to_pylist()
        for marker in project.manifest["prompts"][arm]
    ]
    return [row for rows in tables for row in rows]


def test_every_layout_shows_k_and_what_it_promises_of_prefixes(project):
    project.config["stage2"] = {"k": 3}
    project.config["prompt"] = {"clusters": 2, "anchors": 1}
    layouts = ("dynamic", "anchor", "clustered", "by-id")
    project.config["arms"] = [{"name": one, "prompt": {"layout": one}} for one in layouts]
    project.config["arms"].append(
        {"name": "zero", "stage2": "zero-shot", "prompt": {"layout": "anchor"}}
    )
    _, manifest = project.execute("assemble")
    shown = {one: [row["demonstration_ids"] for row in prompts(project, one)] for one in layouts}
    assert all(len(set(ids)) == 3 for lists in shown.values() for ids in lists)
    (anchor,) = manifest["layouts"]["anchor"]["anchors"]
    assert {ids[0] for ids in shown["anchor"]} == {anchor}
    assert len(set(map(tuple, shown["clustered"]))) <= 2
    assert sum(manifest["layouts"]["clustered"]["queries_per_block"]) == 12
    assert 0 < manifest["layouts"]["clustered"]["relevance_kept"] <= 1
    assert all(ids == sorted(ids) for ids in shown["by-id"])
    assert [sorted(ids) for ids in shown["dynamic"]] == shown["by-id"]
    assert all(not row["demonstration_ids"] for row in prompts(project, "zero"))
    before = project.files()
    project.execute("assemble")
    assert project.files() == before


def test_contrasts_come_from_the_corpus_and_count_in_the_pool(project):
    for row in project.rows:
        row["guess"] = "metal" if row["topic"] != "metal" else "Metal"
        row["because"] = f"{row['id']} is about {row['topic']}"
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    corpus = project.config["corpus"]
    corpus["columns"] = corpus["columns"] | {"wrong_output": "guess", "why": "because"}
    result, manifest = project.execute("assemble")
    pool = pq.read_table(project.out / manifest["pool"]["folder"] / "pool.parquet").to_pylist()
    assert {row["version"] for row in pool} == {"v0001"}
    for row in pool:
        assert ("Wrong answer: metal" in row["rendered"]) == (row["label"] != "metal")
        assert row["n_tokens"] > 0
    same = sum(row["label"] == "metal" for row in pool)
    assert not same or any(f"{same} candidates have a wrong_output" in w for w in result.warnings)
    rendered = {row["id"]: row["rendered"] for row in pool}
    for row in prompts(project, "main"):
        assert row["pool_version"] == "v0001"
        assert all(rendered[row_id] in row["prompt"] for row_id in row["demonstration_ids"])
