"""The S3 client of this process, and calls on it: tried again where that may help.

botocore and nothing above it: it is what s3fs and boto3 stand on, it knows conditional writes, and
an upload that fails is given up. (Arrow's file system finishes such an upload, so that half a file
would appear; s3fs caches listings.) Its own retries are off: they end where the headers do, and a
connection cut while the body comes must be tried again, too.
"""

import errno
import functools
import os
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from jobs.config.storage import current
from jobs.files.places import StorageUnreachable

T = TypeVar("T")

TRANSIENT_STATUS = frozenset({429, 500, 502, 503, 504})
TRANSIENT_CODES = frozenset(
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
TRANSIENT_ERRORS = (
    CredentialRetrievalError,
    HTTPClientError,
    HTTPError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoConnection,
    OSError,
    ResponseParserError,
)
FAILURES = (BotoCoreError, ClientError, HTTPError, OSError, ResponseParserError, ValueError)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0


def client() -> Any:
    """The client that the settings of this process ask for; made once, used by all threads."""
    names = current()
    region = os.environ.get(names.region_env) or os.environ.get("AWS_REGION")
    return _client(
        os.environ.get(names.endpoint_env) or None,
        region or None,
        os.environ.get(names.access_key_env) or None,
        os.environ.get(names.secret_key_env) or None,
        os.environ.get(names.session_token_env) or None,
    )


@functools.cache
def _session() -> botocore.session.Session:
    """Holds the descriptions of the service, which take long to read."""
    return botocore.session.get_session()


@functools.lru_cache(maxsize=4)
def _client(
    endpoint: str | None,
    region: str | None,
    access_key: str | None,
    secret_key: str | None,
    token: str | None,
) -> Any:
    # Other servers know no virtual hosts, and not the trailing checksums that AWS takes.
    other = {"s3": {"addressing_style": "path"}, "request_checksum_calculation": "when_required"}
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=5,
        read_timeout=30,
        max_pool_connections=32,
        **(other if endpoint else {}),
    )
    return _session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=region or ("us-east-1" if endpoint else None),
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        aws_session_token=token if access_key else None,
        config=config,
    )


def tried(call: Callable[[Any], T], *, name: str) -> T:
    """Call until it succeeds, fails for good, or has failed too often; waits have full jitter.

    Args:
        call: Given the client.
        name: The s3:// path it is about, for messages.

    Returns:
        What it returns.

    Raises:
        StorageUnreachable: Every attempt met a transient error.
        FileNotFoundError: No such object.
        PermissionError: Credentials that are missing, wrong or not enough.
        OSError: Anything else; `strerror` has the store's own code and words.
    """
    attempts = current().attempts
    reason = ""
    for attempt in range(attempts):
        try:
            return call(client())
        except FAILURES as error:
            if not is_transient(error):
                raise as_os_error(error, name) from None
            reason = described(error)
        if attempt + 1 < attempts:
            time.sleep(random.uniform(0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)))
    raise StorageUnreachable(errno.EIO, f"{reason}, {attempts} times", name)


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: throttling, errors of the server, a cut connection."""
    if isinstance(error, ClientError):
        code, status = code_of(error), status_of(error)
        return code in TRANSIENT_CODES or status in TRANSIENT_STATUS
    return isinstance(error, TRANSIENT_ERRORS)


def code_of(error: ClientError) -> str:
    """The store's word for what went wrong, or the HTTP status as text."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def status_of(error: ClientError) -> int:
    """The HTTP status."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def described(error: BaseException) -> str:
    """Code and words of an error; headers and parameters, which may hold secrets, are left out."""
    if isinstance(error, ClientError):
        return f"{code_of(error)} ({error.response.get('Error', {}).get('Message', 'no message')})"
    return type(error).__name__


def as_os_error(error: BaseException, name: str) -> OSError:
    """A final error in the words of local files."""
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        what = "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return PermissionError(errno.EACCES, what, name)
    if not isinstance(error, ClientError):
        return OSError(errno.EINVAL, f"{type(error).__name__}: check the endpoint and region", name)
    code, status = code_of(error), status_of(error)
    if code == "NoSuchBucket":
        return OSError(errno.ENXIO, "NoSuchBucket: make the bucket, or correct its name", name)
    number = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 507: errno.ENOSPC}
    number |= {412: errno.ESTALE, 501: errno.ENOTSUP}
    return OSError(number.get(status, errno.EIO), described(error), name)
