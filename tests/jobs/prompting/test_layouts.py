"""Layouts, orders and contrasts from config to prompts, on real vectors and a real tokenizer."""

import zlib
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from inference.engine import Completion, VllmEngine
from jobs.config.load import load
from jobs.generating.engines import engine_spec, tokenizer_of
from jobs.ledger import Ledger, Unit
from jobs.progress import Progress
from jobs.prompting import calibrate
from jobs.prompting.pool_texts import SHOWN_COLUMNS
from jobs.prompting.work import set_key
from jobs.run import Run, Table
from tests.inference.llm_fakes import FakeLlm
from tests.jobs.conftest import Project, write_jsonl


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


def by_text(text, sampling):
    """Made-up probabilities that depend on the prompt."""
    wanted = sampling.logprob_token_ids
    chances = {token: -(zlib.crc32(f"{token} {text}".encode()) % 100) / 50 for token in wanted}
    return Completion("", "length", len(text), 0, 1, logprobs=(chances,))


def start_fake(spec):
    tokenizer = tokenizer_of(spec.model, spec.revision)
    return VllmEngine(spec, start=lambda _: FakeLlm(by_text, tokenizer), start_pause_s=0.0)


def test_another_dtype_of_the_llm_calibrates_orders_anew(tmp_path, monkeypatch):
    config = load(Project(tmp_path).path)
    run = Run(config, Ledger(config.out), Progress(quiet=True))
    run.tables["corpus"] = Table("corpus", (), 1)
    texts = {name: ["a", "b"] for name in SHOWN_COLUMNS}
    run.pool = run.ledger.commit(Unit("pool", "pool", "p"), pa.table(texts))
    shown = pa.table({"demonstration_ids": [["a", "b"]]})
    drafts = [run.ledger.commit(Unit("prompts", "part", "d"), shown)]
    spec = engine_spec(config.file.engines["smollm2"], key="engines.smollm2")
    units = [
        calibrate._units(run, config.arms[0], replace(spec, **change), drafts)
        for change in ({}, {"dtype": "bfloat16"}, {"max_num_seqs": 3})
    ]
    first, other, slower = [unit for ((unit, _),) in units]
    assert first == slower != other


def test_calibrated_prompts_show_the_sets_of_the_draft_in_one_order_each(project, monkeypatch):
    work, started = calibrate.CalibrateWork, []

    def with_fake(out, spec):
        started.append(spec)
        return work(out, spec, start_fake)

    monkeypatch.setattr(calibrate, "CalibrateWork", with_fake)
    project.config["stage2"] = {"k": 3}
    project.config["prompt"] = {"clusters": 2}
    project.config["arms"] = [
        {"name": f"{layout}-{order}", "prompt": {"layout": layout, "order": order}}
        for layout in ("dynamic", "clustered")
        for order in ("similar-last", "calibrated")
    ]
    _, manifest = project.execute("assemble")
    for layout in ("dynamic", "clustered"):
        drafts = prompts(project, f"{layout}-similar-last")
        rows = prompts(project, f"{layout}-calibrated")
        order: dict[str, list[str]] = {}
        for draft, row in zip(drafts, rows, strict=True):
            ids = row["demonstration_ids"]
            assert sorted(ids) == sorted(draft["demonstration_ids"])
            assert order.setdefault(set_key(ids), ids) == ids
        facts = manifest["layouts"][f"{layout}-calibrated"]["calibration"]
        assert (facts["sets"], facts["not_scored"]) == (len(order), 0)
        assert facts["skew_mean"] < facts["worst_skew_mean"]
    assert len(order) <= 2
    before = project.files()
    project.execute("assemble")
    assert project.files() == before
