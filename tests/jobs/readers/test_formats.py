"""Files of every format: found out, read in bounded batches, and no line lost."""

import gzip
import io
import json
import re

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import ConfigError, DataError
from jobs.readers import batches, delimited
from jobs.readers.formats import ReadOptions, detect, read
from jobs.readers.json_records import read_jsonl
from tests.jobs.dirty import sentence

RECORDS = [{"text": sentence(i), "label": f"c{i % 3}"} for i in range(5)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
CSV = b"text,label\n" + b"".join(
    f'"{record["text"]}",{record["label"]}\n'.encode() for record in RECORDS
)


class Stream:
    """A file that gives at most `step` bytes at a time and cannot be sought in."""

    def __init__(self, raw, step=7):
        self._file, self._step = io.BytesIO(raw), step

    def read(self, size=-1, /):
        return self._file.read(self._step if size < 0 else min(size, self._step))


def load(raw, name="a.jsonl", **options):
    return list(read(io.BytesIO(raw), name, options=ReadOptions(**options)))


def records(found):
    return [record for batch in found for record in batch.records]


def bad(found):
    return [(line.line, line.reason) for batch in found for line in batch.bad]


def parquet(table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


# What a file is.


@pytest.mark.parametrize(
    ("raw", "name", "kind"),
    [
        (LINES, "a.jsonl", "jsonl"),
        (LINES, "a.json", "jsonl"),
        (LINES, "a.csv", "jsonl"),
        (LINES, "a", "jsonl"),
        (b"# note\n" + LINES, "a.json", "jsonl"),
        (b'{"text": "cut off\n' + LINES, "a.json", "jsonl"),
        (b'{"text":\n' + LINES, "a.json", "jsonl"),
        (LINES[:9], "a.jsonl", "jsonl"),
        (b"", "a", "jsonl"),
        (json.dumps(RECORDS, indent=1).encode(), "a.jsonl", "json"),
        (json.dumps(RECORDS).encode(), "a.jsonl", "json"),
        (json.dumps({"data": RECORDS}, indent=1).encode(), "a.jsonl", "json"),
        (json.dumps({"data": RECORDS}).encode(), "a.json", "json"),
        (b'{"data": [\n{"text": "a"},\n{"text": "b"}\n]}', "a.jsonl", "json"),
        (b'{"text": "a", "tags": []}', "a.json", "jsonl"),
        (b"[1]\n[2]\n", "a.jsonl", "jsonl"),
        (CSV, "a.csv", "csv"),
        (CSV, "a.txt", "csv"),
        (b"[text]\tlabel\na\tb\n", "a.tsv", "tsv"),
        (parquet(pa.table({"a": [1]})), "a.jsonl", "parquet"),
        (b"no parquet", "a.parquet", "parquet"),
    ],
)
def test_format_is_found_by_content_and_then_by_name(raw, name, kind):
    assert detect(raw, name).kind == kind
    packed = detect(gzip.compress(raw), name + ".gz")
    assert (packed.kind, packed.gzip) == (kind, True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(("text", "name"), [(LINES, "a.jsonl"), (CSV, "a.csv")])
def test_a_byte_order_mark_tells_the_encoding_and_is_no_part_of_the_text(encoding, text, name):
    raw = ("\ufeff" + text.decode()).encode(encoding)
    assert records(load(raw, name)) == RECORDS


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"PK\x03\x04rest", "zip archive or an Excel"),
        (b"\x28\xb5\x2f\xfd..", "zstandard"),
        (gzip.compress(gzip.compress(LINES)), "gzip inside gzip"),
        (b"\x00\x01\x02", "neither content nor name"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(raw, what):
    with pytest.raises(DataError, match=rf"data\.bin.*{what}"):
        load(raw, "data.bin")


def test_text_that_only_begins_like_another_format_is_read():
    assert records(load(b"ORC,label\na,b\n", "a.csv")) == [{"ORC": "a", "label": "b"}]


def test_a_format_that_contradicts_the_content_is_refused():
    with pytest.raises(DataError, match="set to jsonl, but the file looks like parquet"):
        load(parquet(pa.table({"a": [1]})), "a", format="jsonl")
    with pytest.raises(DataError, match="set to parquet, but the file looks like jsonl"):
        load(LINES, "a", format="parquet")


def test_an_unknown_encoding_is_a_config_error():
    with pytest.raises(ConfigError, match="'utf8x' is unknown"):
        load(LINES, encoding="utf8x")


# JSON lines.


def test_a_bad_line_costs_that_line_only():
    raw = b'\n{"a": 1}\n// x\n{"a": 1,}\n[1]\n"s"\n{"a": "\xff"}\n{"a": [1, 2\n \r\n{"a": 2}'
    found = load(raw)
    assert records(found) == [{"a": 1}, {"a": 2}]
    assert found[0].lines == [2, 10]
    assert found[0].n_blank == 2
    assert bad(found) == [
        (3, "comment"),
        (4, "not_json"),
        (5, "not_object"),
        (6, "not_object"),
        (7, "bad_encoding"),
        (8, "truncated_line"),
    ]


@pytest.mark.parametrize(
    "line", [b'{"a": ' + b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\x01"}']
)
def test_json_that_python_refuses_is_a_bad_line(line):
    found = load(line + b"\n" + LINES)
    assert [number for number, _ in bad(found)] == [1]
    assert records(found) == RECORDS


def test_a_line_above_the_limit_is_reported_and_never_held():
    raw = LINES + b'{"text": "' + b"x" * 5000 + b'"}\n' + LINES
    found = load(raw, max_record_bytes=1000)
    assert records(found) == RECORDS + RECORDS
    assert bad(found) == [(6, "too_large")]
    assert len(found[0].bad[0].excerpt) == 200


def test_not_finite_literals_become_null_and_are_counted():
    found = load(b'{"a": NaN, "b": [Infinity, -Infinity]}\n')
    assert records(found) == [{"a": None, "b": [None, None]}]
    assert found[0].notes == {"json_not_finite_as_null": 3}


def test_batches_are_bounded_in_rows_and_bytes(monkeypatch):
    monkeypatch.setattr(batches, "MAX_BATCH_ROWS", 7)
    sizes = [len(batch) for batch in load(LINES * 4)]
    assert sizes == [7, 7, 6]
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 200)
    assert max(len(batch) for batch in load(LINES * 4)) <= 3


@given(st.binary(max_size=400) | st.lists(st.sampled_from(LINES.split(b"\n"))).map(b"\n".join))
@settings(deadline=None)
def test_every_line_of_any_bytes_is_a_record_or_bad_or_blank(raw):
    found = list(read_jsonl(io.BytesIO(raw), options=ReadOptions()))
    n_lines = raw.count(b"\n") + (raw != b"" and not raw.endswith(b"\n"))
    assert sum(len(one) + len(one.bad) + one.n_blank for one in found) == n_lines


@given(st.lists(st.sampled_from(["1,2", '"1\n2",3', "1", "", '4,"5', '"6"7,8', "\xff,1"])))
@settings(deadline=None)
def test_every_line_of_a_csv_file_is_in_a_record_or_bad_or_blank(lines):
    raw = "".join(f"{line}\n" for line in ["a,b", *lines]).encode("latin-1")
    found = load(raw, "a.csv")
    starts = sorted(
        [line for one in found for line in one.lines] + [number for number, _ in bad(found)]
    )
    n_inside = sum(cell.count("\n") for record in records(found) for cell in record.values())
    n_inside += sum(_lines_inside(line.detail) for one in found for line in one.bad)
    n_blank = sum(one.n_blank for one in found)
    assert len(set(starts)) == len(starts)
    assert len(starts) + n_inside + n_blank == raw.count(b"\n") - 1


def _lines_inside(detail):
    spans = re.search(r"lines (\d+) to (\d+), read as one record", detail)
    return int(spans[2]) - int(spans[1]) if spans else 0


@given(
    st.binary(max_size=300),
    st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "a.jsonl.gz", "a"]),
    st.sampled_from([b"", b"[", b'{"a": [{"b":', b"\x1f\x8b\x08\x00", b"PAR1", b"\xff\xfe", b'"']),
)
@settings(deadline=None, max_examples=300)
def test_no_bytes_raise_anything_but_a_data_error(raw, name, start):
    try:
        found = load(start + raw, name)
    except DataError:
        return
    assert all(len(one) == len(one.records) for one in found)


@given(st.integers(1, 40))
@settings(deadline=None)
def test_the_pieces_in_which_bytes_arrive_do_not_matter(step):
    for raw, name in ((LINES, "a.jsonl"), (CSV, "a.csv"), (json.dumps(RECORDS).encode(), "a.json")):
        assert records(read(Stream(raw, step), name, options=ReadOptions())) == RECORDS
    packed = Stream(gzip.compress(LINES), step)
    assert records(read(packed, "a", options=ReadOptions())) == RECORDS


@pytest.mark.parametrize("file_system", [pafs.LocalFileSystem(), fsspec.filesystem("file")])
def test_files_of_arrow_and_fsspec_file_systems_are_read(file_system, tmp_path):
    table = pa.Table.from_pylist(RECORDS)
    for name, raw in {"a.jsonl": gzip.compress(LINES), "a.parquet": parquet(table)}.items():
        path = tmp_path / name
        path.write_bytes(raw)
        arrow = isinstance(file_system, pafs.LocalFileSystem)
        opened = file_system.open_input_file if arrow else file_system.open
        with opened(str(path)) as file:
            found = list(read(file, name, options=ReadOptions()))
        assert [text for one in found for text in one.column("text")] == table["text"].to_pylist()


# Gzip.


@pytest.mark.parametrize("cut", [12, 40, -9, -1])
def test_gzip_that_ends_early_is_refused(cut):
    with pytest.raises(DataError, match=r"a\.jsonl\.gz: the gzip stream is truncated"):
        load(gzip.compress(LINES * 50)[:cut], "a.jsonl.gz")


def test_damaged_gzip_is_refused():
    raw = bytearray(gzip.compress(LINES * 50))
    raw[len(raw) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"a\.jsonl\.gz.*(damaged|truncated)"):
        load(bytes(raw), "a.jsonl.gz")


def test_gzip_of_several_members_is_read_to_the_end():
    assert records(load(gzip.compress(LINES) * 3)) == RECORDS * 3


# JSON documents.


def test_array_elements_that_are_no_objects_are_reported_by_number():
    found = load(b'[{"a": 1}, 7, {"a": NaN}, [2]]', "a.json")
    assert records(found) == [{"a": 1}, {"a": None}]
    assert found[0].lines == [1, 3]
    assert bad(found) == [(2, "not_object"), (4, "not_object")]


@pytest.mark.parametrize("raw", [b"[]", b" [ ] ", b'{"data": []}', b'{"v": 1, "data": [ ]}', b""])
def test_a_document_without_records_has_none(raw):
    assert records(load(raw, "a.json", format="json")) == []


def test_several_arrays_need_a_records_key():
    raw = json.dumps({"train": RECORDS, "n": 5, "ids": [1, 2], "test": RECORDS[:2]}).encode()
    with pytest.raises(DataError, match=r"'train', 'test'.*records_key"):
        load(raw, "a.json")
    assert records(load(raw, "a.json", records_key="test")) == RECORDS[:2]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'[{"a": 1}, {"a"', "truncated"),
        (b'[{"a": 1}', "truncated"),
        (b'[{"a": 1} {"a": 2}]', "expected one of"),
        (b'[{"a": 1}] x', "more text after the end"),
        (b'[{"a": 1, }]', "not a JSON document"),
        (b'[{"a": "\xff"}]', "not utf-8"),
        (b'{"a": 1}', "without an array of objects"),
        (b"{a: 1}", "expected a key"),
        (b"{}", "its keys are: none"),
    ],
)
def test_a_broken_document_is_refused_with_the_place(raw, why):
    with pytest.raises(DataError, match=rf"a\.json: .*{why}"):
        load(raw, "a.json", format="json")


