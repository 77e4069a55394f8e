"""What the documents promise is there."""

import re
from pathlib import Path

import pytest

from jobs.cli import _parser
from jobs.config.load import load

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "tests" / "README.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", MAP)
REPORTS = [line for line in MAP.splitlines() if re.match(r"\| .*(#\d|HELM)", line)]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_the_map_names_exists(file, name):
    path = ROOT / "tests" / file
    path = path if path.exists() else ROOT / file
    assert path.exists()
    assert f"def {name}(" in path.read_text() if name else True


def test_every_report_on_the_map_has_a_test_by_name():
    assert len(REPORTS) == 41
    assert [line for line in REPORTS if not re.search(r"`[\w/]+\.py::test_\w+` \|$", line)] == []


def test_every_config_that_is_shipped_is_valid():
    paths = sorted((ROOT / "configs").glob("*.yaml"))
    assert paths
    for path in paths:
        assert load(str(path)).arms


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_verb_and_file_a_document_names_exists(document):
    text = (ROOT / document).read_text()
    known = _parser()._subparsers._group_actions[0].choices
    for verb in re.findall(r"^    dualdiv (\w+)", text, re.M):
        assert verb in known
    for path in re.findall(r"\]\(([\w./]+)\)", text):
        assert (ROOT / path).exists()
    for path in re.findall(r"`((?:jobs|selection|inference|tests|configs)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
