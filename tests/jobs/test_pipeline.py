"""The stages before the LLM, on an embedded Ray with the real encoder."""

import contextlib
import json
import os

import pyarrow.parquet as pq
import pytest

from jobs import pipeline
from jobs.errors import ConfigError, DataError
from jobs.status import status
from tests.jobs.conftest import Project, sentences, write_jsonl

pytestmark = [pytest.mark.ray, pytest.mark.model]


def candidates(project):
    """Ids and gains of each arm's candidates, in the order of picking."""
    found = {}
    for entry in project.manifest["selections"].values():
        marker = entry["candidates"]
        table = pq.read_table(project.out / marker["folder"] / f"{marker['name']}.parquet")
        for arm in entry["arms"]:
            found[arm] = (table["id"].to_pylist(), table["objective"].to_pylist())
    return found


def rows_of(project, name):
    entry = project.manifest["tables"][name]
    tables = [
        pq.read_table(project.out / part["marker"]["folder"] / f"{part['marker']['name']}.parquet")
        for part in entry["parts"]
    ]
    return [row for table in tables for row in table.to_pylist()]


def embedded_parts(project):
    return {str(p.parent): p.stat().st_mtime_ns for p in project.out.glob("embeddings/*/*/*.done*")}


ARMS = [
    {"name": "dual-div"},
    {"name": "coverage", "stage1": "coverage"},
    {"name": "random", "stage1": "random"},
]


def test_picks_do_not_depend_on_files_or_actors(ray_project):
    project = ray_project
    project.config["arms"] = ARMS
    project.execute("select")
    expected = candidates(project)
    assert {len(ids) for ids, _ in expected.values()} == {10}
    rows = project.rows
    for n_files, actors in ((3, 1), (7, 2)):
        for path in (project.root / "corpus").iterdir():
            path.unlink()
        for i in range(n_files):
            size = -(-len(rows) // n_files)
            write_jsonl(project.root / "corpus" / f"{i}.jsonl", rows[i * size : (i + 1) * size])
        for stage in ("embed", "select"):
            project.config["cluster"][stage] = {"actors": actors}
        project.execute("select", out=str(project.root / f"out{n_files}"))
        project.out = project.root / f"out{n_files}"
        assert candidates(project) == expected


def test_only_appended_rows_are_embedded_and_old_files_stay_as_they_are(project):
    project.execute("select")
    before, parts = project.files(), embedded_parts(project)
    write_jsonl(project.root / "corpus" / "b.jsonl", sentences(500, seed=5, prefix="new"))
    project.execute("select")
    fresh = set(embedded_parts(project)) - set(parts)
    rows = [pq.read_metadata(f"{folder}/part.parquet").num_rows for folder in fresh]
    assert sum(rows) == 500
    assert len(rows_of(project, "corpus")) == 620
    after = project.files()
    assert {name: after[name] for name in before} == before
    assert project.manifest["tables"]["corpus"]["counts"]["segments"] == 2


def test_a_second_run_touches_nothing_and_says_so(project):
    project.execute("assemble")
    before = project.files()
    result, _ = project.execute("assemble")
    assert project.files() == before
    assert result.result == "done"


def test_changed_and_removed_rows_leave_the_other_partitions_alone(project):
    project.execute("embed")
    parts = embedded_parts(project)
    project.rows[0]["text"] = "an altogether other text"
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows[:-1])
    project.execute("embed")
    rows = rows_of(project, "corpus")
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in project.rows[:-1])
    assert "an altogether other text" in {row["input"] for row in rows}
    after = embedded_parts(project)
    assert {name: after[name] for name in parts} == parts


def test_another_encoder_is_embedded_beside_the_first(project, tmp_path):
    from tests.inference.tiny_models import tiny_bert

    project.execute("select")
    first = embedded_parts(project)
    folder = tiny_bert(tmp_path / "bert")
    project.config["encoders"] = {"minilm": {"model": str(folder), "pooling": "mean"}}
    project.execute("select")
    after = embedded_parts(project)
    assert {name: after[name] for name in first} == first
    assert len({name.split("/embeddings/")[1].split("/")[0] for name in after}) == 2
    (entry,) = project.manifest["selections"].values()
    assert entry["candidates"]["stats"]["encoder_id"] in "".join(set(after) - set(first))