def test_a_lone_surrogate_in_a_document_is_not_mended_in_silence():
    assert records(load(rb'[{"a": "\ud800"}]', "a.json")) == [{"a": "\ud800"}]


# CSV.


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_taken_from_the_header(delimiter):
    raw = delimiter.join(["text", "label", "n"]) + "\n" + delimiter.join(["a b", "c", "1"]) + "\n"
    assert records(load(raw.encode(), "a.csv")) == [{"text": "a b", "label": "c", "n": "1"}]


def test_rows_with_too_few_or_too_many_fields_are_reported_by_line():
    raw = b'a,b\n1,2\n\n"x\ny",2\n3\n1,2,3\n"p\nq"\n   \n4,5\n'
    found = load(raw, "a.csv")
    assert records(found) == [{"a": "1", "b": "2"}, {"a": "x\ny", "b": "2"}, {"a": "4", "b": "5"}]
    assert found[0].lines == [2, 4, 11]
    assert bad(found) == [
        (6, "wrong_field_count"),
        (7, "wrong_field_count"),
        (8, "wrong_field_count"),
    ]
    assert "lines 8 to 9" in found[0].bad[2].detail
    assert found[0].n_blank == 2


def test_a_quote_that_is_never_closed_costs_one_line_not_the_rest():
    raw = b'a,b\n1,"2\n3,4\n5,"6\n7"\n8,9\n'
    found = load(raw, "a.csv")
    assert bad(found) == [(2, "open_quote")]
    assert records(found) == [
        {"a": "3", "b": "4"},
        {"a": "5", "b": "6\n7"},
        {"a": "8", "b": "9"},
    ]
    found = load(b'a,b\n1,2\n3,"4\n5,6\n7,8', "a.csv")
    assert bad(found) == [(3, "open_quote")]
    assert [record["a"] for record in records(found)] == ["1", "5", "7"]


