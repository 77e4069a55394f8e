"""Contextual calibration from prompts to outputs, and what it is planned to cost."""

import dataclasses
import json
import zlib

import pyarrow as pa
import pytest

from inference.engine import Completion, EngineSpec, VllmEngine
from inference.prompts import build
from jobs.assemble import check
from jobs.config.load import load
from jobs.config.stage2 import GenerateConfig
from jobs.errors import ConfigError
from jobs.generate import GenerateWork
from jobs.generating.content_free import prompts_planned, with_content_free
from jobs.ledger import Ledger, Marker, Unit
from jobs.prompting.pool_texts import demonstrations_in, layout_of
from tests.inference.llm_fakes import Factory, byte_tokenizer
from tests.jobs.conftest import Project
from tests.jobs.prompt_part import TASK, Part, commit


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    byte_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return EngineSpec(str(folder), max_model_len=4096)


@pytest.fixture
def part(tmp_path, model):
    ranked = ["ba", "ba", "ab", "ce", ""]
    return Part(Ledger(str(tmp_path / "out")), model, ["one", "two", "six", "ten", "zero"], ranked)


def by_text(text, sampling):
    """Made-up probabilities that depend on the prompt."""
    wanted = sampling.logprob_token_ids or ()
    scores = {token: -(zlib.crc32(f"{token} {text}".encode()) % 100) / 20 for token in wanted}
    return Completion("", "length", len(text), 0, 1, logprobs=(scores,))


def generating(part, model, **generate):
    """Rows of outputs, their marker, and the texts that the engine was sent."""
    rows = part.rows()
    labels = pa.table({"label": pa.array(["red"] * len(rows), pa.string())})
    payload = {
        "unit": dataclasses.asdict(Unit("outputs/arm", "part", str(generate))),
        "arm": "arm",
        "prompts": part.prompts.as_dict(),
        "rows": commit(part.ledger, "labels", labels),
        "task": part.payload["task"],
        "pool": part.payload["pool"],
        "prompt": part.payload["prompt"],
        "generate": GenerateConfig(decoder="likelihood", **generate).model_dump(),
        "seed": 0,
        "run_id": "run",
    }
    factory = Factory(by_text)
    start = lambda spec: VllmEngine(spec, start=factory, start_pause_s=0.0)  # noqa: E731
    marker = GenerateWork(str(part.ledger.store.root), model, start)(payload)
    sent = [text for llm in factory.started for batch in llm.batches for text in batch]
    return part.ledger.read(marker).to_pylist(), marker, sent


def test_content_free_prompts_are_those_of_the_query_with_the_query_replaced(part, model):
    rows = part.rows()
    payload = part.payload | {"generate": GenerateConfig(content_free=["N/A", ""]).model_dump()}
    spec, chat = layout_of(model, part.prompt_config)
    pool = demonstrations_in(
        part.ledger, Marker(**part.payload["pool"]), TASK, set("abce"), contrast=True
    )
    for row, query in zip(
        with_content_free(part.ledger, model, payload, rows), part.queries, strict=True
    ):
        shown = [pool[row_id] for row_id in row["demonstration_ids"]]
        assert row["prompt"] == build(TASK, shown, query, spec=spec, chat=chat)
        head = row["prompt"].removesuffix(f"{query}\nAnswer:")
        assert row["content_free_prompts"] == [f"{head}N/A\nAnswer:", f"{head}\nAnswer:"]


def test_outputs_hold_scores_and_predictions_before_and_after(part, model):
    plain, _, _ = generating(part, model)
    rows, marker, sent = generating(part, model, calibrate="contextual")
    for before, after in zip(plain, rows, strict=True):
        assert after["uncalibrated_prediction"] == before["prediction"]
        assert json.loads(after["scores"]) == json.loads(before["scores"])
        chances = json.loads(after["calibrated_scores"])
        assert sum(chances.values()) == pytest.approx(1.0)
        assert after["prediction"] == max(TASK.labels, key=chances.get)
        assert before["calibrated_scores"] is before["uncalibrated_prediction"] is None
    assert any(row["prediction"] != row["uncalibrated_prediction"] for row in rows)
    # Lists of demonstrations: ab (twice, ranked ba), ba, ec and none.
    assert marker.stats["content_free_sets"] == 4
    assert len({text for text in sent if text.endswith("[MASK]\nAnswer:")}) == 4
    assert len(sent) == len(set(sent))


@pytest.fixture
def arm(tmp_path):
    project = Project(tmp_path)

    def _arm(**changes):
        project.config |= {"generate": {"decoder": "likelihood", "calibrate": "contextual"}}
        project.config |= changes
        return load(project.path).arms[0]

    return _arm


@pytest.mark.parametrize("decoder", ["choice", "generate"])
def test_decoders_without_label_probabilities_cannot_be_calibrated(arm, decoder):
    asked = arm(generate={"decoder": decoder, "calibrate": "contextual"})
    with pytest.raises(ConfigError, match=f"generate.decoder = {decoder} does not give"):
        check(asked)
    check(arm())


def test_no_content_free_inputs_are_no_calibration(arm):
    with pytest.raises(ConfigError, match=r"generate.content_free = \[\]"):
        arm(generate={"decoder": "likelihood", "calibrate": "contextual", "content_free": []})


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({}, 600),
        ({"stage2": {"method": "zero-shot"}}, 3),
        ({"stage2": {"method": "fixed"}}, 3),
        ({"stage2": {"method": "dual-div", "condition_on": "all"}}, 3),
        ({"prompt": {"layout": "clustered", "clusters": 5}}, 15),
        ({"generate": {"decoder": "likelihood"}}, 0),
    ],
)
def test_the_plan_counts_content_free_prompts_by_what_shares_demonstrations(arm, changes, n):
    one = arm(**changes)
    k = 0 if one.stage2.method == "zero-shot" else 4
    assert prompts_planned(one, 200, k=k) == n
