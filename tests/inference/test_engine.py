import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine import Completion, EngineError, EngineSpec, RowError, Sampling, VllmEngine
from inference.status import Status
from inference.vllm_engine import arguments, cpu_dtype
from tests.inference.llm_fakes import Factory

SPEC = EngineSpec("fake", max_model_len=64)


def engine(rule=lambda text, sampling: text.upper(), spec=SPEC, **factory):
    start = Factory(rule, **factory)
    return VllmEngine(spec, start=start, start_pause_s=0.0), start


def dies_on(*poison):
    def rule(text, sampling):
        if any(word in text for word in poison):
            raise ConnectionError("engine core died")
        return text.upper()

    return rule


def test_completions_come_back_in_the_order_of_the_prompts():
    running, start = engine()
    prompts = ["b2", "a", "b1", "c", "a"]
    assert [c.text for c in running.generate(prompts, Sampling())] == ["B2", "A", "B1", "C", "A"]
    assert start.started[0].batches == [["a", "a", "b1", "b2", "c"]]


def test_prompts_are_sent_so_that_shared_prefixes_meet():
    running, start = engine()
    running.generate(["xx1", "yy1", "xx2", "yy2"], Sampling())
    assert start.started[0].batches == [["xx1", "xx2", "yy1", "yy2"]]


def test_every_prompt_keeps_its_own_sampling():
    running, _ = engine(lambda text, sampling: f"{text}{sampling.max_tokens}")
    each = [Sampling(max_tokens=n) for n in (3, 1, 2)]
    texts = [c.text for c in running.generate(["c", "a", "b"], each)]
    assert texts == ["c3", "a1", "b2"]


def test_an_unequal_number_of_samplings_is_refused():
    running, _ = engine()
    with pytest.raises(ValueError, match="2 prompts but 1 samplings"):
        running.generate(["a", "b"], [Sampling()])


def test_no_prompts_give_no_completions():
    running, start = engine()
    assert running.generate([], Sampling()) == []
    assert start.started[0].batches == []


def test_one_over_long_prompt_is_labelled_and_the_others_complete():
    running, start = engine()
    prompts = [f"row {i}" for i in range(999)]
    prompts.insert(500, "x" * 49)
    done = running.generate(prompts, Sampling(max_tokens=16))
    assert [i for i, c in enumerate(done) if c.status is not Status.OK] == [500]
    assert done[500].status is Status.TOO_LONG
    assert done[500].detail == "49 prompt + 16 answer tokens > max_model_len 64"
    assert done[500].prompt_tokens == 49
    assert len(start.started) == 1


def test_a_prompt_that_just_fits_is_sent():
    running, _ = engine()
    assert running.generate(["x" * 48], Sampling(max_tokens=16))[0].status is Status.OK


def test_an_answer_without_text_is_empty_output_and_keeps_its_finish_reason():
    running, _ = engine(lambda text, sampling: Completion(" \n", "stop", 3, 0, 1))
    (done,) = running.generate(["a"], Sampling())
    assert (done.status, done.finish_reason, done.text) == (Status.EMPTY_OUTPUT, "stop", " \n")


def test_a_scored_prompt_needs_no_text():
    running, _ = engine(lambda text, sampling: Completion("", "length", logprobs=({1: -0.5},)))
    assert running.generate(["a"], Sampling())[0].status is Status.OK


def test_a_poison_row_is_found_given_up_after_two_tries_and_costs_nobody_else():
    running, start = engine(dies_on("poison"))
    prompts = [f"row {i:02}" for i in range(64)]
    prompts[17] = "poison"
    done = running.generate(prompts, Sampling())
    assert [i for i, c in enumerate(done) if c.status is not Status.OK] == [17]
    assert done[17].status is Status.ENGINE_CRASH
    assert "engine core died" in done[17].detail
    alone = [llm for llm in start.started if llm.batches and llm.batches[-1] == ["poison"]]
    assert len(alone) == 2
    assert running.n_rebuilds <= math.log2(64) + 2


def test_a_dead_engine_is_closed_and_never_used_again():
    running, start = engine(dies_on("poison"))
    running.generate(["a", "poison", "b"], Sampling())
    assert [llm.closed for llm in start.started] == [llm.dead for llm in start.started]