def test_status_counts_what_the_files_hold_and_names_what_is_missing(project):
    project.execute("assemble")
    answer = status(str(project.out), quiet=True)
    assert answer["result"] == "done"
    assert all(not stage["missing"] for stage in answer["stages"].values())
    assert answer["tables"]["corpus"]["rows"] == len(rows_of(project, "corpus")) == 120
    victim = next(project.out.glob("embeddings/*/*/part.parquet"))
    victim.unlink()
    missing = status(str(project.out), quiet=True)["stages"]["embeddings"]["missing"]
    assert missing == [str(victim.relative_to(project.out))]


def test_unlabelled_and_foreign_labels_are_no_demonstrations_and_are_counted(project):
    for i, row in enumerate(project.rows):
        if i % 3 == 0:
            row["topic"] = None
        elif i % 3 == 1:
            row["topic"] = "nonsense"
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    project.config["stage1"]["k1"] = 60
    result, manifest = project.execute("assemble")
    pool = manifest["pool"]
    assert pool["n_unlabelled"] > 0
    assert pool["n_bad"] > 0
    assert pool["n_unlabelled"] + pool["rows"] == 60
    assert any("no label" in text for text in result.warnings)
    good = {row["id"] for i, row in enumerate(project.rows) if i % 3 == 2}
    shown = set()
    for marker in manifest["prompts"]["main"]:
        table = pq.read_table(project.out / marker["folder"] / "part.parquet")
        shown |= {i for ids in table["demonstration_ids"].to_pylist() for i in ids}
    assert shown
    assert shown <= good


def test_a_corpus_without_any_label_gives_empty_prompts_with_a_warning(project):
    for row in project.rows:
        row["topic"] = None
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    result, manifest = project.execute("assemble")
    assert any("0 are shown" in text for text in result.warnings)
    assert sum(marker["rows"] for marker in manifest["prompts"]["main"]) == 12


@pytest.mark.parametrize("n", [1, 3])
def test_a_corpus_smaller_than_k1_is_taken_whole_with_a_warning(project, n):
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows[:n])
    result, manifest = project.execute("assemble")
    (entry,) = manifest["selections"].values()
    assert entry["candidates"]["rows"] == n
    assert any(f"more than the {n} rows" in text for text in result.warnings)


def test_identical_rows_give_distinct_finite_picks(project):
    rows = [{"id": f"r{i}", "text": "always the same", "topic": "water"} for i in range(50)]
    write_jsonl(project.root / "corpus" / "a.jsonl", rows)
    project.execute("select")
    ids, objective = candidates(project)["main"]
    assert len(set(ids)) == 10
    assert all(abs(value) < 1e6 for value in objective)


