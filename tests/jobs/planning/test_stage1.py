"""Stage 1 is planned from sizes: its work grows as measured, and what is printed is counted."""

import json
from dataclasses import replace

import pytest
import yaml

from jobs.config.load import load
from jobs.config.stage1 import SelectConfig, Stage1Config
from jobs.errors import ConfigError
from jobs.planning.lines import lines_of
from jobs.planning.stage1 import FLOP_PER_CORE_SECOND, certificate_of, plan_settings, predict
from jobs.selecting.aim import Aim
from jobs.selecting.certificate import certificate_kind
from jobs.selecting.inputs import read_wishes
from jobs.selecting.sizes import Sizes
from selection.stage1 import STAGE1


def sized(n, k, *, dim=384, stage1=None, select=None, **more):
    return Sizes(
        n_rows=n,
        dim=dim,
        k=k,
        stage1=Stage1Config(**({"k1": k} | (stage1 or {}))),
        select=SelectConfig(**(select or {})),
        **more,
    )


def test_time_is_proportional_to_the_dimension():
    wide, narrow = (predict(sized(100_000, 300, dim=dim)) for dim in (768, 384))
    assert wide.work == narrow.work
    assert wide.core_seconds() == pytest.approx(2 * narrow.core_seconds())
    assert narrow.core_seconds(1e9) == pytest.approx(1e9 * 768 / FLOP_PER_CORE_SECOND)


def test_screened_work_grows_linearly_and_exact_work_with_the_square():
    def local(n, mode):
        effort = {"mode": mode, "m2": 65_536}
        return predict(sized(n, 300, stage1=effort)).work.local

    assert local(400_000, "screened") / local(200_000, "screened") == pytest.approx(2, rel=0.15)
    assert local(400_000, "exact") / local(200_000, "exact") == pytest.approx(4, rel=0.01)


def test_a_million_rows_take_what_the_prototype_took():
    stage1 = {"mode": "screened", "m2": 131_072}
    plan = predict(sized(1_000_000, 1000, storage="float16", stage1=stage1))
    flop = 2 * 384 * plan.work.total
    assert 0.5 < flop / (251 * 460e9) < 1.2


def test_dense_takes_less_than_exact_and_more_than_its_products():
    dense, exact = (predict(sized(10_000, 100, stage1={"mode": m})) for m in ("dense", "exact"))
    assert 10_000**2 / 2 < dense.work.local < exact.work.local


def test_a_budget_runs_both_greedies():
    plain = predict(sized(100_000, 100))
    priced = predict(sized(100_000, 100, stage1={"budget": 5.0}))
    assert priced.work.local == 2 * plain.work.local


def test_the_random_candidates_are_merged_as_well():
    alone, split = (predict(sized(100_000, 100, n_partitions=p)).work for p in (1, 8))
    assert alone.control == 0
    assert split.control == split.merging > 0
    assert predict(sized(100_000, 100, stage1={"method": "random"})).work.merging == 0


def test_methods_with_a_rule_of_their_own_are_planned_by_what_they_look_at():
    def work(method, n, k, **more):
        return predict(sized(n, k, stage1={"method": method}, **more)).work

    for method, grows in (("kcenter", 2), ("kmeans", 2), ("vote-k", 4)):
        small, large = (work(method, n, 50, n_partitions=8).local for n in (40_000, 80_000))
        assert large / small == pytest.approx(grows, rel=0.1)
        assert work(method, 40_000, 50).control == 0
        split = work(method, 40_000, 50, n_partitions=8)
        assert split.control > 0
        assert split.certificate == 0
    # Beyond so many rows, voters are drawn.
    many = [work("vote-k", n, 50).local for n in (10**5, 2 * 10**5)]
    assert many[1] / many[0] == pytest.approx(2, rel=0.01)
    lines = lines_of("x", predict(sized(10**5, 100, stage1={"method": "kmeans"})))
    assert "certificate" not in lines[-1]


def test_a_full_certificate_costs_all_pairs_whether_asked_for_or_not():
    for certificate, cost in (("full", 1e10), ("sampled", 8192e5), ("none", 0)):
        work = predict(sized(100_000, 100, stage1={"certificate": certificate})).work
        assert (work.certificate, work.full) == (cost, 1e10)


@pytest.mark.parametrize("n", [1000, 20_000, 100_000])
@pytest.mark.parametrize("parts", [1, 8])
@pytest.mark.parametrize("certificate", ["auto", "full", "sampled", "none"])
@pytest.mark.parametrize("method", STAGE1)
def test_the_certificate_planned_for_is_the_one_a_run_makes(n, parts, certificate, method):
    sizes = sized(n, 10, n_partitions=parts)
    config = Stage1Config(k1=10, certificate=certificate, method=method)
    aim = Aim(
        config=config,
        seed=0,
        storage="float32",
        memory_bytes=sizes.declared,
        n_rows=n,
        weight=float(n),
        n_partitions=parts,
        k=10,
        local_k=10,
        wishes=read_wishes(config, encoder_id="e"),
    )
    made = certificate_kind(aim) or "none"
    if made == "sampled" and config.m1 >= n:  # the sample would be all rows
        made = "full"
    assert certificate_of(replace(sizes, stage1=config)) == made