def test_a_quote_open_for_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(delimited, "MAX_OPEN_CHARS", 200)
    raw = b'a,b\n1,"2\n' + b"3,4\n" * 400 + b'5,"6"\n'
    found = load(raw, "a.csv")
    assert bad(found) == [(2, "open_quote")]
    assert len(records(found)) == 401


def test_a_quote_in_the_wrong_place_costs_its_line():
    found = load(b'a,b\n"1" x,2\n3,6" pipe\n', "a.csv")
    assert bad(found) == [(2, "bad_csv")]
    assert records(found) == [{"a": "3", "b": '6" pipe'}]


def test_quotes_open_all_over_a_file_are_a_file_fault(monkeypatch):
    monkeypatch.setattr(delimited, "MAX_OPEN_CHARS", 500)
    raw = b"a,b,c\n" + b'x"y,z,"w\n' * 300
    with pytest.raises(DataError, match=r"a\.csv: quotes that are not closed.*quote: null"):
        load(raw, "a.csv")
    assert len(records(load(raw, "a.csv", quote=None))) == 300


def test_bad_bytes_in_csv_cost_their_record_only():
    found = load(b"a,b\n1,caf\xe9\n2,x\n", "a.csv")
    assert bad(found) == [(2, "bad_encoding")]
    assert records(found) == [{"a": "2", "b": "x"}]
    assert records(load(b"a,b\n1,caf\xe9\n", "a.csv", encoding="cp1252")) == [
        {"a": "1", "b": "café"}
    ]


