"""Inputs in an object store are found and read as the same tree on disk is."""

import shutil
from collections import namedtuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.storage import StorageConfig, use
from jobs.errors import ClusterError, ConfigError
from jobs.files import scratch as scratch_module
from jobs.files.inputs import open_input, read_input, stamps
from jobs.files.scratch import local_folder, scratch
from jobs.readers.sources import find
from jobs.selecting.id_files import existing, read_ids
from jobs.storage import Store

NAMES = ["b.csv", "a.csv", "sub/c.csv", "sub/deep/d.csv", ".hidden", "_SUCCESS", "sub/.x/e.csv"]


@pytest.fixture
def trees(bucket, tmp_path):
    """The same files on disk and in the store."""
    local, remote = Store(str(tmp_path / "in")), Store(f"{bucket}/in")
    for store in (local, remote):
        for name in NAMES:
            store.write_bytes(name, name.encode())
    return local, remote


@pytest.mark.parametrize(
    "entry",
    ["", "/", "/a.csv", "/*.csv", "/sub/*.csv", "/**/*.csv", "/*/c.csv", "/[ab].csv", "/?.csv"],
)
def test_files_folders_and_globs_name_the_same_files_in_the_same_order(trees, entry):
    found = [
        [
            (file.path.removeprefix(store.place), file.bytes)
            for file in find(store.place + entry, key="k")
        ]
        for store in trees
    ]
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.parametrize("entry", ["/none.csv", "/*.json", "/none/"])
def test_what_is_not_there_is_a_config_error(trees, entry):
    with pytest.raises(ConfigError, match=r"corpus\.path = s3://.*no such object"):
        find(trees[1].place + entry, key="corpus.path")


def test_a_list_may_mix_both(trees):
    local, remote = trees
    found = find([remote.where("b.csv"), local.where("a.csv"), remote.where("b.csv")], key="k")
    assert [file.path for file in found] == [remote.where("b.csv"), local.where("a.csv")]


def test_an_object_of_new_content_is_another_file_even_in_the_same_second(trees):
    remote = trees[1]
    before = find(remote.where("a.csv"), key="k")[0]
    remote.write_bytes("a.csv", b"A.csv")
    after = find(remote.where("a.csv"), key="k")[0]
    assert before.bytes == after.bytes
    assert before.identity() != after.identity()
    assert "etag" not in find(trees[0].where("a.csv"), key="k")[0].identity()


def test_an_object_replaced_while_it_is_read_is_an_error(bucket):
    store = Store(bucket)
    store.write_bytes("f", b"x" * (3 * 2**20))
    with open_input(store.where("f")) as file:
        file.read(10)
        store.write_bytes("f", b"y" * (3 * 2**20))
        with pytest.raises(OSError, match="PreconditionFailed"):
            file.read()


@pytest.mark.parametrize("name", ["ids.txt", "ids.csv", "ids.parquet"])
def test_ids_are_read_from_either(bucket, tmp_path, name):
    texts = {"ids.txt": b"a\nb 1\n", "ids.csv": b"id\na\nb 1\n"}
    for store in (Store(bucket), Store(str(tmp_path))):
        if name in texts:
            store.write_bytes(name, texts[name])
        else:
            with store.writing(name) as file:
                pq.write_table(pa.table({"id": ["a", "b 1"]}), file)
        assert read_ids(store.where(name), key="k").ids == ("a", "b 1")


def test_a_file_of_ids_that_is_not_there_is_a_config_error(bucket):
    Store(bucket).write_bytes("folder/x", b"")
    with pytest.raises(ConfigError, match="no such file"):
        existing(f"{bucket}/none.txt", key="k")
    with pytest.raises(ConfigError, match="a folder"):
        existing(f"{bucket}/folder", key="k")


def test_a_folder_is_copied_to_scratch_for_the_length_of_the_block(trees, tmp_path):
    use(StorageConfig(scratch=str(tmp_path / "scratch")))
    with local_folder(trees[1].where("sub")) as folder:
        assert [path.name for path in folder.iterdir()] == ["c.csv"]
        assert (folder / "c.csv").read_bytes() == b"sub/c.csv"
        assert folder.parent == tmp_path / "scratch"
    assert list((tmp_path / "scratch").iterdir()) == []
    with local_folder(trees[0].place) as folder:
        assert str(folder) == trees[0].place


def test_a_copy_that_does_not_fit_is_refused_with_the_sum(trees, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 3))
    with (
        pytest.raises(ClusterError, match=r"needs 0\.0 MiB of scratch space"),
        local_folder(trees[1].where("sub")),
    ):
        pass


def test_scratch_that_cannot_be_made_is_a_config_error(s3_environment, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    use(StorageConfig(scratch=str(tmp_path / "file" / "x")))
    with pytest.raises(ConfigError, match=r"storage\.scratch = .*cannot be made"):
        scratch()
    assert scratch_module.current().scratch is not None


def test_folders_are_told_apart_by_name_size_and_content(trees):
    found = [stamps(store.where("sub")) for store in trees]
    assert [(name, size) for name, size, _ in found[1]] == [("c.csv", 9)]
    assert ("c.csv", 9) in [(name, size) for name, size, _ in found[0]]
    assert read_input(trees[1].where("sub/c.csv")) == b"sub/c.csv"
