"""An object store that refuses and cuts connections; locks in it, of live and of dead runs."""

import time
import uuid

import botocore.session
import pytest
from botocore.config import Config

from tests.faults.driving import PATIENCE_S, candidates, ended, kill, reason, shown, start, vectors
from tests.jobs.conftest import Project

pytestmark = pytest.mark.ray


class Bucket:
    """Looks into the object store past the proxy."""

    def __init__(self, upstream, name):
        self.name = name
        self._client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url="http://{}:{}".format(*upstream),
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(s3={"addressing_style": "path"}),
        )
        self._client.create_bucket(Bucket=name)

    def put(self, path, key):
        self._client.put_object(Bucket=self.name, Key=key, Body=path.read_bytes())

    def names(self):
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def wait_for(self, ending, child):
        """Wait until there is a key with this ending, while the run goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(key.endswith(ending) for key in self.names()):
            assert child.poll() is None, f"ended before {ending}:\n{child.communicate()[0]}"
            assert time.monotonic() < deadline, f"{ending}: never"
            time.sleep(0.02)

    def fetch(self, prefix, folder):
        """Copy all keys below a prefix to disk."""
        for key in self.names():
            if key.startswith(prefix):
                path = folder / key.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._client.get_object(Bucket=self.name, Key=key)["Body"].read())


@pytest.fixture
def bucket(object_store):
    return Bucket(object_store.upstream, f"b-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def far(calm, bucket, tmp_path):
    """The project of the calm run with everything in the object store."""
    project = Project(tmp_path)
    root = f"s3://{bucket.name}"
    bucket.put(calm.root / "corpus" / "a.jsonl", "corpus/a.jsonl")
    bucket.put(calm.root / "queries.jsonl", "queries.jsonl")
    project.config = calm.config | {
        "out": f"{root}/out",
        "corpus": calm.config["corpus"] | {"path": f"{root}/corpus"},
        "queries": calm.config["queries"] | {"path": f"{root}/queries.jsonl"},
    }
    return project


def test_a_store_that_refuses_a_third_and_cuts_connections_changes_no_result(
    nodes, calm, far, bucket, object_store
):
    object_store.seen.clear()
    object_store.disturb(refuse=0.3, cut=0.05, tear=0.05)
    try:
        ended(start(far, "assemble", nodes))
    finally:
        object_store.disturb()
    seen = dict(object_store.seen)
    total = sum(seen.values())
    assert 0.2 * total < seen["refused"] < 0.4 * total
    assert min(seen["cut"], seen["torn"]) > 0
    bucket.fetch("out/", far.out)
    assert not [key for key in bucket.names() if key.endswith("run.lock")]
    assert vectors(far) == vectors(calm)
    assert candidates(far) == candidates(calm)
    assert shown(far) == shown(calm)


def test_a_store_that_always_refuses_ends_the_run_with_4_and_the_path(
    nodes, far, bucket, object_store
):
    far.config["storage"] = {"attempts": 3}
    object_store.disturb(refuse=1.0)
    try:
        told = ended(start(far, "ingest", nodes), code=4)
    finally:
        object_store.disturb()
    last = reason(told)
    assert last.startswith("ClusterError: "), told
    assert f"s3://{bucket.name}" in last
    assert "503" in last or "SlowDown" in last


def test_the_lock_of_a_dead_run_is_taken_over_by_one_of_two_and_the_other_is_refused(
    nodes, calm, far, bucket
):
    child = start(far, "embed", nodes)
    bucket.wait_for("/part.done.json", child)
    kill(child)
    assert "out/run.lock" in bucket.names()
    both = [start(far, "embed", nodes) for _ in range(2)]
    told = [one.communicate(timeout=PATIENCE_S)[0] for one in both]
    codes = [one.returncode for one in both]
    assert sorted(codes) == [0, 4], told
    winner, loser = codes.index(0), codes.index(4)
    assert f"(pid {child.pid}), which is dead" in told[winner]
    refusal = reason(told[loser])
    assert f"(pid {both[winner].pid} on" in refusal, told[loser]
    assert "out/run.lock" not in bucket.names()
    bucket.fetch("out/", far.out)
    assert vectors(far) == vectors(calm)