def test_a_long_csv_line_is_reported_and_a_long_field_is_read():
    raw = b"a,b\n1," + b"x" * 200_000 + b"\n2,y\n"
    assert len(records(load(raw, "a.csv"))[0]["b"]) == 200_000
    found = load(raw, "a.csv", max_record_bytes=1000)
    assert bad(found) == [(2, "too_large")]
    assert records(found) == [{"a": "2", "b": "y"}]


@pytest.mark.parametrize(
    ("header", "names"),
    [(False, ["column_1", "column_2"]), (("p", "q"), ["p", "q"]), (True, ["1", "2"])],
)
def test_a_file_without_a_header_line_can_be_read(header, names):
    found = load(b"1,2\n3,4\n", "a.csv", header=header)
    n_rows = 1 if header is True else 2
    assert [list(record) for record in records(found)] == [names] * n_rows
    assert found[0].lines[-1] == 2


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"a,b,a\n1,2,3\n", "'a' more than once"),
        (b'a,"b\n1,2\n', "header .line 1. is no CSV.*quote: null"),
        (b"caf\xe9,b\n1,2\n", "header cannot be read.*encoding"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(raw, why):
    with pytest.raises(DataError, match=rf"a\.csv: .*{why}"):
        load(raw, "a.csv")


def test_lines_that_end_in_carriage_returns_only_are_split():
    assert records(load(b"a,b\r1,2\r3,4\r", "a.csv")) == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]


CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.tuples(CELL, CELL), max_size=8))
@settings(deadline=None)
def test_what_a_csv_writer_quotes_comes_back_whole(rows):
    quoted = ["".join(f'"{cell.replace(chr(34), chr(34) * 2)}",' for cell in row) for row in rows]
    raw = "".join(["a,b\n", *(f"{line[:-1]}\n" for line in quoted)]).encode()
    found = load(raw, "a.csv")
    assert bad(found) == []
    assert [tuple(record.values()) for record in records(found)] == rows


# Parquet.


def test_parquet_is_streamed_in_bounded_batches_of_the_wanted_columns():
    n = 10_000
    table = pa.table({"text": [f"{i}" for i in range(n)], "big": ["x" * 50] * n})
    found = load(parquet(table, row_group_size=6000), "a.parquet", columns=("text",))
    assert [line for batch in found for line in batch.lines] == list(range(1, n + 1))
    assert max(map(len, found)) <= 4096
    assert [text for batch in found for text in batch.column("text")] == table["text"].to_pylist()
    assert found[0].columns == ("text", "big")
    assert found[0].records.column_names == ["text"]


def test_long_texts_make_smaller_parquet_batches():
    table = pa.table({"text": [f"{i:06}" * 20_000 for i in range(300)]})
    assert max(map(len, load(parquet(table, use_dictionary=False), "a.parquet"))) < 100


@pytest.mark.parametrize("cut", [3, 100, -1, -8])
def test_parquet_that_is_cut_off_is_refused(cut):
    whole = parquet(pa.table({"text": [sentence(i) for i in range(100)]}))
    with pytest.raises(DataError, match=r"a\.parquet: not a whole Parquet file"):
        load(whole[:cut], "a.parquet")


def test_parquet_with_a_name_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match="'a' more than once"):
        load(parquet(table), "a.parquet")


def test_a_network_fault_is_not_taken_for_a_damaged_file():
    class Broken(io.BytesIO):
        def seek(self, *_):
            raise OSError("AWS Error SLOW_DOWN during GetObject")

    with pytest.raises(OSError, match="SLOW_DOWN"):
        list(read(Broken(parquet(pa.table({"a": [1]}))), "a.parquet", options=ReadOptions()))
