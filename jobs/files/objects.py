"""An output tree in an object store; a key is found by its name, never by a listing."""

import contextlib
import errno
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, cast

from jobs.errors import ClusterError, ConfigError, DualdivError
from jobs.files.client import tried
from jobs.files.places import ABANDONED_S, S3, Stamped, StorageUnreachable, split
from jobs.files.streams import ObjectReader, Upload, put

KEYS_AT_A_TIME = 1_000


class ObjectFiles:
    """Objects below one prefix. Holds no client, so that it can be sent to a worker."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        self.bucket, self._prefix = split(self.place)

    def where(self, name: str) -> str:
        """The s3:// path of a file."""
        return f"{S3}{self.bucket}/{self._key(name)}"

    def check(self) -> None:
        """Refuse a bucket that is not there or not ours, without writing.

        Raises:
            ConfigError: As above.
            ClusterError: The object store does not answer.
        """
        try:
            tried(lambda s3: s3.head_bucket(Bucket=self.bucket), name=self.place)
        except FileNotFoundError:
            raise ConfigError(f"{self.place}: no bucket {self.bucket!r} there; make it.") from None
        except OSError as error:
            raise self._refused("read", error) from None

    def create(self) -> None:
        """Prove that the prefix can be written, and abort uploads that were abandoned below it.

        Raises:
            ConfigError: It cannot.
            ClusterError: The object store does not answer.
        """
        self.check()
        probe = f".probe-{uuid.uuid4().hex[:8]}"
        try:
            put(self._at(probe), b"", name=self.where(probe))
            self.remove_file(probe)
        except OSError as error:
            raise self._refused("written", error) from None
        self.sweep()

    def _refused(self, what: str, error: OSError) -> DualdivError:
        """A store that cannot answer now is no mistake of the config."""
        if isinstance(error, StorageUnreachable):
            return ClusterError(
                f"{self.place}: cannot be {what}: {error.strerror}. Nothing was begun; run the "
                "same command again when the object store answers."
            )
        return ConfigError(f"{self.place}: cannot be {what}: {error.strerror}.")

    def sweep(self) -> int:
        """Abort uploads that a killed writer left; returns how many. A live one is younger."""
        n_aborted = 0
        # Some stores list no uploads; those need a rule of their own for this.
        with contextlib.suppress(OSError):
            below = {"Bucket": self.bucket, "Prefix": f"{self._prefix}/".lstrip("/")}
            found = _call("list_multipart_uploads", below, name=self.place)
            for upload in found.get("Uploads", []):
                if _age_s(upload["Initiated"], datetime.now(UTC)) > ABANDONED_S:
                    where = {name: upload[name] for name in ("Key", "UploadId")}
                    _call(
                        "abort_multipart_upload", where | {"Bucket": self.bucket}, name=self.place
                    )
                    n_aborted += 1
        return n_aborted

    def facts(self, name: str) -> dict[str, Any] | None:
        """What the store says of a file (ContentLength, LastModified, ETag), None without one."""
        try:
            return self._head(name)
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        facts = self.facts(name)
        return None if facts is None else int(facts["ContentLength"])

    def read_bytes(self, name: str) -> bytes:
        """All of a small file."""
        return self._get(name)[0]

    def open(self, name: str) -> BinaryIO:
        """A seekable file; an object that is replaced while it is read is an error."""
        facts = self._head(name)
        return cast(
            BinaryIO, ObjectReader(self._fetch(name, facts["ETag"]), facts["ContentLength"])
        )

    def arrow_source(self, name: str) -> Any:
        """What Arrow opens."""
        return self.open(name)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Open a file that appears whole when the block ends well, or not at all."""
        upload = Upload(self.bucket, self._key(name), name=self.where(name))
        try:
            yield cast(BinaryIO, upload)
            upload.finish()
        except BaseException:
            upload.give_up()
            raise

    def remove_file(self, name: str) -> None:
        """Remove a file; absent is fine."""
        _call("delete_object", self._at(name), name=self.where(name))

    def remove_tree(self, name: str) -> None:
        """Remove all files below a folder, as far as they can be; absent is fine."""
        with contextlib.suppress(OSError):
            found = listed(self.where(name) + "/")
            self._remove([item["Key"] for item in found])

    def remove_others(self, folder: str, keep: set[str]) -> list[str]:
        """Remove the files right in a folder that are not named in `keep`; returns what went."""
        start = self._key(folder) + "/"
        found = listed(self.where(folder) + "/", Delimiter="/")
        names = [item["Key"].removeprefix(start) for item in found]
        gone = [name for name in names if name and name not in keep]
        self._remove([start + name for name in gone])
        return sorted(gone)

    def create_exclusive(self, name: str, data: bytes) -> bool:
        """Write a file only where none is; says whether."""
        return self._put_if(name, data, IfNoneMatch="*")

    def replace_exclusive(self, name: str, data: bytes, stamp: str) -> bool:
        """Replace a file only if it is still the stamped one; says whether."""
        return self._put_if(name, data, IfMatch=stamp)

    renew = replace_exclusive

    def stamped(self, name: str) -> Stamped | None:
        """A small file, its stamp, its age by the clock of the store; None where there is none."""
        try:
            data, facts = self._get(name)
        except FileNotFoundError:
            return None
        return Stamped(data, facts["ETag"], facts["age_s"])

    def keeps_conditions(self) -> bool:
        """Whether the store refuses a conditional write whose condition does not hold."""
        name = f".probe-{uuid.uuid4().hex[:8]}"
        try:
            self.create_exclusive(name, b"1")
            return not self.create_exclusive(name, b"2")
        finally:
            with contextlib.suppress(OSError):
                self.remove_file(name)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self._key(name)}

    def _head(self, name: str) -> dict[str, Any]:
        return _call("head_object", self._at(name), name=self.where(name))

    def _get(self, name: str) -> tuple[bytes, dict[str, Any]]:
        """Content and facts of an object, in one request."""

        def call(s3: Any) -> tuple[bytes, dict[str, Any]]:
            answer = s3.get_object(**self._at(name))
            return answer["Body"].read(), answer | {"age_s": _age_of(answer)}

        return tried(call, name=self.where(name))

    def _fetch(self, name: str, stamp: str) -> Callable[[int, int], bytes]:
        where = self._at(name) | {"IfMatch": stamp}

        def fetch(start: int, end: int) -> bytes:
            span = {"Range": f"bytes={start}-{end - 1}"}
            # The body is read inside the try: a cut connection shows only there.
            return tried(
                lambda s3: s3.get_object(**where, **span)["Body"].read(), name=self.where(name)
            )

        return fetch

    def _put_if(self, name: str, data: bytes, **conditions: str) -> bool:
        try:
            put(self._at(name), data, name=self.where(name), **conditions)
        except OSError as error:
            if error.errno in (errno.ESTALE, errno.ENOENT):
                return False
            if error.errno != errno.ENOTSUP:
                raise
            put(self._at(name), data, name=self.where(name))
        return True

    def _remove(self, keys: list[str]) -> None:
        for start in range(0, len(keys), KEYS_AT_A_TIME):
            some = [{"Key": key} for key in keys[start : start + KEYS_AT_A_TIME]]
            where = {"Bucket": self.bucket, "Delete": {"Objects": some, "Quiet": True}}
            _call("delete_objects", where, name=self.place)


def listed(url: str, **options: str) -> list[dict[str, Any]]:
    """The objects whose s3:// paths begin with `url`, in the order of their keys.

    Args:
        url: Bucket and beginning of a key.
        options: Of `list_objects_v2`.

    Returns:
        Key, Size, LastModified and ETag of each.
    """
    bucket, _, prefix = url.removeprefix(S3).partition("/")
    where = {"Bucket": bucket, "Prefix": prefix, **options}
    found: list[dict[str, Any]] = []
    while True:
        page = _call("list_objects_v2", where, name=url)
        found += page.get("Contents", [])
        if not page.get("IsTruncated"):
            return sorted(found, key=lambda item: item["Key"])
        where["ContinuationToken"] = page["NextContinuationToken"]


def _call(verb: str, where: dict[str, Any], *, name: str) -> dict[str, Any]:
    return tried(lambda s3: getattr(s3, verb)(**where), name=name)


def _age_of(answer: dict[str, Any]) -> float:
    """Seconds since an object was written; both times are the store's."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(said) if said else datetime.now(UTC)
    return _age_s(answer["LastModified"], now)


def _age_s(then: datetime, now: datetime) -> float:
    return (now - then).total_seconds()
