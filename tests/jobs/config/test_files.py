"""A config that builds on others."""

import pytest

from jobs.config.files import read_config
from jobs.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    def _write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return _write


def test_a_file_wins_over_its_bases_and_a_later_base_over_an_earlier(write):
    write("a.yaml", "seed: 1\nstage2: {k: 1, method: knn}\narms: [{name: x}, {name: y}]")
    write("parts/b.yaml", "seed: 2\nstage2: {k: 2}\nout: there")
    path = write("c.yaml", "base: [a.yaml, parts/b.yaml]\nstage2: {k: 3}\narms: [{name: z}]")
    assert read_config(path) == {
        "seed": 2,
        "stage2": {"k": 3, "method": "knn"},
        "arms": [{"name": "z"}],
        "out": "there",
    }


def test_a_base_may_have_one_and_is_looked_for_beside_the_file_that_names_it(write):
    write("parts/b.yaml", "base: deeper.yaml\nseed: 2")
    write("parts/deeper.yaml", "seed: 1\nout: there")
    assert read_config(write("c.yaml", "base: parts/b.yaml")) == {"seed": 2, "out": "there"}


def test_a_null_replaces_and_removes_nothing(write):
    write("a.yaml", "stage1: {k1: 5, budget: 3}")
    path = write("c.yaml", "base: a.yaml\nstage1: {k1: null}")
    assert read_config(path) == {"stage1": {"k1": None, "budget": 3}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base: nowhere.yaml", r"c\.yaml -> .*nowhere\.yaml: no such config file"),
        ("base: c.yaml", "these files are based on each other"),
        ("base: back.yaml", r"c\.yaml -> .*back\.yaml -> .*c\.yaml: these files are based"),
        ("base: {file: a.yaml}", r"base = \{'file': 'a\.yaml'\}; wanted a config file or a list"),
        ("base: [1]", r"base = \[1\]; wanted"),
        ("base: list.yaml", r"list\.yaml: found list, wanted a mapping"),
        ("seed: 1\nseed: 2", "key 'seed' stands twice"),
    ],
)
def test_a_base_that_cannot_be_is_an_error_that_names_it(write, text, said):
    write("back.yaml", "base: c.yaml")
    write("list.yaml", "[1]")
    with pytest.raises(ConfigError, match=said):
        read_config(write("c.yaml", text))
