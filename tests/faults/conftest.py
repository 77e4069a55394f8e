"""One small cluster for all, and one run that nothing disturbed, to compare with."""

import pytest

from tests.faults.driving import Nodes, begin, ended, make_project, start
from tests.inference.tiny_models import tiny_bert, tiny_llama


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of an encoder and an LLM of some kilobytes."""
    root = tmp_path_factory.mktemp("models")
    return {
        "encoder": str(tiny_bert(root / "encoder")),
        "llm": str(tiny_llama(root / "llm")),
    }


@pytest.fixture(scope="session")
def _nodes():
    nodes = Nodes()
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture
def nodes(_nodes):
    """Two nodes of one CPU each, both alive."""
    _nodes.heal()
    return _nodes


@pytest.fixture(scope="session")
def calm(tmp_path_factory, models, _nodes):
    """The project after a run that nothing disturbed."""
    project = make_project(tmp_path_factory.mktemp("calm"), models)
    _nodes.heal()
    project.told = ended(start(project, "generate", _nodes))
    return project


@pytest.fixture
def begun(calm, tmp_path):
    """Makes a project that has all that the calm one has, without the folders named."""
    return lambda *without, root=tmp_path: begin(calm, root, without=without)
