import time

import pytest

from jobs.errors import ConfigError
from jobs.readers.sources import find, grouped


@pytest.fixture
def tree(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", ".hidden", "_SUCCESS", ".git/x"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x" * 10)
    return tmp_path


def names(found, tree):
    return [file.path.removeprefix(str(tree) + "/") for file in found]


def test_a_folder_is_read_by_name_without_hidden_files(tree):
    assert names(find(str(tree), key="k"), tree) == ["a.jsonl", "b.jsonl", "sub/c.jsonl"]


def test_a_glob_and_a_list_keep_their_order_and_no_file_twice(tree):
    found = find([str(tree / "b.jsonl"), str(tree / "*.jsonl")], key="k")
    assert names(found, tree) == ["b.jsonl", "a.jsonl"]


@pytest.mark.parametrize("path", ["none.jsonl", "*.csv", "gs://bucket/x"])
def test_what_is_not_there_is_a_config_error_that_names_key_and_path(tree, path):
    with pytest.raises(ConfigError, match=r"corpus\.path") as caught:
        find(path if "://" in path else str(tree / path), key="corpus.path")
    assert path in str(caught.value)


def test_an_empty_folder_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="names no file"):
        find(str(tmp_path), key="corpus.path")


def test_a_name_with_glob_signs_that_exists_is_that_file(tmp_path):
    (tmp_path / "a[1].jsonl").write_text("")
    assert len(find(str(tmp_path / "a[1].jsonl"), key="k")) == 1


def test_small_files_share_a_unit_and_large_ones_stand_alone(tree):
    files = find(str(tree), key="k")
    assert [len(g) for g in grouped(files, max_bytes=20)] == [2, 1]
    assert [len(g) for g in grouped(files, max_bytes=5)] == [1, 1, 1]


def test_three_thousand_small_files_are_found_and_grouped_within_seconds(tmp_path):
    for number in range(3_000):
        (tmp_path / f"{number:05d}.jsonl").write_bytes(b'{"text": "a"}\n')
    started = time.monotonic()
    files = find(str(tmp_path), key="corpus.path")
    groups = grouped(files)
    assert time.monotonic() - started < 30
    assert (len(files), sum(file.bytes for file in files)) == (3_000, 42_000)
    assert [len(group) for group in groups] == [3_000]
