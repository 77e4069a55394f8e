"""An object store inside this process, and stores on disk and in it that must behave the same."""

import uuid

import pytest

from jobs import lock
from jobs.files import client
from jobs.storage import Store

SECRET = "canary/7f3b+SECRET"


@pytest.fixture(scope="session")
def endpoint():
    """URL of a moto server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_environment(endpoint, monkeypatch):
    """What the user's environment says of the store."""
    monkeypatch.setenv("DUALDIV_STORAGE", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"key-{uuid.uuid4().hex}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    yield monkeypatch
    client._client.cache_clear()


@pytest.fixture
def s3(s3_environment):
    """The client that the code under test uses; hooks on it are gone after the test."""
    return client.client()


@pytest.fixture
def bucket(s3):
    """s3:// path of an empty bucket."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture
def s3_store(bucket):
    return Store(f"{bucket}/runs/one")


@pytest.fixture(params=["local", "s3"])
def store(request, tmp_path):
    """A store of each kind."""
    if request.param == "local":
        return Store(str(tmp_path / "runs" / "one"))
    return request.getfixturevalue("s3_store")


@pytest.fixture
def no_waiting(monkeypatch):
    """Waits between attempts are written down and not waited for."""
    waits = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    return waits


@pytest.fixture
def fast_beat(monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
