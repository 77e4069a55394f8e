"""Generating one part: statuses, gold, and rows that kill the engine or its whole process."""

import dataclasses
import os

import pyarrow as pa
import pytest

from inference.engine import Completion, EngineSpec, VllmEngine
from inference.tasks import Task
from jobs.config.cluster import WorkersConfig
from jobs.config.stage2 import GenerateConfig
from jobs.errors import ClusterError, ConfigError
from jobs.generate import OUTPUT_SCHEMA, GenerateWork, cached_share
from jobs.ledger import Ledger, Unit
from jobs.tasks import plain_task
from jobs.units import run_units
from tests.jobs.conftest import Project

TASK = Task("t", ("red", "blue"))


class FakeLlm:
    """Answers with the last word of the prompt; some words are poison."""

    settings = {"device": "fake"}

    @staticmethod
    def tokenizer(text, *, add_special_tokens):
        return {"input_ids": [ord(letter) for letter in text]}

    def check(self, token_ids, sampling):
        pass

    def generate(self, token_ids, sampling):
        texts = ["".join(map(chr, ids)) for ids in token_ids]
        if any("segfault" in text for text in texts):
            os._exit(11)
        if any("explode" in text for text in texts):
            raise RuntimeError("the engine is dead")
        return [Completion(text.split()[-1], "stop", len(text), 0, 1, 0.1, 0.0) for text in texts]

    def forget(self):
        self.n_forgotten = getattr(self, "n_forgotten", 0) + 1

    def close(self):
        pass


def start(spec):
    return VllmEngine(spec, start=lambda _: FakeLlm(), start_pause_s=0.0)


def start_nothing(spec):
    def fail(_):
        raise RuntimeError("no memory")

    return VllmEngine(spec, start=fail, start_pause_s=0.0)


def part(ledger, prompts, labels=None, decoder="generate"):
    ids = [f"q{i}" for i in range(len(prompts))]
    n = len(prompts)
    table = pa.table(
        {
            "id": ids,
            "prompt": pa.array(prompts, pa.large_string()),
            "demonstration_ids": pa.array([["a"]] * n, pa.list_(pa.string())),
            "pool_version": pa.array(["v0001"] * n, pa.string()),
            "n_dropped": pa.array([0] * n, pa.int32()),
            "prompt_tokens": [0 if p is None else len(p) for p in prompts],
            "status": ["empty" if p is None else "ok" for p in prompts],
            "detail": pa.nulls(n, pa.string()),
        }
    )
    rows = pa.table({"label": pa.array(labels or ["red"] * n, pa.string())})
    unit = Unit("outputs/arm", "part-00000", "mark")
    return {
        "unit": dataclasses.asdict(unit),
        "arm": "arm",
        "prompts": ledger.commit(Unit("prompts/x", "part", "x"), table).as_dict(),
        "rows": ledger.commit(Unit("rows/x", "part", "x"), rows).as_dict(),
        "task": plain_task(TASK),
        "generate": GenerateConfig(decoder=decoder).model_dump(),
        "prompt": {"format": "completion"},
        "seed": 0,
        "run_id": "run",
    }


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path))


def answers(ledger, marker):
    return ledger.read(marker).to_pylist()


def work(ledger, start=start):
    return GenerateWork(str(ledger.store.root), EngineSpec("fake", max_model_len=200), start)


def test_every_prompt_has_one_row_with_its_status(ledger):
    prompts = ["say red", "say green", "x" * 500, None, "explode red", "say blue"]
    marker = work(ledger)(part(ledger, prompts, ["red", "red", "red", "red", "red", "odd"]))
    rows = answers(ledger, marker)
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(6)]
    assert [row["status"] for row in rows] == [
        "ok",
        "parse_error",
        "too_long",
        "empty",
        "engine_crash",
        "ok",
    ]
    assert [row["prediction"] for row in rows] == ["red", None, None, None, None, "blue"]
    assert [row["gold"] for row in rows] == ["red"] * 5 + [None]
    assert ledger.read(marker).schema == OUTPUT_SCHEMA


def test_no_prompts_give_an_empty_table_with_its_schema(ledger):
    marker = work(ledger)(part(ledger, []))
    assert ledger.read(marker).num_rows == 0
    assert ledger.read(marker).schema == OUTPUT_SCHEMA


def test_an_engine_that_never_starts_is_a_cluster_error_with_the_reason(ledger):
    with pytest.raises(ClusterError, match="no memory"):
        work(ledger, start_nothing)(part(ledger, ["say red"]))


def test_an_arm_starts_with_an_empty_prefix_cache(ledger):
    job = work(ledger)
    parts = [part(ledger, ["say red"]) for _ in range(3)]
    for number, (payload, arm) in enumerate(zip(parts, ("one", "one", "two"), strict=True)):
        unit = Unit(f"outputs/{arm}", f"part-{number}", "mark")
        job(payload | {"arm": arm, "unit": dataclasses.asdict(unit)})
    assert getattr(job.engine._live(), "n_forgotten", 0) == 1


