"""Night by night: batches that build upon each other, reruns, expiry, and the pool they make."""

import functools
import json
import random

import pytest

from inference.engine import VllmEngine
from jobs import embed, generate, select
from jobs.checks import check_config
from jobs.cli import main
from jobs.config.load import load
from jobs.generate import GenerateWork
from jobs.nights import nightly
from jobs.orders.study import studied
from jobs.planning.calibrate import sample_of
from tests.jobs.nights.night_shift import NightShift, right_label, text_of
from tests.jobs.test_generate import FakeLlm


@pytest.fixture
def shift(tmp_path, monkeypatch):
    return NightShift(tmp_path, monkeypatch)


def texts(n, seed):
    rng = random.Random(seed)
    return list(dict.fromkeys(text_of(rng) for _ in range(3 * n)))[:n]


def ids(batch):
    return [row["id"] for row in batch]


def killed(*_, **__):
    raise KeyboardInterrupt


def answered(rows):
    return [{**row, "label": right_label(row["input"])} for row in rows]


def test_a_killed_night_is_made_once_and_no_twin_of_it_is_proposed_on_the_next(shift, monkeypatch):
    shift.arrive(texts(40, 0), night=1)

    with monkeypatch.context() as patch:
        patch.setattr(nightly, "batch_table", killed)
        assert shift.run_code("annotate") == 130
    assert shift.batches() == []
    (chosen,) = shift.out.glob("candidates/*/candidates.parquet")
    written = chosen.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(nightly, "night_line", killed)
        assert shift.run_code("annotate") == 130
    (first,) = before = shift.batches()
    assert len(first) == 8
    assert chosen.stat().st_mtime_ns == written
    assert shift.night()["result"] == "done"
    again = shift.night()
    assert (again["result"], again["night"]["new"]) == ("nothing_new", False)
    assert shift.batches() == before

    # The words of each in another order: another text with the same vector.
    twins = [" ".join(reversed(row["input"].split())) for row in first]
    assert set(twins).isdisjoint(row["input"] for row in first)
    new = shift.arrive([*twins, *texts(20, 1)], night=2)
    facts = shift.night()["night"]
    assert (facts["number"], facts["given"], facts["new_rows"]) == (2, 8, len(new))
    second = shift.batches()[1]
    assert set(ids(second)).isdisjoint([*ids(first), *new[: len(twins)]])
    assert max(row["nearest_given"] for row in second) < 0.99
    assert {row["expires"] for row in second} == {2 + 4 + 1}

    (shift.out / "batches/0001/candidates.done.json").unlink()
    assert shift.run_code("annotate") == 3


def test_what_was_chosen_last_can_be_exported_after_a_run_that_was_killed(
    shift, monkeypatch, capsys
):
    shift.config["annotate"]["nightly"] = False
    shift.arrive(texts(20, 0), night=1)
    assert shift.run_code("select") == 0
    chosen = ids(shift.export())
    shift.arrive(texts(20, 1), night=2)

    with monkeypatch.context() as patch:
        patch.setattr(embed, "finish", killed)
        assert shift.run_code("select") == 130
    assert ids(shift.export()) == chosen
    capsys.readouterr()
    assert main(["export", str(shift.out), "--suggest", "--to", str(shift.root / "s.csv")]) == 3
    assert "the last run ended in between" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(select, "_select", killed)
        assert shift.run_code("select") == 130
    assert ids(shift.export()) == chosen


def test_labels_make_a_night_expiry_brings_rows_back_and_what_is_gone_stays_in_the_pool(shift):
    shift.config["annotate"]["expire_nights"] = 1
    shift.arrive(texts(12, 0), night=1)
    shift.night("assemble")
    first = shift.export()
    late, quick, lost = first[:3], first[3:6], first[6:]
    shift.bring_back("one", answered(quick))
    facts = shift.night()["night"]
    assert (facts["new_rows"], facts["new_labels"], facts["n_expired"]) == (0, 3, 0)
    assert (facts["annotated"], facts["pending"], facts["n_candidates"]) == (3, 5, 4)
    assert {row["id"] for row in shift.pool()} == {row["id"] for row in quick}

    # The file of the first night is gone; one of its texts comes back with a label none the less.
    (shift.root / "corpus" / "0001.jsonl").unlink()
    shift.arrive(texts(4, 9), night=3)
    shift.bring_back("two", answered(late))
    facts = shift.night("assemble")["night"]
    assert (facts["gone_rows"], facts["new_labels"], facts["n_expired"]) == (12, 3, 2)
    assert {row["id"] for row in shift.pool()} == {row["id"] for row in [*quick, *late]}

    shift.rows = []
    shift.arrive([row["input"] for row in lost], night=4)
    path = shift.root / "corpus" / "0004.jsonl"
    for number, row in enumerate(lost):
        path.write_text(path.read_text().replace(f'"n04-{number}"', f'"{row["id"]}"'))
    facts = shift.night()["night"]
    assert facts["n_returned"] == len(lost) == 2
    back = {row["id"]: row["times_proposed"] for row in shift.batches()[3]}
    assert {row["id"]: back[row["id"]] for row in lost} == dict.fromkeys(ids(lost), 2)