def test_no_corpus_rows_is_a_data_error_that_says_so(project):
    (project.root / "corpus" / "a.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="no rows to choose from"):
        project.execute("select")


def test_no_queries_give_valid_empty_tables(project):
    (project.root / "queries.jsonl").write_text("")
    result, manifest = project.execute("assemble")
    (marker,) = manifest["prompts"]["main"][:1]
    table = pq.read_table(project.out / marker["folder"] / "part.parquet")
    assert table.num_rows == 0
    assert "prompt" in table.column_names
    assert any("no rows" in text for text in result.warnings)


def test_an_empty_query_keeps_its_row_and_its_status(project):
    rows = [*sentences(3, seed=1, prefix="q"), {"id": "blank", "text": "  ", "topic": "water"}]
    write_jsonl(project.root / "queries.jsonl", rows)
    result, manifest = project.execute("assemble")
    found = {}
    for marker in manifest["prompts"]["main"]:
        table = pq.read_table(project.out / marker["folder"] / "part.parquet")
        found |= {row["id"]: row for row in table.to_pylist()}
    assert set(found) == {"q0", "q1", "q2", "blank"}
    assert (found["blank"]["status"], found["blank"]["prompt"]) == ("empty", None)
    assert result.result == "done_with_rejects"


def test_a_query_never_sees_its_own_copy(project):
    twin = {"id": "twin", "text": project.rows[0]["text"].upper() + " .", "topic": "water"}
    write_jsonl(project.root / "queries.jsonl", [twin])
    project.config["stage1"] = {"k1": 120}
    project.config["prompt"] = {"spare": 0}
    result, manifest = project.execute("rank")
    assert any("1 of 1 query texts stand in the corpus" in text for text in result.warnings)
    shown = []
    for marker in manifest["demonstrations"]["main"]:
        table = pq.read_table(project.out / marker["folder"] / f"{marker['name']}.parquet")
        shown += [i for ids in table["demonstration_ids"].to_pylist() for i in ids]
    assert len(shown) == 2
    assert project.rows[0]["id"] not in shown


def test_limit_reads_the_first_rows_of_each_table(project):
    project.execute("ingest", limit=7)
    assert {row["id"] for row in rows_of(project, "corpus")} == {f"r{i}" for i in range(7)}
    assert len(rows_of(project, "queries")) == 7


def test_rejected_lines_are_kept_with_file_line_and_reason(project):
    path = project.root / "corpus" / "bad.jsonl"
    path.write_text('{"id": "ok", "text": "fine"}\nnot json\n{"id": "e", "text": ""}\n')
    result, manifest = project.execute("ingest")
    assert result.n_rejected == 2
    (marker,) = manifest["tables"]["corpus"]["rejected"]
    rows = pq.read_table(project.out / marker["folder"] / f"{marker['name']}.parquet").to_pylist()
    assert [(r["source_file"], r["source_line"], r["reason"]) for r in rows] == [
        (str(path), 2, "not_json"),
        (str(path), 3, "empty"),
    ]


def test_too_many_rejects_are_a_data_error_when_asked(project):
    from jobs.config.load import load
    from jobs.pipeline import execute
    from jobs.progress import Progress

    (project.root / "corpus" / "bad.jsonl").write_text("nonsense\n" * 30)
    arguments = {"until": "ingest", "progress": Progress(quiet=True)}
    assert execute(load(project.path), fail_on_rejects=0.2, **arguments).n_rejected == 30
    with pytest.raises(DataError, match="30 of 162 rows"):
        execute(load(project.path), fail_on_rejects=0.1, **arguments)


def test_a_prompt_budget_drops_whole_demonstrations_and_keeps_the_query(project):
    project.config["prompt"] = {"token_budget": 34}
    result, manifest = project.execute("assemble")
    assert any("demonstrations dropped" in text for text in result.warnings)
    texts = {row["id"]: row["input"] for row in rows_of(project, "queries")}
    for marker in manifest["prompts"]["main"]:
        table = pq.read_table(project.out / marker["folder"] / "part.parquet")
        for row in table.to_pylist():
            assert row["prompt_tokens"] <= 34 or row["status"] == "too_long"
            assert row["prompt"].startswith("Name the topic.")
            assert texts[row["id"]] in row["prompt"]


def test_a_part_that_rotted_at_its_size_is_named_and_never_used(project):
    project.execute("embed")
    marker = project.manifest["embeddings"]["minilm"]["corpus"]["parts"][0]
    victim = project.out / marker["folder"] / "part.parquet"
    rotten = bytearray(victim.read_bytes())
    rotten[3000] ^= 0xFF
    victim.write_bytes(rotten)
    with pytest.raises(DataError, match=r"part\.parquet: cannot be read.*done\.json"):
        project.execute("select")
    victim.with_name("part.done.json").unlink()
    project.execute("select")


def test_status_tells_what_is_of_an_earlier_run(project):
    project.execute("rank")
    project.execute("ingest")
    stages = status(str(project.out), quiet=True)["stages"]
    assert {name: stage["earlier"] for name, stage in stages.items()} == {
        "tables": False,
        "embeddings": True,
        "selections": True,
        "pool": True,
        "demonstrations": True,
    }


def test_warnings_do_not_get_lost_on_a_resume(project):
    project.config["stage1"]["k1"] = 500
    first, _ = project.execute("rank")
    again, _ = project.execute("rank")
    assert any("k1 = 500 is more than" in text for text in first.warnings)
    assert again.warnings == first.warnings


def test_a_corrupt_part_is_made_anew(project):
    project.execute("embed")
    victim = next(project.out.glob("embeddings/*/*/part.parquet"))
    good = victim.read_bytes()
    victim.write_bytes(good[: len(good) // 2])
    project.execute("embed")
    assert victim.read_bytes() == good


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoders": {"m": {"model": "/no/such/model"}}}, ["encoders.m", "/no/such/model"]),
        ({"encoders": {"m": {"preset": "huge"}}}, ["encoders.m.preset", "huge", "minilm"]),
        ({"engines": {"m": {"model": "/no/llm"}}}, ["engines.m.model", "/no/llm"]),
        ({"stage1": {"method": "best"}}, ["stage1.method", "best", "dual-div"]),
        ({"stage2": {"method": "best"}}, ["stage2.method", "best", "knn"]),
        ({"stage2": {"k": 11}}, ["stage2.k = 11", "stage1.k1 = 10"]),
        ({"stage2": {"method": "similar"}}, ["condition_on", "query", "all"]),
        ({"stage1": {"method": "none"}}, ["stage1.method = none", "zero-shot"]),
        ({"prompt": {"order": "odd"}}, ["prompt.order", "odd", "similar-last"]),
        ({"generate": {"decoder": "odd"}}, ["generate.decoder", "odd", "likelihood"]),
        ({"corpus": {"path": "/no/such/file"}}, ["corpus.path", "/no/such/file"]),
        (
            {"tasks": {"t": {"instruction": "x", "labels": ["a"]}}},
            ["tasks.t.labels", "at least two"],
        ),
        (
            {"tasks": {"t": {"instruction": "x", "labels": ["a", "b"], "aliases": {"x": "c"}}}},
            ["tasks.t", "'c'"],
        ),
        ({"out": "/proc/none/out"}, ["out", "cannot be written"]),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(project, change, words):
    project.config |= change
    with pytest.raises(ConfigError) as caught:
        project.execute("report")
    for word in words:
        assert word in str(caught.value)
    assert not (project.out / "manifest.json").exists()


def test_a_full_disk_half_way_is_a_cluster_error_and_the_run_resumes(project, monkeypatch):
    import errno

    from jobs import storage
    from jobs.errors import ClusterError

    project.execute("embed")
    real = os.fsync

    def full(_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(ClusterError, match="no space left"):
        project.execute("select")
    monkeypatch.setattr(storage.os, "fsync", real)
    project.execute("select")
    assert len(candidates(project)["main"][0]) == 10


def test_the_manifest_holds_config_versions_and_timings(project):
    _, manifest = project.execute("select")
    assert manifest["config"]["stage1"]["k1"] == 10
    assert manifest["versions"]["ray"]
    assert set(manifest["timings_s"]) == {"ingest", "embed", "select"}
    assert json.loads((project.out / "manifest.json").read_text()) == manifest


def test_labels_that_arrive_later_make_a_new_pool_and_embed_nothing_again(project):
    labels = [row["topic"] for row in project.rows]
    for row in project.rows:
        row["topic"] = None
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    project.execute("rank")
    parts, picks = embedded_parts(project), candidates(project)
    first = (project.out / "pool" / "v0001" / "pool.parquet").read_bytes()
    for row, label in zip(project.rows, labels, strict=True):
        row["topic"] = label
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    _, manifest = project.execute("rank")
    assert embedded_parts(project) == parts
    assert candidates(project) == picks
    assert manifest["tables"]["corpus"]["counts"]["segments"] == 1
    assert manifest["pool"]["folder"] == "pool/v0002"
    pool = pq.read_table(project.out / "pool" / "v0002" / "pool.parquet").to_pylist()
    truth = {row["id"]: row["topic"] for row in project.rows}
    assert {row["id"]: row["label"] for row in pool} == {i: truth[i] for i in picks["main"][0]}
    assert (project.out / "pool" / "v0001" / "pool.parquet").read_bytes() == first


def test_labels_are_listed_with_counts_and_spellings_are_not_merged_in_silence(project):
    for i, row in enumerate(project.rows[:6]):
        row["topic"] = ["Water", "WATER", " metal", "agua", "nonsense", "nonsense"][i]
    write_jsonl(project.root / "corpus" / "a.jsonl", project.rows)
    project.config["tasks"]["topic"]["aliases"] = {"agua": "water"}
    result, manifest = project.execute("ingest")
    told = "\n".join(result.warnings)
    for words in ("'Water' = water 1", "'WATER' = water 1", "'agua' = water 1", "nonsense 2"):
        assert words in told
    counts = manifest["tables"]["corpus"]["counts"]["labels"]
    assert (counts["nonsense"], counts["agua"], counts["Water"]) == (2, 1, 1)
    again, _ = project.execute("ingest")
    assert again.warnings == result.warnings


def test_a_look_at_a_few_rows_does_not_forget_the_segments_of_the_rest(project):
    project.execute("embed")
    write_jsonl(project.root / "corpus" / "b.jsonl", sentences(30, seed=5, prefix="new"))
    project.execute("embed")
    parts = embedded_parts(project)
    project.execute("embed", limit=5)
    project.execute("embed")
    assert {name: time for name, time in embedded_parts(project).items() if name in parts} == parts
    assert project.manifest["tables"]["corpus"]["counts"]["segments"] == 2


def test_another_arm_or_query_writes_no_other_prompt_again(project):
    project.config["arms"] = [{"name": "random", "stage1": "random"}]
    project.execute("assemble")
    before = {k: v for k, v in project.files().items() if k.startswith(("prompts", "demonstr"))}
    project.config["arms"] += [{"name": "coverage", "stage1": "coverage"}]
    project.execute("assemble")
    assert project.manifest["pool"]["folder"] == "pool/v0002"
    after = project.files()
    assert {name: after[name] for name in before} == before
    extra = sentences(1, seed=77, prefix="later")
    with (project.root / "queries.jsonl").open("a") as file:
        file.write(json.dumps(extra[0]) + "\n")
    _, manifest = project.execute("assemble")
    rows = [marker["rows"] for marker in manifest["prompts"]["random"]]
    assert sum(rows) == 13
    assert min(rows) in (0, 1)


@pytest.mark.parametrize("method", ["dual-div", "similar"])
def test_one_set_for_no_queries_is_an_empty_table(project, method):
    (project.root / "queries.jsonl").write_text("")
    project.config["stage2"] = {"method": method, "condition_on": "all", "k": 2}
    _, manifest = project.execute("rank")
    assert sum(marker["rows"] for marker in manifest["demonstrations"]["main"]) == 0


def test_an_output_inside_the_input_folder_is_refused(project):
    project.config["out"] = str(project.root / "corpus" / "out")
    project.out = project.root / "corpus" / "out"
    project.out.mkdir()
    (project.out / "x.jsonl").write_text("")
    with pytest.raises(ConfigError, match="read its own output"):
        project.execute("ingest")


def test_status_of_a_run_that_failed_early_says_so(project):
    (project.root / "corpus" / "a.jsonl").write_text("")
    with pytest.raises(DataError):
        project.execute("ingest")
    assert status(str(project.out), quiet=True)["result"] == "failed"


def test_a_bug_is_told_in_the_manifest_too(tmp_path, monkeypatch):
    project = Project(tmp_path)

    def broken(run):
        raise ZeroDivisionError("of the last row")

    monkeypatch.setattr(pipeline, "connected", lambda config: contextlib.nullcontext())
    monkeypatch.setattr(pipeline, "nodes", lambda: [{"CPU": 4.0}])
    monkeypatch.setitem(pipeline.STAGES, "ingest", broken)
    with pytest.raises(ZeroDivisionError):
        project.execute("ingest")
    found = json.loads((project.out / "manifest.json").read_text())
    assert (found["result"], found["exit_code"]) == ("failed", 70)
    assert "ZeroDivisionError('of the last row')" in found["message"]


def test_a_shorter_run_leaves_what_a_longer_one_listed(project):
    project.execute("rank")
    listed = project.manifest["demonstrations"]
    project.execute("ingest")
    assert project.manifest["demonstrations"] == listed
