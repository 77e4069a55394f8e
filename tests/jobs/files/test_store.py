import pickle

import pyarrow as pa
import pytest

from jobs.errors import ConfigError, DataError
from jobs.files import streams
from jobs.files.places import absolute, joined, plain
from jobs.ledger import Ledger, Unit
from jobs.storage import Store
from tests.jobs.files.conftest import SECRET
from tests.jobs.files.fault_hooks import Refusals

PART = 5 * 2**20  # the smallest that S3 takes
UNIT = Unit("stage/abc", "part", "abc")


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(streams, "PART_BYTES", PART)


def uploads(s3, store):
    bucket = store.place.split("/")[2]
    return s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])


def test_what_was_written_is_there_with_its_size_and_reads_back(store):
    store.create()
    store.write_bytes("a/b/c.txt", b"text")
    assert store.exists("a/b/c.txt")
    assert (store.size("a/b/c.txt"), store.read_bytes("a/b/c.txt")) == (4, b"text")
    store.write_bytes("a/b/c.txt", b"new")
    assert store.read_if_there("a/b/c.txt") == b"new"


def test_what_is_not_there_is_absent_and_named_when_read(store):
    store.create()
    assert not store.exists("none")
    assert store.size("none/at/all") is None
    assert store.read_if_there("none") is None
    assert store.stamped("none") is None
    with pytest.raises(DataError, match="runs/one/none: cannot be read"):
        store.read_bytes("none")


