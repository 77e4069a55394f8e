import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.files import streams
from jobs.files.streams import ObjectReader

DATA = bytes(range(256)) * 40
moves = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 3000)),
        st.tuples(st.just("seek"), st.integers(0, len(DATA) + 10)),
        st.tuples(st.just("end"), st.integers(-len(DATA), 0)),
        st.tuples(st.just("into"), st.integers(0, 3000)),
    ),
    max_size=20,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(streams, "READ_AHEAD_BYTES", 500)
    monkeypatch.setattr(streams, "MOST_READ_AHEAD_BYTES", 2000)


def reader():
    spans = []

    def fetch(start, end):
        assert 0 <= start < end <= len(DATA)
        spans.append((start, end))
        return DATA[start:end]

    return ObjectReader(fetch, len(DATA)), spans


def act(file, move):
    kind, number = move
    if kind == "read":
        return file.read(number)
    if kind == "into":
        buffer = bytearray(number)
        return file.readinto(buffer), bytes(buffer)
    return file.seek(number, io.SEEK_SET if kind == "seek" else io.SEEK_END)


@settings(deadline=None, max_examples=60)
@given(moves)
def test_it_reads_as_a_file_in_memory_does(steps):
    mine, _ = reader()
    theirs = io.BytesIO(DATA)
    for step in steps:
        assert act(mine, step) == act(theirs, step)
        assert mine.tell() == theirs.tell()


def test_reading_on_fetches_every_byte_once_and_ever_more_at_a_time():
    file, spans = reader()
    assert b"".join(iter(lambda: file.read(100), b"")) == DATA
    assert [end - start for start, end in spans[:3]] == [500, 1000, 2000]
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]


def test_a_jump_fetches_little():
    file, spans = reader()
    file.seek(-8, io.SEEK_END)
    file.read(8)
    file.seek(0)
    file.read(4)
    assert spans == [(len(DATA) - 8, len(DATA)), (0, 500)]


def test_an_empty_object_is_an_empty_file():
    assert ObjectReader(lambda *_: pytest.fail("asked for nothing"), 0).read() == b""
