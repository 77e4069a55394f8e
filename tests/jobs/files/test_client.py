import errno
import traceback

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
)

from jobs.config.load import load
from jobs.config.storage import StorageConfig, current, use, worker_variables
from jobs.errors import ClusterError, ConfigError, DataError
from jobs.files import client
from jobs.files.client import tried
from jobs.files.places import StorageUnreachable
from jobs.files.streams import Upload
from jobs.ledger import Ledger, Unit
from jobs.storage import Store
from tests.jobs.files.conftest import SECRET
from tests.jobs.files.fault_hooks import Refusals


def refusal(status, code):
    facts = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(facts, "GetObject")


TRANSIENT = [
    refusal(503, "SlowDown"),
    refusal(500, "InternalError"),
    refusal(429, "whatever"),
    refusal(400, "RequestTimeout"),
    refusal(409, "ConditionalRequestConflict"),
    ConnectionResetError("cut"),
    EndpointConnectionError(endpoint_url="http://x"),
    ConnectTimeoutError(endpoint_url="http://x"),
    ReadTimeoutError(endpoint_url="http://x"),
    IncompleteReadError(actual_bytes=1, expected_bytes=2),
]
FINAL = [
    (refusal(403, "AccessDenied"), PermissionError),
    (refusal(403, "SignatureDoesNotMatch"), PermissionError),
    (refusal(404, "NoSuchBucket"), OSError),
    (refusal(404, "NoSuchKey"), FileNotFoundError),
    (refusal(400, "InvalidArgument"), OSError),
    (NoCredentialsError(), PermissionError),
    (ValueError("bad endpoint"), OSError),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda e: type(e).__name__ + str(e)[-40:])
def test_what_may_pass_is_tried_again(s3_environment, no_waiting, error):
    answers = iter([error, error, None])

    def call(_):
        found = next(answers)
        if found is not None:
            raise found
        return "done"

    assert tried(call, name="s3://b/k") == "done"
    assert len(no_waiting) == 2


@pytest.mark.parametrize(("error", "kind"), FINAL, ids=lambda e: str(e)[-40:])
def test_what_will_not_pass_fails_at_once(s3_environment, no_waiting, error, kind):
    def call(_):
        raise error

    with pytest.raises(kind) as caught:
        tried(call, name="s3://b/k")
    assert not isinstance(caught.value, StorageUnreachable)
    assert no_waiting == []


def test_tries_are_bounded_and_their_waits_jittered_and_capped(s3_environment, no_waiting):
    use(StorageConfig(attempts=20))
    calls = []

    def call(_):
        calls.append(1)
        raise refusal(503, "SlowDown")

    with pytest.raises(StorageUnreachable, match="SlowDown"):
        tried(call, name="s3://b/k")
    assert (len(calls), len(no_waiting)) == (20, 19)
    assert max(no_waiting) <= client.LONGEST_WAIT_S
    assert all(wait <= 0.1 * 2**n for n, wait in enumerate(no_waiting))
    assert len(set(no_waiting)) == 19


def test_a_refused_third_of_the_requests_changes_nothing(s3, s3_store, no_waiting):
    import pyarrow as pa

    ledger, unit = Ledger(s3_store.place), Unit("f", "part", "x")
    refused = Refusals(s3, times=0)
    table = pa.table({"n": list(range(1000))})
    for number in range(6):
        refused._left = number % 4
        marker = ledger.commit(unit, table)
        refused._left = number % 3
        assert ledger.read(marker).equals(table)
    assert no_waiting


def test_a_store_that_stays_away_is_a_cluster_error_and_no_damage_of_the_file(
    s3, s3_store, no_waiting
):
    import pyarrow as pa

    ledger, unit = Ledger(s3_store.place), Unit("f", "part", "x")
    marker = ledger.commit(unit, pa.table({"n": [1]}))
    Refusals(s3, times=1000, method="GET")
    with pytest.raises(ClusterError, match=r"part\.parquet: cannot be read: SlowDown .* 12 times"):
        ledger.read(marker)
    with pytest.raises(ClusterError, match="cannot be read"):
        ledger.find(unit)
    Refusals(s3, times=1000)
    with pytest.raises(ClusterError, match="cannot be written: SlowDown"):
        s3_store.write_bytes("f", b"x")


def test_a_refused_reader_is_told_at_once_what_the_store_said(s3, s3_store, no_waiting):
    s3_store.write_bytes("f", b"x")
    Refusals(s3, status=403, code="AccessDenied", times=9)
    with pytest.raises(DataError, match=r"f: cannot be read \(AccessDenied"):
        s3_store.read_bytes("f")
    assert no_waiting == []