def test_white_space_around_the_id_of_a_text_that_is_gone_is_no_matter(shift):
    shift.arrive(texts(12, 0), night=1)
    path = shift.root / "corpus" / "0001.jsonl"
    path.write_text(path.read_text().replace('"n01-1', '" n01-1'))
    shift.night()
    first = shift.export()
    assert {row["id"][0] for row in first} == {" ", "n"}
    shift.arrive(texts(12, 1), night=2)
    path.unlink()
    shift.night()
    back = [{**row, "id": f"{row['id']} ".lstrip()} for row in answered(first)]
    shift.bring_back("one", back)
    shift.night()
    assert {row["id"] for row in shift.pool()} == set(ids(first))


def test_a_night_tells_new_rows_and_labels_from_columns_and_retired_ones(shift):
    shift.arrive(texts(12, 0), night=1, source="web")
    shift.night()
    assert main(["pool", "retire", str(shift.out), ids(shift.batches()[0])[0]]) == 0
    shift.config["corpus"]["columns"]["keep"] = ["source"]
    shift.arrive(texts(5, 1), night=2, source="web")
    facts = shift.night()["night"]
    assert (facts["new_rows"], facts["gone_rows"], facts["new_labels"]) == (5, 0, 0)


def test_the_page_is_made_before_the_first_label_comes_and_after(shift, monkeypatch):
    def start(spec):
        return VllmEngine(spec, start=lambda _: FakeLlm(), start_pause_s=0.0)

    monkeypatch.setattr(generate, "GenerateWork", functools.partial(GenerateWork, start=start))
    shift.config |= {
        "generate": {"decoder": "generate"},
        "report": {"map_rows": 0},
        "arms": [
            {"name": "zero-shot", "stage1": "none", "stage2": "zero-shot"},
            {"name": "main"},
            {"name": "anchored", "prompt": {"layout": "anchor"}},
        ],
    }
    shift.arrive(texts(20, 0), night=1)
    assert shift.night("report")["pool"]["rows"] == 0
    shift.bring_back("one", answered(shift.export()))
    assert shift.night("report")["pool"]["rows"] == 8


def test_records_whose_rows_are_gone_are_compared_by_what_was_sent(shift, capsys):
    one, *others = texts(3, 0)
    shift.arrive([one, " ".join(reversed(one.split())), *others], night=1)
    shift.night()
    shift.bring_back("one", answered(shift.export()))
    (shift.root / "corpus" / "0001.jsonl").unlink()
    shift.arrive(texts(4, 1), night=2)
    shift.night()
    capsys.readouterr()
    assert main(["pool", "check", str(shift.out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    near = [(f["id"], f["other"]) for f in found if f["check"] == "near_duplicate_cosine"]
    assert near == [("n01-0", "n01-1")]


def test_a_night_keeps_to_its_budget_and_to_what_may_be_out(shift):
    shift.config["corpus"]["columns"]["cost"] = "cost"
    shift.config["stage1"] = {"k1": None, "budget": 7, "lambda": 0.001, "lambda_scale": "mean"}
    shift.config["annotate"]["max_pending"] = 6
    shift.arrive(texts(30, 0), night=1, cost=2.0)
    shift.night()
    assert len(shift.batches()[0]) == 3
    shift.arrive(texts(10, 5), night=2, cost=1.0)
    shift.night()
    assert len(shift.batches()[1]) == 3
    shift.arrive(texts(10, 6), night=3, cost=1.0)
    facts = shift.night()["night"]
    assert (facts["n_candidates"], facts["pending"]) == (0, 6)
    assert "annotate.max_pending = 6" in facts["reason"]
    assert shift.night()["result"] == "nothing_new"
    retired = ids(shift.batches()[0])[0]
    assert main(["pool", "retire", str(shift.out), retired]) == 0
    facts = shift.night()["night"]
    assert (facts["n_candidates"], facts["retired"], facts["given"]) == (1, 1, 5)
    assert retired not in ids(shift.batches()[3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arms": [{"name": "a"}, {"name": "b", "stage1": "coverage"}]}, "found 2 Stage 1"),
        ({"arms": [{"name": "a", "stage1": "none", "stage2": "zero-shot"}]}, "found 0 Stage 1"),
        ({}, "--limit 5 does not go with"),
        ({"report": {"folds_of": "selection"}}, "report.folds_of = selection does not go with"),
    ],
)
def test_what_is_no_night_is_refused(shift, change, words, capsys):
    shift.arrive(texts(10, 0), night=1)
    shift.config |= change
    options = [] if change else ["--limit", "5"]
    assert shift.run_code("select", *options) == 2
    assert words in capsys.readouterr().err
    assert not (shift.out / "batches").exists()


def test_a_plan_is_calibrated_on_a_sample_that_is_no_night_and_asks_no_further_orders(shift):
    shift.arrive(texts(10, 0), night=1)
    shift.config["report"] = {"orders": {"queries": 5}}
    sample = sample_of(load(shift.path), 4)
    check_config(sample, until="select")
    assert (sample.limit, sample.file.annotate.nightly, studied(sample)) == (4, False, [])
