"""Which arms of a config make a line, through the config as a user writes it."""

import pytest
import yaml

from jobs.comparing.sweeps import sweeps_of
from jobs.config.load import load
from tests.jobs.metric_rows import summary_row


@pytest.fixture
def arms(tmp_path):
    def make(arms, grid=None, encoders=None):
        config = {
            "out": str(tmp_path / "out"),
            "corpus": {"path": "c.jsonl"},
            "queries": {"path": "q.jsonl"},
            "tasks": {"t": {"instruction": "Say.", "labels": ["x", "y"]}},
            "encoders": encoders or {"minilm": {"preset": "minilm"}},
            "engines": {"small": {"model": "m"}},
            "arms": arms,
            "grid": grid or {},
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return load(str(path)).arms

    return make


def found(arms, *, unscored=()):
    """Per setting, per line, (number, arm name)."""
    rows = []
    for arm in arms:
        score = None if arm.name in unscored else 0.5
        row = summary_row(arm.name, arm.task, arm.engine, arm.stage1.method, score, score)
        rows.append(row | {"score": score})
    return {
        sweep.setting: {
            name: [(x, row["arm"]) for x, row in line] for name, line in sweep.lines.items()
        }
        for sweep in sweeps_of(arms, rows)
    }


def test_a_grid_over_k_is_a_line_for_each_arm_by_rising_k(arms):
    made = arms([{"name": "knn"}, {"name": "mmr", "stage2": "mmr"}], {"stage2.k": [4, 1, 10]})
    assert found(made) == {
        "stage2.k": {
            name: [(1, f"{name}+k=1"), (4, f"{name}+k=4"), (10, f"{name}+k=10")]
            for name in ("knn", "mmr")
        }
    }


def test_a_grid_over_k_and_encoders_is_a_line_for_each_encoder(arms):
    encoders = {"minilm": {"preset": "minilm"}, "bge": {"preset": "bge-large"}}
    grid = {"encoder": ["minilm", "bge"], "stage2.k": [1, 2]}
    by_grid = found(arms([{"name": "a"}], grid, encoders))["stage2.k"]
    assert by_grid == {
        f"a+encoder={name}": [(k, f"a+encoder={name}+k={k}") for k in (1, 2)] for name in encoders
    }
    by_hand = [
        {"name": f"{name}-{k}", "encoder": name, "stage2": {"k": k}}
        for name in encoders
        for k in (1, 2)
    ]
    assert list(found(arms(by_hand, None, encoders))["stage2.k"]) == [
        *("dual-div+knn, minilm", "dual-div+knn, bge")
    ]


def test_two_numbers_in_a_grid_are_two_sweeps_with_the_other_number_in_the_name(arms):
    made = arms([{"name": "a"}], {"stage1.k1": [10, 20], "stage1.lambda": [0, 2.5]})
    sweeps = found(made)
    assert list(sweeps) == ["stage1.k1", "stage1.lambda"]
    assert sweeps["stage1.k1"]["a+lambda=2.5"] == [
        (10, "a+k1=10+lambda=2.5"),
        (20, "a+k1=20+lambda=2.5"),
    ]
    assert sorted(sweeps["stage1.lambda"]) == ["a+k1=10", "a+k1=20"]


def test_arms_that_differ_in_more_than_the_number_make_no_line(arms):
    made = arms([{"name": "a", "stage2": {"k": 1}}, {"name": "b", "stage2": {"k": 2}, "seed": 1}])
    assert found(made) == {}


def test_arms_named_by_hand_go_by_their_methods(arms):
    made = arms([{"name": f"n{k}", "stage2": {"method": "mmr", "k": k}} for k in (2, 3)])
    assert found(made) == {"stage2.k": {"dual-div+mmr, minilm": [(2, "n2"), (3, "n3")]}}


def test_lines_of_one_name_are_all_kept(arms):
    made = arms(
        [{"name": f"n{k}-{s}", "stage2": {"k": k}, "seed": s} for k in (2, 3) for s in (0, 1)]
    )
    lines = found(made)["stage2.k"]
    assert list(lines) == ["dual-div+knn, minilm", "dual-div+knn, minilm (n2-1 ...)"]
    assert [len(line) for line in lines.values()] == [2, 2]


def test_an_arm_without_a_score_is_no_point(arms):
    made = arms([{"name": "a"}], {"stage2.k": [1, 2, 3]})
    assert found(made, unscored=["a+k=2"])["stage2.k"]["a"] == [(1, "a+k=1"), (3, "a+k=3")]
    assert found(made, unscored=["a+k=2", "a+k=3"]) == {}


def test_a_lambda_that_is_no_number_is_no_point(arms):
    made = arms([{"name": "a"}], {"stage1.lambda": [1, "auto", 10]})
    assert [x for x, _ in found(made)["stage1.lambda"]["a"]] == [1, 10]