class LostAnswer:
    """A store that had finished the upload when the connection was cut."""

    class exceptions:
        ClientError = ClientError

    def __init__(self, upload):
        self.upload = upload

    def complete_multipart_upload(self, **_):
        raise refusal(404, "NoSuchUpload")

    def head_object(self, **_):
        return {"Metadata": {"upload": self.upload}}


def test_an_upload_that_was_finished_though_the_answer_was_lost_counts(s3_environment):
    upload = Upload("b", "k", name="s3://b/k")
    upload._complete(LostAnswer(upload._nonce))
    with pytest.raises(ClientError, match="NoSuchUpload"):
        upload._complete(LostAnswer("of another writer"))


def fail_everywhere(endpoint):
    """Errors of every kind that name a place; each is raised with the secret in use."""
    use(StorageConfig(attempts=1))
    store = Store("s3://no-such-bucket-here/run")
    acts = [
        store.create,
        lambda: store.read_bytes("f"),
        lambda: store.write_bytes("f", b"x"),
        lambda: Ledger("s3://no-such-bucket-here/run").find(Unit("f", "p", "x")),
    ]
    for act in acts:
        with pytest.raises((ConfigError, DataError, ClusterError)) as caught:
            act()
        yield "".join(traceback.format_exception(caught.value))


def test_no_error_holds_a_secret(s3_environment, endpoint, no_waiting):
    key = s3_environment
    told = list(fail_everywhere(endpoint))
    key.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9/")
    told += fail_everywhere(endpoint)
    key.setenv("AWS_ENDPOINT_URL", "nonsense")
    told += fail_everywhere(endpoint)
    assert len(told) == 12
    assert not [text for text in told if SECRET in text]


def test_values_are_looked_up_by_the_names_that_the_config_gives(s3_environment, bucket, endpoint):
    environment = s3_environment
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    environment.setenv("LAB_URL", endpoint)
    environment.setenv("LAB_KEY", "k")
    environment.setenv("LAB_SECRET", SECRET)
    named = StorageConfig(
        endpoint_env="LAB_URL", access_key_env="LAB_KEY", secret_key_env="LAB_SECRET"
    )
    use(named)
    Store(f"{bucket}/run").create()
    assert current() == named
    assert SECRET not in str(worker_variables())
    assert "LAB_SECRET" in worker_variables()["DUALDIV_STORAGE"]


def test_without_credentials_the_error_says_what_to_set(s3_environment, bucket, no_waiting):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        s3_environment.delenv(name)
    s3_environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3_environment.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    s3_environment.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(ConfigError, match="set AWS_ACCESS_KEY_ID"):
        Store(bucket).create()


CONFIG = """
out: runs/x
corpus: {path: a.csv}
queries: {path: b.csv}
tasks: {t: {instruction: x, labels: [a, b]}}
encoders: {minilm: {preset: minilm}}
engines: {e: {model: m}}
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("storage: {secret_key: CANARYx1}", "unknown key storage.secret_key"),
        ("storage: {access_key: CANARYx1}", "unknown key storage.access_key"),
        ("storage: {secret_key_env: CANARYx1}", "storage.secret_key_env names an environment"),
        ("seed: 1\nstage1: {given: 's3://CANARYx1:x@b/k'}", "stage1.given: credentials in a path"),
    ],
)
def test_a_secret_in_the_config_is_refused_without_being_repeated(tmp_path, line, message):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG + line)
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(path))
    assert "CANARY" not in str(caught.value)


def test_the_config_itself_may_lie_in_the_store(bucket):
    Store(bucket).write_bytes("c.yaml", CONFIG.encode())
    assert load(f"{bucket}/c.yaml").out == "runs/x"
    with pytest.raises(ConfigError, match="no such config file"):
        load(f"{bucket}/none.yaml")


def test_the_resolved_config_names_variables_and_holds_no_value(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_SECRET", SECRET)
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG + "storage: {secret_key_env: LAB_SECRET}")
    text = load(str(path)).as_yaml()
    assert "secret_key_env: LAB_SECRET" in text
    assert SECRET not in text


def test_errors_keep_their_numbers():
    numbers = [client.as_os_error(refusal(status, "X"), "s3://b/k").errno for status in (412, 507)]
    assert numbers == [errno.ESTALE, errno.ENOSPC]
