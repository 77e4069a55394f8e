"""One small cluster for all, and one run that nothing disturbed, to compare with."""

import os

import pytest

from tests.faults.driving import Nodes, begin, ended, make_project, start, stop_all
from tests.faults.flaky_proxy import FlakyProxy
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
def object_store():
    """An S3 server behind a proxy that can disturb it, named in the environment of every node."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with FlakyProxy(server.get_host_and_port()) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "AWS_ENDPOINT_URL", proxy.url)
        patch.setitem(os.environ, "AWS_ACCESS_KEY_ID", "key")
        patch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "secret")
        yield proxy
    server.stop()


@pytest.fixture(scope="session")
def _nodes(object_store):
    nodes = Nodes()
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture
def nodes(_nodes):
    """Two nodes of one CPU each, both alive."""
    _nodes.heal()
    yield _nodes
    stop_all()


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