def test_a_sample_that_the_last_merge_was_told_to_judge_on_is_held_and_saves_work():
    def last(ground):
        select = {"merge_ground": ground, "sample": 20_000}
        return predict(sized(100_000, 100, n_partitions=8, select=select))

    whole, sample = last("all"), last("sample")
    assert whole.root.mode == sample.root.mode == "exact"
    assert sample.work.merging == pytest.approx(whole.work.merging / 5)
    assert sample.work.control == pytest.approx(whole.work.control / 5)
    assert sample.memory.judging - whole.memory.judging == 20_000 * (384 * 4 + 12 + 8)
    assert lines_of("x", whole)[1].endswith("exact")
    assert lines_of("x", sample)[1].endswith("exact, judged on 20,000")


def test_seconds_use_no_more_cores_than_there_is_work_for():
    one = predict(sized(100_000, 100))
    assert one.seconds(2) == one.core_seconds()
    many = predict(sized(100_000, 100, n_partitions=8, n_workers=2))
    assert many.seconds(2) == many.core_seconds() / 2


def test_disk_counts_mapped_vectors_once_and_answers_with_their_controls():
    plan = predict(sized(100_000, 100, n_partitions=8, storage="float16", text_bytes=112.0))
    assert plan.scratch_bytes == 100_000 * 768
    assert plan.output_bytes == (8 * 200 + 100) * 1000


def test_the_lines_of_a_hundred_million_rows_name_partitions_levels_and_memory():
    plan = predict(sized(10**8, 1000, n_partitions=4096, n_workers=64, storage="float16"))
    lines = lines_of("dual-div (a)", plan)
    assert lines[0] == (
        "dual-div (a): 1,000 of 100,000,000 rows in 4,096 partitions of about 24,415; exact"
    )
    assert lines[1] == (
        "  merged in 2 levels: 4,096 x 1,000 -> 16 x 1,000 -> 1,000; the last of 16,000, screened "
        "on 8,192, judged on 131,072"
    )
    assert "of 2,048 MiB declared; at least 3 workers" in lines[2]
    assert "full would take 1,481.5 days more" in lines[4]
    assert max(map(len, lines)) < 160


def test_a_budget_without_k1_says_what_it_was_planned_for():
    plan = predict(sized(50_000, 10_000, stage1={"k1": None, "budget": 7.0}))
    assert "as many as the budget buys (planned for 10,000)" in lines_of("x", plan)[0]


def test_all_numbers_are_plain_data():
    plan = predict(sized(10**6, 1000, n_partitions=64))
    answer = json.loads(json.dumps(plan.as_dict()))
    assert answer["levels"][-1]["k"] == 1000
    assert answer["memory_bytes"]["worker"] == plan.memory.worker
    assert answer["core_seconds"] == pytest.approx(plan.core_seconds())


@pytest.fixture
def config(tmp_path):
    """A config with four arms, three of them with a Stage 1, on one encoder."""
    plain = {
        "out": str(tmp_path / "out"),
        "corpus": {"path": "c.jsonl", "partition": {"count": 8}},
        "queries": {"path": "q.jsonl"},
        "tasks": {"t": {"instruction": "?", "labels": ["a", "b"]}},
        "encoders": {"mini": {"model": "nowhere", "storage": "float16"}},
        "engines": {"e": {"model": "nowhere"}},
        "arms": [
            {"name": "a", "stage2": "knn"},
            {"name": "b", "stage2": "zero-shot"},
            {"name": "c", "stage1": "coverage", "stage2": "knn"},
            {"name": "d", "stage1": "none", "stage2": "zero-shot"},
        ],
        "cluster": {"address": "auto"},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(plain))
    return lambda *changes: load(str(path), settings=changes)


def planned(config, rows, partitions=8):
    tables = {"corpus": {"rows": rows, "partitions": partitions, "characters_mean": 100.0}}
    return plan_settings(config, tables, {"mini": {"dimension": 384}})


def test_arms_share_a_setting_and_those_without_stage_1_have_none(config):
    plans = planned(config(), 100_000)
    assert list(plans) == ["dual-div (a, b)", "coverage (c)"]
    assert all(plan.sizes.storage == "float16" for plan in plans.values())


def test_a_cluster_that_is_not_looked_at_gets_as_few_workers_as_will_do(config):
    plans = planned(config(), 10**8, 4096)
    assert {plan.sizes.n_workers for plan in plans.values()} == {3}


def test_plan_refuses_what_no_worker_holds(config):
    with pytest.raises(ConfigError, match=r"Set corpus\.partition\.count to 16 \(now 8\)"):
        planned(config("select.memory_per_worker=48MiB"), 300_000)