class RecordingLlm(FakeLlm):
    """Remembers how it was asked."""

    def __init__(self):
        self.samplings = []

    def generate(self, token_ids, sampling):
        self.samplings += sampling
        return [Completion("red", "stop", 7, 3, 1, 0.1, 0.0)] * len(token_ids)


@pytest.mark.parametrize(
    ("layout", "stop", "expected"),
    [("completion", None, ("\n",)), ("chat", None, ()), ("chat", ["."], (".",))],
)
def test_a_free_answer_stops_where_its_format_says_unless_told(ledger, layout, stop, expected):
    llm = RecordingLlm()
    job = work(ledger, lambda spec: VllmEngine(spec, start=lambda _: llm, start_pause_s=0.0))
    payload = part(ledger, ["say red"])
    payload["generate"] = GenerateConfig(decoder="generate", stop=stop).model_dump()
    job(payload | {"prompt": {"format": layout}})
    assert llm.samplings[0].stop == expected


def test_cached_prompt_tokens_are_summed_over_parts(ledger):
    llm = RecordingLlm()
    job = work(ledger, lambda spec: VllmEngine(spec, start=lambda _: llm, start_pause_s=0.0))
    marker = job(part(ledger, ["say red", "say it again", None]))
    # Tokens sent as the prompts say, 7 and 12; cached as the engine says, 3 each.
    assert cached_share([marker, marker]) == {
        "prompt_tokens": 38,
        "cached_tokens": 12,
        "share": 12 / 38,
    }
    assert cached_share([])["share"] is None


@pytest.mark.ray
def test_a_row_that_kills_its_process_is_given_up_and_the_others_are_answered(ledger, embedded_ray):
    payload = part(ledger, ["say red", "segfault red", "say blue"])
    (marker,) = run_units(work(ledger), [payload], workers=WorkersConfig(), stateful=True)
    rows = answers(ledger, marker)
    assert [row["status"] for row in rows] == ["ok", "engine_crash", "ok"]
    assert [row["prediction"] for row in rows] == ["red", None, "blue"]
    assert not list(ledger.store.root.rglob("attempts/*.json"))


@pytest.fixture
def config(tmp_path):
    from jobs.config.load import load

    project = Project(tmp_path)

    def _load(**changes):
        project.config |= changes
        return load(project.path)

    return _load


def test_chat_without_a_template_is_refused_by_model_and_option(config, tmp_path):
    from jobs.checks import check_config
    from tests.inference.tiny_models import tiny_gpt_neox

    folder = tiny_gpt_neox(tmp_path / "plain-model")
    loaded = config(engines={"bare": {"model": str(folder)}}, prompt={"format": "chat"})
    with pytest.raises(ConfigError, match="no chat template") as caught:
        check_config(loaded, until="report")
    assert "bare" in str(caught.value)
    assert "prompt.format" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"generate": {"decoder": "choice"}},
        {"generate": {"temperature": 0.5}},
        {"generate": {"max_tokens": 3}},
        {"seed": 7},
    ],
)
def test_another_decoder_or_seed_is_answered_anew(config, change, tmp_path):
    from jobs.generate import _units
    from jobs.ledger import Marker
    from jobs.progress import Progress
    from jobs.run import Part, Run, Table

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")

    def mark(weights="a", **changes):
        (folder / "model.safetensors").write_text(weights)
        loaded = config(**changes)
        run = Run(loaded, Ledger(loaded.out), Progress(quiet=True))
        rows = Marker("queries/x", "p", "f", 1, 1, "c", {"texts": "texts", "labels": {}})
        for name in ("corpus", "queries"):
            run.tables[name] = Table(name, (Part(0, 0, rows),), 1)
        run.prompts["main"] = [Marker("prompts/x", "part", "f", 1, 1, "sum", {})]
        ((unit, _),) = _units(run, EngineSpec(str(folder)), run.arms[0])
        return unit.fingerprint

    base = {"generate": {"decoder": "generate"}}
    first = mark(**base)
    assert mark(**base) == first
    assert mark(**base | change) != first
    assert mark(weights="b", **base) != first


def test_a_run_that_was_killed_is_no_suspicion_against_its_rows(ledger):
    from jobs.generating.attempts import EVERYTHING, Attempts

    unit = Unit("outputs/arm", "part", "mark")
    rows = [{"id": "q0", "prompt": "say red"}]

    def die(rows):
        raise SystemExit

    for run_id, deaths in (("first", {}), ("second", {}), ("second", {EVERYTHING: 1})):
        attempts = Attempts(ledger.store, unit, run_id=run_id)
        assert attempts.deaths == deaths
        with pytest.raises(SystemExit):
            attempts.run(rows, die)
