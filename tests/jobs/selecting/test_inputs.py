"""Ids named in the config: where they come from, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.stage1 import Stage1Config
from jobs.errors import ConfigError, DataError
from jobs.selecting.id_files import read_ids
from jobs.selecting.inputs import (
    Wishes,
    limits_of,
    read_given,
    read_wishes,
    require_found,
    require_within,
)
from jobs.selecting.mapped import Mapped
from jobs.selecting.side_columns import Sides
from jobs.vectors import to_lists, with_encoder
from tests.jobs.selecting.embedded_parts import unit_rows


def write_vectors(path, ids, vectors, encoder="mini@1"):
    table = pa.table({"id": pa.array(ids), "vector": to_lists(vectors, "float32")})
    pq.write_table(with_encoder(table, encoder) if encoder else table, path)
    return str(path)


@pytest.fixture
def file(tmp_path):
    def _write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return _write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"b\na\n 1 \n"),
        ("a", b"\xef\xbb\xbfb\r\na\r\n\r\n 1 "),
        ("a.csv", b"n,id\n1,b\n2,a\n3, 1 \n"),
    ],
)
def test_the_same_ids_have_one_digest_whatever_file_holds_them(file, name, content):
    ids = read_ids(file(name, content), key="stage1.required")
    assert ids.ids == ("b", "a", " 1 ")
    assert ids.digest == read_ids(["b", "a", " 1 "], key="stage1.forbidden").digest
    assert ids.digest != read_ids(["a", "b", " 1 "], key="stage1.required").digest


def test_ids_of_a_parquet_column_are_read_as_ingest_reads_them(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [3, 1]}), path)
    assert read_ids(str(path), key="k").ids == ("3", "1")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"", "no ids there"),
        ("a.txt", b"\n\n", "no ids there"),
        ("a.txt", b"a\nb\na\n", "more than once: 'a'"),
        ("a.txt", b"a\xff", "cannot be read"),
        ("a.csv", b"ids\na\n", "no column 'id'. It has: 'ids'"),
        ("a.csv", b"id,n\na,1\n,2\n", "row 2 has no id"),
        ("a.parquet", b"not parquet", "cannot be read"),
    ],
)
def test_a_file_of_ids_that_cannot_be_used_is_named(file, name, content, words):
    with pytest.raises(DataError, match=rf"{name}.*{words}"):
        read_ids(file(name, content), key="stage1.required")


def test_a_file_that_is_not_there_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"stage1\.required: nowhere.txt: no such file"):
        read_ids("nowhere.txt", key="stage1.required")
    with pytest.raises(ConfigError, match="a folder"):
        read_given(str(tmp_path), encoder_id="mini@1")


def test_given_files_bring_ids_of_the_corpus_or_vectors_of_their_own(file, tmp_path):
    vectors = unit_rows(2, 1)
    own = write_vectors(tmp_path / "v.parquet", ["x", "y"], vectors)
    given = read_given([file("a.txt", b"a\nb\n"), own], encoder_id="mini@1")
    assert given.ids == ("a", "b", "x", "y")
    assert given.of_corpus == ("a", "b")
    assert given.vectors.tolist() == vectors.tolist()


def test_the_digest_of_given_changes_with_ids_and_with_vectors(tmp_path):
    def digest(ids, seed):
        path = write_vectors(tmp_path / f"{ids}{seed}.parquet", list(ids), unit_rows(2, seed))
        return read_given(path, encoder_id="mini@1").digest

    assert len({digest("ab", 1), digest("ab", 2), digest("ac", 1)}) == 3
    pq.write_table(pa.table({"id": ["a", "b"]}), tmp_path / "ids.parquet")
    assert read_given(str(tmp_path / "ids.parquet"), encoder_id="x").digest != digest("ab", 1)


def test_given_vectors_of_another_encoder_are_refused_naming_both(tmp_path):
    path = write_vectors(tmp_path / "v.parquet", ["x"], unit_rows(1, 1), encoder="maxi@7")
    with pytest.raises(DataError, match=r"encoder maxi@7, this run's from mini@1"):
        read_given(path, encoder_id="mini@1")


def test_given_vectors_that_name_no_encoder_are_refused(tmp_path):
    path = write_vectors(tmp_path / "v.parquet", ["x"], unit_rows(1, 1), encoder=None)
    with pytest.raises(DataError, match=r"do not say which encoder.*mini@1"):
        read_given(path, encoder_id="mini@1")


@pytest.mark.parametrize("value", [np.nan, 0.0, 7.0])
def test_given_vectors_that_are_no_unit_vectors_are_refused(tmp_path, value):
    vectors = unit_rows(3, 1)
    vectors[1] = value
    path = write_vectors(tmp_path / "v.parquet", list("abc"), vectors)
    with pytest.raises(DataError, match=r"1 vectors are no unit vectors, the first in row 2"):
        read_given(path, encoder_id="mini@1")


def test_an_id_given_twice_over_several_files_is_an_error(file):
    with pytest.raises(DataError, match=r"stage1\.given: .*more than once: 'b'"):
        read_given([file("a.txt", b"a\nb\n"), file("b.txt", b"b\n")], encoder_id="mini@1")


def test_an_id_wanted_both_ways_or_too_many_are_config_errors(file):
    required = file("r.txt", b"a\nb\nc\n")
    with pytest.raises(ConfigError, match=r"names 3 ids, more than stage1\.k1 = 2"):
        read_wishes(Stage1Config(k1=2, required=required), encoder_id="e")
    for other in ({"forbidden": ["b"]}, {"given": file("g.txt", b"b\n")}):
        with pytest.raises(ConfigError, match="too: 'b'"):
            read_wishes(Stage1Config(required=required, **other), encoder_id="e")


def test_digests_follow_the_content_of_each_list(file):
    def digests(**keys):
        return read_wishes(Stage1Config(**keys), encoder_id="e").digests()

    assert digests() == {"required": None, "forbidden": None, "given": None}
    assert digests(required=["a"]) == digests(required=file("r.txt", b"a\n"))
    assert digests(required=["a"]) != digests(forbidden=["a"])


def rows_named(names):
    return Mapped(pa.array(list(names)), unit_rows(len(names), 1))


def test_limits_hold_the_rows_of_this_partition_only():
    config = Stage1Config(required=["d", "z", "a"], forbidden=["b", "y"], stop_at_negative=True)
    wishes = read_wishes(config, encoder_id="e")
    limits = limits_of(config, wishes, rows_named("abcd"), Sides())
    assert limits.allowed.tolist() == [True, False, True, True]
    assert limits.required.tolist() == [3, 0]
    assert limits.stop_at_negative
    assert (limits.groups, limits.costs, limits.budget) == (None, None, None)


def test_a_row_without_a_cost_is_not_allowed_and_cannot_be_required():
    config = Stage1Config(budget=3.0, required=["b"])
    sides = Sides(cost=np.array([1.0, np.inf, 2.0]), no_cost=1)
    limits = limits_of(config, Wishes(), rows_named("abc"), sides)
    assert limits.allowed.tolist() == [True, False, True]
    with pytest.raises(DataError, match=r"stage1\.required: 'b' .*no cost"):
        limits_of(config, read_wishes(config, encoder_id="e"), rows_named("abc"), sides)


def test_ids_that_are_no_rows_are_named_up_to_five_with_their_number():
    ids = [f"i{n}" for n in range(9)]
    with pytest.raises(DataError, match=r"7 of 9 ids .*'i2', 'i3', 'i4', 'i5', 'i6' and 2 more"):
        require_found(ids, np.arange(9) < 2, key="stage1.required")
    require_found(ids, np.ones(9, bool), key="stage1.required")


def test_required_rows_beyond_a_limit_are_refused_with_the_numbers():
    with pytest.raises(DataError, match=r"cost 5, more than stage1\.budget = 4"):
        require_within(Stage1Config(budget=4.0), Sides(cost=np.array([2.0, 3.0])))
    groups = Sides(group=pa.array(["g", None, None, None, "g", "g"]))
    with pytest.raises(DataError, match=r"3 are of group 'g', more than stage1\.max_per_group = 2"):
        require_within(Stage1Config(max_per_group=2), groups)
    require_within(Stage1Config(max_per_group=3, budget=9.0), groups)