@pytest.mark.parametrize("n_bytes", [0, 1, PART, 2 * PART + 1])
def test_a_file_of_any_number_of_parts_arrives_whole(store, small_parts, n_bytes):
    data = bytes(range(251)) * (n_bytes // 251 + 1)
    with store.writing("big") as file:
        for start in range(0, n_bytes, 2**20):
            file.write(data[start : min(start + 2**20, n_bytes)])
    assert store.read_bytes("big") == data[:n_bytes]
    assert file.n_bytes == n_bytes


@pytest.mark.parametrize("n_bytes", [1, 2 * PART])
def test_a_writer_that_fails_leaves_nothing(store, small_parts, n_bytes, request):
    store.create()

    def fail_half_way():
        with store.writing("half") as file:
            file.write(b"x" * n_bytes)
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    assert not store.exists("half")
    if store.place.startswith("s3://"):
        assert uploads(request.getfixturevalue("s3"), store) == []


def test_a_writer_that_fails_leaves_the_old_file_as_it_was(store):
    store.write_bytes("f", b"old")

    def fail_half_way():
        with store.writing("f") as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert store.read_bytes("f") == b"old"


def test_only_what_is_named_is_removed(store):
    for name in ("t/a", "t/b", "t/deep/c", "tt/d", "f"):
        store.write_bytes(name, b"")
    assert store.remove_others("tt", {"d"}) == []
    store.remove_file("f")
    store.remove_file("f")
    store.remove_tree("t")
    store.remove_tree("t")
    left = [n for n in ("t/a", "t/b", "t/deep/c", "tt/d", "f") if store.exists(n)]
    assert left == ["tt/d"]


def test_other_files_of_a_folder_go_and_those_of_other_folders_stay(store):
    for name in ("o/keep", "o/old", "o/older", "oo/x"):
        store.write_bytes(name, b"")
    assert store.remove_others("o", {"keep"}) == ["old", "older"]
    assert store.remove_others("none", set()) == []
    assert [store.exists(n) for n in ("o/keep", "o/old", "oo/x")] == [True, False, True]


def test_a_file_is_created_once_and_replaced_only_while_it_is_the_same(store):
    store.create()
    assert store.create_exclusive("lock", b"1")
    assert not store.create_exclusive("lock", b"2")
    first = store.stamped("lock")
    assert first.data == b"1"
    assert first.age_s < 60
    assert store.replace_exclusive("lock", b"3", first.stamp)
    assert not store.replace_exclusive("lock", b"4", first.stamp)
    assert store.read_bytes("lock") == b"3"
    assert not store.replace_exclusive("none", b"5", first.stamp)
    assert not store.exists("none")
    assert store.keeps_conditions()


def test_a_committed_unit_is_found_and_reads_back_by_column_and_group(store):
    ledger = Ledger(store.place)
    table = pa.table({"id": pa.array(["a", "b", "c"], pa.string()), "n": [1, 2, 3]})
    marker = ledger.commit(UNIT, table, stats={"x": 1}, files={"more.txt": b"text"})
    assert ledger.find(UNIT) == marker
    assert ledger.read(marker).equals(table)
    assert ledger.read(marker, ["n"], groups=[0])["n"].to_pylist() == [1, 2, 3]
    assert [t["id"].to_pylist() for t in ledger.batches(marker, ["id"], rows=2)] == [
        ["a", "b"],
        ["c"],
    ]
    other = Unit("stage/abc", "other", "abc")
    assert ledger.find_all([UNIT, other, UNIT]) == {UNIT: marker, other: None}
    assert ledger.unseen([marker]) == []


def test_a_changed_table_is_not_found_and_named_when_read(store):
    ledger = Ledger(store.place)
    marker = ledger.commit(UNIT, pa.table({"n": [1]}))
    store.write_bytes(UNIT.table, b"short")
    assert ledger.find(UNIT) is None
    assert ledger.unseen([marker]) == [UNIT.table]
    with pytest.raises(DataError, match=r"part\.parquet: found 5 bytes, wanted"):
        ledger.read(marker)
    store.write_bytes(UNIT.table, b"x" * marker.bytes)
    with pytest.raises(DataError, match=r"part\.parquet: cannot be read"):
        ledger.read(marker)


def test_a_store_is_sent_to_a_worker_without_client_and_secret(store, monkeypatch):
    store.write_bytes("f", b"x")
    sent = pickle.dumps(store)
    assert SECRET.encode() not in sent
    assert pickle.loads(sent).read_bytes("f") == b"x"


def test_units_are_found_by_name_and_never_by_a_listing(s3, s3_store):
    ledger = Ledger(s3_store.place)
    seen = Refusals(s3, times=0).seen
    marker = ledger.commit(UNIT, pa.table({"n": [1]}))
    ledger.find(UNIT)
    ledger.read(marker)
    prefix = s3_store.place.removeprefix("s3://")
    assert {path for _, path in seen} == {f"{prefix}/{UNIT.table}", f"{prefix}/{UNIT.done}"}


def test_an_abandoned_upload_is_aborted_when_a_run_begins_and_a_young_one_stays(
    s3, s3_store, monkeypatch
):
    place = s3_store.place.removeprefix("s3://").split("/", 1)
    for key in (f"{place[1]}/x", f"{place[1]}-other/x"):
        s3.create_multipart_upload(Bucket=place[0], Key=key)
    monkeypatch.setattr("jobs.files.objects.ABANDONED_S", float("inf"))
    s3_store.create()
    assert len(uploads(s3, s3_store)) == 2
    # The server of these tests says of every upload that it began in 2010.
    monkeypatch.setattr("jobs.files.objects.ABANDONED_S", 86_400)
    s3_store.create()
    assert [one["Key"] for one in uploads(s3, s3_store)] == [f"{place[1]}-other/x"]


def test_a_bucket_that_is_not_there_is_a_config_error(bucket):
    with pytest.raises(ConfigError, match="no bucket 'not-there'"):
        Store("s3://not-there/run").create()
    with pytest.raises(ConfigError, match="no bucket 'not-there'"):
        Store("s3://not-there/run").check()


def test_the_root_of_a_bucket_is_a_place_too(bucket):
    store = Store(bucket)
    store.create()
    store.write_bytes("a/b", b"x")
    assert store.where("a/b") == f"{bucket}/a/b"
    store.remove_tree("a")
    assert not store.exists("a/b")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gs://bucket/run", "wanted a local path or s3://"),
        ("s3://", "no bucket"),
        ("s3:///run", "no bucket"),
        ("s3://key:secret@bucket/run", "credentials in a path"),
    ],
)
def test_a_path_that_is_no_place_is_refused_without_its_secret(path, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Store(path)
    assert "key:secret" not in str(caught.value)


def test_paths_are_joined_and_made_absolute_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("a/b") == str(tmp_path / "a" / "b")
    assert absolute("s3://b/a/") == "s3://b/a"
    assert plain("file:///a", key="k") == "/a"
    assert [joined(f, "x") for f in ("a", "a/", "s3://b", "/")] == ["a/x", "a/x", "s3://b/x", "/x"]