@given(
    st.lists(st.sampled_from(["ok", "poison", "long" + "x" * 60, ""]), max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_every_row_leaves_exactly_once_with_its_own_status(kinds):
    wanted = {"o": Status.OK, "p": Status.ENGINE_CRASH, "l": Status.TOO_LONG, "": Status.OK}
    running, _ = engine(lambda text, sampling: dies_on("poison")(text, sampling) or "empty")
    done = running.generate(kinds, Sampling())
    assert [c.status for c in done] == [wanted[kind[:1]] for kind in kinds]


def test_a_crash_that_does_not_come_back_loses_no_row():
    seen = []

    def once(text, sampling):
        seen.append(text)
        if seen.count("b") == 1 and text == "b":
            raise ConnectionError("a passing fault")
        return text.upper()

    running, _ = engine(once)
    assert [c.text for c in running.generate(["a", "b", "c"], Sampling())] == ["A", "B", "C"]
    assert running.n_rebuilds == 1


def test_a_refused_prompt_is_labelled_without_a_rebuild():
    def refuses(text, sampling):
        if text == "bad":
            raise RowError("unknown choice")
        return text.upper()

    running, start = engine(refuses)
    done = running.generate(["a", "bad", "b", "c"], Sampling())
    assert [c.status for c in done] == [Status.OK, Status.REJECTED, Status.OK, Status.OK]
    assert done[1].detail == "unknown choice"
    assert len(start.started) == 1
    assert running.n_rebuilds == 0


def test_an_engine_forgets_its_prefixes_or_is_started_anew():
    running, start = engine()
    running.forget()
    running.generate(["a"], Sampling())
    assert (start.n_calls, start.started[0].n_forgotten) == (1, 1)

    def cannot():
        raise RuntimeError("requests are running")

    start.started[0].forget = cannot
    running.forget()
    assert start.started[0].closed
    assert running.generate(["a"], Sampling())[0].text == "A"
    assert start.n_calls == 2


def test_a_row_of_many_prompts_is_given_up_as_one():
    running, start = engine(dies_on("poison"))
    rows = [i // 10 for i in range(30)]
    ids = [
        start.tokenizer(f"{'poison' if r == 1 else 'row'} {r} {i}")["input_ids"]
        for i, r in enumerate(rows)
    ]
    done = running.generate_ids(ids, Sampling(), rows=rows)
    assert [c.status is Status.ENGINE_CRASH for c in done] == [row == 1 for row in rows]
    assert running.n_rebuilds <= math.log2(30) + 3


def test_an_engine_that_dies_on_everything_ends_soon_with_a_clear_error():
    running, start = engine(dies_on(""))
    with pytest.raises(EngineError, match=r"died on 5 rows in turn.*not the rows"):
        running.generate([f"row {i}" for i in range(100)], Sampling())
    assert len(start.started) < 30


def test_an_engine_that_dies_on_every_row_but_a_harmless_one_ends_too():
    running, start = engine(dies_on("row"))
    with pytest.raises(EngineError, match=r"died on 50 rows in turn"):
        running.generate([f"row {i}" for i in range(100)], Sampling())
    assert len(start.started) < 300


def test_poison_rows_that_stand_together_are_no_engine_fault():
    running, _ = engine(dies_on("poison"))
    prompts = [f"poison {i}" for i in range(12)] + [f"row {i}" for i in range(12)]
    done = running.generate(prompts, Sampling())
    assert [c.status for c in done] == [Status.ENGINE_CRASH] * 12 + [Status.OK] * 12


def test_many_poison_rows_among_good_ones_are_no_engine_fault():
    running, _ = engine(dies_on("poison"))
    prompts = [f"{i:03} {'poison' if i % 2 else 'ok'}" for i in range(120)]
    done = running.generate(prompts, Sampling())
    assert sum(c.status is Status.ENGINE_CRASH for c in done) == 60


def test_a_start_that_fails_twice_is_tried_a_third_time():
    _, start = engine(failures=(1, 2))
    assert start.n_calls == 3


def test_a_start_that_keeps_failing_is_an_error_that_names_model_and_cause():
    with pytest.raises(EngineError, match=r"model fake: .*failed to start 3 times.*start 3"):
        engine(failures=(1, 2, 3))


def test_a_failing_rebuild_is_bounded_too():
    start = Factory(dies_on("poison"), failures=(2, 3, 4))
    running = VllmEngine(SPEC, start=start, start_pause_s=0.0)
    with pytest.raises(EngineError, match="failed to start 3 times"):
        running.generate(["a", "poison"], Sampling())
    assert start.n_calls == 4


def test_too_few_completions_count_as_a_dead_engine():
    running, start = engine()
    start.started[0].generate = lambda ids, sampling: []
    assert [c.text for c in running.generate(["a", "b"], Sampling())] == ["A", "B"]
    assert running.n_rebuilds == 1


def test_a_closed_engine_starts_again_when_asked():
    running, start = engine()
    running.close()
    assert running.generate(["a"], Sampling())[0].text == "A"
    assert len(start.started) == 2


def test_what_the_spec_sets_wins_over_the_defaults_of_the_device():
    spec = EngineSpec("m", dtype="float16", block_size=64, extra={"seed": 7, "max_num_seqs": 3})
    for gpu in (False, True):
        chosen = arguments(spec, gpu=gpu)
        assert (chosen["dtype"], chosen["block_size"]) == ("float16", 64)
        assert (chosen["seed"], chosen["max_num_seqs"]) == (7, 3)


def test_cpu_and_gpu_have_their_own_defaults():
    cpu, gpu = (arguments(EngineSpec("m"), gpu=gpu) for gpu in (False, True))
    assert cpu["block_size"] % 32 == 0
    assert cpu["enforce_eager"]
    assert not gpu["enforce_eager"]
    assert gpu["dtype"] == "auto"
    assert "kv_cache_memory_bytes" not in gpu
    assert "gpu_memory_utilization" not in cpu
    assert not cpu["disable_log_stats"]


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("fma avx2", "float32"),
        ("avx2 avx512f avx512_bf16", "bfloat16"),
        ("amx_bf16", "bfloat16"),
        ("fp asimd bf16", "bfloat16"),
    ],
)
def test_a_cpu_without_bfloat16_arithmetic_gets_float32(tmp_path, flags, dtype):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
    assert cpu_dtype(str(tmp_path / "cpuinfo")) == dtype


def test_a_machine_without_cpuinfo_gets_float32(tmp_path):
    assert cpu_dtype(str(tmp_path / "absent")) == "float32"


def test_a_model_folder_that_does_not_exist_is_named_at_once(tmp_path):
    pytest.importorskip("vllm")
    with pytest.raises(EngineError, match=r"absent: there is no such model folder"):
        VllmEngine(EngineSpec(str(tmp_path / "absent")), start_pause_s=60.0)
